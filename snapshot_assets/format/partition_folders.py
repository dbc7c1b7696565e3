"""Folders of partitions, `<column>=<value>` one in another, written as Hive writes them (FORMAT.md, section 1)."""

from __future__ import annotations

import re

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Stands for NULL and for an empty text, which Hive does not tell apart."""
MAX_FOLDER_BYTES = 255
"""Most bytes of one folder's name: more than that no file system takes."""

_ESCAPED = r"\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^"
_TO_ESCAPE = re.compile(rf"[{_ESCAPED}]")
_TEXT = rf"(?:[^{_ESCAPED}]|%[0-9A-F]{{2}})+"
FOLDERS = rf"(?:{_TEXT}={_TEXT}/)*"
"""Pattern of the folders between a chunk's folder and a data file, each with its slash; there may be none."""


def partition_folder(column: str, value: str | None) -> str:
    """Return the folder of the rows with a value, given as text: `country=DE`.

    Args:
        column: The column.
        value: Its value as text; None for NULL.
    """
    return f"{_escaped(column)}={_escaped(value) if value else NO_VALUE}"


def _escaped(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)
