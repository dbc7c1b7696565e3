"""Encodes and decodes add-file actions with their statistics, for transactions and receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from snapshot_assets.format import actions as act
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.files import ColumnStatistics, DataFile, Physical, RowGroup

_FILE_FIELDS = ("path", "schema", "table", "chunk", "attempt", "rows", "bytes", "sha256", "schema_id")


def encode_file(action: act.AddFile) -> pb.AddFile:
    """Return the message of an add-file action."""
    file = action.file
    return pb.AddFile(
        **{name: getattr(file, name) for name in _FILE_FIELDS},
        tombstones_through=file.tombstones_through,
        columns=[_encode_column(column) for column in file.columns],
        row_groups=[
            pb.RowGroup(rows=group.rows, bytes=group.bytes, columns=[_encode_column(c) for c in group.columns])
            for group in file.row_groups
        ],
    )


def decode_file(message: pb.AddFile) -> act.AddFile:
    """Return the action in an add-file message."""
    return act.AddFile(
        DataFile(
            **{name: getattr(message, name) for name in _FILE_FIELDS},
            tombstones_through=message.tombstones_through,
            columns=_Lazy(message.columns, _decode_column),
            row_groups=_Lazy(message.row_groups, _decode_row_group),
        )
    )


_Item = TypeVar("_Item")


class _Lazy(Sequence[_Item]):
    """Decodes messages on access, because opening a location reads statistics that few callers use."""

    def __init__(self, messages: Sequence[Any], decode: Callable[[Any], _Item]) -> None:
        self._messages = messages
        self._decode = decode

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Item]: ...
    def __getitem__(self, index: int | slice) -> _Item | Sequence[_Item]:
        return tuple(self)[index] if isinstance(index, slice) else self._decode(self._messages[index])

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[_Item]:
        return map(self._decode, self._messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | _Lazy) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def _decode_row_group(message: pb.RowGroup) -> RowGroup:
    return RowGroup(message.rows, message.bytes, _Lazy(message.columns, _decode_column))


def _encode_column(column: ColumnStatistics) -> pb.ColumnStatistics:
    return pb.ColumnStatistics(
        column=column.column,
        null_count=column.null_count,
        minimum=_encode_value(column.minimum),
        maximum=_encode_value(column.maximum),
    )


def _decode_column(message: pb.ColumnStatistics) -> ColumnStatistics:
    return ColumnStatistics(
        column=message.column,
        null_count=message.null_count if message.HasField("null_count") else None,
        minimum=_decode_value(message.minimum),
        maximum=_decode_value(message.maximum),
    )


def _encode_value(value: Physical | None) -> pb.Value | None:
    match value:
        case None:
            return None
        case bool():
            return pb.Value(boolean=value)
        case int():
            return pb.Value(integer=value)
        case float():
            return pb.Value(floating=value)
        case bytes():
            return pb.Value(binary=value)


def _decode_value(message: pb.Value) -> Physical | None:
    kind = message.WhichOneof("kind")
    value: Physical | None = None if kind is None else getattr(message, kind)
    return value
