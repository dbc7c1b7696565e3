"""The state of a replica that has only chosen versions, and how a location of its own comes from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState, TagState
from snapshot_assets.format import actions as act


@dataclass(frozen=True)
class Unchosen:
    """What the log records and a replica of chosen versions does not have.

    Attributes:
        revisions: Sealed revisions that the log does not record as expired, ascending.
        tags: Tags, by name.
        savepoints: Savepoints, by number.
    """

    revisions: tuple[int, ...] = ()
    tags: tuple[TagState, ...] = ()
    savepoints: tuple[SavepointState, ...] = ()

    @property
    def held(self) -> tuple[TagState, ...]:
        """The tags that are under legal hold."""
        return tuple(known for known in self.tags if known.hold is not None)

    def ended(self, note: act.HoldNote) -> list[act.Action]:
        """Return the actions that end all of it; holds are released first, with a note."""
        return [
            *(act.TagReleased(replace(known.pin), note) for known in self.held),
            *(act.TagDeleted(known.pin.name) for known in self.tags),
            *(act.SavepointDeleted(known.pin.id) for known in self.savepoints),
            *([act.Expired(self.revisions)] if self.revisions else []),
        ]


def unchosen(state: State, revisions: Collection[int] | None) -> Unchosen:
    """Return what a replica lacks: all but the head, the newest seal and some other sealed revisions.

    Args:
        state: The head's state, as the log records it.
        revisions: The other revisions; None for all.
    """
    if revisions is None:
        return Unchosen()
    kept, pins = {*revisions}, state.pins
    if state.newest_seal is not None:
        kept.add(state.newest_seal.revision)
    return Unchosen(
        tuple(sorted({seal.revision for seal in state.seals} - kept - state.expired)),
        tuple(known for _, known in sorted(pins.tags.items()) if known.pin.revision not in kept),
        tuple(known for _, known in sorted(pins.savepoints.items()) if known.pin.revision not in kept),
    )


def with_versions(state: State, revisions: Collection[int] | None) -> State:
    """Return a state without what a replica of chosen versions lacks; see `unchosen`. The given one does not change."""
    if revisions is None:
        return state
    lacking, chosen = unchosen(state, revisions), state.copy()
    for tag in lacking.tags:
        del chosen.pins.tags[tag.pin.name]
    for savepoint in lacking.savepoints:
        del chosen.pins.savepoints[savepoint.pin.id]
    chosen.expired |= {*lacking.revisions}
    chosen.partial = True
    return chosen
