"""Checkpoints as bytes: a Protobuf header, and Arrow sections that are read when they are needed (FORMAT.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from google.protobuf.message import DecodeError

from snapshot_assets.errors import DocumentError, LimitExceededError, TornObjectError
from snapshot_assets.format import actions as act
from snapshot_assets.format import codec
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.codec import from_micros, to_micros
from snapshot_assets.format.documents import FORMAT_VERSION, MAX_DOCUMENT_BYTES, check_version, check_writable
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.transactions import decode_action, encode_action

MAGIC = b"SNAPCKPT"
MAX_SECTION_BYTES = 2 << 30
"""Most bytes that a section may unpack to: ten million files."""

_ADVICE = "Expire revisions and collect garbage, or compact chunks into fewer files."

_LENGTH, _DIGEST = 4, 32
_HEAD = len(MAGIC) + _LENGTH

ReadRange = Callable[[int, int], bytes]
"""Returns bytes of the object by place and length."""


@dataclass(frozen=True)
class Event:
    """What a revision said that files do not tell: its transaction without what it added and removed of them.

    Attributes:
        committed_at: UTC.
        changes_data: Whether it changed range, schema, chunks or files.
    """

    revision: int
    committed_at: datetime
    writer_id: str
    actions: tuple[act.Action, ...]
    changes_data: bool


@dataclass(frozen=True)
class Section:
    """A table in a checkpoint.

    Attributes:
        name: `files`, or `bounds` of a column.
        offset: Its place behind the header.
        size: Its length there.
        unpacked: Its length, unpacked.
        sha256: Of the bytes there, hex.
    """

    name: str
    column: str
    kind: str
    offset: int
    size: int
    unpacked: int
    sha256: str
    rows: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's header.

    Attributes:
        location_id: Hex.
        revision: The last revision it covers.
        uuid: Of that revision's transaction, hex.
        sha256: The trailing checksum of it, hex.
        committed_at: Of it, UTC.
        data_revision: The last revision that changed range, schema, chunks or files.
        events: What revisions said, in their order.
        version: Format version.
    """

    location_id: str
    revision: int
    uuid: str
    sha256: str
    committed_at: datetime
    data_revision: int
    events: tuple[Event, ...]
    sections: tuple[Section, ...] = ()
    version: int = FORMAT_VERSION


def encode_checkpoint(checkpoint: Checkpoint, tables: Iterable[tuple[str, str, str, pa.Table]]) -> bytes:
    """Return the object's bytes.

    Args:
        checkpoint: The header; its sections are not looked at.
        tables: Name, column and kind of each section, and its rows.

    Raises:
        LimitExceededError: A part of it is larger than readers take.
    """
    where = checkpoint_path(checkpoint.revision)
    body = bytearray()
    sections = []
    for name, column, kind, table in tables:
        stream = _ipc(table)
        packed = pa.compress(stream, "zstd", asbytes=True)
        check_writable(max(stream.size, len(packed)), MAX_SECTION_BYTES, f"Section {name} of {where}", _ADVICE)
        section = pb.Section(name=name, column=column, kind=kind, offset=len(body), size=len(packed))
        section.unpacked, section.rows = stream.size, table.num_rows
        section.sha256 = hashlib.sha256(packed).digest()
        sections.append(section)
        body += packed
    message = pb.Checkpoint(
        version=checkpoint.version,
        location_id=bytes.fromhex(checkpoint.location_id),
        revision=checkpoint.revision,
        uuid=bytes.fromhex(checkpoint.uuid),
        sha256=bytes.fromhex(checkpoint.sha256),
        committed_at=to_micros(checkpoint.committed_at),
        data_revision=checkpoint.data_revision,
        events=map(_encode_event, checkpoint.events),
        sections=sections,
    )
    header = message.SerializeToString(deterministic=True)
    check_writable(len(header), MAX_DOCUMENT_BYTES, f"The header of {where}", _ADVICE)
    head = MAGIC + len(header).to_bytes(_LENGTH, "little") + header
    return head + hashlib.sha256(head).digest() + bytes(body)


def _ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _encode_event(event: Event) -> pb.Event:
    return pb.Event(
        revision=event.revision,
        committed_at=to_micros(event.committed_at),
        writer_id=event.writer_id,
        changes_data=event.changes_data,
        actions=map(encode_action, event.actions),
    )


def read_header(read: ReadRange, name: str) -> tuple[Checkpoint, int]:
    """Return a checkpoint's header and where its sections begin.

    Args:
        read: Reads the object.
        name: Its path, for messages.

    Raises:
        TornObjectError: The bytes do not match their own checksum.
        UnsupportedVersionError: A newer format, or an action of a kind that this code does not know.
        DocumentError: The bytes are whole but no checkpoint.
    """
    start = read(0, _HEAD)
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if start[: len(MAGIC)] != MAGIC or len(start) < _HEAD:
        raise TornObjectError(f"{name} does not begin as a checkpoint does.", object=name)
    if length > MAX_DOCUMENT_BYTES:
        raise LimitExceededError(f"{name} has a header of {length} bytes; at most {MAX_DOCUMENT_BYTES}.", object=name)
    rest = read(_HEAD, length + _DIGEST)
    header, digest = rest[:length], rest[length:]
    if hashlib.sha256(start + header).digest() != digest:
        raise TornObjectError(f"{name} does not match its own checksum ({len(rest)} bytes read).", object=name)
    message = pb.Checkpoint()
    try:
        message.ParseFromString(header)
    except DecodeError as cause:
        raise DocumentError(f"{name} is no checkpoint: {cause}.", object=name) from cause
    check_version(message.version, name)
    try:
        return _decode(message, name), _HEAD + len(rest)
    except (OverflowError, ValueError) as cause:
        raise DocumentError(f"{name} holds a value out of range: {cause}.", object=name) from cause


def _decode(message: pb.Checkpoint, name: str) -> Checkpoint:
    return Checkpoint(
        location_id=message.location_id.hex(),
        revision=message.revision,
        uuid=message.uuid.hex(),
        sha256=message.sha256.hex(),
        committed_at=from_micros(message.committed_at),
        data_revision=message.data_revision,
        events=tuple(_decode_event(event, name) for event in message.events),
        sections=tuple(codec.decode(Section, section) for section in message.sections),
        version=message.version,
    )


def _decode_event(message: pb.Event, name: str) -> Event:
    return Event(
        revision=message.revision,
        committed_at=from_micros(message.committed_at),
        writer_id=message.writer_id,
        actions=tuple(decode_action(action, name) for action in message.actions),
        changes_data=message.changes_data,
    )


def check_bytes(read: ReadRange, size: int, name: str, *, sections: bool) -> None:
    """Check that a checkpoint is its header and its sections, one behind the other, and not a byte besides.

    Readers look only at what they need; this is for verification.

    Args:
        read: Reads the object.
        size: The object's size.
        name: Its path, for messages.
        sections: Read every section too, also those that this code does not use, and compare their checksums.

    Raises:
        TornObjectError: Bytes are missing or appended, or do not match their checksum.
        DocumentError: Sections overlap or leave a gap.
    """
    header, start = read_header(read, name)
    end = start
    for section in header.sections:
        if start + section.offset != end:
            raise DocumentError(
                f"{_title(section, name)} begins at byte {start + section.offset}; expected {end}.", object=name
            )
        end += section.size
    if size != end:
        raise TornObjectError(f"{name} has {size} bytes; expected {end}.", object=name)
    for section in header.sections if sections else ():
        _read_packed(read, start, section, name)


def _title(section: Section, name: str) -> str:
    return f"Section {' '.join(filter(None, (section.name, section.column, section.kind)))} of {name}"


def _read_packed(read: ReadRange, start: int, section: Section, name: str) -> bytes:
    which = _title(section, name)
    if max(section.unpacked, section.size) > MAX_SECTION_BYTES:
        raise LimitExceededError(
            f"{which} unpacks to {section.unpacked} bytes; at most {MAX_SECTION_BYTES} are read.", object=name
        )
    packed = read(start + section.offset, section.size)
    if hashlib.sha256(packed).hexdigest() != section.sha256:
        raise TornObjectError(f"{which} does not match its checksum ({len(packed)} bytes read).", object=name)
    return packed


def read_section(read: ReadRange, start: int, section: Section, schema: pa.Schema, name: str) -> pa.Table:
    """Return a section's rows.

    Args:
        read: Reads the object.
        start: Where sections begin in it.
        section: Which one.
        schema: The columns that it must have.
        name: The object's path, for messages.

    Raises:
        LimitExceededError: It is larger than any that is written.
        TornObjectError: Its bytes do not match their checksum.
        DocumentError: They are whole but not these columns.
    """
    which = _title(section, name)
    packed = _read_packed(read, start, section, name)
    try:
        stream = pa.decompress(packed, section.unpacked, "zstd")
        table = pa.ipc.open_stream(stream).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as cause:
        raise DocumentError(f"{which} is not what it should be: {cause}.", object=name) from cause
    if table.schema != schema or table.num_rows != section.rows:
        raise DocumentError(
            f"{which} has {table.num_rows} rows of {table.schema.names}; expected {section.rows} of {schema.names}.",
            object=name,
        )
    return table
