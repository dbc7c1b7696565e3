"""One codec for the log's dataclasses: a dataclass and its Protobuf message have the same name and the same fields.

Values differ only in how the message holds them: ids and checksums in `bytes` fields are hex text, times are
microseconds since 1970, durations microseconds, and a pair `start`, `end` is one `TimeRange`. `format.transactions`
registers the values that need their own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from snapshot_assets.errors import DocumentError, UnsupportedVersionError
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.documents import check_version

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RANGE = ("start", "end")


@dataclass(frozen=True)
class Codec:
    """Converts one kind of value to a part of a message and back.

    `decode` raises ValueError, OverflowError or DocumentError for a value that is out of range.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


_SAME = Codec(_same, _same)
_registered: dict[Any, Codec] = {}


def register(kind: Any, codec: Codec) -> None:
    """Use a codec for a type, given as dataclass fields annotate it."""
    _registered[kind] = codec


def to_micros(moment: datetime) -> int:
    """Return an aware moment as microseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC moment."""
    return _EPOCH + micros * _MICROSECOND


_HEX = Codec(bytes.fromhex, bytes.hex)
_TIME = Codec(to_micros, from_micros)
_OPTIONAL_TIME = Codec(
    lambda moment: to_micros(moment) if moment else 0, lambda micros: from_micros(micros) if micros else None
)
_DURATION = Codec(
    lambda value: value // _MICROSECOND if value else 0, lambda micros: micros * _MICROSECOND if micros else None
)


def encode(value: Any) -> Any:
    """Return the message of a dataclass instance."""
    return _codec_of(type(value)).encode(value)


def decode(kind: type, message: Message) -> Any:
    """Return the instance of a dataclass that a message holds."""
    return _codec_of(kind).decode(message)


def decode_document(kind: type, data: bytes, name: str) -> Any:
    """Return the instance of a dataclass that an object's Protobuf bytes hold, after checking their format version.

    Raises:
        UnsupportedVersionError: The format is newer, or a part is of a kind that this code does not know.
        DocumentError: The bytes are not such a message, or a value is invalid.
    """
    message = getattr(pb, kind.__name__)()
    try:
        message.ParseFromString(data)
    except DecodeError as cause:
        raise DocumentError(f"{name} is not a valid {kind.__name__.lower()}: {cause}.", object=name) from cause
    check_version(message.version, name)
    try:
        return decode(kind, message)
    except (DocumentError, UnsupportedVersionError) as fault:
        raise type(fault)(f"{name}: {fault}", object=name) from fault
    except (OverflowError, ValueError) as cause:
        raise DocumentError(f"{name} holds a value out of range: {cause}.", object=name) from cause


def _codec_of(kind: Any) -> Codec:
    """Return the cached codec of a dataclass whose message has the same name."""
    if kind in _registered:
        return _registered[kind]
    message_type = getattr(pb, kind.__name__)
    hints = get_type_hints(kind)
    descriptors = message_type.DESCRIPTOR.fields_by_name
    parts = {
        each.name: _of_field(hints[each.name], descriptors[each.name])
        for each in fields(kind)
        if each.name in descriptors
    }
    window = next((name for name, each in descriptors.items() if each.message_type == pb.TimeRange.DESCRIPTOR), None)

    def encode_fields(value: Any) -> Message:
        values = {name: part.encode(getattr(value, name)) for name, part in parts.items()}
        if window:
            ends = ((name, getattr(value, name)) for name in _RANGE)
            values[window] = pb.TimeRange(**{name: to_micros(end) for name, end in ends if end is not None})
        message: Message = message_type(**values)
        return message

    def decode_fields(message: Message) -> Any:
        values = {name: part.decode(getattr(message, name)) for name, part in parts.items()}
        if window:
            ends = getattr(message, window)
            values |= {name: from_micros(getattr(ends, name)) if ends.HasField(name) else None for name in _RANGE}
        return kind(**values)

    _registered[kind] = Codec(encode_fields, decode_fields)
    return _registered[kind]


def _of_field(hint: Any, field: FieldDescriptor) -> Codec:
    """Return the codec of one field by its type in the dataclass and in the message."""
    if hint in _registered or is_dataclass(hint):
        return _codec_of(hint)
    if get_origin(hint) is tuple:
        item = _of_field(get_args(hint)[0], field)
        if item is _SAME:
            return Codec(_same, tuple)
        return Codec(
            lambda values: [item.encode(value) for value in values],
            lambda messages: tuple(map(item.decode, messages)),
        )
    if get_origin(hint) is Mapping:
        return Codec(dict, dict)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enumeration(hint, field)
    if hint is datetime:
        return _TIME
    if hint == datetime | None:
        return _OPTIONAL_TIME
    if hint == timedelta | None:
        return _DURATION
    return _HEX if hint is str and field.type == FieldDescriptor.TYPE_BYTES else _SAME


def _enumeration(kind: type[StrEnum], field: FieldDescriptor) -> Codec:
    """Return the codec of an enum. The log never contains members that the message lacks."""
    values = field.enum_type.values_by_name if field.enum_type else {}
    numbers = {kind[name]: each.number for name, each in values.items() if name in kind.__members__}
    members = {number: member for member, number in numbers.items()}

    def member_of(number: int) -> StrEnum:
        if number not in members:
            raise ValueError(f"{field.full_name} {number}")
        return members[number]

    return Codec(numbers.__getitem__, member_of)
