"""Which events a checkpoint keeps: those that say something about the head or about a sealed revision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from snapshot_assets.catalog.pin_set import PinAction, Pins
from snapshot_assets.catalog.state import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event


def needed_events(state: State) -> Iterator[Event]:
    """Yield the events from which the head and every readable revision can be folded, in their order.

    Left out are words on chunks that others followed before anything was sealed, on work that ended or began again, on
    seals that expired, and on pins that are gone: what is kept must not depend on which checkpoints lie on the way.
    What expired, by itself or with its last pin, is told for two more grace periods: garbage collection counts from
    there.
    """
    seals = [seal.revision for seal in state.readable()]
    ends, working = _chunk_ends(state.events), _working_since(state.events)
    since = state.expiries_told_since
    for event in state.events:
        young = event.committed_at > since
        kept = tuple(_kept(event, seals, ends, working, state.pins, young=young))
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


def _kept(
    event: Event,
    seals: list[int],
    ends: dict[tuple[int, int], int],
    working: dict[int, int],
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
