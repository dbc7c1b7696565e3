"""Builds Parquet files page by page, with any headers and footers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

INT64, BYTE_ARRAY = 2, 6
PLAIN, DELTA_LENGTH = 0, 6
REQUIRED, REPEATED = 0, 2
_ZSTD = 6
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def zeros(size: int) -> bytes:
    """Return that many zeros, packed by Zstandard without ever holding all of them."""
    sink = pa.BufferOutputStream()
    block = bytes(min(size, 1 << 20))
    with pa.CompressedOutputStream(sink, "zstd") as out:
        for _ in range(size // len(block)):
            out.write(block)
        out.write(bytes(size % len(block)))
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class Page:
    """A data page.

    Attributes:
        packed: Its bytes in the file.
        unpacked: Unpacked size in its header.
        values: Number of values in its header.
    """

    packed: bytes
    unpacked: int
    values: int
    encoding: int = PLAIN

    def write(self) -> bytes:
        """Return header and bytes."""
        own = {1: (_I32, self.values), 2: (_I32, self.encoding), 3: (_I32, 3), 4: (_I32, 3)}
        header = {1: (_I32, 0), 2: (_I32, self.unpacked), 3: (_I32, len(self.packed)), 5: (_STRUCT, own)}
        return _struct(header) + self.packed


def parquet(
    columns: Mapping[str, Sequence[Page]],
    rows: int,
    *,
    repetition: int = REQUIRED,
    size: int | None = None,
    physical: int = INT64,
) -> bytes:
    """Return a file of one row group.

    Args:
        columns: Pages by column.
        rows: Number of rows in the footer.
        repetition: Whether a row has one value or any number.
        size: Unpacked bytes of a column in the footer; None for the true size.
        physical: Parquet's type of all columns.
    """
    data = bytearray(b"PAR1")
    chunks = []
    for name, pages in columns.items():
        start, body = len(data), b"".join(page.write() for page in pages)
        data += body
        unpacked = sum(page.unpacked for page in pages) if size is None else size
        facts = _chunk_facts(name, physical, sum(page.values for page in pages), unpacked)
        chunks.append({2: (_I64, start), 3: (_STRUCT, facts | {7: (_I64, len(body)), 9: (_I64, start)})})
    leaves = [{1: (_I32, physical), 3: (_I32, repetition), 4: (_BINARY, name)} for name in columns]
    total = sum(chunk[3][1][6][1] for chunk in chunks)  # type: ignore[index]
    group = {1: (_LIST, (_STRUCT, chunks)), 2: (_I64, total), 3: (_I64, rows)}
    footer = _struct(
        {
            1: (_I32, 1),
            2: (_LIST, (_STRUCT, [{4: (_BINARY, "schema"), 5: (_I32, len(columns))}, *leaves])),
            3: (_I64, rows),
            4: (_LIST, (_STRUCT, [group])),
        }
    )
    return bytes(data) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _chunk_facts(name: str, physical: int, values: int, unpacked: int) -> dict[int, tuple[int, Any]]:
    return {
        1: (_I32, physical),
        2: (_LIST, (_I32, [PLAIN])),
        3: (_LIST, (_BINARY, [name])),
        4: (_I32, _ZSTD),
        5: (_I64, values),
        6: (_I64, unpacked),
    }


# Thrift's compact protocol


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I32, _I64):
        return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == _BINARY:
        return _varint(len(value.encode())) + value.encode()
    if kind == _LIST:
        of, items = value
        head = bytes([len(items) << 4 | of]) if len(items) < 15 else bytes([0xF0 | of]) + _varint(len(items))
        return head + b"".join(_value(of, item) for item in items)
    return _struct(value)


def _struct(fields: Mapping[int, tuple[int, Any]]) -> bytes:
    out, last = b"", 0
    for number, (kind, value) in fields.items():
        out += bytes([(number - last) << 4 | kind]) + _value(kind, value)
        last = number
    return out + b"\0"
