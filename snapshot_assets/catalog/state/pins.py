"""The pins of a location: tags by name, savepoints by number, and the legal holds on tags.

A held tag stays as it is until `snapshots tag release`. `Catalog.commit` calls `refuse_changes` before it writes, so
that no rule and no operation needs a check of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from snapshot_assets.errors import DocumentError, TagHeldError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import check_savepoint_path, check_tag_path
from snapshot_assets.format.units import time_text

PinAction = (
    act.TagCreated
    | act.TagDeleted
    | act.TagRenamed
    | act.TagReplaced
    | act.TagHeld
    | act.TagReleased
    | act.SavepointCreated
    | act.SavepointDeleted
)


_Pin = TypeVar("_Pin", bound=act.TagCreated | act.SavepointCreated, covariant=True)


@dataclass(frozen=True)
class CommittedPin(Generic[_Pin]):
    """A tag or savepoint, the writer and revision that created it, its object's format version, and a tag's hold."""

    pin: _Pin
    created_by: str
    committed: int
    version: int
    hold: act.HoldNote | None = None

    def outlived(self: CommittedPin[act.TagCreated], now: datetime) -> bool:
        """Return whether a tag's time to live is over and no hold keeps it."""
        return self.hold is None and self.pin.outlived(now)


TagState = CommittedPin[act.TagCreated]
SavepointState = CommittedPin[act.SavepointCreated]
PinState = TagState | SavepointState

Place = tuple[str, int, int]
"""The writer of an action, its revision, and the format version at that revision."""


@dataclass
class Pins:
    """All pins of a location: tags by name, savepoints by id.

    Attributes:
        last_savepoint: The greatest id ever used, 0 for none.
        releases: The revision of the last release from a legal hold, by the tag's name; the tag may be deleted since.
    """

    tags: dict[str, TagState] = field(default_factory=dict)
    savepoints: dict[int, SavepointState] = field(default_factory=dict)
    last_savepoint: int = 0
    releases: dict[str, int] = field(default_factory=dict)

    def __copy__(self) -> Pins:
        return Pins(dict(self.tags), dict(self.savepoints), self.last_savepoint, dict(self.releases))

    def __iter__(self) -> Iterator[PinState]:
        """Yield all pins: tags in the order they were created, then savepoints."""
        yield from self.tags.values()
        yield from self.savepoints.values()

    def revisions(self) -> set[int]:
        """Return the revisions that are pinned."""
        return {state.pin.revision for state in self}

    def fold(self, action: PinAction, place: Place, sealed: Callable[[int], bool], name: str) -> None:
        """Fold one action.

        Args:
            action: The action.
            place: Its writer, revision and format version.
            sealed: Returns whether a revision is sealed; only sealed revisions can be pinned.
            name: The transaction's path, for messages.

        Raises:
            DocumentError: The action contradicts the pins.
        """
        match action:
            case act.TagCreated():
                self._expect(action.name not in self.tags, f"creates {action}, which is there already", name)
                self._add_tag(action, place, sealed, name)
            case act.TagHeld():
                self._add_tag(action.tag, place, sealed, name, action.note)
            case act.TagReleased():
                known = self.tags.get(action.tag.name)
                held = known is not None and known.hold is not None
                self._expect(held, f"releases {action.tag}, which is not held", name)
                self._add_tag(action.tag, place, sealed, name)
                self.releases[action.tag.name] = place[1]
            case act.TagReplaced():
                self._refuse_held(action.tag.name, name)
                self._expect(action.tag.name in self.tags, f"replaces {action.tag}, which is not there", name)
                self._add_tag(action.tag, place, sealed, name)
            case act.TagRenamed():
                self._expect(action.tag.name not in self.tags, f"creates {action.tag}, which is there already", name)
                self._drop_tag(action.name, name)
                self._add_tag(action.tag, place, sealed, name)
            case act.TagDeleted():
                self._drop_tag(action.name, name)
            case act.SavepointCreated():
                self._expect(action.id > self.last_savepoint, f"creates {action} after {self.last_savepoint}", name)
                check_savepoint_path(action.object.path, action.id)
                self._expect(sealed(action.revision), f"pins revision {action.revision}, which is not sealed", name)
                self.savepoints[action.id] = SavepointState(action, *place)
                self.last_savepoint = action.id
            case act.SavepointDeleted():
                # A checkpoint keeps the deletion of the last savepoint, so that its id is never used again.
                deleted = self.savepoints.pop(action.id, None) is not None or action.id > self.last_savepoint
                self._expect(deleted, f"deletes savepoint {action.id}, which is not there", name)
                self.last_savepoint = max(self.last_savepoint, action.id)

    def retained_actions(self, action: PinAction, revision: int) -> Iterator[PinAction]:
        """Yield what a checkpoint keeps of a revision's action, so that folding the checkpoint gives these pins."""
        match action:
            case act.TagHeld() if (known := self.tags.get(action.tag.name)) and known.hold:
                if known.committed == revision:
                    yield act.TagHeld(known.pin, known.hold)
            case act.TagRenamed() | act.TagReplaced() | act.TagHeld() | act.TagReleased():
                yield from self.retained_actions(action.tag, revision)
            case act.TagCreated() if action.name in self.tags and self.tags[action.name].committed == revision:
                yield self.tags[action.name].pin
            case act.SavepointCreated() if action.id in self.savepoints:
                yield action
            case act.SavepointDeleted() if action.id == self.last_savepoint:
                yield action

    def _add_tag(
        self,
        tag: act.TagCreated,
        place: Place,
        sealed: Callable[[int], bool],
        name: str,
        hold: act.HoldNote | None = None,
    ) -> None:
        check_tag_path(tag.object.path, tag.name)
        self._expect(sealed(tag.revision), f"tags revision {tag.revision}, which is not sealed", name)
        self.tags[tag.name] = TagState(tag, *place, hold)

    def _drop_tag(self, tag: str, name: str) -> None:
        self._refuse_held(tag, name)
        self._expect(self.tags.pop(tag, None) is not None, f"deletes tag {tag!r}, which is not there", name)

    def _refuse_held(self, tag: str, name: str) -> None:
        known = self.tags.get(tag)
        self._expect(known is None or known.hold is None, f"removes or replaces tag {tag!r}, which is held", name)

    @staticmethod
    def _expect(condition: bool, otherwise: str, name: str) -> None:
        if not condition:
            raise DocumentError(f"{name} {otherwise}.", object=name)


def held_tags(pins: Pins) -> dict[str, TagState]:
    """Return the tags that are held, by name."""
    return {name: known for name, known in pins.tags.items() if known.hold is not None}


def refuse_changes(pins: Pins, actions: Iterable[act.Action]) -> None:
    """Refuse actions that would delete, rename or replace a held tag, or delete the location, by a TagHeldError."""
    held = held_tags(pins)
    if held:
        refuse_held(held[name] for name in dict.fromkeys(_ended(held, actions)))


def refuse_held(tags: Iterable[PinState]) -> None:
    """Refuse a change of held tags; other pins do not count.

    Raises:
        TagHeldError: One is held. Names each, with who holds it and why, and the command that releases it.
    """
    held = sorted((known for known in tags if known.hold is not None), key=lambda known: str(known.pin))
    if held:
        names = [known.pin.name for known in held if isinstance(known.pin, act.TagCreated)]
        releases = [f"`snapshots tag release {name} --reason …`" for name in names]
        text = "; ".join(map(held_text, held))
        raise TagHeldError(
            f"{text[0].upper()}{text[1:]}; nothing was changed or deleted. Release first: {', '.join(releases)}.",
            tags=names,
        )


def held_text(known: PinState) -> str:
    """Return who holds a tag, since when, and why, as text."""
    assert known.hold is not None
    return f"{known.pin} is held since {time_text(known.hold.at)} by {known.hold.by} ({known.hold.reason})"


def _ended(held: dict[str, TagState], actions: Iterable[act.Action]) -> Iterator[str]:
    """Yield the names of the held tags that actions end or change, before an action of theirs releases them."""
    for action in actions:
        match action:
            case act.TagReleased(tag):
                held = {name: known for name, known in held.items() if name != tag.name}
            case act.Deleted():
                yield from held
            case act.TagDeleted(name) | act.TagRenamed(name) if name in held:
                yield name
            case act.TagReplaced(tag) | act.TagHeld(tag) if tag.name in held:
                yield tag.name
