"""Checks of the objects that a state names: data files, schema documents and receipts.

Before the newest state is sealed or reported as whole, every file must exist with its size, and every document is
hashed. Data files that no seal has verified are hashed. If all are verified, some are hashed again, within a budget
(`due_files`). `export verify --sample` hashes a share of them (`Rotation`). Both choose by the date, so that nothing
has to be recorded, and damage to old files shows without reading all.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Literal

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import described_by, live_table
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, Remedy, faults_by_object, missing
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import chunk_checksum
from snapshot_assets.format.units import counted
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed, hashing_threads, threads

if TYPE_CHECKING:
    import pyarrow as pa

_GOLDEN = (5**0.5 - 1) / 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _day(now: datetime) -> int:
    return (now - _EPOCH).days


@dataclass(frozen=True)
class Rotation:
    """A share of all data files that is hashed each day, and that is another one on each day of a round.

    Attributes:
        days: The number of shares, and of the days of a round.
    """

    days: int
    now: datetime

    @property
    def within(self) -> int:
        """In how many daily runs every file is hashed that exists in all of them, wherever in a round they begin."""
        return 2 * self.days - 1

    @classmethod
    def of_share(cls, share: Fraction, now: datetime) -> Rotation:
        """Return the rotation that hashes a share of the bytes, from 0 (excluded) to 1, each day."""
        return cls(math.ceil(1 / share), now)

    def due(self, names: Iterable[str]) -> set[str]:
        """Return the names of what is due today; at least one, if there is any.

        The share of a name depends on it alone, so it stays the same whatever names are added and removed. Each round
        begins one share later: otherwise weekly runs with seven shares would choose the same one for ever.
        """
        rounds, day = divmod(_day(self.now), self.days)
        turn, known = day + rounds, sorted(set(names))
        parts = {name: int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self.days for name in known}
        due = {name for name in known if parts[name] == turn % self.days}
        return due or {known[turn % len(known)]} if known else set()


def due_files(files: pa.Table, now: datetime, most: int) -> set[str]:
    """Return the paths of the files that are due to be hashed again, of those with a `path` and `bytes` in a table.

    All of them are due if they are small enough. Otherwise this is a run of files in the order of their paths, which
    continues from the last file to the first. Each day the run starts a golden section of all bytes later. These starts
    spread evenly, whatever the interval between two calls. So every file is due at some time, though nothing records
    what was hashed: in a snapshot of `n * most` bytes after `2 * n` daily calls, or `5 * n` calls at other regular
    intervals. A single file may be larger than `most` bytes.
    """
    import numpy as np
    import pyarrow as pa

    if not files.num_rows or most <= 0:
        return set()
    files = files.sort_by("path")
    sizes = np.asarray(files["bytes"])
    ends = np.cumsum(sizes)
    first = np.searchsorted(ends, int(ends[-1] * (_day(now) * _GOLDEN % 1)), "right")
    turned = np.roll(np.arange(len(sizes)), -first)
    count = max(1, np.searchsorted(np.cumsum(sizes[turned]), most, "right"))
    paths = files["path"].take(pa.array(turned[:count]))
    del files, sizes, ends, turned
    pa.default_memory_pool().release_unused()  # as values, a million paths take 180 MB
    return {*paths.to_pylist()}


Depth = Literal["quick", "sample", "full"]
Scope = Literal["all", "newest", "older"]

HASHED_AGAIN = 1 << 30
"""Most bytes of verified files that are hashed again."""

FEW_CHUNKS = 10
"""Most chunks that `damaged_chunks` hashes."""

HASHING_THREADS = max(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""Threads that hash files, but see `hashing_threads`: one for each core, and enough to keep requests in flight."""

_CHECKED = 4096
"""Files that wait in the pool at a time."""
_BLOCK = 4 << 20
_LOCAL_BLOCK = 256 << 10  # stays in a core's own cache between reading and hashing


@dataclass
class Report:
    """The result of a verification.

    Attributes:
        scope: `all` readable revisions, the `newest` state, or one `older` revision.
        revision: The verified revision; for the head, older readable ones were verified too.
        sealed: Whether that revision is sealed. An unsealed one may be whole, but is not a complete snapshot.
        unfinished: What finishes and seals the newest state, in words; "" if it is sealed.
        days: For a sample with a share: in how many daily runs all data files are hashed; else 0.
        temporary_files: Temporary files of running or killed writers: no damage.
        signed: The signed seal that covers the revision, and who signed it; "" if that was not asked.
        remedy: How to end damage that only older readable revisions have.
    """

    uri: str
    depth: Depth
    scope: Scope = "all"
    location_id: str = ""
    format_version: int = 0
    revision: int = 0
    snapshot_id: str = ""
    sealed: bool = False
    missing: int = 0
    unfinished: str = ""
    files: int = 0
    hashed: int = 0
    bytes: int = 0
    paths: set[str] = field(default_factory=set)
    days: int = 0
    temporary_files: int = 0
    temporary_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    remedy: Remedy | None = None
    signed: str = ""

    @property
    def damaged(self) -> bool:
        """Whether any fault is more than a warning."""
        return any(fault.is_damage for fault in self.faults)


def file_faults(
    store: ObjectStore,
    files: Iterable[DataFile],
    objects: Listed,
    report: Report,
    hashed: Set[str] | None = None,
    progress: Callable[[DataFile], None] = lambda _: None,
) -> Iterator[Fault]:
    """Yield the faults of data files, which are checked as these are taken.

    The report's depth decides whether files are hashed: unless it is `quick`, those in `hashed`; all if that is None.
    The report gets the counts.
    """
    reads = report.depth != "quick"

    def check(file: DataFile) -> tuple[DataFile, bool, Fault | None]:
        is_hashed, info = reads and (hashed is None or file.path in hashed), objects.get(file.path)
        if info is None:
            return file, is_hashed, missing(store, file.path, file.chunk)
        if info.size != file.bytes:
            message = f"{file.path} has {counted(info.size, 'byte')}; expected {file.bytes:,}."
            return file, is_hashed, Fault(FaultKind.SIZE, file.path, message, file.chunk)
        return file, is_hashed, _hash_fault(store, file, report) if is_hashed else None

    left = iter(files)
    with threads(hashing_threads(store, HASHING_THREADS)) as pool:
        while some := [*islice(left, _CHECKED)]:  # a few at a time: what waits in a pool takes memory
            for file, is_hashed, fault in pool.map(check, some):
                report.files += 1
                report.hashed += is_hashed
                report.paths.update([file.path] if is_hashed else ())
                progress(file)
                if fault is not None:
                    yield fault


def hash_object(store: ObjectStore, path: str) -> tuple[str, int]:
    """Return the SHA-256 and the size of an object, reading it in blocks."""
    digest, size = hashlib.sha256(), 0
    with span("hash"), store.open_reader(path) as reader:
        raw = getattr(reader, "raw", None)
        # A local file needs no read-ahead, so its buffer would only copy.
        source, size_of_block = (raw, _LOCAL_BLOCK) if isinstance(raw, io.FileIO) else (reader, _BLOCK)
        block = memoryview(bytearray(size_of_block))
        while count := source.readinto(block):  # type: ignore[attr-defined]
            digest.update(block[:count])
            size += count
    return digest.hexdigest(), size


def _hash_fault(store: ObjectStore, file: DataFile, report: Report) -> Fault | None:
    try:
        found, size = hash_object(store, file.path)
    except ObjectNotFoundError:
        return missing(store, file.path, file.chunk)
    report.bytes += size
    if found == file.sha256:
        return None
    return Fault(FaultKind.CHECKSUM, file.path, f"{file.path} has SHA-256 {found}; expected {file.sha256}.", file.chunk)


def check_documents(store: ObjectStore, state: State, objects: Listed) -> Iterator[Fault]:
    """Yield the faults of schema documents, receipts and chunk checksums."""
    schemas = [ref for added in state.schemas.values() for ref in added.files]
    for _, fault in faults_by_object(store, schemas, objects):
        yield replace(fault, finding=f"{fault.finding} {described_by(state)}")
    receipts = [ref for known in state.chunks.values() for ref in known.chunk.receipts]
    for _, fault in faults_by_object(store, receipts, objects):
        yield replace(fault, repairable=True)
    for number in filter(state.completed, sorted(state.chunks)):
        yield from check_chunk_checksum(state, number)


def check_chunk_checksum(state: State, chunk: int) -> Iterator[Fault]:
    """Yield a fault if a completed chunk's checksum is not that of its live files."""
    files = [known.file for known in state.live_files(chunk)]
    found, expected = chunk_checksum((file.path, file.sha256) for file in files), state.chunks[chunk].chunk.checksum
    if found != expected:
        message = f"Chunk {chunk} has checksum {found}; the log records {expected}."
        yield Fault(FaultKind.CHUNK_CHECKSUM, f"data/{chunk}", message, chunk)


def damaged_chunks(
    store: ObjectStore, state: State, chunks: Sequence[int], *, hashed: bool = False
) -> dict[int, tuple[Fault, ...]]:
    """Return the faults of chunks whose files or receipts are damaged, by chunk.

    All objects must exist, and files must have their size. The objects of a few chunks are hashed, too. The chunks are
    completed, and in order. With `hashed`, the files of many chunks are hashed, too.
    """
    if not chunks:
        return {}
    few = len(chunks) <= FEW_CHUNKS
    objects = Listed(store, *(f"data/{chunk}/" for chunk in chunks)) if few else Listed(store, "data/")
    report = Report(store.uri, "full" if few or hashed else "quick")
    files = (known.file for chunk in chunks for known in state.live_files(chunk))
    faults = list(file_faults(store, files, objects, report))
    receipts = [ref for chunk in chunks for ref in state.chunks[chunk].chunk.receipts]
    read = [ref for ref in receipts if few or ref.path not in objects]
    faults += [fault for _, fault in faults_by_object(store, read, objects)]
    damaged: dict[int, tuple[Fault, ...]] = {}
    for fault in faults:
        assert fault.chunk is not None
        damaged[fault.chunk] = (*damaged.get(fault.chunk, ()), fault)
    return damaged


def verified_revision(state: State) -> int:
    """Return the revision up to which a seal of this snapshot has verified the files; 0 without a seal."""
    return state.newest_seal.seal.verified_revision if state.newest_seal else 0


def check_head(
    store: ObjectStore, state: State, hashed: Set[str], progress: Callable[[DataFile], None] = lambda _: None
) -> Report:
    """Check the live files and the documents of a state; hash the files in `hashed`."""
    objects = Listed(store, "data/", "schema/")
    report = Report(store.uri, "sample" if hashed else "quick", "newest", state.location_id)
    report.format_version, report.revision, report.snapshot_id = state.format_version, state.revision, state.snapshot_id
    files = (known.file for known in state.live_files())
    report.faults += file_faults(store, files, objects, report, hashed, progress)
    report.faults += check_documents(store, state, objects)
    return report


def files_to_seal(state: State, now: datetime, verified: int) -> set[str]:
    """Return the paths of the files that a seal hashes: new files, or without any, those due today.

    Files that were added after the revision `verified` are new.
    """
    new, older = _by_age(state, verified)
    return {*new["path"].to_pylist()} or due_files(older, now, HASHED_AGAIN)


def has_new_files(state: State, verified: int) -> bool:
    """Return whether files were added after a revision."""
    return bool(_by_age(state, verified)[0].num_rows)


def files_after_seal(state: State, now: datetime, verified: int) -> set[str]:
    """Return the paths of the files that are due today and that a seal of this state did not hash.

    To the seal, files that were added after the revision `verified` were new.
    """
    new, older = _by_age(state, verified)
    return due_files(older, now, HASHED_AGAIN) if new.num_rows else set()


def _by_age(state: State, verified: int) -> tuple[pa.Table, pa.Table]:
    """Return `path` and `bytes` of the files that were added after a revision, and those of the older files."""
    import pyarrow.compute as pc

    files = live_table(state, ["path", "bytes", "added"])
    return files.filter(pc.field("added") > verified), files.filter(pc.field("added") <= verified)
