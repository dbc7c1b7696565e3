"""What a replication copies, and what it refuses, before it writes anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from snapshot_assets.catalog.log.replay import despite_pruning, open_log, read_entries
from snapshot_assets.catalog.log.store import list_log
from snapshot_assets.catalog.log.truncation import newest_recorded_state
from snapshot_assets.catalog.replica import Replica, marker_or_fault, promotion_text, read_marker, with_versions
from snapshot_assets.catalog.replication.log_plan import LogPlan, plan_log, refuse_losses
from snapshot_assets.catalog.replication.objects import check_existing
from snapshot_assets.catalog.state.fold import LogEntry, State
from snapshot_assets.catalog.state.retained import needed_seals
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.records import damage_on_record
from snapshot_assets.catalog.verify.retained import needed_objects
from snapshot_assets.errors import (
    DamageError,
    LocationDeletedError,
    MisnamedError,
    NoSnapshotError,
    ReplicaConflictError,
    ReplicaError,
    UsageError,
)
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import COLLECTED, REPLICA, SEALS, in_layout, is_probe, revision_of, transaction_path
from snapshot_assets.format.name_texts import shell_word
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.bulk import Listed
from snapshot_assets.storage.create import StoreWrapper


class MendedStore(StoreWrapper):
    """A replica's store with some objects as its source has them."""

    def __init__(self, target: ObjectStore, source: ObjectStore, paths: Collection[str]) -> None:
        super().__init__(target)
        self._source, self._paths = source, paths

    def _having(self, path: str) -> ObjectStore:
        return self._source if path in self._paths else self._store

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        return self._having(path).get(path, limit=limit)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object; see `ObjectStore.get_range`."""
        return self._having(path).get_range(path, start, length)

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        return self._having(path).head(path)


_READS = 3


@dataclass(frozen=True)
class ReplicationPlan:
    """What a replication copies.

    Attributes:
        marker: The replica's marker, if it exists yet.
        revisions: The older revisions that the replica gets, ascending; None for all.
        deleted: Objects of the replica that its head does not need and the source no longer has.
        leftovers: Objects that an interrupted replication copied, and those in which verifications of the replica found
            damage; they are hashed.
        state: The source's head, as its log records it.
        mended: Paths of transactions that are damaged in the replica, and written again as the source has them.
        marker_damaged: Whether the replica has a damaged marker, which is written again.
    """

    source: str
    replica: str
    marker: Replica | None
    revisions: tuple[int, ...] | None
    copied: tuple[ObjectRef, ...]
    log: LogPlan
    deleted: tuple[ObjectInfo, ...]
    leftovers: tuple[ObjectRef, ...] = field(repr=False, compare=False)
    state: State = field(repr=False, compare=False)
    mended: tuple[str, ...] = ()
    marker_damaged: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the objects that are copied."""
        return sum(ref.bytes for ref in self.copied)


def plan_replication(
    source: ObjectStore,
    target: ObjectStore,
    *,
    delete: bool = False,
    only: Sequence[str] = (),
    accept_loss: bool = False,
) -> ReplicationPlan:
    """Return what a replication copies; changes nothing.

    See `replicate` for the options.

    Raises:
        VersionNotFoundError: One of `only` cannot be read.
        NoSnapshotError: The source has no snapshot.
        LocationDeletedError: The source's snapshot was deleted.
        ReplicaError: The target is a location of its own, or a replica of another one.
        ReplicaConflictError: The replica has other objects than the source.
        ReplicaLossError: The source lost what the replica has.
        DamageError: One of the two logs has a fault.
    """
    for _ in range(_READS - 1):
        with suppress(DamageError):  # a log that is pruned while it is read looks damaged for a moment
            return despite_pruning(lambda: _plan(source, target, delete, only, accept_loss))
    return despite_pruning(lambda: _plan(source, target, delete, only, accept_loss))


def _plan(
    source: ObjectStore, target: ObjectStore, delete: bool, only: Sequence[str], accept_loss: bool
) -> ReplicationPlan:
    origin, (marker, marker_fault) = read_marker(source), marker_or_fault(target)
    state = _source_state(source, target, marker)
    if marker_fault is None:
        check_target(target, marker, state, source.uri)
    revisions = _revisions(state, marker, origin, only, target.uri)
    objects = Listed(target)
    copied_before: dict[str, ObjectRef] = {}
    damaged = damage_on_record(target, state.location_id)
    mended: tuple[str, ...] = ()
    view = target
    if marker is not None or marker_fault is not None:
        chosen = marker.revisions if marker is not None else None
        known, mended = _replica_state(source, target, damaged)
        if marker_fault is not None:
            _check_log(target, known, state, marker_fault)
        view = cast(ObjectStore, MendedStore(target, source, mended))
        refuse_losses(source, view, state, known, chosen, accepted=accept_loss)
        copied_before = needed_objects(with_versions(known, chosen))
    kept = with_versions(state, revisions)
    needed = needed_objects(kept)
    objects.missing(needed)  # a listing may pass over objects: makes it include them
    copied, leftovers = [], []
    for path, ref in sorted(needed.items()):
        info = objects.get(path)
        if info is None:
            copied.append(ref)
            continue
        check_existing(target, ref, info, hashed=False)
        if path not in copied_before or path in damaged:
            leftovers.append(ref)
    return ReplicationPlan(
        source=source.uri,
        replica=target.uri,
        marker=marker,
        revisions=revisions,
        copied=tuple(copied),
        log=plan_log(source, view, state, needed, prune=delete, damaged=damaged),
        deleted=tuple(unneeded(source, objects, needed.keys() | needed_seals(kept, objects))) if delete else (),
        leftovers=tuple(leftovers),
        state=state,
        mended=mended,
        marker_damaged=marker_fault is not None,
    )


def _revisions(
    state: State, marker: Replica | None, origin: Replica | None, only: Sequence[str], uri: str
) -> tuple[int, ...] | None:
    """Return the older revisions that the replica gets: None for all, or the chosen ones of all runs.

    A source that is a replica of chosen versions, by its marker `origin`, has no others to give.
    """
    offered = origin.revisions if origin is not None else None
    if not only and offered is None:
        return None
    if marker is not None and marker.revisions is None:
        other = "leave out --only" if only else "its source has only chosen versions; replicate from a whole one"
        raise ReplicaError(f"{uri} is a replica of all versions; {other}, or replicate elsewhere.", uri=uri)
    readable = with_versions(state, offered)
    chosen = {resolve_version(text, readable) for text in only} if only else {*(offered or ())}
    return tuple(sorted(chosen.union(marker.revisions or () if marker is not None else ())))


def _source_state(source: ObjectStore, target: ObjectStore, marker: Replica | None) -> State:
    state = newest_recorded_state(source)
    if state.deleted:
        raise LocationDeletedError(
            f"The snapshot at {source.uri} was deleted. The replica {target.uri} stays as it is; `snapshots catalog "
            "promote` makes it a location of its own.",
            uri=source.uri,
        )
    if state.header is None:
        if marker is not None:
            check_target(target, marker, state, source.uri)
        raise NoSnapshotError(
            f"There is no snapshot at {source.uri}, so nothing was replicated; check the URI.", uri=source.uri
        )
    return state


def _replica_state(source: ObjectStore, target: ObjectStore, damaged: Collection[str]) -> tuple[State, tuple[str, ...]]:
    """Return the replica's head, and the damaged transactions for which whole ones of the source were read."""
    if not any(map(revision_of, damaged)):
        with suppress(DamageError):
            return open_log(target)[0], ()
    own = read_entries(target, list_log(target).transactions)
    faults = {revision: entry for revision, entry in own if isinstance(entry, DamageError)}
    # One that is whole under the name of another revision was written by something else.
    broken = {revision for revision, fault in faults.items() if not isinstance(fault, MisnamedError)}
    there = read_entries(source, sorted(broken.intersection(list_log(source).transactions)))
    mended = tuple(transaction_path(each) for each, entry in there if isinstance(entry, LogEntry))
    try:
        return open_log(cast(ObjectStore, MendedStore(target, source, mended)))[0], mended
    except DamageError as fault:
        raise ReplicaConflictError(
            f"The replica cannot be continued, and nothing was copied. {fault}",
            object=fault.attributes.get("object", ""),
            uri=target.uri,
        ) from fault


def check_target(target: ObjectStore, marker: Replica | None, state: State, source: str) -> None:
    """Refuse a target that is not a replica of the source and not empty.

    A state without a snapshot is no source of an existing replica.

    Raises:
        ReplicaError: It is a location of its own, or a replica of another one.
    """
    if marker is not None:
        if marker.promoting:
            raise ReplicaError(promotion_text(target.uri), uri=target.uri)
        if not state.location_id:
            uri = shell_word(target.uri)
            raise ReplicaError(
                f"{source} is empty, or its log is lost, and {target.uri} is its replica, which has what was there."
                f" Restore from it by `snapshots import --from {uri}`, or go on with it:"
                f" `snapshots catalog promote --snapshot {uri}`. To begin {source} again, replicate to an empty"
                " location.",
                uri=target.uri,
            )
        if marker.location_id != state.location_id:
            raise ReplicaError(
                f"{target.uri} is a replica of {marker.source}, location {marker.location_id}; {source} is location "
                f"{state.location_id}. Replicate to an empty location.",
                uri=target.uri,
            )
        return
    found = _first_object(target)
    if found is not None and read_marker(target) is None:  # another replication may have begun meanwhile
        raise ReplicaError(
            f"{target.uri} is not a replica, but it has objects such as {found}: it is a location of its own, or a "
            "replica that was promoted. Replicate to an empty location.",
            uri=target.uri,
        )


def _check_log(target: ObjectStore, known: State, state: State, fault: DamageError) -> None:
    """Refuse a target with a damaged marker if its log is not the source's, or if it has other objects and no log."""
    found = known.location_id or _first_object(target)
    if found not in (state.location_id, None):
        raise ReplicaConflictError(
            f"{fault} What else is there ({found}) does not show that it is a replica of location {state.location_id}; "
            "replicate to an empty location.",
            object=REPLICA,
            uri=target.uri,
        )


def _first_object(target: ObjectStore) -> str | None:
    """Return the path of an object of a location beside its marker and probes; None if there is none."""
    paths = (info.path for info in target.list())
    return next((path for path in paths if in_layout(path) and not is_probe(path) and path != REPLICA), None)


def unneeded(source: ObjectStore, objects: Listed, needed: Set[str]) -> list[ObjectInfo]:
    """Return the objects of the replica that its head does not need and that the source does not have."""
    rest = [path for path in objects if path.startswith((*COLLECTED, SEALS)) and in_layout(path) and path not in needed]
    gone = Listed(source).missing(rest) if rest else set()
    return [objects[path] for path in sorted(gone)]


def refuse_same(source: ObjectStore, target: ObjectStore, *, same_service: bool) -> None:
    """Refuse a copy of a location that is the location itself, or within it, or around it.

    They are only compared if both are reached with the same storage options (`same_service`).

    Raises:
        UsageError: They overlap.
    """
    one, other = f"{source.uri}/", f"{target.uri}/"
    if same_service and (one.startswith(other) or other.startswith(one)):
        raise UsageError(
            f"{target.uri} overlaps {source.uri}, which is copied there; choose a location outside it, best in another"
            " store."
        )
