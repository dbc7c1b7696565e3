"""The state of a location: what folding its transactions in order gives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from snapshot_assets.catalog.file_set import FileSet, FileState
from snapshot_assets.catalog.pin_set import PinAction, Pins, Place, TagState
from snapshot_assets.errors import BrokenLinkError, DocumentError, ForeignLocationError, ForkError, GapError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import (
    UNTIMED_CHUNK,
    check_data_path,
    check_receipt_path,
    check_schema_path,
    checkpoint_path,
    chunk_of,
    transaction_path,
)
from snapshot_assets.format.windows import Window, plan_windows, window_at


@dataclass(frozen=True)
class LogEntry:
    """A transaction and the checksum that its successor links to."""

    transaction: act.Transaction
    sha256: str

    @property
    def begins_anew(self) -> bool:
        """Whether it follows nothing: a rebuild wrote it."""
        return any(isinstance(action, act.Rebuilt) for action in self.transaction.actions)


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


@dataclass
class State:
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

    def apply(self, entry: LogEntry, name: str) -> None:
        """Fold one more transaction.

        Args:
            entry: The transaction that follows this state.
            name: Its path, for messages.

        Raises:
            DamageError: It does not follow this state, or its actions contradict it.
        """
        if entry.begins_anew:
            raise _unreadable_beginning(entry, name)
        _check_follows(self, entry.transaction, name)
        transaction = entry.transaction
        self.format_version = self.format_version or transaction.version
        self.location_id = transaction.location_id
        self.uuid = transaction.uuid
        self.sha256 = entry.sha256
        self._follow(transaction.committed_at, transaction.writer_id, transaction.actions, name)
        if transaction.version != self.format_version:
            raise DocumentError(
                f"{name} has format version {transaction.version}; expected {self.format_version}.", object=name
            )

    def _follow(self, committed_at: datetime, writer_id: str, actions: Sequence[act.Action], name: str) -> None:
        changes_data = any(isinstance(action, DATA_ACTIONS) for action in actions)
        of_files, others = _apart(actions)
        self.fold(Event(self.revision + 1, committed_at, writer_id, others, changes_data), name)
        for action in of_files:
            self._change_files(action, name)

    def after(self, actions: Sequence[act.Action]) -> State:
        """Return the state that a commit of actions would lead to; this one stays as it is.

        Raises:
            DamageError: They contradict this state.
        """
        found = replace(self, **{each.name: copy(getattr(self, each.name)) for each in fields(self)})
        found._follow(self.committed_at, "", actions, transaction_path(self.revision + 1))
        return found

    def fold(self, event: Event, name: str) -> None:
        """Fold one more event; its files are not among it."""
        self.revision = event.revision
        self.committed_at = event.committed_at
        if event.changes_data:
            self.data_revision = event.revision
        pinned = self._kept_by_pins(event)
        for action in event.actions:
            self._apply_action(action, event, name)
        if event.actions:
            self.events.append(self._with_unpinned(event, pinned))

    def _kept_by_pins(self, event: Event) -> set[int]:
        """Return the expired revisions that only pins keep, if an event changes pins."""
        changes_pins = any(isinstance(action, PinAction) for action in event.actions)
        return self.expired & self.pins.revisions() if changes_pins else set()

    def _with_unpinned(self, event: Event, pinned: set[int]) -> Event:
        """Return an event that says too which revisions expired with their last pin.

        So what a pin's end left unneeded ages as what any expiry did, and is told by checkpoints for as long, which
        know nothing of pins that are gone.
        """
        told = {each for action in event.actions if isinstance(action, act.Expired) for each in action.revisions}
        unpinned = pinned - self.pins.revisions() - told
        if not unpinned:
            return event
        return replace(event, actions=(*event.actions, act.Expired(tuple(sorted(unpinned)))))

    def _change_files(self, action: FileAction, name: str) -> None:
        match action:
            case act.ReturnedFiles():
                unknown = self.files.bring_back(action.paths, self.revision)
                if unknown:
                    raise DocumentError(f"{name} returns {min(unknown)}, which is live or not known.", object=name)
            case act.Purged():
                kept = self.files.purge(action.paths)
                if kept:
                    raise DocumentError(f"{name} purges {min(kept)}, which is live or not known.", object=name)
            case act.AddFile():
                self._add(action.file, name)
            case act.RemoveFile():
                self._remove(action.path, name)

    def _apply_action(self, action: act.Action, event: Event, name: str) -> None:
        match action:
            case act.Begin():
                self._begin(action, event)
            case act.Extend():
                self.header = _extended(self.header, action, name)
            case act.SchemaAdded():
                for ref in action.files:
                    check_schema_path(ref.path)
                self.schemas[action.schema_id] = action
            case act.ChunksInProgress():
                self.in_progress.update(dict.fromkeys(action.chunks, action.run))
            case act.Chunk():
                for ref in action.receipts:
                    check_receipt_path(ref.path, action.id)
                self.chunks[action.id] = ChunkState(action, self.revision)
                self.in_progress.pop(action.id, None)
            case act.Seal():
                sealed = SealState(action, self.revision, self.committed_at, self.snapshot_id, self.format_version)
                self.seals.append(sealed)
            case act.Deleted():
                self.deleted = True
            case act.Upgraded():
                self._upgrade(action, name)
            case act.Rebuilt():
                self.plans_since = self.revision
            case act.Tombstone():
                self._bury(action, name)
            case act.Rollback():
                self._roll_back(action)
            case act.Expired():
                self.expired.update(action.revisions)
            case _ if isinstance(action, PinAction):
                place = Place(self.revision, event.writer_id, self.format_version)
                self.pins.fold(action, place, self.was_sealed, name)

    def _bury(self, tombstone: act.Tombstone, name: str) -> None:
        if self.revision in self.tombstones:
            raise DocumentError(f"{name} holds several tombstones; expected one at most.", object=name)
        self.tombstones[self.revision] = tombstone

    def _begin(self, begin: act.Begin, event: Event) -> None:
        self.forgotten = self.expiries_told_since
        self.snapshot_id = begin.snapshot_id
        self.header = begin.header
        self.created_at = event.committed_at
        self.created_by = event.writer_id
        self.schemas, self.chunks, self.in_progress, self.tombstones = {}, {}, {}, {}
        self.files.clear(self.revision, self.committed_at)

    def _roll_back(self, rollback: act.Rollback) -> None:
        """Go back to a snapshot's beginning; its schemas and chunks follow in the same transaction."""
        self.forgotten = self.expiries_told_since
        self.snapshot_id, self.header = rollback.snapshot_id, rollback.header
        self.created_at, self.created_by = rollback.created_at, rollback.created_by
        self.schemas, self.chunks, self.in_progress = {}, {}, {}
        self.tombstones = dict(rollback.tombstones)
        self.plans_since = self.rolled_back = self.revision

    def _upgrade(self, action: act.Upgraded, name: str) -> None:
        if action.previous != self.format_version or action.version <= action.previous:
            raise DocumentError(
                f"{name} upgrades format version {action.previous} to {action.version}; the location has "
                f"{self.format_version}.",
                object=name,
            )
        self.format_version, self.plans_since = action.version, self.revision

    def _add(self, file: DataFile, name: str) -> None:
        check_data_path(file.path, file.chunk)
        if not self.files.add(file, self.revision):
            raise DocumentError(f"{name} adds {file.path}, which is there already.", object=name)

    def _remove(self, path: str, name: str) -> None:
        chunk = chunk_of(path)
        if chunk is None or not self.files.remove(chunk, path, self.revision, self.committed_at):
            raise DocumentError(f"{name} removes {path}, which is not there.", object=name)

    # Questions

    @property
    def begun(self) -> bool:
        """Whether a snapshot is there."""
        return self.header is not None and not self.deleted

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
        grace = self.header.grace if self.header is not None else 0
        return max(self.forgotten, self.committed_at - 2 * timedelta(microseconds=grace))

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

    def at(self, revision: int) -> State:
        """Return an older state, as far as this one still knows it: every retained one.

        Args:
            revision: A revision that is not expired.
        """
        found = self.without_files_at(revision)
        found.files = self.files.at(revision)
        return found

    def without_files_at(self, revision: int) -> State:
        """Return an older state but for its files, whose columns take time; see `at`."""
        found = State(location_id=self.location_id, format_version=first_version(self.events, self.format_version))
        for event in self.events:
            if event.revision > revision:
                break
            found.fold(event, transaction_path(event.revision))
        found.revision = revision
        return found

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
        return [UNTIMED_CHUNK] * with_chunk_0 + [window.id for window in self.windows()]

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


def _unreadable_beginning(entry: LogEntry, name: str) -> GapError:
    """Say that a rebuild's checkpoint is needed and not there, or damaged."""
    if any(isinstance(action, act.Rebuilt) and not action.snapshot_id for action in entry.transaction.actions):
        return GapError(
            f"{name} only fills a hole: a rebuild began the log anew later, and its checkpoint cannot be read. Rebuild "
            "the location once more.",
            object=name,
        )
    path = checkpoint_path(entry.transaction.revision)
    return GapError(f"{name} begins the log anew with {path}, which cannot be read. Rebuild once more.", object=path)


def first_version(events: Iterable[Event], last: int) -> int:
    """Return the format version that a location began with.

    Args:
        events: What was said in it.
        last: The version at the end of them.
    """
    upgrades = (action for event in events for action in event.actions if isinstance(action, act.Upgraded))
    return next((action.previous for action in upgrades), last)


FileAction = act.AddFile | act.RemoveFile | act.ReturnedFiles | act.Purged
DATA_ACTIONS = (
    act.Begin,
    act.Extend,
    act.SchemaAdded,
    act.Chunk,
    act.AddFile,
    act.RemoveFile,
    act.ReturnedFiles,
    act.Tombstone,
    act.Rollback,
)
"""Actions after which a sealed state is no longer sealed."""


def _apart(actions: Sequence[act.Action]) -> tuple[list[FileAction], tuple[act.Action, ...]]:
    """Return the actions on files, and the others."""
    of_files = [action for action in actions if isinstance(action, FileAction)]
    return of_files, tuple(action for action in actions if not isinstance(action, FileAction))


def _extended(header: act.Header | None, action: act.Extend, name: str) -> act.Header:
    if header is None or (header.end is not None and action.end <= header.end):
        raise DocumentError(f"{name} moves the end of the range backward.", object=name)
    return act.Header(**(vars(header) | {"end": action.end}))


def _check_follows(state: State, transaction: act.Transaction, name: str) -> None:
    """Raise the one of five distinct errors that says why a transaction does not follow a state."""
    if state.revision and transaction.location_id != state.location_id:
        raise ForeignLocationError(
            f"{name} belongs to location {transaction.location_id}; this one is {state.location_id}.", object=name
        )
    if transaction.revision != state.revision + 1:
        kind = GapError if transaction.revision > state.revision else ForkError
        raise kind(f"{name} holds revision {transaction.revision}; expected {state.revision + 1}.", object=name)
    if transaction.previous_uuid != state.uuid:
        raise ForkError(
            f"{name} follows transaction {transaction.previous_uuid or 'none'}; "
            f"revision {state.revision} is {state.uuid or 'none'}.",
            object=name,
        )
    if transaction.previous_sha256 != state.sha256:
        raise BrokenLinkError(
            f"{name} carries {transaction.previous_sha256} as the checksum of revision {state.revision}, "
            f"which is {state.sha256}.",
            object=name,
        )
    if transaction.committed_at <= state.committed_at:
        raise DocumentError(f"{name} was committed before revision {state.revision}.", object=name)
