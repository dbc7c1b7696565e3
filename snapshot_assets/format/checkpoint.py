"""Checkpoints as bytes: a Protobuf header, and Arrow sections that readers fetch on demand (FORMAT.md, section 7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from snapshot_assets.errors import DocumentError, LimitExceededError, TornObjectError
from snapshot_assets.format import actions as act
from snapshot_assets.format import codec, transactions  # noqa: F401  transactions registers codecs of actions
from snapshot_assets.format.documents import FORMAT_VERSION, MAX_DOCUMENT_BYTES, check_writable
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"SNAPCKPT"
MAX_SECTION_BYTES = 2 << 30
"""Most bytes that a section may unpack to: enough for ten million files."""

_ADVICE = "Expire revisions and collect garbage, or compact chunks into fewer files."

_LENGTH, _DIGEST = 4, 32
_HEAD = len(MAGIC) + _LENGTH

ReadRange = Callable[[int, int], bytes]
"""Returns bytes of the object, given an offset and a length."""

_unpacked: WeakValueDictionary[tuple[str, int], pa.Table] = WeakValueDictionary()
"""Sections that are in memory, by checksum and unpacked length: states of one checkpoint share its rows."""


@dataclass(frozen=True)
class Event:
    """One revision's transaction without the actions that add and remove files; those are in the section `files`.

    `changes_data` is whether the transaction changed range, schema, chunks or files.
    """

    revision: int
    committed_at: datetime
    writer_id: str
    actions: tuple[act.Action, ...]
    changes_data: bool


@dataclass(frozen=True)
class ReleasedHold:
    """The last release of a tag from a legal hold, and its revision; the tag may be deleted since."""

    name: str
    revision: int


@dataclass(frozen=True)
class Section:
    """A table in a checkpoint: `files`, or `bounds` of a column.

    Attributes:
        offset: Offset of its first byte from the end of the header, in bytes.
        size: Stored length in bytes.
        unpacked: Uncompressed length in bytes.
        sha256: Of the stored bytes, hex.
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
    """A checkpoint's header. Ids and the trailing checksum are those of its revision's transaction, in hex.

    Attributes:
        revision: The last revision it covers.
        committed_at: Time of that transaction, UTC.
        data_revision: The last revision that changed range, schema, chunks or files.
        events: One per covered revision, in order.
        released_holds: By name. Builds that did not record them wrote none.
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
    released_holds: tuple[ReleasedHold, ...] = ()


def encode_checkpoint(checkpoint: Checkpoint, tables: Iterable[tuple[str, str, str, pa.Table]]) -> bytes:
    """Return the object's bytes; its sections are those of `tables`: name, column, kind and rows of each.

    Raises:
        LimitExceededError: A part is larger than readers accept.
    """
    import pyarrow as pa

    where = checkpoint_path(checkpoint.revision)
    parts: list[pa.Buffer] = []
    sections, offset = [], 0
    for name, column, kind, table in tables:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:  # the files of a large location take hundreds of MB
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
            unpacked = stream.tell()
        packed = sink.getvalue()
        check_writable(max(unpacked, packed.size), MAX_SECTION_BYTES, f"Section {name} of {where}", _ADVICE)
        digest = hashlib.sha256(packed).hexdigest()
        sections.append(Section(name, column, kind, offset, packed.size, unpacked, digest, table.num_rows))
        parts.append(packed)
        offset += packed.size
    header: bytes = codec.encode(replace(checkpoint, sections=tuple(sections))).SerializeToString(deterministic=True)
    check_writable(len(header), MAX_DOCUMENT_BYTES, f"The header of {where}", _ADVICE)
    head = MAGIC + len(header).to_bytes(_LENGTH, "little") + header
    return b"".join([head, hashlib.sha256(head).digest(), *parts])


def read_header(read: ReadRange, name: str) -> tuple[Checkpoint, int]:
    """Return a checkpoint's header and the offset of its first section; see `decode_document` for errors.

    Raises:
        TornObjectError: The bytes do not match their own checksum.
    """
    start = read(0, _HEAD)
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if start[: len(MAGIC)] != MAGIC or len(start) < _HEAD:
        raise TornObjectError(f"{name} does not start like a checkpoint.", object=name)
    if length > MAX_DOCUMENT_BYTES:
        raise LimitExceededError(
            f"{name} has a header of {length:,} bytes; at most {MAX_DOCUMENT_BYTES:,}.", object=name
        )
    rest = read(_HEAD, length + _DIGEST)
    header, digest = rest[:length], rest[length:]
    if hashlib.sha256(start + header).digest() != digest:
        raise TornObjectError(
            f"{name} does not match its own checksum ({counted(len(rest), 'byte')} read).", object=name
        )
    return codec.decode_document(Checkpoint, header, name), _HEAD + len(rest)


def check_bytes(read: ReadRange, size: int, name: str) -> None:
    """Check that a checkpoint consists of its header and its sections, without gaps and without other bytes.

    Only verification calls this; readers fetch only the sections that they need. Errors are as those of `read_section`.
    """
    header, start = read_header(read, name)
    end = start
    for section in header.sections:
        if start + section.offset != end:
            raise DocumentError(
                f"{_title(section, name)} starts at byte {start + section.offset}; expected {end}.", object=name
            )
        end += section.size
    if size != end:
        raise TornObjectError(f"{name} has {counted(size, 'byte')}; expected {end:,}.", object=name)


def _title(section: Section, name: str) -> str:
    return f"Section {' '.join(filter(None, (section.name, section.column, section.kind)))} of {name}"


def read_packed(read: ReadRange, start: int, section: Section, name: str) -> bytes:
    """Return a section's compressed bytes; see `read_section` for arguments and errors."""
    which = _title(section, name)
    if max(section.unpacked, section.size) > MAX_SECTION_BYTES:
        raise LimitExceededError(
            f"{which} unpacks to {section.unpacked:,} bytes; at most {MAX_SECTION_BYTES:,} are read.", object=name
        )
    packed = read(start + section.offset, section.size)
    if hashlib.sha256(packed).hexdigest() != section.sha256:
        raise TornObjectError(
            f"{which} does not match its checksum ({counted(len(packed), 'byte')} read).", object=name
        )
    return packed


def read_section(read: ReadRange, start: int, section: Section, schema: pa.Schema, name: str) -> pa.Table:
    """Return a section's rows, which must have the columns of `schema`; `start` is the offset of the first section.

    Raises:
        LimitExceededError: The section is larger than writers allow.
        TornObjectError: The bytes do not match their checksum.
        DocumentError: The bytes match their checksum but do not hold these columns.
    """
    import pyarrow as pa

    which = _title(section, name)
    packed = read_packed(read, start, section, name)
    table = _unpacked.get((section.sha256, section.unpacked))
    if table is None:
        try:
            stream = pa.decompress(packed, section.unpacked, "zstd")
            del packed  # beside its rows, which are checked now
            table = pa.ipc.open_stream(stream).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as cause:
            raise DocumentError(f"{which} is not a valid Arrow stream: {cause}.", object=name) from cause
        _unpacked[section.sha256, section.unpacked] = table
    if table.schema != schema or table.num_rows != section.rows:
        raise DocumentError(
            f"{which} has {counted(table.num_rows, 'row')} of {table.schema.names}; expected {section.rows:,} of"
            f" {schema.names}.",
            object=name,
        )
    return table
