"""Selects the events that a checkpoint keeps: those that the head or a readable revision needs.

The selection depends only on the log, never on which checkpoints were read on the way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction, Pins
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event

_NEVER = datetime.max.replace(tzinfo=UTC)


def needed_events(state: State, *, recent_expiries: bool = True) -> Iterator[Event]:
    """Yield the events from which the head and every readable revision can be folded, in their order.

    Dropped are actions on chunks that another action followed before a seal, finished work, expired seals, and deleted
    pins. Expiries, and the schemas of what expired, stay for two grace periods: garbage collection counts from there.

    Args:
        state: The head.
        recent_expiries: Whether to yield also what only garbage collection needs.
    """
    since = state.expiries_kept_since if recent_expiries else _NEVER
    selection = _Selection(
        [seal.revision for seal in state.readable()],
        _chunk_ends(state.events),
        _started_at(state.events),
        _retained_schemas(state, since),
        state.pins,
        since,
    )
    for event in state.events:
        actions = tuple(selection.actions_of(event))
        if actions:
            yield replace(event, actions=actions)


@dataclass(frozen=True)
class _Selection:
    """What decides whether an action is kept.

    Attributes:
        seals: Readable revisions, ascending.
        chunk_ends: The revision that ended a chunk's action, by revision and chunk of that action.
        started_at: The newest start by chunk in progress.
        schemas: Revision and id of the schemas that are kept.
        since: Expiries after this time are kept.
    """

    seals: list[int]
    chunk_ends: dict[tuple[int, int], int]
    started_at: dict[int, int]
    schemas: set[tuple[int, int]]
    pins: Pins
    since: datetime

    def actions_of(self, event: Event) -> Iterator[act.Action]:
        for action in event.actions:
            match action:
                case act.Chunk():
                    end = self.chunk_ends.get((event.revision, action.id))
                    if end is None or _any_between(self.seals, event.revision, end):
                        yield action
                case act.SchemaAdded():
                    if (event.revision, action.schema_id) in self.schemas:
                        yield action
                case act.ChunksInProgress():
                    chunks = tuple(chunk for chunk in action.chunks if self.started_at.get(chunk) == event.revision)
                    if chunks:
                        yield replace(action, chunks=chunks)
                case act.Seal():
                    if self._is_readable(event.revision):
                        yield action
                case act.Expired():
                    recent = event.committed_at > self.since
                    revisions = tuple(each for each in action.revisions if recent or self._is_readable(each))
                    if revisions:
                        yield replace(action, revisions=revisions)
                case _ if isinstance(action, PinAction):
                    yield from self.pins.retained_actions(action, event.revision)
                case _:
                    yield action

    def _is_readable(self, revision: int) -> bool:
        return _any_between(self.seals, revision, revision + 1)


def _chunk_ends(events: Iterable[Event]) -> dict[tuple[int, int], int]:
    """Return the revision of a chunk's next action, or of the next snapshot, by revision and chunk."""
    ends: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for event in events:
        for action in event.actions:
            match action:
                case act.Chunk():
                    if action.id in newest:
                        ends[newest[action.id], action.id] = event.revision
                    newest[action.id] = event.revision
                case act.Begin() | act.Rollback():
                    ends |= {(revision, chunk): event.revision for chunk, revision in newest.items()}
                    newest = {}
    return ends


def _started_at(events: Iterable[Event]) -> dict[int, int]:
    """Return the revision at which each chunk in progress was started last."""
    started: dict[int, int] = {}
    for event in events:
        for action in event.actions:
            match action:
                case act.ChunksInProgress():
                    started.update(dict.fromkeys(action.chunks, event.revision))
                case act.Chunk():
                    started.pop(action.id, None)
                case act.Begin() | act.Rollback():
                    started = {}
    return started


def schema_lives(events: Iterable[Event]) -> Iterator[tuple[Event, act.SchemaAdded, Event | None]]:
    """Yield each schema with the event that added it and the event that ended its snapshot, None for the head's."""
    living: list[tuple[Event, act.SchemaAdded]] = []
    for event in events:
        for action in event.actions:
            match action:
                case act.SchemaAdded():
                    living.append((event, action))
                case act.Begin() | act.Rollback():
                    yield from ((added, schema, event) for added, schema in living)
                    living = []
    yield from ((added, schema, None) for added, schema in living)


def document_lives(events: Sequence[Event]) -> Iterator[tuple[act.ObjectRef, int, int | None]]:
    """Yield each receipt and schema document, the revision that named it, and the revision that ended its use."""
    ends = _chunk_ends(events)
    for event in events:
        for action in event.actions:
            if isinstance(action, act.Chunk):
                end = ends.get((event.revision, action.id))
                yield from ((ref, event.revision, end) for ref in action.receipts)
    for added, schema, ended in schema_lives(events):
        yield from ((ref, added.revision, None if ended is None else ended.revision) for ref in schema.files)


def _retained_schemas(state: State, since: datetime) -> set[tuple[int, int]]:
    """Return revision and id of the schemas of the head, of readable revisions, and of recently expired ones."""
    recent = [event for event in state.events if event.committed_at > since]
    expiries = [action for event in recent for action in event.actions if isinstance(action, act.Expired)]
    expired = {revision for expiry in expiries for revision in expiry.revisions}
    needing = sorted(expired.union(seal.revision for seal in state.readable()))
    return {
        (added.revision, schema.schema_id)
        for added, schema, end in schema_lives(state.events)
        if end is None or end.committed_at > since or _any_between(needing, added.revision, end.revision)
    }


def _any_between(revisions: Sequence[int], first: int, end: int) -> bool:
    """Return whether `[first, end)` holds one of some ascending revisions."""
    place = bisect_left(revisions, first)
    return place < len(revisions) and revisions[place] < end
