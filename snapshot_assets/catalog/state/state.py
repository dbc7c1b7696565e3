"""What is known of a location at one revision, and the questions that this answers; `state` folds it from the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.pins import Pins, TagState
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.windows import Window, count_windows, plan_windows, window_at


@dataclass(frozen=True)
class ChunkState:
    """The newest word on a chunk, and when it was said."""

    chunk: act.Chunk
    revision: int

    @property
    def exported(self) -> int:
        """The revision that exported its rows, which compactions since have written anew."""
        return self.chunk.exported or self.revision


@dataclass(frozen=True)
class SealState:
    """A seal, where it stands in the log, of which snapshot, and the format version then."""

    seal: act.Seal
    revision: int
    committed_at: datetime
    snapshot_id: str
    version: int


@dataclass(frozen=True)
class Token:
    """What a writer read when it planned: every later change of it must still find the same snapshot."""

    snapshot_id: str
    revision: int
    schema_id: int


@dataclass
class KnownState:
    """Everything that is true at one revision.

    Attributes:
        revision: Head revision, 0 for an empty location.
        snapshot_id: The snapshot that the last begin named, "" before the first.
        data_revision: Last revision that changed range, schema, chunks, files or tombstones: what a seal declares.
        files: All files, live ones and ones that older states need.
        in_progress: Run by chunk, for chunks that a run said it works on and nobody finished since.
        seals: All seals, of older snapshot ids too.
        pins: All tags and savepoints, of older snapshot ids too.
        expired: Sealed revisions that only a pin keeps readable.
        tombstones: Tombstones of the snapshot by their revision, ascending.
        events: What was said at each revision that an older state may need.
        format_version: What transactions of this state carry, 0 for an empty location.
        plans_since: The last upgrade, rebuild or rollback, 0 for none: plans that were read before it are aborted.
        rolled_back: The last rollback's revision, 0 for none: what is no part of the state was given up by it.
        forgotten: What expired by then is not told any more, however long a later snapshot's grace period is.
        checkpointed: The newest revision whose checkpoint this state was read from or written to, 0 for none.
    """

    location_id: str = ""
    revision: int = 0
    uuid: str = ""
    sha256: str = ""
    committed_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    snapshot_id: str = ""
    header: act.Header | None = None
    created_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    created_by: str = ""
    data_revision: int = 0
    schemas: dict[int, act.SchemaAdded] = field(default_factory=dict)
    chunks: dict[int, ChunkState] = field(default_factory=dict)
    files: FileSet = field(default_factory=FileSet)
    in_progress: dict[int, str] = field(default_factory=dict)
    seals: list[SealState] = field(default_factory=list)
    pins: Pins = field(default_factory=Pins)
    expired: set[int] = field(default_factory=set)
    tombstones: dict[int, act.Tombstone] = field(default_factory=dict)
    deleted: bool = False
    events: list[Event] = field(default_factory=list)
    format_version: int = 0
    plans_since: int = 0
    rolled_back: int = 0
    forgotten: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    checkpointed: int = 0

    @property
    def begun(self) -> bool:
        """Whether a snapshot is there."""
        return self.header is not None and not self.deleted

    @property
    def rebuilt_at(self) -> int:
        """The revision of the last rebuild, 0 for none: what the log has below it is no part of it."""
        for event in reversed(self.events):
            if any(isinstance(action, act.Rebuilt) for action in event.actions):
                return event.revision
        return 0

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
    def expiries_told_since(self) -> datetime:
        """The time after which a checkpoint tells what expired, though nothing has it any more: two grace periods ago.

        Garbage collection counts one, but on the store's clock, and a commit may be under way for half of it. The time
        never goes back, as what one checkpoint leaves out the next one cannot tell.
        """
        if self.header is None:
            return self.forgotten
        return max(self.forgotten, self.committed_at - 2 * timedelta(microseconds=self.header.grace))

    @property
    def schema_id(self) -> int:
        """The newest schema id, 0 where there is none yet."""
        return max(self.schemas, default=0)

    def live_files(self, chunk: int | None = None) -> Iterator[FileState]:
        """Yield the live files, of one chunk or of all, by chunk and path."""
        if chunk is None:
            return iter(self.files)
        files = self.files.chunk(chunk)
        return iter([files[path] for path in sorted(files)])

    def windows(self) -> tuple[Window, ...]:
        """Return the windows that the snapshot's range is cut into; none for an unbounded or schema-only one."""
        header = self.header
        if header is None or header.schema_only or header.start is None or header.end is None:
            return ()
        return plan_windows(header.start, header.end, timedelta(microseconds=header.chunk_time_window))

    def window(self, chunk: int) -> Window:
        """Return a chunk's window.

        Raises:
            PlanError: There is none of that id.
        """
        header = self.header
        assert header is not None
        assert header.start is not None
        return window_at(header.start, timedelta(microseconds=header.chunk_time_window), chunk, end=header.end)

    def expected_chunks(self) -> list[int]:
        """Return the ids of all chunks that a complete snapshot has: windows, and chunk 0 where it may hold rows."""
        header = self.header
        if header is None or header.schema_only:
            return []
        with_chunk_0 = header.untimed_tables == "export" or header.null_time == "chunk0"
        return [UNTIMED_CHUNK] * with_chunk_0 + [*range(1, self._window_count() + 1)]

    def _window_count(self) -> int:
        header = self.header
        if header is None or header.start is None or header.end is None:
            return 0
        return count_windows(header.start, header.end, timedelta(microseconds=header.chunk_time_window))

    def was_sealed(self, revision: int) -> bool:
        """Tell whether a revision is sealed, expired or not."""
        place = bisect_left(self.seals, revision, key=attrgetter("revision"))
        return place < len(self.seals) and self.seals[place].revision == revision

    def readable(self) -> list[SealState]:
        """Return the sealed revisions that can be read, ascending: those that are not expired, or are pinned."""
        gone = self.expired - self.pins.revisions()
        return [seal for seal in self.seals if seal.revision not in gone]

    def retained(self) -> list[int]:
        """Return the revisions whose files must stay, ascending: sealed ones that can be read, and the head."""
        return sorted({*(seal.revision for seal in self.readable()), self.revision})

    def completed(self, chunk: int) -> bool:
        """Tell whether a chunk is committed as completed."""
        known = self.chunks.get(chunk)
        return known is not None and known.chunk.status is act.ChunkStatus.COMPLETED

    def spoken_of(self, chunk: int) -> int:
        """Return the newest revision that said what a chunk holds; a rollback says it of all. 0 for none."""
        known = self.chunks.get(chunk)
        return max(known.revision if known is not None else 0, self.rolled_back)

    def missing(self) -> list[int]:
        """Return the ids of expected chunks that are not completed."""
        return [chunk for chunk in self.expected_chunks() if not self.completed(chunk)]

    def status(self, chunk: int) -> act.ChunkStatus:
        """Return a chunk's status as the manifest shows it."""
        if chunk in self.in_progress:
            return act.ChunkStatus.IN_PROGRESS if not self.completed(chunk) else act.ChunkStatus.COMPLETED
        known = self.chunks.get(chunk)
        return act.ChunkStatus.PENDING if known is None else known.chunk.status
