"""The state of a location at one revision: its fields and the questions it answers. `fold` computes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.pins import Pins, TagState
from snapshot_assets.errors import DocumentError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import TRANSACTIONS, UNTIMED_CHUNK
from snapshot_assets.format.windows import Window, count_windows, plan_windows, window_at

if TYPE_CHECKING:
    from snapshot_assets.catalog.state.data_files import FileSet
    from snapshot_assets.catalog.state.file_columns import FileState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Schemas(dict[int, act.SchemaAdded]):
    """Schemas by id. What names another one, such as a forged checkpoint, is damaged."""

    def __missing__(self, number: int) -> act.SchemaAdded:
        raise DocumentError(f"A file has schema {number}, which the log does not have.", object=TRANSACTIONS)


@dataclass(frozen=True)
class ChunkState:
    """The latest action on a chunk, and its revision."""

    chunk: act.Chunk
    revision: int

    @property
    def exported(self) -> int:
        """The revision that exported the chunk's rows; compactions may have rewritten its files since."""
        return self.chunk.exported or self.revision


@dataclass(frozen=True)
class SealState:
    """A seal with its revision, its snapshot, and the format version at that revision."""

    seal: act.Seal
    revision: int
    committed_at: datetime
    snapshot_id: str
    version: int

    @property
    def exported_at(self) -> datetime:
        """When the export whose rows it has was sealed; compactions, deletions of rows and rollbacks seal them again.

        A compaction by a version of this package that did not record that counts from itself.
        """
        return self.seal.exported_at or self.committed_at


@dataclass(frozen=True)
class Token:
    """What a writer read when it planned. Its later commits are refused if another snapshot replaced this one."""

    snapshot_id: str
    revision: int
    schema_id: int


def _no_files() -> FileSet:
    from snapshot_assets.catalog.state.data_files import FileSet

    return FileSet()


@dataclass
class BaseState:
    """The fields of a state.

    Attributes:
        revision: Head revision, 0 for an empty location.
        snapshot_id: The snapshot of the last `begin` action, "" before the first.
        data_revision: Last revision that changed range, schema, chunks, files or tombstones. A seal declares it.
        files: All files: live ones, and those that older states need.
        in_progress: Run by chunk, for chunks that a run started and that have not been committed since.
        seals: All seals, also those of older snapshots.
        pins: All tags and savepoints, also those of older snapshots.
        expired: Sealed revisions that are readable only while pinned.
        tombstones: Tombstones of the snapshot by revision, ascending.
        events: The actions of each revision, except file actions, as far as older states need them.
        format_version: The version of this state's transactions, 0 for an empty location.
        plans_valid_from: Revision of the last upgrade, rebuild or rollback, 0 for none. Older plans are refused.
        rolled_back: Revision of the last rollback, 0 for none.
        expiries_dropped_until: Checkpoints no longer record expiries up to this time, whatever the grace period is.
        checkpointed: The newest revision whose checkpoint this state was read from or written to, 0 for none.
        partial: Whether this is what a replica of chosen versions has, and not all that its log records. Such a state
            folds no transaction, and makes no checkpoint.
    """

    location_id: str = ""
    revision: int = 0
    uuid: str = ""
    sha256: str = ""
    committed_at: datetime = _EPOCH
    snapshot_id: str = ""
    header: act.Header | None = None
    created_at: datetime = _EPOCH
    created_by: str = ""
    data_revision: int = 0
    schemas: Schemas = field(default_factory=Schemas)
    chunks: dict[int, ChunkState] = field(default_factory=dict)
    files: FileSet = field(default_factory=_no_files)
    in_progress: dict[int, str] = field(default_factory=dict)
    seals: list[SealState] = field(default_factory=list)
    pins: Pins = field(default_factory=Pins)
    expired: set[int] = field(default_factory=set)
    tombstones: dict[int, act.Tombstone] = field(default_factory=dict)
    deleted: bool = False
    events: list[Event] = field(default_factory=list)
    format_version: int = 0
    plans_valid_from: int = 0
    rolled_back: int = 0
    expiries_dropped_until: datetime = _EPOCH
    checkpointed: int = 0
    partial: bool = False

    @property
    def has_snapshot(self) -> bool:
        """Whether the location holds a snapshot that was not deleted."""
        return self.header is not None and not self.deleted

    @property
    def rebuilt_at(self) -> int:
        """The revision of the last rebuild, 0 for none; older transactions do not count."""
        rebuilds = [each.revision for each in self.events for action in each.actions if isinstance(action, act.Rebuilt)]
        return max(rebuilds, default=0)

    @property
    def tags(self) -> dict[str, TagState]:
        """All tags by name."""
        return self.pins.tags

    @property
    def newest_seal(self) -> SealState | None:
        """The newest seal of the current snapshot."""
        return self.seals[-1] if self.seals and self.seals[-1].snapshot_id == self.snapshot_id else None

    @property
    def sealed(self) -> bool:
        """Whether the head's data is exactly what the newest seal declared."""
        return self.newest_seal is not None and self.newest_seal.revision >= self.data_revision

    @property
    def expiries_kept_since(self) -> datetime:
        """The time after which checkpoints record expiries that no readable revision needs: two grace periods ago.

        Garbage collection waits for one grace period by the store's clock, and a commit may take half of one. The time
        never moves back, because a checkpoint cannot restore what an older one dropped.
        """
        if self.header is None:
            return self.expiries_dropped_until
        grace = timedelta(microseconds=self.header.grace)
        return max(self.expiries_dropped_until, self.committed_at - 2 * grace)

    @property
    def schema_id(self) -> int:
        """The newest schema id, 0 for none."""
        return max(self.schemas, default=0)

    def live_files(self, chunk: int | None = None) -> Iterator[FileState]:
        """Yield the live files of one chunk or of all, by chunk and path."""
        if chunk is None:
            return iter(self.files)
        files = self.files.chunk(chunk)
        return iter([files[path] for path in sorted(files)])

    def windows(self) -> tuple[Window, ...]:
        """Return the windows of the snapshot's range; none for an unbounded or schema-only snapshot."""
        header = self.header
        if header is None or header.schema_only or header.start is None or header.end is None:
            return ()
        return plan_windows(header.start, header.end, timedelta(microseconds=header.chunk_time_window))

    def window(self, chunk: int) -> Window:
        """Return a chunk's window; raise a PlanError if the range has none of that id."""
        header = self.header
        assert header is not None
        assert header.start is not None
        return window_at(header.start, timedelta(microseconds=header.chunk_time_window), chunk, end=header.end)

    def expected_chunks(self) -> list[int]:
        """Return the ids of a complete snapshot's chunks: all windows, and chunk 0 if it may hold rows."""
        header = self.header
        if header is None or header.schema_only:
            return []
        with_chunk_0 = header.untimed_tables == "export" or header.null_time == "chunk0"
        windows = 0
        if header.start is not None and header.end is not None:
            windows = count_windows(header.start, header.end, timedelta(microseconds=header.chunk_time_window))
        return [UNTIMED_CHUNK] * with_chunk_0 + [*range(1, windows + 1)]

    def counted_chunks(self) -> list[int]:
        """Return the ids of the expected chunks, as people count them: without a chunk 0 that turned out empty."""
        expected = self.expected_chunks()
        empty = self.completed(UNTIMED_CHUNK) and not self.files.chunk(UNTIMED_CHUNK)
        return expected[1:] if empty and expected[:1] == [UNTIMED_CHUNK] else expected

    def was_sealed(self, revision: int) -> bool:
        """Return whether a revision is sealed, expired or not."""
        place = bisect_left(self.seals, revision, key=attrgetter("revision"))
        return place < len(self.seals) and self.seals[place].revision == revision

    def readable(self) -> list[SealState]:
        """Return the seals that can be read, ascending: those that are not expired, or are pinned."""
        unreadable = self.expired - self.pins.revisions()
        return [seal for seal in self.seals if seal.revision not in unreadable]

    def retained(self) -> list[int]:
        """Return the revisions whose files must stay, ascending: readable seals, and the head."""
        return sorted({*(seal.revision for seal in self.readable()), self.revision})

    def completed(self, chunk: int) -> bool:
        """Return whether a chunk is committed as completed."""
        return chunk in self.chunks and self.chunks[chunk].chunk.status is act.ChunkStatus.COMPLETED

    def last_change_of(self, chunk: int) -> int:
        """Return the newest revision that changed a chunk, 0 for none; a rollback changes all chunks."""
        return max(self.chunks[chunk].revision if chunk in self.chunks else 0, self.rolled_back)

    def missing(self) -> list[int]:
        """Return the ids of expected chunks that are not completed."""
        return [chunk for chunk in self.expected_chunks() if not self.completed(chunk)]

    def status(self, chunk: int) -> act.ChunkStatus:
        """Return a chunk's status as the manifest shows it."""
        if chunk in self.in_progress and not self.completed(chunk):
            return act.ChunkStatus.IN_PROGRESS
        return self.chunks[chunk].chunk.status if chunk in self.chunks else act.ChunkStatus.PENDING
