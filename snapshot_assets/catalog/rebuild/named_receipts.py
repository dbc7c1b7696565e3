"""What a rebuilt state names of receipts: only those that are there (FORMAT.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained_events import needed_events
from snapshot_assets.format import actions as act

_SHOWN = 10


def name_only(state: State, found: Iterable[act.ObjectRef]) -> list[str]:
    """Take the receipts that are missing or damaged out of what a state says of chunks.

    The chunks stay, for their checksums prove their files. A receipt was lost, or it was collected: a rollback that is
    lost may have undone its chunk.

    Args:
        state: The state to change.
        found: The receipts that were found.

    Returns:
        What the head and readable revisions named that they do not name now, in words; nothing if that is nothing.
    """
    there = set(found)
    said = [action for event in needed_events(state, told=False) for action in event.actions]
    named = {ref for action in said if isinstance(action, act.Chunk) for ref in action.receipts}
    state.events = [replace(event, actions=_left_of(event.actions, there)) for event in state.events]
    for number, known in state.chunks.items():
        state.chunks[number] = replace(known, chunk=_left_of_chunk(known.chunk, there))
    lacking = sorted(ref.path for ref in named - there)
    more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    some = ", ".join(lacking[:_SHOWN]) + more
    return [f"Receipts that are missing or damaged are not named any more; their chunks stay: {some}."] if some else []


def _left_of(actions: Iterable[act.Action], there: Set[act.ObjectRef]) -> tuple[act.Action, ...]:
    return tuple(_left_of_chunk(each, there) if isinstance(each, act.Chunk) else each for each in actions)


def _left_of_chunk(chunk: act.Chunk, there: Set[act.ObjectRef]) -> act.Chunk:
    return replace(chunk, receipts=tuple(ref for ref in chunk.receipts if ref in there))
