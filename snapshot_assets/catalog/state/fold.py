"""Folding: the state of a location after its transactions, in order; each must follow the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import datetime

from snapshot_assets.catalog.state.pins import PinAction, held_tags
from snapshot_assets.catalog.state.state import BaseState, ChunkState, Schemas, SealState
from snapshot_assets.errors import (
    BrokenLinkError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    MisnamedError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import (
    check_data_path,
    check_receipt_path,
    check_schema_path,
    checkpoint_path,
    chunk_of,
    transaction_path,
)


@dataclass(frozen=True)
class LogEntry:
    """A transaction and the checksum that its successor links to."""

    transaction: act.Transaction
    sha256: str

    @property
    def starts_log(self) -> bool:
        """Whether a rebuild wrote it, so that it follows no transaction."""
        return any(isinstance(action, act.Rebuilt) for action in self.transaction.actions)


def _check_link(state: BaseState, transaction: act.Transaction, name: str) -> None:
    """Raise one of four distinct errors if a transaction of a state's location does not follow it."""
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


def check_location(state: BaseState, transaction: act.Transaction, name: str) -> None:
    """Raise if a transaction belongs to another location than a state."""
    if state.revision and transaction.location_id != state.location_id:
        raise foreign_location(name, transaction.location_id, state.location_id)


def foreign_location(name: str, found: str, own: str, named_by: str = "") -> ForeignLocationError:
    """Return the error for an object of the location `found` that lies in `own`, which the object `named_by` names."""
    return ForeignLocationError(
        f"{name} belongs to location {found}; this one is {own}{f' ({named_by})' if named_by else ''}. One of "
        "the two was copied here: move that one, and whatever came with it, away. If no log is left then, rebuild it "
        "with `snapshots catalog rebuild`.",
        object=name,
        found=found,
        expected=own,
    )


def misnamed(name: str, found: int, expected: int) -> MisnamedError:
    """Return the error for a log object whose name has another revision, the expected one, than its content."""
    return MisnamedError(
        f"{name} holds revision {found}; expected {expected}. It was copied here under another name: move it away.",
        object=name,
    )


__all__ = ["DATA_ACTIONS", "SealState", "State", "first_version"]

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


@dataclass
class State(BaseState):
    """The state at one revision, which folds the transactions that follow."""

    def apply(self, entry: LogEntry, name: str) -> None:
        """Fold the next transaction; `name` is its path, for messages.

        Raises:
            DamageError: It does not follow this state, or its actions contradict it.
        """
        check_location(self, entry.transaction, name)
        if entry.starts_log:  # it is only read because its checkpoint is missing or damaged
            path = checkpoint_path(entry.transaction.revision)
            reason = f"starts a new log with {path}, which is unreadable"
            if any(isinstance(action, act.Rebuilt) and not action.snapshot_id for action in entry.transaction.actions):
                reason = "only fills a hole: a later rebuild started a new log, and its checkpoint is unreadable"
                path = name
            raise GapError(f"{name} {reason}. Rebuild the location again.", object=path)
        _check_link(self, entry.transaction, name)
        transaction = entry.transaction
        self.format_version = self.format_version or transaction.version
        self.location_id = transaction.location_id
        self.uuid = transaction.uuid
        self.sha256 = entry.sha256
        self._fold_actions(transaction.committed_at, transaction.writer_id, transaction.actions, name)
        if transaction.version != self.format_version:
            raise DocumentError(
                f"{name} has format version {transaction.version}; expected {self.format_version}.", object=name
            )
        self.files.settle()

    def _fold_actions(self, committed_at: datetime, writer_id: str, actions: Sequence[act.Action], name: str) -> None:
        changes_data = any(isinstance(action, DATA_ACTIONS) for action in actions)
        others = tuple(action for action in actions if not isinstance(action, FileAction))
        self.fold(Event(self.revision + 1, committed_at, writer_id, others, changes_data), name)
        for action in actions:
            if isinstance(action, FileAction):
                self._change_files(action, name)

    def after(self, actions: Sequence[act.Action]) -> State:
        """Return the state that a commit of actions would lead to; this state does not change."""
        state = self.copy()
        state._fold_actions(self.committed_at, "", actions, transaction_path(self.revision + 1))
        return state

    def copy(self) -> State:
        """Return an independent copy of this state."""
        return replace(self, **{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def fold(self, event: Event, name: str) -> None:
        """Fold the actions of one revision, except its file actions."""
        self.revision = event.revision
        self.committed_at = event.committed_at
        if event.changes_data:
            self.data_revision = event.revision
        changes_pins = any(isinstance(action, PinAction) for action in event.actions)
        pinned = self.expired & self.pins.revisions() if changes_pins else set()
        for action in event.actions:
            self._apply_action(action, event, name)
        # An event also records the expired revisions which lost their last pin. Checkpoints do not keep deleted pins.
        # So garbage collection treats the end of a pin like any expiry.
        expired = {each for action in event.actions if isinstance(action, act.Expired) for each in action.revisions}
        unpinned = pinned - self.pins.revisions() - expired
        if unpinned:
            event = replace(event, actions=(*event.actions, act.Expired(tuple(sorted(unpinned)))))
        if event.actions:
            self.events.append(event)

    def _change_files(self, action: FileAction, name: str) -> None:
        match action:
            case act.ReturnedFiles():
                self._refuse(self.files.bring_back(action.paths, self.revision), "returns", name)
            case act.Purged():
                self._refuse(self.files.purge(action.paths), "purges", name)
            case act.AddFile(file):
                check_data_path(file.path, file.chunk)
                if not self.files.add(file, self.revision):
                    raise DocumentError(f"{name} adds {file.path}, which is there already.", object=name)
            case act.RemoveFile(path):
                chunk = chunk_of(path)
                if chunk is None or not self.files.remove(chunk, path, self.revision, self.committed_at):
                    raise DocumentError(f"{name} removes {path}, which is not there.", object=name)

    @staticmethod
    def _refuse(paths: set[str], verb: str, name: str) -> None:
        if paths:
            raise DocumentError(f"{name} {verb} {min(paths)}, which is live or unknown.", object=name)

    def _apply_action(self, action: act.Action, event: Event, name: str) -> None:
        match action:
            case act.Begin():
                self.created_at, self.created_by = event.committed_at, event.writer_id
                self._start(action.snapshot_id, action.header)
                self.tombstones = {}
                self.files.clear(self.revision, self.committed_at)
            case act.Rollback():  # the snapshot's schemas and chunks follow in the same transaction
                self.created_at, self.created_by = action.created_at, action.created_by
                self._start(action.snapshot_id, action.header)
                self.tombstones = dict(action.tombstones)
                self.plans_valid_from = self.rolled_back = self.revision
            case act.Extend():
                header = self.header
                if header is None or (header.end is not None and action.end <= header.end):
                    raise DocumentError(f"{name} moves the end of the range backward.", object=name)
                self.header = replace(header, end=action.end)
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
            case act.Tombstone():
                if self.revision in self.tombstones:
                    raise DocumentError(f"{name} holds several tombstones; expected one at most.", object=name)
                self.tombstones[self.revision] = action
            case _:
                self._apply_to_revisions(action, event, name)

    def _apply_to_revisions(self, action: act.Action, event: Event, name: str) -> None:
        """Apply an action that changes no data of the snapshot."""
        match action:
            case act.Seal():
                seal = SealState(action, self.revision, self.committed_at, self.snapshot_id, self.format_version)
                self.seals.append(seal)
            case act.Deleted():
                if held := held_tags(self.pins):
                    raise DocumentError(f"{name} deletes the snapshot, whose tag {min(held)!r} is held.", object=name)
                self.deleted = True
            case act.Upgraded():
                if action.previous != self.format_version or action.version <= action.previous:
                    raise DocumentError(
                        f"{name} upgrades format version {action.previous} to {action.version}; the location has "
                        f"{self.format_version}.",
                        object=name,
                    )
                self.format_version, self.plans_valid_from = action.version, self.revision
            case act.Rebuilt():
                self.plans_valid_from = self.revision
            case act.Expired():
                self.expired.update(action.revisions)
            case _ if isinstance(action, PinAction):
                place = event.writer_id, self.revision, self.format_version
                self.pins.fold(action, place, self.was_sealed, name)

    def _start(self, snapshot_id: str, header: act.Header) -> None:
        self.expiries_dropped_until = self.expiries_kept_since
        self.snapshot_id, self.header = snapshot_id, header
        self.schemas, self.chunks, self.in_progress = Schemas(), {}, {}

    def at(self, revision: int) -> State:
        """Return the state at a retained revision."""
        state = self.without_files_at(revision)
        state.files = self.files.at(revision)
        return state

    def without_files_at(self, revision: int) -> State:
        """Return the state at a retained revision without its files, which take time to compute; see `at`."""
        state = State(location_id=self.location_id, format_version=first_version(self.events, self.format_version))
        for event in self.events:
            if event.revision > revision:
                break
            state.fold(event, transaction_path(event.revision))
        state.revision = revision
        return state

    def readable_without_files(self) -> Iterator[tuple[SealState, State]]:
        """Yield each readable seal with its state, computed from the one before, without its files; see `at`."""
        then = State(location_id=self.location_id, format_version=first_version(self.events, self.format_version))
        events, place = self.events, 0
        for seal in self.readable():
            while place < len(events) and events[place].revision <= seal.revision:
                then.fold(events[place], transaction_path(events[place].revision))
                place += 1
            then.revision = seal.revision
            yield seal, then


def first_version(events: Iterable[Event], last: int) -> int:
    """Return the format version of a location's first transaction, given its events and the version after them."""
    upgrades = (action for event in events for action in event.actions if isinstance(action, act.Upgraded))
    return next((action.previous for action in upgrades), last)
