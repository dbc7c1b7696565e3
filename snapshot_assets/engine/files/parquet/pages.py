"""Computes from page headers how large a column of a Parquet row group is unpacked, before anything is unpacked.

The size in a footer is not binding: readers allocate the size in each page header.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from snapshot_assets.errors import DocumentError, LimitExceededError

ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
"""Encodings that are read: those that are written. DELTA_BYTE_ARRAY expands a few bytes to texts of any length."""
MAX_PAGES = 10_000
"""Most pages of one column in one row group; the writer makes pages of about 1 MiB."""

_MAX_DEPTH = 8
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODING = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_DELTA_LENGTH, _RLE = 6, 3
_LEVELS_LENGTH = 4


@dataclass(frozen=True)
class Pages:
    """The pages of one column in one row group.

    Attributes:
        unpacked: Unpacked bytes of all pages.
        values: Number of values; nested columns may have more values than rows.
        dictionary: Whether values may be in a dictionary.
    """

    unpacked: int
    values: int
    dictionary: bool


def read_pages(data: bytes, values: int, compression: str, levels: tuple[bool, bool], name: str) -> Pages:
    """Read the page headers in the way in which Arrow does.

    Args:
        data: The column's bytes in the file.
        values: Number of values in the footer; nothing after them is read.
        compression: Codec by its name in the footer.
        levels: Whether values have repetition levels, and definition levels.
        name: File and column, for messages.

    Raises:
        DocumentError: A page is invalid, or has an encoding that this package does not write.
        LimitExceededError: There are too many pages, or a page contains more lengths than values.
    """
    unpacked = found = count = place = 0
    dictionary = False
    while found < values:
        count += 1
        if count > MAX_PAGES:
            raise LimitExceededError(f"{name} has more than {MAX_PAGES} pages.", object=name)
        try:
            header, start = _struct(data, place, 0)
            kind, own = header[1], header[_HEADERS[header[1]]]
            sizes = (header[2], header[3], own[1])
            encoding = own[_ENCODING[kind]]
        except (LookupError, TypeError) as error:
            raise DocumentError(f"{name} has a broken page header before byte {place} of it.", object=name) from error
        place = start + header[3]
        if min(sizes) < 0 or place > len(data):
            raise DocumentError(f"{name} has a page that leaves its place in the file.", object=name)
        if encoding not in ENCODINGS:
            raise DocumentError(
                f"{name} is written in Parquet encoding {encoding}, which is not read here.", object=name
            )
        if encoding == _DELTA_LENGTH and kind != _DICTIONARY:
            texts = _values_of(data[start:place], kind, own, compression, levels, name)
            _check_lengths(texts, own[1], name)
        unpacked += header[2]
        dictionary |= kind == _DICTIONARY
        found += own[1] if kind != _DICTIONARY else 0
    return Pages(unpacked, found, dictionary)


def _values_of(
    page: bytes, kind: int, own: dict[int, Any], compression: str, levels: tuple[bool, bool], name: str
) -> BinaryIO:
    """Return a stream of a page's values, after their levels; it is unpacked only as far as it is read."""
    packed = compression != "UNCOMPRESSED"
    if packed and compression != "ZSTD":
        raise DocumentError(f"{name} is packed by {compression}, which is not written here.", object=name)
    if kind == _DATA_V2:
        page, packed = page[own.get(5, 0) + own.get(6, 0) :], packed and own.get(7, True)
    stream = pa.BufferReader(page)
    if packed:
        stream = pa.CompressedInputStream(stream, "zstd")
    if kind == _DATA:
        for present, encoding in zip(levels, (own.get(4), own.get(3)), strict=True):
            if present and encoding != _RLE:
                raise DocumentError(f"{name} has levels in Parquet encoding {encoding}.", object=name)
            if present:
                _skip(stream, int.from_bytes(stream.read(_LEVELS_LENGTH), "little"))
    return stream  # type: ignore[no-any-return]


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0 and (read := len(stream.read(min(size, 1 << 20)))):
        size -= read


def _check_lengths(values: BinaryIO, most: int, name: str) -> None:
    """Check that a page of texts has no more lengths than values: Arrow allocates memory for each length."""
    head = values.read(30)  # three numbers: values per block, parts of a block, and total lengths
    try:
        place = 0
        for _ in range(3):
            lengths, place = _varint(head, place)
    except LookupError as error:
        raise DocumentError(f"{name} has a page of texts without their lengths.", object=name) from error
    if lengths > most:
        raise LimitExceededError(
            f"{name} has a page of {most} values that asks for the lengths of {lengths}. Nothing of it was unpacked.",
            object=name,
        )


# The part of Thrift's compact protocol that page headers use.


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise LookupError


def _number(data: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _bytes(data: bytes, place: int) -> tuple[None, int]:
    size, place = _varint(data, place)
    if place + size > len(data):
        raise LookupError
    return None, place + size


def _struct(data: bytes, place: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return a struct's numbers, booleans and structs by field, and the offset of its end."""
    if depth > _MAX_DEPTH:
        raise LookupError
    found: dict[int, Any] = {}
    field = 0
    while head := data[place]:
        place += 1
        kind, step = head & 0x0F, head >> 4
        field, place = (field + step, place) if step else _number(data, place)
        if kind in (1, 2):
            found[field] = kind == 1
        elif kind == 12:
            found[field], place = _struct(data, place, depth + 1)
        else:
            found[field], place = _READ[kind](data, place)
    return found, place + 1


_READ: dict[int, Callable[[bytes, int], tuple[int | None, int]]] = {
    3: lambda data, place: (data[place], place + 1),
    4: _number,
    5: _number,
    6: _number,
    7: lambda _, place: (None, place + 8),
    8: _bytes,
}
