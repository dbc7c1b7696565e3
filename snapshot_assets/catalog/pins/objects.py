"""The objects of tags and savepoints: the manifest of the revision that each pins, and its own facts.

An object is written first; then the commit names it with its SHA-256 (FORMAT.md, section 7). The log decides what
exists: an object that no transaction names is an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import StoredManifest, manifest_of, parse_manifest
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.catalog.state.unreferenced import PinEnd, end_of_pin
from snapshot_assets.errors import ConflictError, UsageError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, check_writable, parse_json, pretty_json
from snapshot_assets.format.layout import check_savepoint_path, check_tag_path
from snapshot_assets.format.units import duration_text, parse_duration, parse_time, time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own

NO_OBJECT = act.ObjectRef("", "", 0)
"""Stands in a pin whose object is still to be written."""

Manifest = Mapping[str, Any]


class ChangedMeanwhileError(ConflictError):
    """What an object was written for is not so any more at the head: it is planned anew."""


def tag_document(tag: act.TagCreated, created_by: str, version: int, manifest: Manifest) -> bytes:
    """Return the bytes of a tag's object: a pure function of the log, so verify can compare them.

    Args:
        tag: The tag, whose `object` is not looked at.
        created_by: The writer of its transaction.
        version: Format version when it was created.
        manifest: The manifest of the revision it pins.
    """
    ttl = ttl_text(tag.ttl)
    return _document({"name": tag.name}, tag.created_at, created_by, version, {"ttl": ttl}, tag.automatic, manifest)


def savepoint_document(savepoint: act.SavepointCreated, created_by: str, version: int, manifest: Manifest) -> bytes:
    """Return the bytes of a savepoint's object; see `tag_document`."""
    id_ = {"id": savepoint.id}
    return _document(id_, savepoint.created_at, created_by, version, {}, savepoint.automatic, manifest)


def pin_document(known: PinState, manifest: Manifest) -> bytes:
    """Return the bytes that the object of a pin of the log has.

    Args:
        known: The pin.
        manifest: The manifest of the revision it pins.
    """
    if isinstance(known, TagState):
        return tag_document(known.tag, known.created_by, known.version, manifest)
    return savepoint_document(known.savepoint, known.created_by, known.version, manifest)


def _document(
    name: Mapping[str, Any],
    created_at: datetime,
    created_by: str,
    version: int,
    life: Mapping[str, Any],
    automatic: bool,
    manifest: Manifest,
) -> bytes:
    facts = {"version": version, **name, "created_at": time_text(created_at), "created_by": created_by, **life}
    return pretty_json(facts | ({"automatic": True} if automatic else {}) | {"manifest": manifest})


def ttl_text(ttl: timedelta | None) -> str | None:
    """Return a time to live as documents hold it; None is for ever."""
    return None if ttl is None else duration_text(ttl)


def write_pin(catalog: Catalog, path: str, revision: int, document: Callable[[Manifest], bytes]) -> act.ObjectRef:
    """Write the object of a pin that is to be committed.

    The state is read anew: others may be changing the catalog's.

    Args:
        catalog: The location, opened for writing.
        path: Where it goes; nobody else can want that.
        revision: The sealed revision to pin.
        document: Returns the object's bytes, of the revision's manifest.

    Raises:
        LimitExceededError: It is larger than readers take; nothing was written.
    """
    state = read_state(catalog.store, through=revision)
    data = document(manifest_of(state))
    advice = f"Revision {revision} has {state.files.totals()[0]} files; compact it into fewer, and pin that."
    check_writable(len(data), documents.MAX_DOCUMENT_BYTES, path, advice)
    create_own(catalog.store, path, data)
    return act.ObjectRef(path, sha256_hex(data), len(data))


def commit_pin(catalog: Catalog, ref: act.ObjectRef, prepare: Prepare, since: datetime) -> int | None:
    """Commit the transaction that names an object; where it is refused or not needed, nobody knows it, and it goes.

    While the outcome of the commit is unknown, the object stays.

    Args:
        catalog: The location, opened for writing.
        ref: The object, as `write_pin` left it.
        prepare: Returns the actions that name it.
        since: When the object was about to be written.

    Returns:
        The committed revision, or None where `prepare` found nothing left to do.

    Raises:
        ChangedMeanwhileError: The object may count as an orphan by now; it is to be written anew.
    """
    try:
        committed = catalog.commit(lambda state: _young(catalog, state, ref, since, prepare(state)))
    except (UsageError, ConflictError):
        catalog.store.delete(ref.path)
        raise
    if committed is None:
        catalog.store.delete(ref.path)
    return committed


@dataclass(frozen=True)
class PinDeletionPlan:
    """The deletion of a tag or savepoint.

    Attributes:
        pin: The tag or savepoint.
        ends: What ends with it.
        deleted: Whether it was deleted; False until then, and if another writer deleted or changed it first.
    """

    pin: PinState
    ends: PinEnd
    deleted: bool = False


def plan_pin_deletion(catalog: Catalog, pin: PinState) -> PinDeletionPlan:
    """Return what ends with a tag or savepoint of the catalog's state; changes nothing."""
    return PinDeletionPlan(pin, end_of_pin(catalog.state, pin))


def execute_pin_deletion(catalog: Catalog, plan: PinDeletionPlan) -> PinDeletionPlan:
    """Delete the tag or savepoint of a plan; see `delete_pin`.

    Args:
        catalog: The location, opened for writing.
        plan: The plan.

    Returns:
        The plan, with whether this call deleted the pin.
    """
    return replace(plan, deleted=delete_pin(catalog, plan.pin))


def delete_pin(catalog: Catalog, pin: PinState | None) -> bool:
    """Delete a pin, first in the log, then its object. A pin that was changed since it was read stays.

    Args:
        catalog: The location, opened for writing.
        pin: The pin as a state has it; None for none.

    Returns:
        Whether this call deleted it.
    """
    if pin is None:
        return False

    def prepare(state: State) -> Sequence[act.Action] | None:
        newest: PinState | None
        action: act.Action
        if isinstance(pin, TagState):
            newest, action = state.tags.get(pin.tag.name), act.TagDeleted(pin.tag.name)
        else:
            newest = state.pins.savepoints.get(pin.savepoint.id)
            action = act.SavepointDeleted(pin.savepoint.id)
        return [action] if newest == pin and not state.deleted else None

    catalog.refresh()
    if catalog.commit(prepare) is None:
        return False
    catalog.store.delete(pin.pin.object.path)
    return True


def _young(
    catalog: Catalog, state: State, ref: act.ObjectRef, since: datetime, actions: Sequence[act.Action] | None
) -> Sequence[act.Action] | None:
    """Return the actions unless the object that they name is too old, as `check_age` does for data files."""
    assert state.header is not None
    if actions is not None and catalog.now() - since > timedelta(microseconds=state.header.grace) / 2:
        raise ChangedMeanwhileError(
            f"{ref.path} was written more than half the grace period ago; garbage collection may already count it as "
            "an orphan. Run again."
        )
    return actions


@dataclass(frozen=True)
class PinObject:
    """The object of a tag or savepoint as it lies on storage.

    Attributes:
        ref: Its path, SHA-256 and size.
        pin: The pin that it describes, without its object.
        manifest: The manifest of the revision that it pins.
    """

    ref: act.ObjectRef
    pin: act.TagCreated | act.SavepointCreated
    manifest: StoredManifest


def read_pin(store: ObjectStore, path: str) -> PinObject:
    """Return the object of a tag or savepoint.

    Raises:
        DamageError: It is not JSON, or its name or id is not that of its path.
        ValueError: As `read_manifest`; also if its manifest is not of a sealed state.
    """
    data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    document = parse_json(data, path)
    manifest = parse_manifest(path, document["manifest"])
    if not manifest.checksum:
        raise ValueError("its manifest is not of a sealed state")
    created_at, automatic = parse_time(document["created_at"]), document.get("automatic", False) is True
    pin: act.TagCreated | act.SavepointCreated
    if path.startswith("tag/"):
        ttl = None if document["ttl"] is None else parse_duration(document["ttl"])
        pin = act.TagCreated(str(document["name"]), manifest.revision, NO_OBJECT, created_at, ttl, automatic=automatic)
        check_tag_path(path, pin.name)
    else:
        pin = act.SavepointCreated(int(document["id"]), manifest.revision, NO_OBJECT, created_at, automatic=automatic)
        check_savepoint_path(path, pin.id)
    return PinObject(act.ObjectRef(path, sha256_hex(data), len(data)), pin, manifest)


def damaged_objects(state: State, whole: AbstractSet[act.ObjectRef]) -> dict[str, bytes]:
    """Return by path the bytes of the objects of a state's pins that are not whole, as the log gives them."""
    objects: dict[str, bytes] = {}
    for known in state.pins:
        if known.pin.object not in whole:
            data = pin_document(known, manifest_of(state.at(known.pin.revision)))
            if sha256_hex(data) == known.pin.object.sha256:
                objects[known.pin.object.path] = data
    return objects
