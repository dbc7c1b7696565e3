"""Receipts: what one finished attempt at a chunk is about to commit, written before the commit.

A resume adopts a complete receipt instead of reading the source again; a rebuild finds the data by receipts. A repair
writes a lost receipt again from what the log records: the log has the SHA-256 of the lost one, and cannot give its
bytes. So the new one names that SHA-256 and has a checksum of its own (FORMAT.md, section 7).
"""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.message import DecodeError, Message
from pydantic import TypeAdapter, ValidationError

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError, DamageError, DocumentError, SnapshotError, UnsupportedVersionError
from snapshot_assets.format import codec
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.actions import AddFile, DataFile, Header, ObjectRef
from snapshot_assets.format.chunk_parts import KeyRange
from snapshot_assets.format.documents import (
    FORMAT_VERSION,
    MAX_DOCUMENT_BYTES,
    canonical_json,
    check_writable,
    parse_json,
    pretty_json,
    sha256_hex,
)
from snapshot_assets.format.layout import (
    attempt_of,
    check_data_path,
    chunk_of,
    is_receipt,
    receipt_attempt,
    receipt_path,
)
from snapshot_assets.format.transactions import decode_file, encode_file
from snapshot_assets.format.units import counted, duration_text, parse_time, time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own


@dataclass(frozen=True)
class CompactedTable:
    """A table of a chunk that a compaction rewrote, without rows that tombstones deleted or a newer key replaced."""

    schema: str
    table: str
    rows_deleted: int = 0
    rows_duplicate: int = 0


@dataclass(frozen=True)
class Compaction:
    """A compaction of a chunk; the receipt does not list the tables that it left as they were.

    `dedupe` is `primary_key` if rows with equal primary keys were merged; "" otherwise.
    """

    dedupe: str
    tables: tuple[CompactedTable, ...]


@dataclass(frozen=True)
class Receipt:
    """One finished attempt at a chunk.

    Attributes:
        base_revision: The head when the attempt started.
        schema_sha256: Checksum of the schema of its files.
        attempt: 8 hex digits; part of the receipt's name.
        opened_at: When the first of its files was opened.
        fence: The database state that it read.
        files: Its data files with statistics; of a compaction, all files of its tables.
        supersedes: Attempts whose files this one replaces.
        location_id: Its location; "" in receipts of builds before the first release.
        header: The snapshot's header when the attempt started, for a rebuild; None in receipts of such builds.
        compaction: The compaction; None for a receipt of the whole chunk.
        ranges: The ranges of divided tables; () in receipts of older builds, and in that of a compaction.
    """

    snapshot_id: str
    base_revision: int
    schema_sha256: str
    chunk: int
    attempt: str
    opened_at: datetime
    fence: dict[str, str]
    files: tuple[DataFile, ...]
    supersedes: tuple[str, ...] = ()
    run: str = ""
    location_id: str = ""
    header: Header | None = None
    version: int = FORMAT_VERSION
    compaction: Compaction | None = None
    ranges: tuple[KeyRange, ...] = ()

    @property
    def path(self) -> str:
        """The receipt's path."""
        return receipt_path(self.chunk, self.attempt)


_RECEIPT = TypeAdapter(Receipt)


def write_receipt(store: ObjectStore, receipt: Receipt) -> ObjectRef:
    """Write a receipt and return its reference for the transaction; raise a LimitExceededError if readers reject it."""
    data = pretty_json(receipt_json(receipt))
    advice = f"It has {counted(len(receipt.files), 'file')}; take a shorter chunk_time_window."
    check_writable(len(data), MAX_DOCUMENT_BYTES, receipt.path, advice)
    create_own(store, receipt.path, data)
    return ObjectRef(receipt.path, sha256_hex(data), len(data))


def write_young_receipt(store: ObjectStore, receipt: Receipt, now: datetime) -> ObjectRef:
    """Write a receipt unless garbage collection may already count its files as orphans; see `check_age`.

    A resume may adopt the receipt, so it must not appear shortly before its files are deleted.
    """
    if receipt.header is not None:
        check_age(receipt.header, receipt.chunk, receipt.opened_at, now)
    return write_receipt(store, receipt)


def check_age(header: Header, chunk: int, opened_at: datetime, now: datetime) -> None:
    """Refuse to commit a chunk's files if garbage collection may already count them as orphans."""
    half = timedelta(microseconds=header.grace) / 2
    if now - opened_at > half:
        raise ConflictError(
            f"The files of chunk {chunk} were opened at {time_text(opened_at)}, more than half the "
            f"grace period of {duration_text(half * 2)} ago; garbage collection may already count them as orphans. "
            "Use smaller windows or a longer grace.",
            chunk=chunk,
        )


def read_receipt(store: ObjectStore, path: str) -> tuple[Receipt, ObjectRef]:
    """Return the receipt at a path, and its reference; raise a DocumentError if it is not valid."""
    data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    return parse_receipt(data, path), ObjectRef(path, sha256_hex(data), len(data))


def parse_receipt(data: bytes, path: str) -> Receipt:
    """Return the receipt in the bytes of an object; see `read_receipt`."""
    value = parse_json(data, path)
    try:
        header = value.get("header")
        decoded = {
            "header": None if header is None else codec.decode(Header, pb.Header.FromString(_bytes(header))),
            "opened_at": parse_time(value["opened_at"]),
            "files": [decode_file(pb.AddFile.FromString(_bytes(file["add_file"]))).file for file in value["files"]],
        }
        receipt = _RECEIPT.validate_python(value | decoded)
    except (KeyError, TypeError, ValueError, AttributeError, SnapshotError, DecodeError) as cause:
        why = repr(cause)
        if isinstance(cause, ValidationError):
            first = cause.errors(include_url=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DocumentError(f"{path} is not a valid receipt: {why}.", object=path) from cause
    for file in receipt.files:
        check_data_path(file.path, receipt.chunk)
    if receipt.path != path:
        raise DocumentError(f"{path} is the receipt of {receipt.path}.", object=path)
    return receipt


def receipt_json(receipt: Receipt) -> dict[str, Any]:
    """Return the members of a receipt's document."""
    return {
        "version": receipt.version,
        "location_id": receipt.location_id,
        "snapshot_id": receipt.snapshot_id,
        "header": None if receipt.header is None else _base64(codec.encode(receipt.header)),
        "base_revision": receipt.base_revision,
        "schema_sha256": receipt.schema_sha256,
        "chunk": receipt.chunk,
        "attempt": receipt.attempt,
        "opened_at": time_text(receipt.opened_at),
        "fence": dict(sorted(receipt.fence.items())),
        "supersedes": list(receipt.supersedes),
        "run": receipt.run,
        "compaction": asdict(receipt.compaction) if receipt.compaction else None,
        **({"ranges": [asdict(each) for each in receipt.ranges]} if receipt.ranges else {}),
        "files": [
            {name: getattr(file, name) for name in ("path", "schema", "table", "rows", "bytes", "sha256")}
            | {"add_file": _base64(encode_file(AddFile(file)))}  # complete, as in the transaction
            for file in receipt.files
        ],
    }


def _base64(message: Message) -> str:
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


_REPLACES, _CHECKSUM = "replaces", "checksum"


def stands_for(data: bytes, ref: ObjectRef) -> bool:
    """Return whether bytes are those that the log names, or a receipt that was written again in their place."""
    same = sha256_hex(data) == ref.sha256
    if same or not is_receipt(ref.path):
        return same
    try:
        document = parse_json(data, ref.path)
    except (DamageError, UnsupportedVersionError):
        return False
    checksum = document.pop(_CHECKSUM, None)
    return document.get(_REPLACES) == ref.sha256 and checksum == sha256_hex(canonical_json(document))


def receipt_again(state: State, ref: ObjectRef, known: frozenset[str]) -> bytes:
    """Return a receipt of all files of a chunk, as the log gives them.

    Its base is the revision before the one that committed these files, so that no run adopts it after that commit.

    Args:
        state: The newest readable state whose chunk names the receipt.
        ref: The receipt, as the log names it.
        known: Paths of all files that the log has, so that the receipt of a replaced chunk says so.
    """
    number = chunk_of(ref.path)
    assert number is not None
    chunk, files = state.chunks[number], tuple(known.file for known in state.live_files(number))
    schema_id = max((file.schema_id for file in files), default=state.schema_id)
    times = {event.revision: event.committed_at for event in state.events}
    before = {attempt_of(path) for path in known if chunk_of(path) == number} - {file.attempt for file in files}
    receipt = Receipt(
        snapshot_id=state.snapshot_id,
        base_revision=chunk.revision - 1,
        schema_sha256=state.schemas[schema_id].sha256,
        chunk=number,
        attempt=receipt_attempt(ref.path),
        opened_at=times.get(chunk.revision, state.committed_at),
        fence=dict(chunk.chunk.fence),
        files=files,
        supersedes=tuple(sorted(before)),
        run=chunk.chunk.run,
        location_id=state.location_id,
        header=state.header,
        version=state.format_version,
        ranges=chunk.chunk.ranges,
    )
    document = receipt_json(receipt) | {_REPLACES: ref.sha256}
    return pretty_json(document | {_CHECKSUM: sha256_hex(canonical_json(document))})
