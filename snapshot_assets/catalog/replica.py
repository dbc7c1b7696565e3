"""The marker of a replica: a location that replication keeps equal to another one, its source (FORMAT.md, "Replicas").

Writers refuse a location that has one: a transaction of their own would separate the replica's log from the source's.
Readers leave out what a replica of chosen versions lacks, by `reader_view`: whatever opens a state calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState, TagState
from snapshot_assets.errors import DamageError, DocumentError, NotAFileError, ObjectNotFoundError, ReplicaError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.documents import canonical_json, parse_json, pretty_json, sha256_hex
from snapshot_assets.format.layout import REPLICA
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore, warn_once

_MAX_BYTES = 1 << 20
_CHECKSUM = "sha256"


@dataclass(frozen=True)
class Replica:
    """The content of a replica's marker.

    Attributes:
        location_id: The location of the source, and of the replica.
        source: URI of the source when the replica was created.
        created_by: The name of the process that created it.
        revisions: The older revisions that a replica of chosen versions has, ascending; None if it has all.
        promoting: Whether a promotion was begun, so that replication no longer writes to it.
    """

    location_id: str
    source: str
    created_at: datetime
    created_by: str
    revisions: tuple[int, ...] | None = None
    promoting: bool = False

    def document(self) -> bytes:
        """Return the marker's bytes."""
        members = {
            "version": documents.FORMAT_VERSION,
            "location_id": self.location_id,
            "source": self.source,
            "created_at": time_text(self.created_at),
            "created_by": self.created_by,
            **({} if self.revisions is None else {"revisions": list(self.revisions)}),
            **({"promoting": True} if self.promoting else {}),
        }
        return pretty_json(members | {_CHECKSUM: _checksum(members)})

    def is_same(self, other: Replica | None) -> bool:
        """Return whether another marker is this one, whatever versions were chosen since."""
        return other is not None and self == replace(other, revisions=self.revisions, promoting=self.promoting)


def read_marker(store: ObjectStore) -> Replica | None:
    """Return the marker of a replica; None for a location that is none. Raise a DamageError if it is damaged."""
    try:
        data = store.get(REPLICA, limit=_MAX_BYTES)
        document = parse_json(data, REPLICA)
    except (DamageError, NotAFileError) as error:  # a link, too: only absence lets writers in
        raise _damage(store, str(error)) from error
    except ObjectNotFoundError:
        return None
    checksum, same = document.pop(_CHECKSUM, None), data == pretty_json(document)  # older builds wrote none
    if not same and (checksum != _checksum(document) or data != pretty_json(document | {_CHECKSUM: checksum})):
        raise _damage(store, f"its {_CHECKSUM} is not that of its other members.")
    try:
        revisions = tuple(int(each) for each in document["revisions"]) if "revisions" in document else None
        created_at, created_by = parse_time(document["created_at"]), str(document["created_by"])
        location_id, source = str(document["location_id"]), str(document["source"])
        promoting = bool(document.get("promoting"))
        return Replica(location_id, source, created_at, created_by, revisions, promoting)
    except (KeyError, TypeError, ValueError) as error:
        raise _damage(store, f"{error!r}.") from error


def marker_or_fault(store: ObjectStore) -> tuple[Replica | None, DamageError | None]:
    """Return the marker of a replica, and its fault if it is damaged: readers need only the log. Else both are None."""
    try:
        return read_marker(store), None
    except DamageError as fault:
        return None, fault


def _checksum(members: dict[str, Any]) -> str:
    return sha256_hex(canonical_json(members))


def _damage(store: ObjectStore, what: str) -> DocumentError:
    return DocumentError(
        f"{REPLICA} in {store.uri} is damaged: {what} `snapshots replicate` writes it again; for a replica of chosen "
        "versions, give --only for each. If the source is lost, delete it: a replica of all versions then is a location"
        " of its own.",
        object=REPLICA,
        uri=store.uri,
    )


def reader_view(store: ObjectStore) -> Callable[[State], State]:
    """Read a location's marker; return a function from a recorded state to what readers see.

    That lacks what a replica of chosen versions lacks; if the marker is damaged, a warning says so, and nothing is left
    out. Call this before the log is read: a promotion first ends in the log what the replica lacks, then deletes the
    marker.
    """
    marker, fault = marker_or_fault(store)
    if fault is not None:
        warn_once(store.uri, f"{fault} Until then, versions are shown that the replica may not have.")
    return lambda state: with_versions(state, marker.revisions if marker is not None else None)


def refuse_replica(store: ObjectStore) -> None:
    """Refuse to write to a replica, also one with a damaged marker, by a ReplicaError."""
    marker, fault = marker_or_fault(store)
    if fault is not None:
        raise ReplicaError(str(fault), uri=store.uri) from fault
    if marker is not None and marker.promoting:
        raise ReplicaError(promotion_text(store.uri), uri=store.uri, source=marker.source)
    if marker is not None:
        raise ReplicaError(
            f"{store.uri} is a replica of {marker.source}, and only `snapshots replicate` writes to it: change the "
            "source, and replicate again. If the source is lost, `snapshots catalog promote` makes the replica a "
            "location of its own.",
            uri=store.uri,
            source=marker.source,
        )


def promotion_text(uri: str) -> str:
    """Return why a replica is not written to, whose promotion was begun."""
    return (
        f"{uri} is a replica whose promotion was begun and has not ended; run `snapshots catalog promote` again, which "
        "finishes it."
    )


@dataclass(frozen=True)
class MissingVersions:
    """What the log records and a replica of chosen versions does not have; each in order of revision, name or number.

    Attributes:
        revisions: Sealed revisions that the log does not record as expired.
    """

    revisions: tuple[int, ...] = ()
    tags: tuple[TagState, ...] = ()
    savepoints: tuple[SavepointState, ...] = ()

    @property
    def held(self) -> tuple[TagState, ...]:
        """The tags that are under legal hold."""
        return tuple(known for known in self.tags if known.hold is not None)

    def ended(self, note: act.HoldNote) -> list[act.Action]:
        """Return the actions that end all of it; holds are released first, with a note."""
        return [
            *(act.TagReleased(replace(known.pin), note) for known in self.held),
            *(act.TagDeleted(known.pin.name) for known in self.tags),
            *(act.SavepointDeleted(known.pin.id) for known in self.savepoints),
            *([act.Expired(self.revisions)] if self.revisions else []),
        ]


def missing_versions(state: State, revisions: Collection[int] | None) -> MissingVersions:
    """Return what a replica lacks: all but the head, the newest seal and the given revisions; nothing for None."""
    if revisions is None:
        return MissingVersions()
    kept, pins = {*revisions}, state.pins
    if state.newest_seal is not None:
        kept.add(state.newest_seal.revision)
    return MissingVersions(
        tuple(sorted({seal.revision for seal in state.seals} - kept - state.expired)),
        tuple(known for _, known in sorted(pins.tags.items()) if known.pin.revision not in kept),
        tuple(known for _, known in sorted(pins.savepoints.items()) if known.pin.revision not in kept),
    )


def with_versions(state: State, revisions: Collection[int] | None) -> State:
    """Return a state without what a replica of chosen versions lacks; see `missing_versions`; `state` itself stays."""
    if revisions is None:
        return state
    lacking, chosen = missing_versions(state, revisions), state.copy()
    for tag in lacking.tags:
        del chosen.pins.tags[tag.pin.name]
    for savepoint in lacking.savepoints:
        del chosen.pins.savepoints[savepoint.pin.id]
    chosen.expired |= {*lacking.revisions}
    chosen.partial = True
    return chosen
