"""Which sealed revisions are one backup, and when it was made: compactions seal the rows of the one before again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.catalog.state.state import BaseState, SealState
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event


@dataclass(frozen=True)
class Backup:
    """An export, a deletion of rows or a rollback, with the compactions of it.

    Attributes:
        seals: Its sealed revisions that the log still records, ascending, expired ones too.
        made_at: When the first of them was sealed, though the log may no longer record it.
    """

    seals: tuple[SealState, ...]
    made_at: datetime


def backups(state: BaseState) -> list[Backup]:
    """Return what was backed up, oldest first."""
    changes = [(event.revision, _exported(event)) for event in state.events if event.changes_data]
    changed = [event for event in state.events if any(isinstance(each, _CHANGES) for each in event.actions)]
    revisions = [event.revision for event in changed]

    def made_at(seal: SealState) -> datetime:
        place = bisect_right(revisions, seal.revision)
        return max(seal.exported_at, changed[place - 1].committed_at) if place else seal.exported_at

    return [Backup(tuple(seals), min(map(made_at, seals))) for seals in _groups(state.seals, changes)]


_CHANGES = act.Tombstone | act.Rollback
"""What makes another backup of an export. Checkpoints keep these actions for ever."""


def _groups(seals: Sequence[SealState], changes: Sequence[tuple[int, int]]) -> Iterator[list[SealState]]:
    """Yield the seals, those that only compact the one before together with it."""
    revisions, exports = [revision for revision, _ in changes], [exported for _, exported in changes]
    group: list[SealState] = []
    for seal in seals:
        if group:
            last = group[-1].revision
            between = exports[bisect_right(revisions, last) : bisect_right(revisions, seal.revision)]
            if not between or max(between) > last:  # the change is unknown, or more than a compaction
                yield group
                group = []
        group.append(seal)
    if group:
        yield group


def _exported(event: Event) -> int:
    """Return the revision that exported the rows which an event compacts; if it does anything else, its own."""
    chunks = [action for action in event.actions if isinstance(action, act.Chunk)]
    others = [action for action in event.actions if not isinstance(action, act.Chunk | act.Seal)]
    if others or not chunks:
        return event.revision
    return max(chunk.exported or event.revision for chunk in chunks)
