"""Encodings in which a PostgreSQL database of encoding SQL_ASCII may hold its texts.

They have one byte for each character. So a character class tells the bytes that an encoding lacks, and arrays and
composite values are decoded as one text. Python and PostgreSQL know them by the same names.
"""

from __future__ import annotations

import codecs
import re

from snapshot_assets.errors import PlanError

_KNOWN = re.compile(r"iso8859-(?!11)\d+|windows-125\d|koi8-[ru]")
_UTF8 = (  # SQL_ASCII takes each byte for a character
    r"[\x01-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)


def parse_encoding(name: object) -> str:
    """Return the name of an encoding that is written in any of its ways, such as `latin1` or `WIN1252`.

    Raises:
        PlanError: It is not one of the encodings.
    """
    try:
        found = codecs.lookup(re.sub(r"(?i)^win(?=\d)", "cp", str(name))).name.replace("cp", "windows-")
    except (LookupError, ValueError):
        found = ""
    if not _KNOWN.fullmatch(found):
        raise PlanError(
            f"is {name!r}, not an encoding of one byte for each character; write such as latin1 (ISO 8859-1),"
            " latin9, windows-1252 or koi8-r"
        )
    return found


def valid_start(encoding: str | None) -> str:
    """Return PostgreSQL's regular expression of the longest start of a text that is valid; None is UTF-8."""
    if encoding is None:
        return f"^(?:{_UTF8})*"
    lacking = [byte for byte in range(0x80, 0x100) if not bytes([byte]).decode(encoding, errors="ignore")]
    character = "".join(["[^", *(rf"\x{byte:02x}" for byte in lacking), "]"]) if lacking else "."
    return f"^(?:{character})*"
