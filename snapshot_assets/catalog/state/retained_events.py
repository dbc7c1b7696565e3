"""Which events a checkpoint keeps: those that say something about the head or about a sealed revision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction, Pins
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event

_NEVER = datetime.max.replace(tzinfo=UTC)


def needed_events(state: State, *, recent_expiries: bool = True) -> Iterator[Event]:
    """Yield the events from which the head and every readable revision can be folded, in their order.

    Left out are words on chunks that others followed before anything was sealed, on work that ended or began again, on
    seals that expired, and on pins that are gone: what is kept must not depend on which checkpoints lie on the way.
    What expired, by itself or with its last pin, is told for two more grace periods, and so are schemas that only it
    needed: garbage collection counts from there.

    Args:
        state: The head.
        recent_expiries: Yield also what is only kept for garbage collection.
    """
    seals = [seal.revision for seal in state.readable()]
    ends, working = _chunk_ends(state.events), _working_since(state.events)
    since = state.expiries_kept_since if recent_expiries else _NEVER
    schemas = _schemas_kept(state.events, seals, since)
    for event in state.events:
        young = event.committed_at > since
        kept = tuple(_kept(event, seals, ends, working, schemas, state.pins, young=young))
        if kept:
            yield replace(event, actions=kept)


def _chunk_ends(events: Iterable[Event]) -> dict[tuple[int, int], int]:
    """Return by revision and chunk when a chunk's next action came, or a new snapshot began."""
    ends: dict[tuple[int, int], int] = {}
    open_since: dict[int, int] = {}
    for event in events:
        for action in event.actions:
            match action:
                case act.Chunk():
                    if action.id in open_since:
                        ends[open_since[action.id], action.id] = event.revision
                    open_since[action.id] = event.revision
                case act.Begin() | act.Rollback():
                    ends |= {(since, chunk): event.revision for chunk, since in open_since.items()}
                    open_since = {}
    return ends


def _working_since(events: Iterable[Event]) -> dict[int, int]:
    """Return by chunk in progress the revision that said so last."""
    since: dict[int, int] = {}
    for event in events:
        for action in event.actions:
            match action:
                case act.ChunksInProgress():
                    since.update(dict.fromkeys(action.chunks, event.revision))
                case act.Chunk():
                    since.pop(action.id, None)
                case act.Begin() | act.Rollback():
                    since = {}
    return since


def schema_lives(events: Iterable[Event]) -> Iterator[tuple[Event, act.SchemaAdded, Event | None]]:
    """Yield each schema with the event that added it, and the one that ended its snapshot; None for the head's."""
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
    """Yield each receipt and schema document, the revision that named it, and the one that ended that, if any."""
    ends = _chunk_ends(events)
    for event in events:
        for action in event.actions:
            if isinstance(action, act.Chunk):
                end = ends.get((event.revision, action.id))
                yield from ((ref, event.revision, end) for ref in action.receipts)
    for added, schema, ended in schema_lives(events):
        yield from ((ref, added.revision, None if ended is None else ended.revision) for ref in schema.files)


def _schemas_kept(events: Sequence[Event], seals: list[int], since: datetime) -> set[tuple[int, int]]:
    """Return revision and id of the schemas of the head, of readable revisions, and of what went of late."""
    expired = (
        revision
        for event in events
        if event.committed_at > since
        for action in event.actions
        if isinstance(action, act.Expired)
        for revision in action.revisions
    )
    needing = sorted({*seals, *expired})
    return {
        (added.revision, schema.schema_id)
        for added, schema, end in schema_lives(events)
        if end is None or end.committed_at > since or _sealed_between(needing, added.revision, end.revision)
    }


def _kept(
    event: Event,
    seals: list[int],
    ends: dict[tuple[int, int], int],
    working: dict[int, int],
    schemas: set[tuple[int, int]],
    pins: Pins,
    *,
    young: bool,
) -> Iterator[act.Action]:
    for action in event.actions:
        match action:
            case act.Chunk():
                end = ends.get((event.revision, action.id))
                if end is None or _sealed_between(seals, event.revision, end):
                    yield action
            case act.SchemaAdded():
                if (event.revision, action.schema_id) in schemas:
                    yield action
            case act.ChunksInProgress():
                chunks = tuple(chunk for chunk in action.chunks if working.get(chunk) == event.revision)
                if chunks:
                    yield replace(action, chunks=chunks)
            case act.Seal():
                if _sealed_between(seals, event.revision, event.revision + 1):
                    yield action
            case act.Expired():
                kept = tuple(each for each in action.revisions if young or _sealed_between(seals, each, each + 1))
                if kept:
                    yield replace(action, revisions=kept)
            case _ if isinstance(action, PinAction):
                yield from pins.still_said(action, event.revision)
            case _:
                yield action


def _sealed_between(seals: list[int], first: int, end: int) -> bool:
    """Tell whether a revision of `[first, end)` is sealed."""
    place = bisect_left(seals, first)
    return place < len(seals) and seals[place] < end
