"""Parses durations, sizes and times, and writes the canonical text of each, and of counts.

Parsers never guess: a wrong size or time would create another snapshot than the intended one. They refuse by a
PlanError, which names the value and shows a valid example.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from snapshot_assets.errors import PlanError

_SHOWN = 5


def number_text(number: int) -> str:
    """Return a number as people read it, such as `2,770`."""
    return f"{number:,}"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return a count as text, such as `1 file` or `2,770 files`; `things` is a plural other than `thing` and an `s`."""
    return f"{number_text(number)} {noun(number, thing, things)}"


def noun(number: int, thing: str, things: str | None = None) -> str:
    """Return the noun, or verb, for a number: the first at 1, else the second; see `counted`."""
    return thing if number == 1 else things or f"{thing}s"


def some_text(names: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    more = f" and {number_text(len(names) - _SHOWN)} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


_DURATION = re.compile(r"(\d{1,18})([smhdw])", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_CANONICAL_UNITS = ("d", "h", "m", "s")  # no weeks: `7d` and `30d` are easier to compare

_SIZE = re.compile(r"(\d{1,19}) ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?", re.ASCII)
_BYTES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MAX_SIZE = (1 << 63) - 1
MIN_FILE_SIZE, MAX_FILE_SIZE = 16 << 20, 4 << 30
"""Limits of the size at which a data file is closed, in bytes."""
MIN_TEXT_SIZE = 64 << 10
"""The lower limit for text, which has no row groups."""

_SHARE = re.compile(r"\d{1,3}(?:\.\d{1,6})?%", re.ASCII)

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME_EXAMPLE = (
    "write a date, or an RFC 3339 time with its zone, such as 2013-01-01T00:00:00Z or 2013-01-01T01:00:00+01:00"
)


def parse_duration(text: object) -> timedelta:
    """Return the duration of a text such as `90m`: a whole number and one of `s`, `m`, `h`, `d`, `w`."""
    if isinstance(text, timedelta):
        if text < timedelta(0) or text.microseconds:
            raise PlanError(f"duration {text} is not a whole number of seconds from 0 up")
        return text
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PlanError(
            f"{text!r} is not a duration; write a whole number and one unit of s, m, h, d, w, such as 90m, 6h or 7d"
        )
    try:
        return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        raise PlanError(f"duration {text!r} is longer than {timedelta.max.days}d, the longest there is") from None


def duration_text(duration: timedelta) -> str:
    """Return the canonical text of a duration: the largest of `d`, `h`, `m`, `s` that divides it."""
    seconds = int(parse_duration(duration).total_seconds())
    unit = next((unit for unit in _CANONICAL_UNITS if seconds and seconds % _SECONDS[unit] == 0), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


def parse_size(value: object) -> int:
    """Return the bytes of a size such as `256MiB`; all units are multiples of 1024, also `MB`, as in PostgreSQL."""
    if isinstance(value, int) and not isinstance(value, bool):
        size: int | None = value
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        size = int(match[1]) * _BYTES[match[2] or "B"] if match else None
    if size is None or size < 0:
        raise PlanError(
            f"{value!r} is not a size; write whole bytes, or digits and one unit of B, KiB, MiB, GiB, "
            "TiB (case matters; kB, MB, GB and TB are the same multiples of 1024), such as 256MiB"
        )
    if size > _MAX_SIZE:
        raise PlanError(f"size {value!r} is more than {_MAX_SIZE} bytes, the largest there is")
    return size


def parse_file_size(text: object, least: int = MIN_FILE_SIZE) -> int:
    """Return the bytes at which a data file is closed, within limits; see `parse_size`."""
    size = parse_size(text)
    if not least <= size <= MAX_FILE_SIZE:
        raise PlanError(f"file size {size_text(size)} is not between {size_text(least)} and {size_text(MAX_FILE_SIZE)}")
    return size


def size_text(size: int) -> str:
    """Return the canonical text of a size: the largest unit that divides it."""
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if size and size % _BYTES[unit] == 0), "B")
    return f"{size // _BYTES[unit]}{unit}"


def parse_share(text: str) -> Fraction:
    """Return the share of a text such as `5%` or `0.5%`: greater than 0, and at most 1."""
    share = Fraction(text[:-1]) / 100 if _SHARE.fullmatch(text) else Fraction(0)
    if not 0 < share <= 1:
        raise PlanError(f"{text!r} is not a share; write a percentage above 0% and up to 100%, such as 5% or 0.5%")
    return share


def parse_time(text: object) -> datetime:
    """Return the instant of an RFC 3339 text with seconds, up to microseconds, and a zone, in UTC."""
    if isinstance(text, datetime):
        return to_utc(text)
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PlanError(f"{text!r} is not a time; {_TIME_EXAMPLE}")
    date, clock, fraction, zone = match.groups()
    if zone is None:
        raise PlanError(f"time {text!r} has no zone; append Z for UTC or an offset such as +01:00")
    if fraction and fraction[6:].strip("0"):
        raise PlanError(f"time {text!r} is finer than a microsecond; write at most six digits after the point")
    offset = "+00:00" if zone in "Zz" else zone
    try:
        return to_utc(datetime.fromisoformat(f"{date}T{clock}.{(fraction or '0')[:6]:0<6}{offset}"))
    except ValueError as error:
        raise PlanError(f"time {text!r} does not exist ({error}); {_TIME_EXAMPLE}") from None


def parse_given_time(text: object) -> datetime:
    """Return the instant that a user gives: as in `parse_time`, or a date, which is its midnight in UTC."""
    if isinstance(text, str) and _DATE.fullmatch(text):
        try:
            text = date.fromisoformat(text)
        except ValueError as error:
            raise PlanError(f"date {text!r} does not exist ({error}); write one such as 2013-01-01") from None
    if isinstance(text, date) and not isinstance(text, datetime):
        return datetime(text.year, text.month, text.day, tzinfo=UTC)
    return parse_time(text)


def human_bytes(size: float) -> str:
    """Return a size in bytes as text, in units of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


_TWO_DAYS = 48 * 60
"""In minutes; from here on, days are shown."""


def human_seconds(seconds: float) -> str:
    """Return a duration in seconds as text of one or two units, such as `5 s`, `12 min`, `3 h 20 min` or `4 d 2 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    if minutes < _TWO_DAYS:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def time_text(instant: datetime) -> str:
    """Return the canonical text of an instant (see `to_utc`): `Z`, and a fraction without trailing zeros, if any."""
    utc = to_utc(instant).replace(tzinfo=None)
    text = utc.isoformat(timespec="microseconds" if utc.microsecond else "seconds")
    return (text.rstrip("0") if utc.microsecond else text) + "Z"


_UTC = re.compile(
    r"""
      Z | UT
    | (?:Etc/)? (?: UTC | UCT | GMT (?:[+-]?0)? | Greenwich | Universal | Zulu )
    | (?:UTC|GMT|UT)? [+-] (?: 0{1,2} (?: :0{1,2} ){0,2} | 0000 (?:00)? )
    """,
    re.VERBOSE,
)


def is_utc(zone: str) -> bool:
    """Return whether a time zone is UTC: by a name of the IANA database or of Java, or as an offset of zero.

    Spark accepts all of these, such as `UTC`, `Etc/UTC`, `GMT`, `Zulu`, `Z`, `+00:00` and `UTC+0`.
    """
    return _UTC.fullmatch(zone) is not None


def to_utc(instant: datetime) -> datetime:
    """Return an aware instant in UTC; raise a PlanError if it has no zone, or is outside the years 1 to 9999."""
    if instant.utcoffset() is None:
        raise PlanError(f"time {instant} has no zone; give an aware datetime, such as one with tzinfo=UTC")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise PlanError(f"time {instant} lies outside the years 1 to 9999 in UTC") from None
