"""Encodings in which a PostgreSQL database of encoding SQL_ASCII may hold its texts, as the configuration names them.

They have one byte for each character. So a character class tells the bytes that an encoding lacks, and arrays and
composite values are decoded as one text.
"""

from __future__ import annotations

import re

from snapshot_assets.errors import PlanError

_ISO = {1: "LATIN1", 2: "LATIN2", 3: "LATIN3", 4: "LATIN4", 9: "LATIN5", 10: "LATIN6", 13: "LATIN7", 14: "LATIN8"}
_ISO |= {15: "LATIN9", 16: "LATIN10"} | {part: f"ISO_8859_{part}" for part in (5, 6, 7, 8)}
_CODECS = {
    **{name: f"iso8859-{part}" for part, name in _ISO.items()},
    **{f"WIN{page}": f"cp{page}" for page in (*range(1250, 1259), 866, 874)},
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
}
"""Python's codecs by PostgreSQL's names. Both define the same bytes, as the same characters."""


def parse_encoding(name: object) -> str:
    """Return PostgreSQL's name of an encoding; `latin1`, `ISO-8859-1` and `windows-1252` are accepted too.

    Raises:
        PlanError: It is not one of the encodings.
    """
    plain = re.sub(r"[^A-Z0-9]", "", name.upper()) if isinstance(name, str) else ""
    plain = re.sub(r"^(?:WINDOWS|CP)(?=\d)", "WIN", plain)
    known = {each.replace("_", ""): each for each in _CODECS}
    known |= {f"ISO8859{part}": each for part, each in _ISO.items()}
    if plain not in known:
        raise PlanError(f"is {name!r}, not one of the encodings {', '.join(_CODECS)}")
    return known[plain]


def codec(encoding: str) -> str:
    """Return Python's codec of an encoding."""
    return _CODECS[encoding]


def character_class(encoding: str) -> str:
    """Return the regular expression of one byte that an encoding defines."""
    undefined = [byte for byte in range(1, 256) if not bytes([byte]).decode(_CODECS[encoding], errors="ignore")]
    return "".join(["[^", *(rf"\x{byte:02x}" for byte in undefined), "]"]) if undefined else "."
