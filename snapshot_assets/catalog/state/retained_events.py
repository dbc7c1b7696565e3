"""Selects the events that a checkpoint keeps: those that the head or a readable revision needs.

The selection depends only on the log, never on which checkpoints were read on the way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction, Pins
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event

_NEVER = datetime.max.replace(tzinfo=UTC)
_Key = tuple[int, type[act.Action], int]
"""The revision and type of an action, and its chunk or schema."""


def needed_events(state: State, *, recent_expiries: bool = True) -> Iterator[Event]:
    """Yield the events from which the head and every readable revision can be folded, in their order.

    Checkpoints drop actions on chunks that another action followed before a readable seal, finished work, expired
    seals, and deleted pins. Expiries and the schemas of expired revisions stay for two grace periods, because garbage
    collection measures the age of files from there.

    Args:
        state: The head.
        recent_expiries: Whether to yield also what only garbage collection needs.
    """
    since = state.expiries_kept_since if recent_expiries else _NEVER
    readable = [seal.revision for seal in state.readable()]
    kept = _kept_on_chunks_and_schemas(state, readable, since)
    for event in state.events:
        actions = tuple(_kept_actions(event, state.pins, kept, set(readable), since))
        if actions:
            yield replace(event, actions=actions)


def _kept_on_chunks_and_schemas(state: State, readable: list[int], since: datetime) -> set[_Key]:
    recent = [event for event in state.events if event.committed_at > since]
    expiries = [action for event in recent for action in event.actions if isinstance(action, act.Expired)]
    needing_schemas = sorted({*readable, *(revision for expiry in expiries for revision in expiry.revisions)})
    kept: set[_Key] = set()
    for added, action, number, end in lives(state.events):
        keep = end is None
        if end is not None and isinstance(action, act.Chunk):
            keep = bool(between(readable, added.revision, end.revision))
        elif end is not None and isinstance(action, act.SchemaAdded):
            keep = end.committed_at > since or bool(between(needing_schemas, added.revision, end.revision))
        if keep:
            kept.add((added.revision, type(action), number))
    return kept


def _kept_actions(
    event: Event, pins: Pins, kept: set[_Key], readable: set[int], since: datetime
) -> Iterator[act.Action]:
    for action in event.actions:
        match action:
            case act.Chunk():
                if (event.revision, act.Chunk, action.id) in kept:
                    yield action
            case act.SchemaAdded():
                if (event.revision, act.SchemaAdded, action.schema_id) in kept:
                    yield action
            case act.ChunksInProgress():
                chunks = tuple(each for each in action.chunks if (event.revision, type(action), each) in kept)
                if chunks:
                    yield replace(action, chunks=chunks)
            case act.Seal():
                if event.revision in readable:
                    yield action
            case act.Expired():
                revisions = tuple(each for each in action.revisions if event.committed_at > since or each in readable)
                if revisions:
                    yield replace(action, revisions=revisions)
            case _ if isinstance(action, PinAction):
                yield from pins.retained_actions(action, event.revision)
            case _:
                yield action


def lives(events: Iterable[Event]) -> Iterator[tuple[Event, act.Action, int, Event | None]]:
    """Yield each action on chunks and schemas: its event, the action, its chunk or schema, and the event that ended it.

    A chunk's next action ends an action on the chunk. The next snapshot ends all. The last event is None at the head.
    """
    living: dict[tuple[object, ...], tuple[Event, act.Action, int]] = {}
    for event in events:
        for action in event.actions:
            for key in _ended_keys(action, living):
                yield *living.pop(key), event
            match action:
                case act.Chunk():
                    living[act.Chunk, action.id] = event, action, action.id
                case act.ChunksInProgress():
                    living |= {(act.ChunksInProgress, chunk): (event, action, chunk) for chunk in action.chunks}
                case act.SchemaAdded():
                    living[act.SchemaAdded, event.revision, action.schema_id] = event, action, action.schema_id
    for added, action, number in living.values():
        yield added, action, number, None


def _ended_keys(action: act.Action, living: Mapping[tuple[object, ...], object]) -> list[tuple[object, ...]]:
    match action:
        case act.Begin() | act.Rollback():
            return list(living)
        case act.Chunk():
            keys: list[tuple[object, ...]] = [(act.Chunk, action.id), (act.ChunksInProgress, action.id)]
            return [key for key in keys if key in living]
    return []


def documents_of(action: act.Action) -> tuple[act.ObjectRef, ...]:
    """Return the receipts or schema documents that an action names."""
    match action:
        case act.SchemaAdded():
            return action.files
        case act.Chunk():
            return action.receipts
    return ()


def between(revisions: Sequence[int], first: int, end: int) -> Sequence[int]:
    """Return those of some ascending revisions that lie in `[first, end)`."""
    return revisions[bisect_left(revisions, first) : bisect_left(revisions, end)]
