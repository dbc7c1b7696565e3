"""Encodes `numeric`: digits in base 10000, after their number, the weight of the first, a sign and a display scale.

The server removes leading and trailing zeros, so all values of a batch have the same number of digits here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Encoder = Callable[[pa.Array], pa.Array]
"""Returns each value's bytes as the receive function of one type reads them; NULL stays NULL."""


def fixed(rows: np.ndarray, like: pa.Array) -> pa.Array:
    """Return one value for each row of a matrix, NULL where `like` is NULL.

    Args:
        rows: A matrix of numbers; their bytes are used as they are in memory.
        like: An array of the same length.
    """
    width = rows.itemsize * (rows.size // len(rows) if len(rows) else 0)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * width
    return binary(offsets, rows, like)


def binary(offsets: np.ndarray, data: np.ndarray, like: pa.Array | None = None) -> pa.Array:
    """Return the values between offsets into data, NULL where `like` is NULL."""
    validity = like.is_valid().buffers()[1] if like is not None and like.null_count else None
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def parts(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and the bytes of texts, from zero; NULL is empty."""
    if texts.offset or texts.null_count:  # what a NULL spans is undefined
        texts = pa.concat_arrays([pc.fill_null(texts, "")])
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return ends - ends[0], content[ends[0] : ends[-1]]


def joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    """Return the pieces of each row, one after the other; NULL if one is NULL."""
    return pc.binary_join_element_wise(*pieces, b"")


def replaced(common: pa.Array, rare: np.ndarray, texts: pa.Array, encode: Callable[[str], bytes]) -> pa.Array:
    """Return `common` with the values of some rows encoded one by one.

    Args:
        common: An array of bytes; its values in rare rows do not matter.
        rare: For each row, whether it is encoded alone.
        texts: The texts of all rows.
        encode: Encodes one text.
    """
    if not rare.any():
        return common
    chosen = pa.array(rare)
    values = [encode(text) for text in texts.filter(chosen).to_pylist()]
    return pc.replace_with_mask(common, chosen, pa.array(values, pa.binary()))


_NEGATIVE = 0x4000
_SPECIAL = {"NaN": 0xC000, "Infinity": 0xD000, "-Infinity": 0xF000}
_DIGITS = 4
"""Decimal digits of one digit in base 10000."""
_LONGEST = 40
"""Most characters of a text that is encoded together with others."""


def decimals(values: pa.Array) -> pa.Array:
    """Encode decimal128 values with a scale of zero or more."""
    scale = values.type.scale
    fraction = -(-scale // _DIGITS)
    words = np.frombuffer(values.buffers()[1], "<u8").reshape(-1, 2)[values.offset : values.offset + len(values)]
    negative = (words[:, 1] >> np.uint64(63)).astype(bool)
    low = np.where(negative, -words[:, 0], words[:, 0])
    high = np.where(negative, ~words[:, 1] + (words[:, 0] == 0), words[:, 1])
    limbs = [low]  # of the absolute values, highest first
    if high.any():
        mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        limbs = [high >> half, high & mask, low >> half, low & mask]
    digits = []
    if short := scale % _DIGITS:
        digits.append(_divide(limbs, 10**short) * np.uint64(10 ** (_DIGITS - short)))
    while len(digits) < fraction or any(limb.any() for limb in limbs):
        digits.append(_divide(limbs, 10**_DIGITS))
    rows = _rows(len(values), len(digits), len(digits) - fraction)
    rows[:, 2] = np.where(negative, _NEGATIVE, 0)
    rows[:, 3] = scale
    for place, digit in enumerate(reversed(digits)):
        rows[:, 4 + place] = digit
    return fixed(rows, values)


def _rows(rows: int, digits: int, whole: int) -> np.ndarray:
    """Return a matrix of the fields of numeric, with the first two set: the number of digits, and the weight."""
    matrix = np.empty((rows, 4 + digits), ">u2")
    matrix[:, 0] = digits
    matrix[:, 1] = (whole - 1) & 0xFFFF
    return matrix


def _divide(limbs: list[np.ndarray], divisor: int) -> np.ndarray:
    """Divide values in place, and return the remainders."""
    remainder: np.ndarray | None = None
    for number, limb in enumerate(limbs):
        value = limb if remainder is None else remainder << np.uint64(32) | limb
        limbs[number] = value // np.uint64(divisor)
        remainder = value - limbs[number] * np.uint64(divisor)
    assert remainder is not None
    return remainder


def numeric_texts(texts: pa.Array) -> pa.Array:
    """Encode the texts of a `numeric` of any precision and scale; long ones and NaN one by one."""
    offsets, data = parts(texts)
    starts, ends = offsets[:-1], offsets[1:]
    points = np.flatnonzero(data == ord("."))
    point = ends.copy()
    point[np.searchsorted(offsets, points, "right") - 1] = points
    negative = np.zeros(len(texts), bool)
    negative[starts < ends] = data[starts[starts < ends]] == ord("-")
    others = np.concatenate([[0], np.cumsum(data - np.uint8(ord("0")) > 9, dtype=np.int32)])
    plain = others[ends] - others[starts] == negative + (point < ends).astype(np.int32)
    # A digit stands before the point, and one after it.
    plain &= (point - starts > negative) & ((point == ends) | (ends - point > 1))
    rare = ~plain & texts.is_valid().to_numpy(zero_copy_only=False) | (ends - starts > _LONGEST)
    # Rare rows span nothing here, so that one long value does not widen all rows.
    begin = np.where(rare, point, starts + negative)
    scale = np.where(rare | (point == ends), 0, ends - point - 1)
    whole, fraction = (-(-int(widths.max(initial=0)) // _DIGITS) for widths in (point - begin, scale))
    rows = _rows(len(texts), whole + fraction, whole)
    rows[:, 2] = np.where(negative, _NEGATIVE, 0)
    rows[:, 3] = scale
    characters = data if len(data) else np.zeros(1, np.uint8)
    for first, groups, offset, low, high in (
        (4, whole, -whole * _DIGITS, begin, point),
        (4 + whole, fraction, 1, point, point + scale + 1),
    ):
        places = point[:, None] + np.arange(offset, offset + groups * _DIGITS, dtype=np.int32)
        within = (places >= low[:, None]) & (places < high[:, None])
        figures = characters.take(places, mode="clip") - np.uint8(ord("0"))
        figures *= within  # a place outside holds a zero
        pairs = figures[:, 0::2] * np.uint8(10) + figures[:, 1::2]
        rows[:, first : first + groups] = pairs[:, 0::2] * np.uint16(100) + pairs[:, 1::2]
    return replaced(fixed(rows, texts), rare, texts, numeric)


def numeric(text: str) -> bytes:
    """Encode one value."""
    if text in _SPECIAL:
        return np.array([0, 0, _SPECIAL[text], 0], ">u2").tobytes()
    whole, _, fraction = text.removeprefix("-").partition(".")
    if not whole or text.endswith("."):
        raise ValueError(f"{text[:60]!r} is not the text of a numeric.")
    figures = whole.rjust(-(-len(whole) // _DIGITS) * _DIGITS, "0")
    places = len(figures) // _DIGITS
    figures += fraction.ljust(-(-len(fraction) // _DIGITS) * _DIGITS, "0")
    if not figures.isascii() or not figures.isdigit():
        raise ValueError(f"{text[:60]!r} is not the text of a numeric.")
    digits = np.frombuffer(figures.encode(), np.uint8).reshape(-1, _DIGITS) - ord("0")
    kept = np.flatnonzero(digits.any(axis=1))
    first, last = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, 0)
    head = [last - first, (places - 1 - first) & 0xFFFF, _NEGATIVE if text.startswith("-") else 0, len(fraction)]
    return np.concatenate([head, digits[first:last] @ np.array([1000, 100, 10, 1])]).astype(">u2").tobytes()
