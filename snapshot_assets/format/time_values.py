"""Dates and timestamps of all years as text and back: exact, as PostgreSQL reads them (FORMAT.md, section 4)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, since 1970
_MOST = (1 << 63) - 1
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_TEXT = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?Z?( BC)?")


# Arrow formats and parses the years 1 to 9999. The others, which are rare, are converted one by one.


def time_to_text(array: pa.Array) -> pa.Array:
    """Return dates or timestamps as strings; NULL stays NULL."""
    kind = array.type
    local = array.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else array
    # With a zone, Arrow's cast takes 25 times as long; every zone here is UTC.
    if pa.types.is_timestamp(kind):
        ticks, numbers = 86_400 * 10 ** _DIGITS[kind.unit], array.cast(pa.int64())  # of a day, and since 1970
    else:
        ticks, numbers = 1, array.cast(pa.int32()).cast(pa.int64())
    first, last = (max(_FIRST_DAY * ticks, -_MOST), min((_LAST_DAY + 1) * ticks - 1, _MOST))
    usual = pc.and_(pc.greater_equal(numbers, pa.scalar(first)), pc.less_equal(numbers, pa.scalar(last)))
    all_usual = pc.all(usual).as_py() is not False
    texts = (local if all_usual else pc.if_else(usual, local, pa.scalar(None, local.type))).cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    if all_usual:
        return texts
    odd = pc.invert(usual).fill_null(False)
    written = [written_time(number, kind) for number in numbers.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(written, pa.string()))


def text_to_time(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the dates or timestamps that `time_to_text` wrote, with a space or a T before the time."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        digits = _DIGITS[kind.unit] if pa.types.is_timestamp(kind) else None
        read = [None if text is None else _read(text, digits) for text in texts.to_pylist()]
        return pa.array(read, pa.int32() if digits is None else pa.int64()).cast(kind)


def written_time(number: int, kind: pa.DataType) -> str:
    """Return the text of a date or timestamp, given as Arrow's integer."""
    if pa.types.is_date32(kind):
        return "".join(_day_text(number))
    second = 10 ** _DIGITS[kind.unit]
    days, rest = divmod(number, 86_400 * second)
    day, era = _day_text(days)
    seconds, fraction = divmod(rest, second)
    zone = "Z" if kind.tz else ""
    fractional = f".{fraction:0{_DIGITS[kind.unit]}d}" if _DIGITS[kind.unit] else ""
    return f"{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fractional}{zone}{era}"


def _day_text(days: int) -> tuple[str, str]:
    """Return a day of the proleptic Gregorian calendar, and its era."""
    era, of_era = divmod(days + 719_468, 146_097)  # days since 0000-03-01, and eras of 400 years
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}", "" if year > 0 else " BC"


def _read(text: str, digits: int | None) -> int:
    """Return a day since 1970, or with the digits of a fraction the ticks since then."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise pa.ArrowInvalid(f"{text!r} is no date or time")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    year = (1 - year if match[8] else year) - (month <= 2)
    era, year_of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468
    if digits is None:
        return days
    seconds = days * 86_400 + int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    fraction = int((match[7] or "").ljust(digits, "0") or 0)
    ticks: int = seconds * 10**digits + fraction
    return ticks
