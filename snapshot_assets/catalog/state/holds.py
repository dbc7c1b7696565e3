"""Legal holds on tags: what they refuse. A held tag stays as it is until `snapshots tag release`.

`Catalog.commit` calls `refuse_changes` before it writes, so that no rule and no operation needs a check of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from snapshot_assets.catalog.state.pins import Pins, PinState, TagState
from snapshot_assets.errors import TagHeldError
from snapshot_assets.format import actions as act
from snapshot_assets.format.units import time_text


def held_tags(pins: Pins) -> dict[str, TagState]:
    """Return the tags that are held, by name."""
    return {name: known for name, known in pins.tags.items() if known.hold is not None}


def refuse_changes(pins: Pins, actions: Iterable[act.Action]) -> None:
    """Refuse actions that would delete, rename or replace a held tag, or delete the location.

    Raises:
        TagHeldError: There is such an action. Names the tags.
    """
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
        raise TagHeldError(
            f"{_sentence(held)}; nothing was changed or deleted. Release first: {', '.join(releases)}.", tags=names
        )


def held_text(known: PinState) -> str:
    """Return who holds a tag, since when, and why, as text."""
    assert known.hold is not None
    return f"{known.pin} is held since {time_text(known.hold.at)} by {known.hold.by} ({known.hold.reason})"


def _sentence(held: Sequence[PinState]) -> str:
    text = "; ".join(map(held_text, held))
    return text[0].upper() + text[1:]


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
