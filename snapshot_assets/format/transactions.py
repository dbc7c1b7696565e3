"""Transactions as bytes: Protobuf followed by the SHA-256 of those bytes (FORMAT.md, section 6).

This module registers with `format.codec` the values that need their own code: actions, data files and predicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args, overload

from snapshot_assets.errors import TornObjectError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format import codec
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format import predicates as pred
from snapshot_assets.format.actions import ColumnStatistics, DataFile, Physical, RowGroup
from snapshot_assets.format.codec import Codec
from snapshot_assets.format.predicates import Literal, Value
from snapshot_assets.format.units import counted

_FILE_FIELDS = [name for name in pb.AddFile.DESCRIPTOR.fields_by_name if name not in ("columns", "row_groups")]
_FIELD_OF = {bool: "boolean", int: "integer", float: "floating", str: "text", bytes: "binary"}
_OPERATORS = {pb.Comparison.Operator.Value(operator.name) for operator in pred.Operator}
_SIGN = 1 << 63


def encode_file(action: act.AddFile) -> pb.AddFile:
    """Return the message of an add-file action."""
    file = action.file
    return pb.AddFile(
        **{name: getattr(file, name) for name in _FILE_FIELDS},
        columns=[_encode_column(column) for column in file.columns],
        row_groups=[
            pb.RowGroup(rows=group.rows, bytes=group.bytes, columns=[_encode_column(each) for each in group.columns])
            for group in file.row_groups
        ],
    )


def decode_file(message: pb.AddFile) -> act.AddFile:
    """Return the action in an add-file message."""
    return act.AddFile(
        DataFile(
            **{name: getattr(message, name) for name in _FILE_FIELDS},
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
        minimum=_encode_bound(column.minimum),
        maximum=_encode_bound(column.maximum),
    )


def _encode_bound(value: Physical | None) -> pb.Value | None:
    return None if value is None else pb.Value(**_by_kind(value))


def _decode_column(message: pb.ColumnStatistics) -> ColumnStatistics:
    null_count = message.null_count if message.HasField("null_count") else None
    return ColumnStatistics(message.column, null_count, *map(_decode_bound, (message.minimum, message.maximum)))


def _decode_bound(message: pb.Value) -> Physical | None:
    kind = message.WhichOneof("kind")
    value: Physical | None = None if kind is None else getattr(message, kind)
    return value


def _by_kind(value: Value) -> dict[str, Any]:
    """Return a value by the field that holds its kind in a message."""
    return {_FIELD_OF[type(value)]: value}


def encode_predicate(predicate: pred.Predicate) -> pb.Predicate:
    """Return a predicate's message."""
    match predicate:
        case pred.Comparison():
            return pb.Predicate(comparison=codec.encode(predicate))
        case pred.IsIn():
            return pb.Predicate(is_in=codec.encode(predicate))
        case pred.IsNull():
            return pb.Predicate(is_null=predicate.column)
        case pred.Not():
            return pb.Predicate(negated=encode_predicate(predicate.predicate))
        case pred.And():
            return pb.Predicate(all=_encode_all(predicate.predicates))
        case pred.Or():
            return pb.Predicate(any=_encode_all(predicate.predicates))


def decode_predicate(message: pb.Predicate) -> pred.Predicate:
    """Return the predicate in a message, after checking it; Protobuf has already limited its depth."""
    return pred.check_predicate(_decode(message))


def _encode_all(predicates: Iterable[pred.Predicate]) -> pb.Predicates:
    return pb.Predicates(predicates=[encode_predicate(part) for part in predicates])


def _decode(message: pb.Predicate) -> pred.Predicate:
    predicate: pred.Predicate
    match message.WhichOneof("kind"):
        case "comparison" if message.comparison.operator in _OPERATORS:
            predicate = codec.decode(pred.Comparison, message.comparison)
        case "is_in":
            predicate = codec.decode(pred.IsIn, message.is_in)
        case "is_null":
            predicate = pred.IsNull(message.is_null)
        case "negated":
            predicate = pred.Not(_decode(message.negated))
        case "all":
            predicate = pred.And(tuple(map(_decode, message.all.predicates)))
        case "any":
            predicate = pred.Or(tuple(map(_decode, message.any.predicates)))
        case _:
            raise UnsupportedVersionError(
                "A predicate has a part that this code does not know. Use a newer snapshot_assets."
            )
    return predicate


def _encode_literal(literal: Literal) -> pb.Literal:
    value = literal.value
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value + _SIGN) % (2 * _SIGN) - _SIGN
    return pb.Literal(type=literal.type, **_by_kind(value))


def _decode_literal(message: pb.Literal) -> Literal:
    kind = message.WhichOneof("value")
    if kind is None:
        raise UnsupportedVersionError("A literal has no value that this code knows. Use a newer snapshot_assets.")
    value = getattr(message, kind)
    if message.type == "uint64" and kind == "integer":
        value %= 2 * _SIGN
    return Literal(message.type, value)


codec.register(act.AddFile, codec.Codec(encode_file, decode_file))
codec.register(Literal, codec.Codec(_encode_literal, _decode_literal))
codec.register(pred.Predicate, codec.Codec(encode_predicate, decode_predicate))


_DIGEST = 32
_KINDS = {kind.__name__: kind for kind in get_args(act.Action)}
_FIELDS = {
    field.message_type.name: field.name
    for field in pb.Action.DESCRIPTOR.oneofs_by_name["kind"].fields
    if field.message_type is not None
}
_NAMES = {kind: _FIELDS[name] for name, kind in _KINDS.items()}
_ACTIONS = {name: kind for kind, name in _NAMES.items()}
"""Actions by the names of their fields in the message `Action`."""


def encode_transaction(transaction: act.Transaction) -> bytes:
    """Return the object's bytes."""
    body: bytes = codec.encode(transaction).SerializeToString(deterministic=True)
    return body + hashlib.sha256(body).digest()


def decode_transaction(data: bytes, name: str) -> act.Transaction:
    """Return the transaction in an object's bytes; see `decode_document` for errors.

    Raises:
        TornObjectError: The bytes do not match their own checksum.
    """
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(data) <= _DIGEST or hashlib.sha256(body).digest() != digest:
        raise TornObjectError(
            f"{name} does not match its own checksum ({counted(len(data), 'byte')} read).", object=name
        )
    transaction: act.Transaction = codec.decode_document(act.Transaction, body, name)
    return transaction


def trailing_sha256(data: bytes) -> str:
    """Return the checksum at the end of a transaction object, to which the next transaction links."""
    return data[-_DIGEST:].hex()


def encode_action(action: act.Action) -> pb.Action:
    """Return an action's message."""
    return pb.Action(**{_NAMES[type(action)]: codec.encode(action)})


def decode_action(message: pb.Action) -> act.Action:
    """Return the action in a message; see `decode_document` for its errors."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise UnsupportedVersionError("It holds an action that this code does not know. Use a newer snapshot_assets.")
    if kind not in _ACTIONS:
        raise UnsupportedVersionError(
            f"It holds an action {kind!r} that this code does not carry out. Use a newer snapshot_assets."
        )
    action: act.Action = codec.decode(_ACTIONS[kind], getattr(message, kind))
    return action


def _encode_tombstones(tombstones: Mapping[int, act.Tombstone]) -> list[pb.OlderTombstone]:
    return [
        pb.OlderTombstone(revision=revision, tombstone=codec.encode(tombstone))
        for revision, tombstone in sorted(tombstones.items())
    ]


def _decode_tombstones(older: list[pb.OlderTombstone]) -> dict[int, act.Tombstone]:
    return {message.revision: codec.decode(act.Tombstone, message.tombstone) for message in older}


codec.register(act.Action, Codec(encode_action, decode_action))
codec.register(Mapping[int, act.Tombstone], Codec(_encode_tombstones, _decode_tombstones))
