"""Which tags, savepoints and older sealed revisions a rebuilt log keeps.

A pin is kept if its object and the files of its revision are whole. The log gives the bytes of its pins' objects, so
missing or damaged ones are written again. A revision that lacks files expires. A tag under legal hold is kept even if
its revision lacks files: what is left of it must not become garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from snapshot_assets.catalog.manifest import checksum_of, manifest_of, used_schema_files
from snapshot_assets.catalog.pins.objects import Pin, PinObject, damaged_objects, with_new_object
from snapshot_assets.catalog.rebuild.base import Base
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState, SavepointState
from snapshot_assets.errors import TagHeldError
from snapshot_assets.format import actions as act


@dataclass
class KeptPins:
    """The pins and older revisions of a new log.

    Attributes:
        actions: The actions on them in the new log's first event.
        restored: Objects of pins in the log that are written again, by path.
        lost: What is lost or uncertain, in sentences.
    """

    writer: str
    actions: list[act.Action] = field(default_factory=list)
    created: dict[str, bytes] = field(default_factory=dict)
    restored: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def keep_pins(base: Base, inventory: Inventory, live: set[str], writer: str) -> KeptPins:
    """Decide on every pin that the base or an object shows, and on every sealed revision.

    Savepoints may be added to the base's events. `live` are the head's files; a missing one does not make older
    revisions unreadable.

    Raises:
        TagHeldError: A held tag cannot be kept.
    """
    kept, state = KeptPins(writer), base.state
    found = [each for each in _unknown_objects(state, inventory) if _is_whole(kept, state, inventory, live, each)]
    lacking = _lacking(state, inventory, live)
    if expired := {revision: path for revision, path in lacking.items() if revision not in state.expired}:
        kept.actions.append(act.Expired(tuple(sorted(expired))))
        kept.lost += [f"Revision {each} cannot be read: {expired[each]} is missing. It expires." for each in expired]
    kept.restored = damaged_objects(state, {each.ref for each in inventory.pins})
    for known in state.pins:
        if known.hold is not None:
            _keep_held(kept, state, known, lacking, found, inventory)
        else:
            _keep_known(kept, known, lacking, found, inventory)
    for each in found:
        if isinstance(each.pin, act.SavepointCreated) and each.pin.id < state.pins.last_savepoint:
            if not _add_to_events(kept, base, each.pin):
                continue  # the log records that it was deleted
        else:
            kept.actions.append(_created(kept, state, each.pin, each.hold, state.format_version))
        kept.lost.append(f"{each.pin} is kept because {each.ref.path} is whole; it may have been deleted.")
    created = [action.id for action in kept.actions if isinstance(action, act.SavepointCreated)]
    last_lost = max((last for _, last, _ in base.bridged), default=0) if base.is_end(inventory) else inventory.highest
    if last_lost > max([state.pins.last_savepoint, *created]):  # a savepoint's id is at most its revision
        kept.actions.append(act.SavepointDeleted(last_lost))  # reserves the ids of lost savepoints
    return kept


def _lacking(state: State, inventory: Inventory, live: set[str]) -> dict[int, str]:
    """Return the readable revisions that lack an object which the head does not need, with the object's path."""
    revisions = [seal.revision for seal in state.readable()]
    missing = state.files.paths() - inventory.objects.keys() - live
    lacking = state.files.having(missing, revisions) if missing else {}
    there = inventory.objects.keys() | used_schema_files(state).keys()
    for revision in revisions:
        if documents := used_schema_files(state.at(revision)).keys() - there:
            lacking.setdefault(revision, min(documents))
    return lacking


def _keep_known(
    kept: KeptPins, known: PinState, lacking: dict[int, str], found: list[PinObject], inventory: Inventory
) -> None:
    """Keep a pin of the base unless it is unreadable or a newer object has its name."""
    path, revision, pin = known.pin.object.path, known.pin.revision, known.pin
    newer = [each.ref.path for each in found if str(each.pin) == str(known.pin)]
    if revision in lacking:
        why = f"its revision {revision} lacks {lacking[revision]}"
    elif newer:
        why = f"{newer[0]} is newer"
    elif path in kept.restored:
        kept.lost.append(f"{known.pin} is kept: {path} is missing or damaged and is written again.")
        return
    elif any(each.ref == known.pin.object for each in inventory.pins):
        return
    else:
        why = f"{path} is missing or damaged"
    kept.actions.append(act.TagDeleted(pin.name) if isinstance(pin, act.TagCreated) else act.SavepointDeleted(pin.id))
    kept.restored.pop(path, None)
    kept.lost.append(f"{known.pin} is not kept: {why}.")


def _keep_held(
    kept: KeptPins, state: State, known: PinState, lacking: dict[int, str], found: list[PinObject], inventory: Inventory
) -> None:
    """Keep a held tag of the base unless an object with a newer hold has its name; note what it lacks."""
    path, revision = known.pin.object.path, known.pin.revision
    if any(str(each.pin) == str(known.pin) for each in found):
        kept.restored.pop(path, None)
        return
    if revision in lacking:
        kept.lost.append(f"{known.pin} is held and kept, although its revision {revision} lacks {lacking[revision]}.")
    if path in kept.restored:
        kept.lost.append(f"{known.pin} is kept: {path} is missing or damaged and is written again.")
    elif all(each.ref != known.pin.object for each in inventory.pins):
        kept.lost.append(f"{known.pin} is held and kept: {path} is missing or damaged; another object replaces it.")
        kept.actions.append(_created(kept, state, known.pin, known.hold, state.format_version))


def _unknown_objects(state: State, inventory: Inventory) -> list[PinObject]:
    """Return the newest object of each tag and savepoint that the log neither has nor records as deleted."""
    actions = [action for event in state.events for action in event.actions]
    named = {action.object.path for action in actions if isinstance(action, act.TagCreated | act.SavepointCreated)}
    changed = act.TagRenamed | act.TagReplaced | act.TagHeld | act.TagReleased
    named |= {action.tag.object.path for action in actions if isinstance(action, changed)}
    gone = {action.id for action in actions if isinstance(action, act.SavepointDeleted)}
    newest: dict[str, PinObject] = {}
    for found in sorted(inventory.pins, key=_age):
        pin = found.pin
        if isinstance(pin, act.SavepointCreated):
            unknown = pin.id not in state.pins.savepoints.keys() | gone
        else:
            known = state.tags.get(pin.name)
            # Only a newer hold replaces a tag that the log holds.
            held = known is not None and known.hold is not None and found.hold is None
            unknown = known is None or (_age(found) > _age(known) and not held)
        if found.ref.path not in named and unknown:
            newest[str(pin)] = found
    return sorted(newest.values(), key=lambda each: each.pin.id if isinstance(each.pin, act.SavepointCreated) else 0)


def _age(pin: PinObject | PinState) -> tuple[datetime, datetime]:
    """Return the order of a tag's objects. Of two that differ only in a hold, the one with it counts as newer."""
    return pin.pin.created_at, pin.hold.at if pin.hold is not None else datetime.min.replace(tzinfo=UTC)


def _is_whole(kept: KeptPins, state: State, inventory: Inventory, live: set[str], found: PinObject) -> bool:
    """Return whether the revision of a pin matches its object and has all files; note it otherwise.

    Raises:
        TagHeldError: It is a held tag, and the base does not determine its revision.
    """
    revision, checksum = found.pin.revision, found.manifest.checksum
    lacking = found.manifest.lacking(inventory.sizes) - live
    sealed = any((seal.revision, seal.seal.checksum) == (revision, checksum) for seal in state.seals)
    if (found.hold is not None or not lacking) and sealed and checksum_of(state.at(revision)) == checksum:
        if lacking:
            kept.lost.append(f"{found.pin} is held and kept, although its revision {revision} lacks {min(lacking)}.")
        return True
    why = f"lacks {min(lacking)}" if lacking else "is lost"
    if found.hold is not None:
        raise TagHeldError(
            f"{found.ref.path} records that {found.pin} is held by {found.hold.by} ({found.hold.reason}), and its "
            f"revision {revision} {why}, so that a new log cannot keep it; nothing was rebuilt. Bring back what is "
            "missing from a copy, or move that object away to rebuild without the tag.",
            tags=[found.pin.name] if isinstance(found.pin, act.TagCreated) else [],
        )
    kept.lost.append(f"{found.pin} ({found.ref.path}) is not kept: its revision {revision} {why}.")
    return False


def _created(
    kept: KeptPins, state: State, pin: Pin, hold: act.HoldNote | None, version: int, writer: str | None = None
) -> Pin | act.TagHeld:
    """Return the action that creates a pin with a new object, which names the writer: the new log's by default."""
    manifest = manifest_of(state.at(pin.revision))
    created, data = with_new_object(pin, kept.writer if writer is None else writer, version, manifest, hold)
    kept.created[created.object.path] = data
    if hold is not None and isinstance(created, act.TagCreated):
        return act.TagHeld(created, hold)
    return created


def _add_to_events(kept: KeptPins, base: Base, pin: act.SavepointCreated) -> bool:
    """Add a savepoint to the event after lost transactions, before savepoints of greater ids; False without one."""
    state, kinds = base.state, act.SavepointCreated | act.SavepointDeleted
    later = next(
        event.revision
        for event in state.events
        if any(isinstance(action, kinds) and action.id > pin.id for action in event.actions)
    )
    ends = {last for _, last, _ in base.bridged if pin.revision <= last < later}
    place = max((place for place, event in enumerate(state.events) if event.revision in ends), default=None)
    if place is None:
        return False
    event = state.events[place]
    version = state.without_files_at(event.revision).format_version
    created = _created(kept, state, pin, None, version, event.writer_id)
    assert isinstance(created, act.SavepointCreated)
    state.events[place] = replace(event, actions=(*event.actions, created))
    known = SavepointState(created, event.writer_id, event.revision, version)
    state.pins.savepoints = dict(sorted((state.pins.savepoints | {pin.id: known}).items()))
    return True
