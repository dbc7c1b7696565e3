"""Transactions as bytes: Protobuf followed by the SHA-256 of those bytes (seed, section 5.3 "Protobuf")."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import DecodeError

from snapshot_assets.errors import DocumentError, TornObjectError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.documents import check_version
from snapshot_assets.format.file_messages import decode_file, encode_file
from snapshot_assets.format.predicate_messages import decode_predicate, encode_predicate

_DIGEST = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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


def to_micros(moment: datetime) -> int:
    """Return an aware moment as microseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC moment."""
    return _EPOCH + micros * _MICROSECOND


def encode_action(action: act.Action) -> pb.Action:
    """Return an action's message."""
    name, encode = _ENCODERS[type(action)]
    return pb.Action(**{name: encode(action)})


def decode_action(message: pb.Action, name: str) -> act.Action:
    """Return the action in a message.

    Args:
        message: It.
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
    if kind not in _DECODERS:
        raise UnsupportedVersionError(
            f"{name} holds an action {kind!r} that this code does not carry out. Use a newer snapshot_assets.",
            object=name,
        )
    try:
        return _DECODERS[kind](getattr(message, kind))
    except (DocumentError, UnsupportedVersionError) as fault:
        raise type(fault)(f"{name}: {fault}", object=name) from fault


def _range(start: datetime | None, end: datetime | None) -> pb.TimeRange:
    return pb.TimeRange(start=None if start is None else to_micros(start), end=None if end is None else to_micros(end))


def _bounds(message: pb.TimeRange) -> tuple[datetime | None, datetime | None]:
    return (
        from_micros(message.start) if message.HasField("start") else None,
        from_micros(message.end) if message.HasField("end") else None,
    )


def encode_header(header: act.Header) -> pb.Header:
    """Return a header's message."""
    fields = {key: value for key, value in vars(header).items() if key not in ("start", "end")}
    return pb.Header(time_range=_range(header.start, header.end), **fields)


_LISTS = ("schemas", "requested_schemas", "requested_tables")


def decode_header(message: pb.Header) -> act.Header:
    """Return the header in a message."""
    start, end = _bounds(message.time_range)
    names = (field.name for field in message.DESCRIPTOR.fields if field.name != "time_range")
    values = {name: getattr(message, name) for name in names}
    return act.Header(start=start, end=end, **(values | {name: tuple(values[name]) for name in _LISTS}))


def _encode_refs(refs: Iterable[act.ObjectRef]) -> list[pb.ObjectRef]:
    return [pb.ObjectRef(path=ref.path, sha256=ref.sha256, bytes=ref.bytes) for ref in refs]


def _decode_refs(messages: Iterable[pb.ObjectRef]) -> tuple[act.ObjectRef, ...]:
    return tuple(act.ObjectRef(ref.path, ref.sha256, ref.bytes) for ref in messages)


_STATUS = {act.ChunkStatus.COMPLETED: pb.Chunk.COMPLETED, act.ChunkStatus.FAILED: pb.Chunk.FAILED}


def _encode_chunk(chunk: act.Chunk) -> pb.Chunk:
    return pb.Chunk(
        id=chunk.id,
        window=_range(chunk.start, chunk.end),
        status=_STATUS[chunk.status],
        checksum=chunk.checksum,
        rows=chunk.rows,
        error=chunk.error,
        fence=dict(chunk.fence),
        receipts=_encode_refs(chunk.receipts),
        run=chunk.run,
        exported=chunk.exported,
    )


def _decode_chunk(message: pb.Chunk) -> act.Chunk:
    start, end = _bounds(message.window)
    statuses = {number: status for status, number in _STATUS.items()}
    if message.status not in statuses:
        raise ValueError(f"chunk status {message.status}")
    return act.Chunk(
        id=message.id,
        start=start,
        end=end,
        status=statuses[message.status],
        checksum=message.checksum,
        rows=message.rows,
        error=message.error,
        fence=dict(message.fence),
        receipts=_decode_refs(message.receipts),
        run=message.run,
        exported=message.exported,
    )


def _encode_seal(seal: act.Seal) -> pb.Seal:
    return pb.Seal(
        verified_revision=seal.verified_revision,
        checksum=seal.checksum,
        consistency=seal.consistency,
        rows_outside=[pb.RowsOutside(schema=o.schema, table=o.table, rows=o.rows) for o in seal.rows_outside],
    )


def _decode_seal(message: pb.Seal) -> act.Seal:
    return act.Seal(
        verified_revision=message.verified_revision,
        checksum=message.checksum,
        consistency=message.consistency,
        rows_outside=tuple(act.RowsOutside(o.schema, o.table, o.rows) for o in message.rows_outside),
    )


def _encode_tag(tag: act.TagCreated) -> pb.TagCreated:
    return pb.TagCreated(
        name=tag.name,
        revision=tag.revision,
        object=_encode_refs([tag.object])[0],
        created_at=to_micros(tag.created_at),
        ttl=tag.ttl // _MICROSECOND if tag.ttl else 0,
        automatic=tag.automatic,
    )


def _decode_tag(message: pb.TagCreated) -> act.TagCreated:
    return act.TagCreated(
        name=message.name,
        revision=message.revision,
        object=_decode_refs([message.object])[0],
        created_at=from_micros(message.created_at),
        ttl=message.ttl * _MICROSECOND if message.ttl else None,
        automatic=message.automatic,
    )


def _encode_savepoint(savepoint: act.SavepointCreated) -> pb.SavepointCreated:
    return pb.SavepointCreated(
        id=savepoint.id,
        revision=savepoint.revision,
        object=_encode_refs([savepoint.object])[0],
        created_at=to_micros(savepoint.created_at),
        automatic=savepoint.automatic,
    )


def _decode_savepoint(message: pb.SavepointCreated) -> act.SavepointCreated:
    return act.SavepointCreated(
        id=message.id,
        revision=message.revision,
        object=_decode_refs([message.object])[0],
        created_at=from_micros(message.created_at),
        automatic=message.automatic,
    )


def _encode_tombstone(tombstone: act.Tombstone) -> pb.Tombstone:
    return pb.Tombstone(schema=tombstone.schema, table=tombstone.table, predicate=encode_predicate(tombstone.predicate))


def _decode_tombstone(message: pb.Tombstone) -> act.Tombstone:
    return act.Tombstone(message.schema, message.table, decode_predicate(message.predicate))


def _encode_rollback(rollback: act.Rollback) -> pb.Rollback:
    return pb.Rollback(
        revision=rollback.revision,
        snapshot_id=bytes.fromhex(rollback.snapshot_id),
        header=encode_header(rollback.header),
        created_at=to_micros(rollback.created_at),
        created_by=rollback.created_by,
        tombstones=[
            pb.OlderTombstone(revision=revision, tombstone=_encode_tombstone(tombstone))
            for revision, tombstone in sorted(rollback.tombstones.items())
        ],
    )


def _decode_rollback(message: pb.Rollback) -> act.Rollback:
    return act.Rollback(
        revision=message.revision,
        snapshot_id=message.snapshot_id.hex(),
        header=decode_header(message.header),
        created_at=from_micros(message.created_at),
        created_by=message.created_by,
        tombstones={older.revision: _decode_tombstone(older.tombstone) for older in message.tombstones},
    )


_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    act.Begin: (
        "begin",
        lambda a: pb.Begin(snapshot_id=bytes.fromhex(a.snapshot_id), header=encode_header(a.header), force=a.force),
    ),
    act.Extend: ("extend", lambda a: pb.Extend(end=to_micros(a.end))),
    act.SchemaAdded: (
        "schema",
        lambda a: pb.SchemaAdded(schema_id=a.schema_id, folder=a.folder, sha256=a.sha256, files=_encode_refs(a.files)),
    ),
    act.ChunksInProgress: ("in_progress", lambda a: pb.ChunksInProgress(chunks=a.chunks, run=a.run)),
    act.Chunk: ("chunk", _encode_chunk),
    act.AddFile: ("add_file", encode_file),
    act.RemoveFile: ("remove_file", lambda a: pb.RemoveFile(path=a.path)),
    act.Seal: ("seal", _encode_seal),
    act.Deleted: ("deleted", lambda _: pb.Deleted()),
    act.TagCreated: ("tag_created", _encode_tag),
    act.TagDeleted: ("tag_deleted", lambda a: pb.TagDeleted(name=a.name)),
    act.TagRenamed: ("tag_renamed", lambda a: pb.TagRenamed(name=a.name, tag=_encode_tag(a.tag))),
    act.TagReplaced: ("tag_replaced", lambda a: pb.TagReplaced(tag=_encode_tag(a.tag))),
    act.SavepointCreated: ("savepoint_created", _encode_savepoint),
    act.SavepointDeleted: ("savepoint_deleted", lambda a: pb.SavepointDeleted(id=a.id)),
    act.Rollback: ("rollback", _encode_rollback),
    act.ReturnedFiles: ("returned_files", lambda a: pb.ReturnedFiles(paths=a.paths)),
    act.Expired: ("expired", lambda a: pb.Expired(revisions=a.revisions)),
    act.Tombstone: ("tombstone", _encode_tombstone),
    act.Purged: ("purged", lambda a: pb.Purged(paths=a.paths)),
    act.Upgraded: ("upgraded", lambda a: pb.Upgraded(version=a.version, previous=a.previous)),
    act.Rebuilt: ("rebuilt", lambda a: pb.Rebuilt(snapshot_id=bytes.fromhex(a.snapshot_id), lost=a.lost)),
}
_DECODERS: dict[str, Callable[[Any], act.Action]] = {
    "begin": lambda m: act.Begin(m.snapshot_id.hex(), decode_header(m.header), m.force),
    "extend": lambda m: act.Extend(from_micros(m.end)),
    "schema": lambda m: act.SchemaAdded(m.schema_id, m.folder, m.sha256, _decode_refs(m.files)),
    "in_progress": lambda m: act.ChunksInProgress(tuple(m.chunks), m.run),
    "chunk": _decode_chunk,
    "add_file": decode_file,
    "remove_file": lambda m: act.RemoveFile(m.path),
    "seal": _decode_seal,
    "deleted": lambda _: act.Deleted(),
    "tag_created": _decode_tag,
    "tag_deleted": lambda m: act.TagDeleted(m.name),
    "tag_renamed": lambda m: act.TagRenamed(m.name, _decode_tag(m.tag)),
    "tag_replaced": lambda m: act.TagReplaced(_decode_tag(m.tag)),
    "savepoint_created": _decode_savepoint,
    "savepoint_deleted": lambda m: act.SavepointDeleted(m.id),
    "rollback": _decode_rollback,
    "returned_files": lambda m: act.ReturnedFiles(tuple(m.paths)),
    "expired": lambda m: act.Expired(tuple(m.revisions)),
    "tombstone": _decode_tombstone,
    "purged": lambda m: act.Purged(tuple(m.paths)),
    "upgraded": lambda m: act.Upgraded(m.version, m.previous),
    "rebuilt": lambda m: act.Rebuilt(m.snapshot_id.hex(), tuple(m.lost)),
}
