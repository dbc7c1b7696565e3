"""The state of a location: what folding its transactions in order gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import datetime

from snapshot_assets.catalog.state.chain import LogEntry, check_follows, check_location, unreadable_beginning
from snapshot_assets.catalog.state.pins import PinAction, Place
from snapshot_assets.catalog.state.state import BaseState, ChunkState, SealState
from snapshot_assets.errors import DocumentError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import (
    check_data_path,
    check_receipt_path,
    check_schema_path,
    chunk_of,
    transaction_path,
)

__all__ = ["DATA_ACTIONS", "SealState", "State", "first_version"]


@dataclass
class State(BaseState):
    """Everything that is true at one revision, and what one more transaction makes of it."""

    def apply(self, entry: LogEntry, name: str) -> None:
        """Fold one more transaction.

        Args:
            entry: The transaction that follows this state.
            name: Its path, for messages.

        Raises:
            DamageError: It does not follow this state, or its actions contradict it.
        """
        check_location(self, entry.transaction, name)
        if entry.starts_log:
            raise unreadable_beginning(entry, name)
        check_follows(self, entry.transaction, name)
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
        found = self.copy()
        found._follow(self.committed_at, "", actions, transaction_path(self.revision + 1))
        return found

    def copy(self) -> State:
        """Return a state that changes apart from this one."""
        return replace(self, **{each.name: copy(getattr(self, each.name)) for each in fields(self)})

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
                self.plans_valid_from = self.revision
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
        self.expiries_dropped_until = self.expiries_kept_since
        self.snapshot_id = begin.snapshot_id
        self.header = begin.header
        self.created_at = event.committed_at
        self.created_by = event.writer_id
        self.schemas, self.chunks, self.in_progress, self.tombstones = {}, {}, {}, {}
        self.files.clear(self.revision, self.committed_at)

    def _roll_back(self, rollback: act.Rollback) -> None:
        """Go back to a snapshot's beginning; its schemas and chunks follow in the same transaction."""
        self.expiries_dropped_until = self.expiries_kept_since
        self.snapshot_id, self.header = rollback.snapshot_id, rollback.header
        self.created_at, self.created_by = rollback.created_at, rollback.created_by
        self.schemas, self.chunks, self.in_progress = {}, {}, {}
        self.tombstones = dict(rollback.tombstones)
        self.plans_valid_from = self.rolled_back = self.revision

    def _upgrade(self, action: act.Upgraded, name: str) -> None:
        if action.previous != self.format_version or action.version <= action.previous:
            raise DocumentError(
                f"{name} upgrades format version {action.previous} to {action.version}; the location has "
                f"{self.format_version}.",
                object=name,
            )
        self.format_version, self.plans_valid_from = action.version, self.revision

    def _add(self, file: DataFile, name: str) -> None:
        check_data_path(file.path, file.chunk)
        if not self.files.add(file, self.revision):
            raise DocumentError(f"{name} adds {file.path}, which is there already.", object=name)

    def _remove(self, path: str, name: str) -> None:
        chunk = chunk_of(path)
        if chunk is None or not self.files.remove(chunk, path, self.revision, self.committed_at):
            raise DocumentError(f"{name} removes {path}, which is not there.", object=name)

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
