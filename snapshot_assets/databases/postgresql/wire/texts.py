"""Encodes values that travel as the text of their type's output function, under the settings of `session`."""

from __future__ import annotations

import socket
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.postgresql.wire.numbers import (
    Encoder,
    binary,
    fixed,
    joined,
    numeric_texts,
    parts,
    replaced,
)

_UNITS = pa.array(["year", "years", "mon", "mons", "day", "days"])
_MONTHS_OR_DAYS = np.array([12, 12, 1, 1, 1, 1])
_INFINITE = {"infinity": (2**63 - 1, 2**31 - 1, 2**31 - 1), "-infinity": (-(2**63), -(2**31), -(2**31))}
_NO_INTERVAL = "A text is not an interval in PostgreSQL's own style."
_INTERVAL = np.dtype([("time", ">i8"), ("days", ">i4"), ("months", ">i4")])
_FOUR, _SIX = 2, 3
"""PostgreSQL's numbers of the families of addresses."""
_BOOLEANS = pa.array(["f", "t"])
_HEX = np.full(256, 255, np.uint8)
_HEX[[ord(figure) for figure in "0123456789abcdef"]] = range(16)


def plain(texts: pa.Array) -> pa.Array:
    """Encode texts as they are."""
    return texts.cast(pa.binary())


def versioned(texts: pa.Array) -> pa.Array:
    """Encode texts after the version of their form, 1."""
    return joined(b"\x01", texts.cast(pa.binary()))


def booleans(texts: pa.Array) -> pa.Array:
    """Encode `t` and `f`."""
    codes = pc.index_in(texts, _BOOLEANS)
    if codes.null_count != texts.null_count:
        raise ValueError("A text is neither t nor f.")
    return fixed(codes.fill_null(0).to_numpy().astype(np.uint8), texts)


def numbers(arrow_type: pa.DataType, texts: pa.Array) -> pa.Array:
    """Encode numbers of a fixed width."""
    values = texts.cast(arrow_type).fill_null(0).to_numpy()
    return fixed(values.astype(values.dtype.newbyteorder(">")), texts)


def octets(count: int, texts: pa.Array) -> pa.Array:
    """Encode bytes in hexadecimal form, each two digits; what separates them stands at the same places in all texts."""
    offsets, data = parts(texts)
    if ((np.diff(offsets) == 0) & texts.is_valid().to_numpy(zero_copy_only=False)).any():
        raise ValueError("A text is empty.")
    width = int(np.diff(offsets).max(initial=0))
    if not width:
        return fixed(np.zeros((len(texts), count), np.uint8), texts)
    if len(data) != width * (len(texts) - texts.null_count):
        raise ValueError("The texts are not of one length.")
    figures = _HEX[data].reshape(-1, width)
    figures = figures[:, (figures != 255).all(axis=0)]
    if figures.shape[1] != 2 * count:
        raise ValueError(f"The texts do not hold {count} bytes in hexadecimal form.")
    values = (figures[:, 0::2] << 4) | figures[:, 1::2]
    return binary(np.concatenate([[0], np.cumsum(np.diff(offsets) > 0)]) * count, values, texts)


def addresses(texts: pa.Array) -> pa.Array:
    """Encode `inet` and `cidr`; addresses of version 6 one by one."""
    six = pc.fill_null(pc.match_substring(texts, ":"), False)
    four = pc.if_else(six, "0.0.0.0", pc.fill_null(texts, "0.0.0.0"))
    numbers = pc.split_pattern(pc.replace_substring(four, "/", "."), ".")
    offsets = numbers.offsets.to_numpy()
    values = numbers.flatten().cast(pa.uint8()).to_numpy()
    slashed = pc.match_substring(four, "/").to_numpy(zero_copy_only=False)
    if (np.diff(offsets) != 4 + slashed).any():
        raise ValueError("A text is not an address of four numbers.")
    rows = np.empty((len(texts), 8), np.uint8)
    rows[:, [0, 1, 2, 3]] = _FOUR, 32, 0, 4
    rows[slashed, 1] = values[offsets[1:][slashed] - 1]
    for place in range(4):
        rows[:, 4 + place] = values[offsets[:-1] + place]
    return replaced(fixed(rows, texts), six.to_numpy(zero_copy_only=False), texts, _address)


def _address(text: str) -> bytes:
    address, _, bits = text.partition("/")
    return bytes([_SIX, int(bits or 128), 0, 16]) + socket.inet_pton(socket.AF_INET6, address)


def intervals(texts: pa.Array) -> pa.Array:
    """Encode `interval`: microseconds, days and months."""
    words = pc.split_pattern(pc.fill_null(texts, ""), " ")
    row, word = words.value_parent_indices().to_numpy(), words.flatten()
    rows = np.zeros(len(texts), _INTERVAL)
    unit = pc.fill_null(pc.index_in(word, _UNITS), -1).to_numpy()
    at = np.flatnonzero(unit >= 0)
    if (at == 0).any() or (row[at - 1] != row[at]).any():
        raise ValueError(_NO_INTERVAL)
    counts = _whole(word.take(pa.array(at - 1))) * _MONTHS_OR_DAYS[unit[at]]
    of_months = unit[at] < 4
    for field, chosen in (("months", of_months), ("days", ~of_months)):
        rows[field] = np.bincount(row[at[chosen]], counts[chosen], len(texts))
    timed = pc.match_substring(word, ":")
    rows["time"][row[timed.to_numpy(zero_copy_only=False)]] = _times(word.filter(timed))
    used = 2 * len(at) + pc.sum(timed, min_count=0).as_py()
    infinite = pc.is_in(texts, pa.array(list(_INFINITE))).to_numpy(zero_copy_only=False)
    if used + infinite.sum() + texts.null_count != len(word):
        raise ValueError(_NO_INTERVAL)
    return replaced(fixed(rows, texts), infinite, texts, lambda text: np.array(_INFINITE[text], _INTERVAL).tobytes())


def finite_intervals(texts: pa.Array) -> pa.Array:
    """Encode `interval` for a server before PostgreSQL 17, which takes the bytes of infinity for a finite interval.

    Raises:
        ValueError: A value is infinite.
    """
    if pc.any(pc.is_in(texts, pa.array(list(_INFINITE)))).as_py():
        raise ValueError("An interval is infinite, which PostgreSQL can store from version 17 on.")
    return intervals(texts)


def _whole(texts: pa.Array) -> np.ndarray:
    """Return whole numbers, which may have a sign."""
    values: np.ndarray = pc.utf8_ltrim(texts, "+").cast(pa.int64()).to_numpy()
    return values


def _times(texts: pa.Array) -> np.ndarray:
    """Return the microseconds of `[+-]hours:minutes:seconds[.fraction]`."""
    negative = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False)
    fields = pc.split_pattern(pc.utf8_ltrim(texts, "+-"), ":").flatten()
    hours, minutes, seconds = (fields[place::3] for place in range(3))
    micros = pc.utf8_rpad(pc.replace_substring(seconds, ".", ""), 8, "0")
    values = _whole(hours) * 3_600_000_000 + _whole(minutes) * 60_000_000 + _whole(micros)
    signed: np.ndarray = np.where(negative, -values, values)
    return signed


def zoned_times(texts: pa.Array) -> pa.Array:
    """Encode `timetz`: microseconds, and the seconds by which its zone lies west of UTC."""
    given = pc.fill_null(texts, "00:00:00+00")
    found = pc.extract_regex(given, r"^(?P<time>[0-9:.]+)(?P<sign>[+-])(?P<zone>[0-9:]+)$")
    rows = np.zeros(len(texts), [("time", ">i8"), ("zone", ">i4")])
    rows["time"] = _times(found.field("time"))
    zones = pc.binary_slice(joined(found.field("zone").cast(pa.binary()), b":00:00"), 0, 8).cast(pa.string())
    east = _times(zones) // 1_000_000
    rows["zone"] = np.where(pc.equal(found.field("sign"), "+").to_numpy(zero_copy_only=False), -east, east)
    return fixed(rows, texts)


def money(texts: pa.Array) -> pa.Array:
    """Encode `money` of the locale C: cents."""
    if not pc.all(pc.match_substring_regex(texts, r"^-?\$[0-9,]+\.[0-9]{2}$"), min_count=0).as_py():
        raise ValueError("A text is not money of the locale C.")
    for character in "$,.":
        texts = pc.replace_substring(texts, character, "")
    return numbers(pa.int64(), texts)


def bits(texts: pa.Array) -> pa.Array:
    """Encode `bit`: the number of bits, and the bits from the highest of each byte."""
    offsets, data = parts(texts)
    if not np.isin(data, (ord("0"), ord("1"))).all():
        raise ValueError("A text is not of bits.")
    lengths = np.diff(offsets)
    widths = -(-lengths // 8)
    starts = np.concatenate([[0], np.cumsum(widths)])
    spread = np.zeros(8 * starts[-1], bool)
    spread[np.arange(len(data)) + np.repeat(8 * starts[:-1] - offsets[:-1], lengths)] = data == ord("1")
    return joined(fixed(lengths.astype(">i4"), texts), binary(starts, np.packbits(spread)))


ENCODERS: dict[str, Encoder] = {
    "boolrecv": booleans,
    "int2recv": partial(numbers, pa.int16()),
    "int4recv": partial(numbers, pa.int32()),
    "int8recv": partial(numbers, pa.int64()),
    "oidrecv": partial(numbers, pa.uint32()),
    "float4recv": partial(numbers, pa.float32()),
    "float8recv": partial(numbers, pa.float64()),
    "numeric_recv": numeric_texts,
    "cash_recv": money,
    "bit_recv": bits,
    "varbit_recv": bits,
    "textrecv": plain,
    "varcharrecv": plain,
    "bpcharrecv": plain,
    "namerecv": plain,
    "enum_recv": plain,
    "json_recv": plain,
    "jsonb_recv": versioned,
    "jsonpath_recv": versioned,
    "uuid_recv": partial(octets, 16),
    "macaddr_recv": partial(octets, 6),
    "macaddr8_recv": partial(octets, 8),
    "inet_recv": addresses,
    "cidr_recv": addresses,
    "interval_recv": intervals,
    "timetz_recv": zoned_times,
}
"""Encoders by the C function that receives a type's values. The function determines the bytes, not the type's name."""
