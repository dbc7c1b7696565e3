"""What a change leaves unneeded, told of two states: before it is made, and once it is.

Garbage collection alone deletes it, a grace period later (FORMAT.md, section 6); but for the objects of tags and
savepoints, which go with these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.catalog.state.retained_events import needed_events
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, tag_path

EXPIRED = "expired"
PIN_OBJECT = "pin object"
TAG_DELETED = "tag deleted"
TAG_REPLACED = "tag replaced"
SAVEPOINT_DELETED = "savepoint deleted"


@dataclass(frozen=True)
class Freed:
    """An object that nothing needs once a change is made.

    Attributes:
        reason: `expired`, `tag deleted`, `tag replaced` or `savepoint deleted`: what is the last to need it goes so;
            `replaced` or `orphan`, as garbage collection calls it; or `pin object`: that of a tag or savepoint, deleted
            at once.
    """

    path: str
    bytes: int
    reason: str

    @property
    def at_once(self) -> bool:
        """Whether the change itself deletes it."""
        return self.reason == PIN_OBJECT


@dataclass(frozen=True)
class PinEnd:
    """What ends with a tag or savepoint.

    Attributes:
        freed: What nothing needs then.
        unreadable: The revision that cannot be read or pinned any more, as it has expired and has no other pin; None if
            there is none.
    """

    freed: tuple[Freed, ...]
    unreadable: int | None


def freed(before: State, after: State, reason: str) -> tuple[Freed, ...]:
    """Return what something needs in a state and nothing in a later one: by path, and the objects of pins last.

    Args:
        before: The state.
        after: A later one, such as `before.after(…)` gives; nothing was purged on the way.
        reason: Why, of all but the objects of pins.
    """
    needed = needed_documents(after)
    gone = after.files.freed(before.retained(), after.retained())
    gone |= {path: size for path, size in needed_documents(before).items() if path not in needed}
    left = {known.pin.object.path for known in after.pins}
    objects = [known.pin.object for known in before.pins if known.pin.object.path not in left]
    return (
        *(Freed(path, size, reason) for path, size in sorted(gone.items())),
        *(Freed(ref.path, ref.bytes, PIN_OBJECT) for ref in objects),
    )


def end_of_pin(state: State, known: PinState, replaced_by: int | None = None) -> PinEnd:
    """Return what ends with a pin.

    Args:
        state: The head.
        known: The pin.
        replaced_by: The revision that a tag is to pin instead; None where the pin is deleted.
    """
    action, reason = _ending(known, replaced_by)
    after, revision = state.after([action]), known.pin.revision
    gone = revision in state.expired and revision not in after.pins.revisions()
    return PinEnd(freed(state, after, reason), revision if gone else None)


def _ending(known: PinState, replaced_by: int | None) -> tuple[act.Action, str]:
    """Return the action that ends a pin, and how it is called."""
    if not isinstance(known, TagState):
        return act.SavepointDeleted(known.savepoint.id), SAVEPOINT_DELETED
    name = known.tag.name
    if replaced_by is None:
        return act.TagDeleted(name), TAG_DELETED
    unwritten = act.ObjectRef(tag_path(name, new_attempt()), "", 0)
    return act.TagReplaced(replace(known.tag, revision=replaced_by, object=unwritten)), TAG_REPLACED


def needed_documents(state: State) -> dict[str, int]:
    """Return by path the size of the receipts and schema documents that the head or a readable revision needs."""
    said = (action for event in needed_events(state, told=False) for action in event.actions)
    return {ref.path: ref.bytes for action in said for ref in _named_by(action)}


def _named_by(action: act.Action) -> Iterator[act.ObjectRef]:
    match action:
        case act.SchemaAdded():
            yield from action.files
        case act.Chunk():
            yield from action.receipts
