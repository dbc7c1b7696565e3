"""The state of a replica that has only chosen versions."""

from __future__ import annotations

from collections.abc import Collection

from snapshot_assets.catalog.state.fold import State


def with_versions(state: State, revisions: Collection[int]) -> State:
    """Return a state in which only the head, the newest seal and some other sealed revisions are readable.

    Args:
        state: The head's state, which does not change.
        revisions: The other revisions.
    """
    chosen, kept = state.copy(), {*revisions}
    if state.newest_seal is not None:
        kept.add(state.newest_seal.revision)
    pins = chosen.pins
    pins.tags = {name: tag for name, tag in pins.tags.items() if tag.pin.revision in kept}
    pins.savepoints = {number: each for number, each in pins.savepoints.items() if each.pin.revision in kept}
    chosen.expired |= {seal.revision for seal in state.seals} - kept
    return chosen
