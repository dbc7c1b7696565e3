"""Transactions as bytes: Protobuf followed by the SHA-256 of those bytes (FORMAT.md, section 6).

This module and `format.messages` register with `format.codec` the values that need their own code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import get_args

from snapshot_assets.errors import TornObjectError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format import codec, messages  # noqa: F401  messages registers codecs of files and predicates
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.codec import Codec
from snapshot_assets.format.counts import counted

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
    """Return the transaction in an object's bytes.

    Args:
        data: The object.
        name: Its path, for messages.

    Raises:
        TornObjectError: The bytes do not match their own checksum.
        UnsupportedVersionError: The format is newer, or this code does not know the kind of an action.
        DocumentError: The bytes match their checksum but are not a valid transaction.
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
