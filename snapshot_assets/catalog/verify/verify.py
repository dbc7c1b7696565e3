"""Verification: collects every fault of a location and never stops at the first; it changes nothing.

`quick` checks the structure: log chain, names, sizes, receipts, coverage, hints, pins, orphans. `full` reads every byte
besides and recomputes all three checksum layers. Both check everything that any readable revision needs. If one
revision is asked for, they check what that one needs, and the log, which says what that is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from snapshot_assets.catalog.log.replay import LogScan, scan_log
from snapshot_assets.catalog.log.truncation import lost_ends
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.checkpoints import checkpoint_faults
from snapshot_assets.catalog.verify.faults import Fault as Fault  # what verification gives its callers
from snapshot_assets.catalog.verify.faults import FaultKind as FaultKind
from snapshot_assets.catalog.verify.faults import object_faults
from snapshot_assets.catalog.verify.hints import hint_faults
from snapshot_assets.catalog.verify.pins import pin_faults
from snapshot_assets.catalog.verify.remedy import Remedy, remedy_of
from snapshot_assets.catalog.verify.retained import of_older, older_document_faults, older_files, older_seal_faults
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.actions import (
    Action,
    AddFile,
    Chunk,
    Rebuilt,
    SavepointCreated,
    SchemaAdded,
    TagCreated,
    TagRenamed,
    TagReplaced,
)
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import MANIFEST, in_layout, is_temporary, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

Depth = Literal["quick", "full"]
_BLOCK = 4 << 20
_READERS = 4
_AGAIN_FROM_SOURCE = (
    "`snapshots export create` writes it again from a source whose schema is as it was; else bring it back from a copy."
)


@dataclass
class Report:
    """What a verification found.

    Attributes:
        depth: How deep it went.
        revision: The revision that was verified, with the older ones that can be read if it is the head.
        sealed: Whether that revision is sealed; one that is not may be whole, but is no complete snapshot.
        missing: Chunks that are not exported.
        files: Data files checked.
        bytes: Bytes of data files read and hashed.
        temporary_files: Temporary files of writers that are at work or were killed: no damage.
        temporary_bytes: Their size.
        remedy: How the damage ends, where only older readable revisions have it and the newest state is whole.
    """

    uri: str
    depth: Depth
    revision: int = 0
    snapshot_id: str = ""
    sealed: bool = False
    missing: int = 0
    files: int = 0
    bytes: int = 0
    temporary_files: int = 0
    temporary_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    remedy: Remedy | None = None

    @property
    def damaged(self) -> bool:
        """Whether any fault is more than a warning."""
        return any(fault.is_damage for fault in self.faults)


def verify(
    store: ObjectStore,
    *,
    depth: Depth = "full",
    at: Callable[[State], int] | None = None,
    progress: Callable[[DataFile], None] = lambda _: None,
    scan: LogScan | None = None,
) -> Report:
    """Verify a location and report every fault.

    Args:
        store: The location.
        depth: `quick` reads no data; `full` reads all.
        at: Resolves the one revision to verify, from the head's state; None for the head and all older readable ones.
        progress: Called for each data file done.
        scan: The location's log, if the caller has read it; its faults are completed here.

    Raises:
        VersionNotFoundError: `at` names no such revision.
    """
    scan = scan or scan_log(store)
    objects = Listed(store)
    if scan.state.revision >= max(scan.transactions, default=1):  # else what is later than the state is no loss
        scan.faults += [(lost.attributes["object"], lost) for lost in lost_ends(store, scan.state, objects)]
    report = Report(store.uri, depth)
    report.faults += _log_faults(scan)
    head = scan.state
    state = head if at is None else head.at(at(head))
    report.revision, report.snapshot_id = state.revision, state.snapshot_id
    if state.header is None:
        if not report.faults:
            report.faults.append(Fault(FaultKind.MISSING, "transactions/", f"There is no snapshot at {store.uri}."))
        return report
    report.sealed, report.missing = state.sealed, len(state.missing())
    only = None if at is None else state.revision
    report.faults += check_files(store, state, objects, report, progress=progress)
    report.faults += check_documents(store, state, objects)
    report.faults += _seal_faults(state)
    report.faults += checkpoint_faults(store, scan, objects, full=depth == "full")
    report.faults += _hint_faults(store, scan, only)
    older = at is None and _reached_the_head(scan, objects)
    if older:
        report.faults += _older_faults(store, head, objects, report, progress)
    report.faults += pin_faults(store, scan, state, objects, only=only, contents=not older)
    if at is None:
        report.faults += _orphans(scan, objects)
        left = [info.size for info in store.temporaries() if is_temporary(info.path)]
        report.temporary_files, report.temporary_bytes = len(left), sum(left)
    if older:
        report.remedy = remedy_of(head, store.uri, report.faults)
    report.faults.sort(key=lambda fault: (not fault.is_damage, fault.object, fault.kind))
    return report


def _log_faults(scan: LogScan) -> Iterator[Fault]:
    for path, error in scan.faults:
        yield Fault(FaultKind.LOG, path, f"{type(error).__name__}: {error}")
    for event in scan.state.events:
        for action in event.actions:
            if isinstance(action, Rebuilt) and action.lost:
                message = f"The log was rebuilt at revision {event.revision}; lost is: {' '.join(action.lost)}"
                yield Fault(FaultKind.LOST, transaction_path(event.revision), message)


def _reached_the_head(scan: LogScan, objects: Listed) -> bool:
    """Whether the log was read to its end; what lies behind a fault may have made older revisions expire."""
    return not scan.faults or scan.state.revision >= max(map(log_revision, objects), default=0)


def _hint_faults(store: ObjectStore, scan: LogScan, revision: int | None) -> Iterator[Fault]:
    """Yield the faults of the hints; for one revision, only those of its own, or of a log that lost its end."""
    newest = scan.state.newest_seal
    own = revision is None or (newest is not None and newest.revision == revision)
    yield from (fault for fault in hint_faults(store, scan) if own or fault.kind is FaultKind.LOG)


def check_files(
    store: ObjectStore,
    state: State,
    objects: Listed,
    report: Report,
    *,
    chunk: int | None = None,
    progress: Callable[[DataFile], None] = lambda _: None,
    hashed: Callable[[FileState], bool] = lambda _: True,
) -> Iterator[Fault]:
    """Yield the faults of live data files.

    Args:
        store: The location.
        state: The state whose files are checked.
        objects: The location's objects by path.
        report: Its depth says whether files are hashed; it gets the counts.
        chunk: Check the files of one chunk only.
        progress: Called for each file done.
        hashed: At depth `full`, whether a file is to be hashed.
    """
    full = report.depth == "full"
    work = [(known.file, full and hashed(known)) for known in state.live_files(chunk)]
    for _, fault in _checked(store, work, objects, report, progress):
        if fault is not None:
            yield fault


def _checked(
    store: ObjectStore,
    work: list[tuple[DataFile, bool]],
    objects: Listed,
    report: Report,
    progress: Callable[[DataFile], None],
) -> Iterator[tuple[DataFile, Fault | None]]:
    """Yield files and what is wrong with them; each comes with whether it is to be hashed."""

    def check(item: tuple[DataFile, bool]) -> Fault | None:
        file, hashed = item
        info = objects.get(file.path)
        if info is None:
            return Fault(FaultKind.MISSING, file.path, f"{file.path} is missing.", file.chunk)
        if info.size != file.bytes:
            return Fault(
                FaultKind.SIZE, file.path, f"{file.path} has {info.size} bytes; expected {file.bytes}.", file.chunk
            )
        return _hash_fault(store, file, report) if hashed else None

    with ThreadPoolExecutor(_READERS) as pool:
        for (file, _), fault in zip(work, pool.map(check, work), strict=True):
            report.files += 1
            progress(file)
            yield file, fault


def _older_faults(
    store: ObjectStore,
    head: State,
    objects: Listed,
    report: Report,
    progress: Callable[[DataFile], None],
) -> Iterator[Fault]:
    """Yield the faults of readable revisions before the head, but for what the head has too."""
    full = report.depth == "full"
    needed = {file.path: (file, revisions) for file, revisions in older_files(head)}
    work = [(file, full) for file, _ in needed.values()]
    for file, fault in _checked(store, work, objects, report, progress):
        if fault is not None:
            yield of_older(fault, head, needed[file.path][1])
    yield from older_document_faults(store, head, objects, full=full)
    if full:
        yield from older_seal_faults(head)


def hash_object(store: ObjectStore, path: str) -> tuple[str, int]:
    """Return the SHA-256 and the size of an object, reading it in blocks."""
    digest, size = hashlib.sha256(), 0
    with store.open_reader(path) as reader:
        while block := reader.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def _hash_fault(store: ObjectStore, file: DataFile, report: Report) -> Fault | None:
    try:
        found, size = hash_object(store, file.path)
    except ObjectNotFoundError:
        return Fault(FaultKind.MISSING, file.path, f"{file.path} is missing.", file.chunk)
    report.bytes += size
    if found == file.sha256:
        return None
    return Fault(FaultKind.CHECKSUM, file.path, f"{file.path} has SHA-256 {found}; expected {file.sha256}.", file.chunk)


def check_documents(store: ObjectStore, state: State, objects: Listed) -> Iterator[Fault]:
    """Yield the faults of schema documents, receipts and chunk checksums."""
    yield from _schema_faults(store, state, objects)
    yield from _receipt_faults(store, state, objects)
    yield from _chunk_faults(state)


def _schema_faults(store: ObjectStore, state: State, objects: Listed) -> Iterator[Fault]:
    for added in state.schemas.values():
        for ref in added.files:
            for fault in object_faults(store, ref, ref.path in objects):
                yield replace(fault, message=f"{fault.message} {_AGAIN_FROM_SOURCE}")


def _receipt_faults(store: ObjectStore, state: State, objects: Listed) -> Iterator[Fault]:
    for number, known in sorted(state.chunks.items()):
        for ref in known.chunk.receipts:
            yield from object_faults(store, ref, ref.path in objects, number)


def _chunk_faults(state: State) -> Iterator[Fault]:
    for number in sorted(state.chunks):
        if state.completed(number):
            yield from check_chunk_checksum(state, number)


def check_chunk_checksum(state: State, chunk: int) -> Iterator[Fault]:
    """Yield a fault if a completed chunk's checksum is not that of its live files."""
    files = [known.file for known in state.live_files(chunk)]
    found, expected = chunk_checksum((file.path, file.sha256) for file in files), state.chunks[chunk].chunk.checksum
    if found != expected:
        message = f"Chunk {chunk} has checksum {found}; the log says {expected}."
        yield Fault(FaultKind.CHUNK_CHECKSUM, f"data/{chunk}", message, chunk)


def _seal_faults(state: State) -> Iterator[Fault]:
    for number in state.missing() if state.sealed else ():
        yield Fault(FaultKind.COVERAGE, f"data/{number}", f"Chunk {number} is not in the sealed snapshot.", number)
    if state.sealed and state.newest_seal is not None:
        found = checksum_of(state)
        if found != state.newest_seal.seal.checksum:
            message = f"The snapshot has checksum {found}; its seal says {state.newest_seal.seal.checksum}."
            yield Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message)


def _orphans(scan: LogScan, objects: Listed) -> Iterator[Fault]:
    """Objects that the log never named, and objects that the format does not know at all."""
    named = _ever_named(scan)
    for path in objects:
        if not in_layout(path):
            yield Fault(FaultKind.FOREIGN, path, f"{path} is not part of the format; nothing here will touch it.")
        elif path.startswith(("data/", "schema/", "tag/", "savepoint/")) and path not in named and not scan.faults:
            yield Fault(FaultKind.ORPHAN, path, f"{path} is named by no transaction; garbage collection removes it.")


def _ever_named(scan: LogScan) -> set[str]:
    said = [action for entry in scan.entries for action in entry.transaction.actions]
    said += [action for event in scan.state.events for action in event.actions]
    return scan.state.files.paths() | {path for action in said for path in named_by(action)}


def named_by(action: Action) -> list[str]:
    """Return the paths of the objects that an action names."""
    match action:
        case AddFile():
            return [action.file.path]
        case SchemaAdded():
            return [ref.path for ref in action.files]
        case Chunk():
            return [ref.path for ref in action.receipts]
        case TagCreated() | SavepointCreated():
            return [action.object.path]
        case TagRenamed() | TagReplaced():
            return [action.tag.object.path]
    return []
