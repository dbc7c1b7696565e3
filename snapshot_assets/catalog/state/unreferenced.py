"""Objects that no revision and no pin needs: which ones a change releases, and since when they are unreferenced.

Garbage collection deletes them a grace period later (FORMAT.md, section 6). Only the objects of tags and savepoints are
deleted together with their pin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.state.retained_events import between, documents_of, lives, needed_events
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, tag_path

if TYPE_CHECKING:
    from snapshot_assets.catalog.state.file_columns import Removal

EXPIRED = "expired"
PIN_OBJECT = "pin object"
TAG_DELETED = "tag deleted"


@dataclass(frozen=True)
class ReleasedObject:
    """An object that nothing needs after a change.

    Attributes:
        reason: Why its last user goes: `expired`, `tag deleted`, `tag replaced` or `savepoint deleted`; `replaced` or
            `orphan` as in garbage collection; `pin object` for the object of a tag or savepoint.
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
    """The consequences of deleting or replacing a tag or savepoint.

    Attributes:
        released: Objects that nothing needs afterwards.
        unreadable: The expired revision that loses its last pin and cannot be read any more; None if it stays readable.
    """

    released: tuple[ReleasedObject, ...]
    unreadable: int | None


def released_objects(before: State, after: State, reason: str) -> tuple[ReleasedObject, ...]:
    """Return the objects that one state needs and a later one does not: by path, with pin objects last.

    Args:
        before: The earlier state.
        after: A later state, such as the result of `before.after(…)`, without a purge in between.
        reason: The reason of all but the pin objects.
    """
    needed = needed_documents(after)
    sizes = after.files.released(before.retained(), after.retained())
    sizes |= {path: size for path, size in needed_documents(before).items() if path not in needed}
    pin_paths = {state.pin.object.path for state in after.pins}
    pin_objects = [state.pin.object for state in before.pins if state.pin.object.path not in pin_paths]
    return (
        *(ReleasedObject(path, size, reason) for path, size in sorted(sizes.items())),
        *(ReleasedObject(ref.path, ref.bytes, PIN_OBJECT) for ref in pin_objects),
    )


def end_of_pin(state: State, pin: PinState, replaced_by: int | None = None) -> PinEnd:
    """Return the consequences of deleting or replacing a pin.

    Args:
        state: The head.
        pin: The tag or savepoint.
        replaced_by: The revision that a tag is to pin instead; None if the pin is deleted.
    """
    action, reason = _ending(pin, replaced_by)
    after, revision = state.after([action]), pin.pin.revision
    unreadable = revision in state.expired and revision not in after.pins.revisions()
    return PinEnd(released_objects(state, after, reason), revision if unreadable else None)


def _ending(pin: PinState, replaced_by: int | None) -> tuple[act.Action, str]:
    """Return the action that ends a pin, and the reason that its objects get."""
    if not isinstance(pin.pin, act.TagCreated):
        return act.SavepointDeleted(pin.pin.id), "savepoint deleted"
    name = pin.pin.name
    if replaced_by is None:
        return act.TagDeleted(name), TAG_DELETED
    unwritten = act.ObjectRef(tag_path(name, new_attempt()), "", 0)
    return act.TagReplaced(replace(pin.pin, revision=replaced_by, object=unwritten)), "tag replaced"


def needed_documents(state: State) -> dict[str, int]:
    """Return the sizes of the receipts and schema documents that the head or a readable revision needs, by path."""
    events = needed_events(state, recent_expiries=False)
    return {ref.path: ref.bytes for event in events for action in event.actions for ref in documents_of(action)}


def expiries_since(state: State, before: datetime, written_at: Callable[[int], datetime]) -> dict[int, Removal]:
    """Return the newest expiry of each revision that expired after a time.

    Args:
        state: The head.
        before: The time.
        written_at: Returns when a revision of the log was written, by the store's clock.
    """
    expiries: dict[int, Removal] = {}
    for event in state.events:
        expired = [each for action in event.actions if isinstance(action, act.Expired) for each in action.revisions]
        if expired and max(event.committed_at, written_at(event.revision)) > before:
            expiries.update(dict.fromkeys(expired, (event.revision, event.committed_at)))
    return expiries


def unreferenced_schemas(state: State, expiries: Mapping[int, Removal]) -> tuple[dict[str, Removal], set[str]]:
    """Return the schema documents of snapshots that ended.

    Args:
        state: The head.
        expiries: Recent expiries by expired revision; see `expiries_since`.

    Returns:
        What released each document last, by path: the end of its snapshot, or the expiry of a revision. Then the paths
        of the documents that an expired revision used.
    """
    removals: dict[str, Removal] = {}
    of_expired: set[str] = set()
    recent, expired = sorted(expiries), sorted(state.expired)
    for added, schema, _, end in lives(state.events):
        if end is None or not isinstance(schema, act.SchemaAdded):
            continue
        recent_within = between(recent, added.revision, end.revision)
        last = max([(end.revision, end.committed_at), *(expiries[each] for each in recent_within)])
        for ref in schema.files:
            removals[ref.path] = max(last, removals.get(ref.path, last))
            if between(expired, added.revision, end.revision):
                of_expired.add(ref.path)
    return removals, of_expired
