"""What transactions behind a hole say of tags and savepoints, said so that it fits the pins that are known."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction, PinState, TagState
from snapshot_assets.format import actions as act


class PinWords:
    """One transaction's words on pins.

    Attributes:
        actions: What the state can fold of them: what superseded a tag is said as a deletion and a creation.
        lost: What could not be taken, in words.

    Args:
        state: The state before it.
    """

    def __init__(self, state: State) -> None:
        self.actions: list[act.Action] = []
        self.lost: list[str] = []
        self._was_sealed = state.was_sealed
        self._tags, self._savepoints = set(state.tags), set(state.pins.savepoints)
        self._last = state.pins.last_savepoint

    def judge(self, action: PinAction) -> None:
        """Take one of them as far as it fits."""
        match action:
            case act.TagCreated():
                self._put(action)
            case act.TagReplaced():
                self._put(action.tag)
            case act.TagRenamed():
                self._drop(action.name)
                self._put(action.tag)
            case act.TagDeleted():
                self._drop(action.name)
            case act.SavepointCreated():
                self._save(action)
            case act.SavepointDeleted():
                self._unsave(action.id)

    def give_up(self, pins: Iterable[PinState]) -> None:
        """Delete pins of which it is known that they were deleted."""
        for known in pins:
            if isinstance(known, TagState):
                self._drop(known.tag.name)
            else:
                self._unsave(known.savepoint.id)

    def _put(self, tag: act.TagCreated) -> None:
        self._drop(tag.name)  # what deleted it may be lost
        if not self._was_sealed(tag.revision):
            self.lost.append(f"Tag {tag.name!r} pins revision {tag.revision}, of which nothing is proved.")
            return
        self.actions.append(tag)
        self._tags.add(tag.name)

    def _drop(self, name: str) -> None:
        if name in self._tags:
            self._tags.remove(name)
            self.actions.append(act.TagDeleted(name))

    def _save(self, savepoint: act.SavepointCreated) -> None:
        if savepoint.id <= self._last:
            self.lost.append(f"Another savepoint {savepoint.id}, of revision {savepoint.revision}, is known already.")
        elif not self._was_sealed(savepoint.revision):
            self.lost.append(
                f"Savepoint {savepoint.id} pins revision {savepoint.revision}, of which nothing is proved."
            )
            self._unsave(savepoint.id)
        else:
            self.actions.append(savepoint)
            self._savepoints.add(savepoint.id)
            self._last = savepoint.id

    def _unsave(self, number: int) -> None:
        if number in self._savepoints or number > self._last:  # so that no other gets its number
            self.actions.append(act.SavepointDeleted(number))
            self._savepoints.discard(number)
            self._last = max(self._last, number)
