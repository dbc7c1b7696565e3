"""What the head and readable revisions need: the events that a checkpoint keeps, and the objects that nothing needs.

The selection depends only on the log, never on which checkpoints were read on the way. For objects: which ones a change
releases, and since when they are unreferenced. Garbage collection deletes them a grace period later (FORMAT.md, section
6). Only the objects of tags and savepoints are deleted together with their pin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction, Pins, PinState
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import new_attempt, sealed_revision, tag_path

if TYPE_CHECKING:
    from snapshot_assets.catalog.state.file_columns import Removal


_NEVER = datetime.max.replace(tzinfo=UTC)
_Key = tuple[int, type[act.Action], int]
"""The revision and type of an action, and its chunk or schema."""


def needed_events(state: State, *, recent_expiries: bool = True) -> Iterator[Event]:
    """Yield the events from which the head and every readable revision can be folded, in their order.

    Checkpoints drop actions on chunks that another action followed before a readable seal, finished work, expired
    seals, and deleted pins. Expiries and the schemas of expired revisions stay for two grace periods, because garbage
    collection measures the age of files from there; without `recent_expiries` they are left out.
    """
    since = state.expiries_kept_since if recent_expiries else _NEVER
    readable = [seal.revision for seal in state.readable()]
    recent = [event for event in state.events if event.committed_at > since]
    expiries = [action for event in recent for action in event.actions if isinstance(action, act.Expired)]
    needing_schemas = sorted({*readable, *(revision for expiry in expiries for revision in expiry.revisions)})
    kept: set[_Key] = set()
    for added, action, number, end in lives(state.events):
        keep = end is None
        if end is not None and isinstance(action, act.Chunk):
            keep = bool(between(readable, added.revision, end.revision))
        elif end is not None and isinstance(action, act.SchemaAdded):
            keep = end.committed_at > since or bool(between(needing_schemas, added.revision, end.revision))
        if keep:
            kept.add((added.revision, type(action), number))
    for event in state.events:
        actions = tuple(_kept_actions(event, state.pins, kept, set(readable), since))
        if actions:
            yield replace(event, actions=actions)


def _kept_actions(
    event: Event, pins: Pins, kept: set[_Key], readable: set[int], since: datetime
) -> Iterator[act.Action]:
    for action in event.actions:
        match action:
            case act.Chunk():
                if (event.revision, act.Chunk, action.id) in kept:
                    yield action
            case act.SchemaAdded():
                if (event.revision, act.SchemaAdded, action.schema_id) in kept:
                    yield action
            case act.ChunksInProgress():
                chunks = tuple(each for each in action.chunks if (event.revision, type(action), each) in kept)
                if chunks:
                    yield replace(action, chunks=chunks)
            case act.Seal():
                if event.revision in readable:
                    yield action
            case act.Expired():
                revisions = tuple(each for each in action.revisions if event.committed_at > since or each in readable)
                if revisions:
                    yield replace(action, revisions=revisions)
            case _ if isinstance(action, PinAction):
                yield from pins.retained_actions(action, event.revision)
            case _:
                yield action


def lives(events: Iterable[Event]) -> Iterator[tuple[Event, act.Action, int, Event | None]]:
    """Yield each action on chunks and schemas: its event, the action, its chunk or schema, and the event that ended it.

    A chunk's next action ends an action on the chunk. The next snapshot ends all. The last event is None at the head.
    """
    living: dict[tuple[object, ...], tuple[Event, act.Action, int]] = {}
    for event in events:
        for action in event.actions:
            ended: list[tuple[object, ...]] = []
            match action:
                case act.Begin() | act.Rollback():
                    ended = list(living)
                case act.Chunk():
                    ended = [(act.Chunk, action.id), (act.ChunksInProgress, action.id)]
            for key in ended:
                if key in living:
                    yield *living.pop(key), event
            match action:
                case act.Chunk():
                    living[act.Chunk, action.id] = event, action, action.id
                case act.ChunksInProgress():
                    living |= {(act.ChunksInProgress, chunk): (event, action, chunk) for chunk in action.chunks}
                case act.SchemaAdded():
                    living[act.SchemaAdded, event.revision, action.schema_id] = event, action, action.schema_id
    for added, action, number in living.values():
        yield added, action, number, None


def documents_of(action: act.Action) -> tuple[act.ObjectRef, ...]:
    """Return the receipts or schema documents that an action names."""
    match action:
        case act.SchemaAdded():
            return action.files
        case act.Chunk():
            return action.receipts
    return ()


def named_by(action: act.Action) -> list[str]:
    """Return the paths of the objects that an action names."""
    match action:
        case act.AddFile():
            return [action.file.path]
        case act.TagCreated() | act.SavepointCreated():
            return [action.object.path]
        case act.TagRenamed() | act.TagReplaced() | act.TagHeld() | act.TagReleased():
            return [action.tag.object.path]
    return [ref.path for ref in documents_of(action)]


def needed_seals(state: State, paths: Iterable[str]) -> set[str]:
    """Return the statements about readable revisions and their signatures; later ones were written since."""
    retained = {*state.retained()}
    revisions = {path: revision for path in paths if (revision := sealed_revision(path))}
    return {path for path, revision in revisions.items() if revision in retained or revision > state.revision}


def between(revisions: Sequence[int], first: int, end: int) -> Sequence[int]:
    """Return those of some ascending revisions that lie in `[first, end)`."""
    return revisions[bisect_left(revisions, first) : bisect_left(revisions, end)]


EXPIRED = "expired"
PIN_OBJECT = "pin object"
TAG_DELETED = "tag deleted"


@dataclass(frozen=True)
class ReleasedObject:
    """An object that nothing needs after a change.

    `reason` is why its last user goes: `expired`, `tag deleted`, `tag replaced` or `savepoint deleted`; `replaced` or
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

    No purge may lie between the states. `reason` is that of all but the pin objects.
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
    """Return the consequences of deleting a pin, or of replacing a tag's revision by another."""
    action: act.Action
    if not isinstance(pin.pin, act.TagCreated):
        action, reason = act.SavepointDeleted(pin.pin.id), "savepoint deleted"
    elif replaced_by is None:
        action, reason = act.TagDeleted(pin.pin.name), TAG_DELETED
    else:
        unwritten = act.ObjectRef(tag_path(pin.pin.name, new_attempt()), "", 0)
        action, reason = act.TagReplaced(replace(pin.pin, revision=replaced_by, object=unwritten)), "tag replaced"
    after, revision = state.after([action]), pin.pin.revision
    unreadable = revision in state.expired and revision not in after.pins.revisions()
    return PinEnd(released_objects(state, after, reason), revision if unreadable else None)


def needed_documents(state: State) -> dict[str, int]:
    """Return the sizes of the receipts and schema documents that the head or a readable revision needs, by path."""
    events = needed_events(state, recent_expiries=False)
    return {ref.path: ref.bytes for event in events for action in event.actions for ref in documents_of(action)}


def expiries_since(state: State, before: datetime, written_at: Callable[[int], datetime]) -> dict[int, Removal]:
    """Return the newest expiry of each revision that expired after a time.

    `written_at` returns when a revision of the log was written, by the store's clock.
    """
    expiries: dict[int, Removal] = {}
    for event in state.events:
        expired = [each for action in event.actions if isinstance(action, act.Expired) for each in action.revisions]
        if expired and max(event.committed_at, written_at(event.revision)) > before:
            expiries.update(dict.fromkeys(expired, (event.revision, event.committed_at)))
    return expiries


def unreferenced_schemas(state: State, expiries: Mapping[int, Removal]) -> tuple[dict[str, Removal], set[str]]:
    """Return the schema documents of snapshots that ended, given the recent expiries by expired revision.

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
