"""Transactions as bytes: Protobuf followed by the SHA-256 of those bytes (FORMAT.md, section 6)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import get_args

from google.protobuf.message import DecodeError

from snapshot_assets.errors import DocumentError, TornObjectError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format import codec
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.codec import Codec, from_micros, to_micros
from snapshot_assets.format.documents import check_version
from snapshot_assets.format.file_messages import decode_file, encode_file
from snapshot_assets.format.predicate_messages import decode_predicate, encode_predicate
from snapshot_assets.format.predicates import Predicate

_DIGEST = 32
_KINDS = {kind.__name__: kind for kind in get_args(act.Action)}
_FIELDS = {
    field.message_type.name: field.name
    for field in pb.Action.DESCRIPTOR.oneofs_by_name["kind"].fields
    if field.message_type is not None
}
_NAMES = {kind: _FIELDS[name] for name, kind in _KINDS.items()}
_ACTIONS = {name: kind for kind, name in _NAMES.items()}
"""The actions by the names of their fields in the message `Action`."""


def _encode_tombstones(tombstones: Mapping[int, act.Tombstone]) -> list[pb.OlderTombstone]:
    older = sorted(tombstones.items())
    return [pb.OlderTombstone(revision=revision, tombstone=codec.encode(each)) for revision, each in older]


codec.register(act.AddFile, Codec(encode_file, decode_file))
codec.register(Predicate, Codec(encode_predicate, decode_predicate))
codec.register(
    Mapping[int, act.Tombstone],
    Codec(
        _encode_tombstones,
        lambda held: {each.revision: codec.decode(act.Tombstone, each.tombstone) for each in held},
    ),
)


def encode_transaction(transaction: act.Transaction) -> bytes:
    """Return the object's bytes."""
    message = pb.Transaction(
        version=transaction.version,
        location_id=bytes.fromhex(transaction.location_id),
        revision=transaction.revision,
        uuid=bytes.fromhex(transaction.uuid),
        previous_uuid=bytes.fromhex(transaction.previous_uuid),
        previous_sha256=bytes.fromhex(transaction.previous_sha256),
        writer_id=transaction.writer_id,
        committed_at=to_micros(transaction.committed_at),
        actions=[encode_action(action) for action in transaction.actions],
    )
    body = message.SerializeToString(deterministic=True)
    return body + hashlib.sha256(body).digest()


def decode_transaction(data: bytes, name: str) -> act.Transaction:
    """Return the transaction in an object's bytes.

    Args:
        data: The object.
        name: Its path, for messages.

    Raises:
        TornObjectError: The bytes do not match their own checksum.
        UnsupportedVersionError: A newer format, or an action of a kind that this code does not know.
        DocumentError: The bytes are whole but no transaction.
    """
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(data) <= _DIGEST or hashlib.sha256(body).digest() != digest:
        raise TornObjectError(f"{name} does not match its own checksum ({len(data)} bytes read).", object=name)
    message = pb.Transaction()
    try:
        message.ParseFromString(body)
    except DecodeError as cause:
        raise DocumentError(f"{name} is no transaction: {cause}.", object=name) from cause
    check_version(message.version, name)
    try:
        return act.Transaction(
            location_id=message.location_id.hex(),
            revision=message.revision,
            uuid=message.uuid.hex(),
            previous_uuid=message.previous_uuid.hex(),
            previous_sha256=message.previous_sha256.hex(),
            writer_id=message.writer_id,
            committed_at=from_micros(message.committed_at),
            actions=tuple(decode_action(action, name) for action in message.actions),
            version=message.version,
        )
    except (OverflowError, ValueError) as cause:
        raise DocumentError(f"{name} holds a value out of range: {cause}.", object=name) from cause


def trailing_sha256(data: bytes) -> str:
    """Return the checksum at the end of a transaction object, to which the next transaction links."""
    return data[-_DIGEST:].hex()


def encode_action(action: act.Action) -> pb.Action:
    """Return an action's message."""
    return pb.Action(**{_NAMES[type(action)]: codec.encode(action)})


def decode_action(message: pb.Action, name: str) -> act.Action:
    """Return the action in a message.

    Args:
        message: The message.
        name: The path of the object that holds it, for messages.

    Raises:
        UnsupportedVersionError: It is of a kind that this code does not know, or holds a part that is.
        DocumentError: It is not sound in itself.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise UnsupportedVersionError(
            f"{name} holds an action that this code does not know. Use a newer snapshot_assets.", object=name
        )
    if kind not in _ACTIONS:
        raise UnsupportedVersionError(
            f"{name} holds an action {kind!r} that this code does not carry out. Use a newer snapshot_assets.",
            object=name,
        )
    try:
        action: act.Action = codec.decode(_ACTIONS[kind], getattr(message, kind))
    except (DocumentError, UnsupportedVersionError) as fault:
        raise type(fault)(f"{name}: {fault}", object=name) from fault
    return action


def encode_header(header: act.Header) -> pb.Header:
    """Return a header's message."""
    message: pb.Header = codec.encode(header)
    return message


def decode_header(message: pb.Header) -> act.Header:
    """Return the header in a message."""
    header: act.Header = codec.decode(act.Header, message)
    return header
