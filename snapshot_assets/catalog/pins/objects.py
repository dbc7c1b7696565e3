"""Writes, reads and deletes the objects of tags and savepoints: each holds the manifest of the revision that it pins.

The object is written first. Then a commit names it with its SHA-256 (FORMAT.md, section 7). Only the log decides what
exists: an object that no transaction names is an orphan. A savepoint takes a number that no other had before, and pins
a state that is sealed (FORMAT.md, section 6) and that the caller compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from snapshot_assets.catalog.catalog import Actions, Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import StoredManifest, manifest_of, parse_manifest
from snapshot_assets.catalog.rules.begin import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import CommittedPin, PinState, SavepointState, refuse_held
from snapshot_assets.catalog.state.retained import PinEnd, end_of_pin
from snapshot_assets.errors import ConflictError, UnsealedError, UsageError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, check_writable, parse_json, pretty_json, sha256_hex
from snapshot_assets.format.layout import check_savepoint_path, check_tag_path, new_attempt, savepoint_path, tag_path
from snapshot_assets.format.units import counted, duration_text, parse_duration, parse_time, time_text
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained
from snapshot_assets.storage.create import create_own

NO_OBJECT = act.ObjectRef("", "", 0)
"""The object of a pin whose object is not written yet."""

_ATTEMPTS = 10

Manifest = Mapping[str, Any]
Pin = act.TagCreated | act.SavepointCreated
_Pin = TypeVar("_Pin", bound=Pin)


class _ChangedMeanwhileError(ConflictError):
    """The object that was written for a pin must not be committed."""


def pin_document(
    pin: Pin, created_by: str, version: int, manifest: Manifest, hold: act.HoldNote | None = None
) -> bytes:
    """Return the bytes of a pin's object. They depend on the log alone, so that verification can compare them.

    `created_by` is the writer of the pin's transaction, `version` the format version when it was created. The pin's
    `object` is not used.
    """
    return pretty_json(
        {
            "version": version,
            **({"name": pin.name} if isinstance(pin, act.TagCreated) else {"id": pin.id}),
            "created_at": time_text(pin.created_at),
            "created_by": created_by,
            **({"ttl": ttl_text(pin.ttl)} if isinstance(pin, act.TagCreated) else {}),
            **({"automatic": True} if pin.automatic else {}),
            **({"hold": {"at": time_text(hold.at), "by": hold.by, "reason": hold.reason}} if hold else {}),
            "manifest": manifest,
        }
    )


def ttl_text(ttl: timedelta | None) -> str | None:
    """Return a time to live as documents hold it; None for a tag that is kept until it is deleted."""
    return None if ttl is None else duration_text(ttl)


def with_new_object(
    pin: _Pin, created_by: str, version: int, manifest: Manifest, hold: act.HoldNote | None = None
) -> tuple[_Pin, bytes]:
    """Return a pin with an object at a path that no other writer uses, and the object's bytes; see `pin_document`."""
    data, attempt = pin_document(pin, created_by, version, manifest, hold), new_attempt()
    path = tag_path(pin.name, attempt) if isinstance(pin, act.TagCreated) else savepoint_path(pin.id, attempt)
    return replace(pin, object=act.ObjectRef(path, sha256_hex(data), len(data))), data


def write_pin(catalog: Catalog, pin: _Pin, version: int, hold: act.HoldNote | None = None) -> _Pin:
    """Write the object of a pin that is about to be committed, and return the pin with it; see `create_pin`.

    The state is read from storage, because other threads may change the catalog's.
    """
    state = read_state(catalog.store, through=pin.revision)
    created, data = with_new_object(pin, catalog.writer_id, version, manifest_of(state), hold)
    advice = (
        f"Revision {pin.revision} has {counted(state.files.totals()[0], 'file')}; compact it into fewer, and pin that."
    )
    check_writable(len(data), documents.MAX_DOCUMENT_BYTES, created.object.path, advice)
    create_own(catalog.store, created.object.path, data)
    return created


def create_pin(
    catalog: Catalog,
    wanted: Callable[[State], _Pin | None],
    action: Callable[[_Pin], act.Action] = lambda pin: pin,
    hold: act.HoldNote | None = None,
) -> CommittedPin[_Pin] | None:
    """Write the object of a pin, then commit the transaction that names it.

    If another writer changes what is wanted meanwhile, or if the object may count as an orphan by now, another object
    is written. The object is deleted if the commit is refused or not needed; while its outcome is unknown, it stays.
    `wanted` returns the pin for a head, without its object; None if nothing is to be committed. `action` returns the
    action that names the pin, and that puts `hold` on it.

    Returns:
        The pin; None if nothing was committed.

    Raises:
        LimitExceededError: The object would be larger than readers accept; nothing was written.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
        ConflictError: In ten attempts, what is wanted changed, or writing the object took half the grace period.
    """
    catalog.refresh()
    catalog.require_snapshot()
    for _ in range(_ATTEMPTS - 1):
        with suppress(_ChangedMeanwhileError):
            return _create_pin(catalog, wanted, action, hold)
    return _create_pin(catalog, wanted, action, hold)


def _create_pin(
    catalog: Catalog,
    wanted: Callable[[State], _Pin | None],
    action: Callable[[_Pin], act.Action],
    hold: act.HoldNote | None,
) -> CommittedPin[_Pin] | None:
    pin, version, since = wanted(catalog.state), catalog.state.format_version, catalog.now()
    if pin is None:
        return None
    created = write_pin(catalog, pin, version, hold)
    path = created.object.path

    def prepare(state: State) -> Actions:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        assert state.header is not None
        again = wanted(state)
        waited = catalog.now() - since > timedelta(microseconds=state.header.grace) / 2  # as `check_age` for data
        if again is not None and (again != pin or waited):
            raise _ChangedMeanwhileError(f"{path} is for another head, or may count as an orphan by now. Run again.")
        return None if again is None else [action(created)]

    try:
        committed = catalog.commit(prepare)
    except (UsageError, ConflictError):
        delete_unless_retained(catalog.store, path)
        raise
    if committed is None:
        delete_unless_retained(catalog.store, path)
        return None
    return CommittedPin(created, catalog.writer_id, committed, version, hold)


def pin_of_same_name(state: State, pin: PinState) -> PinState | None:
    """Return the tag or savepoint that has a pin's name or number in a state; None if there is none."""
    if isinstance(pin.pin, act.TagCreated):
        return state.tags.get(pin.pin.name)
    return state.pins.savepoints.get(pin.pin.id)


def delete_pin(catalog: Catalog, pin: PinState | None, planned: PinEnd | None = None) -> bool:
    """Delete a pin, first in the log, then its object. A pin that was changed since it was read stays.

    `planned` is what may end with it; None for anything. Returns whether this call deleted it.

    Raises:
        TagHeldError: It is a tag that is held.
        ConflictError: A revision would become unreadable that does not in `planned`.
    """
    if pin is None:
        return False

    def prepare(state: State) -> Sequence[act.Action] | None:
        if pin_of_same_name(state, pin) != pin or state.deleted:
            return None
        refuse_held([pin])
        unreadable = None if planned is None else end_of_pin(state, pin).unreadable
        if planned is not None and unreadable not in (None, planned.unreadable):  # nobody confirmed that
            raise ConflictError(
                f"Revision {unreadable} expired meanwhile, and only {pin.pin} keeps it readable; nothing was deleted. "
                "Run again.",
                revision=unreadable,
            )
        if isinstance(pin.pin, act.TagCreated):
            return [act.TagDeleted(pin.pin.name)]
        return [act.SavepointDeleted(pin.pin.id)]

    catalog.refresh()
    if catalog.commit(prepare) is None:
        return False
    delete_unless_retained(catalog.store, pin.pin.object.path)
    return True


@dataclass(frozen=True)
class PinObject:
    """The object of a tag or savepoint, as it was read from storage.

    Attributes:
        pin: The pin that it describes, without its object.
    """

    ref: act.ObjectRef
    pin: Pin
    manifest: StoredManifest
    hold: act.HoldNote | None = None


def read_pin(store: ObjectStore, path: str) -> PinObject:
    """Read the object of a tag or savepoint.

    Raises:
        DamageError: It is not JSON, or its name or id is not that of its path.
        ValueError: Its manifest is invalid (see `parse_manifest`), or is not of a sealed state.
    """
    data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    document = parse_json(data, path)
    manifest = parse_manifest(path, document["manifest"])
    if not manifest.checksum:
        raise ValueError("its manifest is not of a sealed state")
    created_at, automatic = parse_time(document["created_at"]), document.get("automatic", False) is True
    hold = document.get("hold")
    note = None if hold is None else act.HoldNote(parse_time(hold["at"]), str(hold["by"]), str(hold["reason"]))
    pin: Pin
    if path.startswith("tag/"):
        ttl = None if document["ttl"] is None else parse_duration(document["ttl"])
        pin = act.TagCreated(str(document["name"]), manifest.revision, NO_OBJECT, created_at, ttl, automatic=automatic)
        check_tag_path(path, pin.name)
    else:
        pin = act.SavepointCreated(int(document["id"]), manifest.revision, NO_OBJECT, created_at, automatic=automatic)
        check_savepoint_path(path, pin.id)
    return PinObject(act.ObjectRef(path, sha256_hex(data), len(data)), pin, manifest, note)


def damaged_objects(state: State, whole: AbstractSet[act.ObjectRef]) -> dict[str, bytes]:
    """Return the bytes, by path, of those objects of a state's pins that are not `whole`: missing or damaged."""
    objects: dict[str, bytes] = {}
    for known in state.pins:
        if known.pin.object not in whole:
            manifest = manifest_of(state.at(known.pin.revision))
            data = pin_document(known.pin, known.created_by, known.version, manifest, known.hold)
            if sha256_hex(data) == known.pin.object.sha256:
                objects[known.pin.object.path] = data
    return objects


class UncompactedError(ConflictError):
    """Data changed after the compaction for a savepoint: the caller compacts again."""


def create_savepoint(catalog: Catalog, compacted: int, *, automatic: bool = False) -> SavepointState:
    """Pin the newest seal under the next free number; see `create_pin`.

    `compacted` is the `data_revision` of the compacted state; only that data is pinned.

    Raises:
        UnsealedError: The head is not sealed.
        UncompactedError: The newest seal is of other data.
    """
    created_at = catalog.now()

    def wanted(state: State) -> act.SavepointCreated:
        number, revision = state.pins.last_savepoint + 1, sealed_head(state)
        if state.data_revision != compacted:
            raise UncompactedError(
                f"Revision {state.data_revision} changed data after everything was compacted, which was at revision "
                f"{compacted}; no savepoint was made. Compact again.",
                revision=state.data_revision,
            )
        return act.SavepointCreated(number, revision, NO_OBJECT, created_at, automatic)

    made = create_pin(catalog, wanted)
    assert made is not None
    return made


def sealed_head(state: State) -> int:
    """Return the revision of the newest seal, whose data the head has: only complete data becomes a savepoint.

    Raises:
        UnsealedError: The head is not sealed.
    """
    if not state.sealed or state.newest_seal is None:
        newest = f"the newest seal is revision {state.newest_seal.revision}" if state.newest_seal else "nothing is"
        raise UnsealedError(
            f"Revision {state.revision}, the head, is not sealed ({newest}), so it cannot become a savepoint. "
            "Export what is missing, which seals it; or pin an older revision by a tag.",
            revision=state.revision,
        )
    return state.newest_seal.revision
