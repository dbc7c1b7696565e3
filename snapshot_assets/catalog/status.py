"""The condition of a location, for monitoring: how old its newest backup is, and what it needs. Reads no data files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Generic, TypeVar

import pyarrow.compute as pc

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.truncation import newest_state
from snapshot_assets.catalog.operations.garbage import GarbageScan, PinnedPaths, scan_state
from snapshot_assets.catalog.operations.locks import Locks, known_locks
from snapshot_assets.catalog.replica import marker_or_fault
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import held_tags
from snapshot_assets.catalog.state.totals import live_table
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, current_comparisons, known_differences
from snapshot_assets.catalog.verify.records import Verification, current_verifications, known_damage
from snapshot_assets.catalog.verify.signatures import check_signed
from snapshot_assets.errors import DamageError, SignatureError
from snapshot_assets.format.layout import COLLECTED, checkpointed_revision, revision_of
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed

_READS = 5
_BATCH = 4096
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Moment:
    """A revision, and the time that its age counts from; `name` is that of a tag, "" for a seal.

    The age is 0 if this machine's clock is behind.
    """

    revision: int
    at: datetime
    age_seconds: int
    name: str = ""


@dataclass(frozen=True)
class Unsealed:
    """What was committed since the newest seal, or is still to be exported.

    Attributes:
        chunks: Expected chunks that are not completed.
        files: Live files that no seal covers.
        bytes: Their size.
    """

    chunks: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Size:
    """A number of objects and their size."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class Aged(Generic[_Record]):
    """A record that no later one covers, and its age: of a comparison, that of the state of the source that it read."""

    record: _Record
    age_seconds: int


@dataclass(frozen=True)
class Status:
    """The condition of a location.

    Attributes:
        name: The plan's name.
        sealed: Whether the newest state is exactly what the newest seal declared.
        seal: The newest seal, of any kind.
        export: The newest seal of exported data. Compactions, deletions of rows and rollbacks seal, too, but what they
            seal is as old as before. If the log no longer has its seal, `revision` is the oldest with its data.
        tag: The tag that was created last.
        verified: The last verifications: one for each depth and scope that no later one covers, the last one last.
        damaged: Objects that are missing or have another size, and those that the last verifications found damaged.
        damage: Why the garbage is not known, also a fault of a replica's marker; "" if it is known.
        collectable: Garbage that is older than the grace period.
        waiting: Younger garbage.
        held: Names of the tags under legal hold, sorted.
        replica_of: URI of the source of a replica; None for a location of its own.
        promoting: Whether a promotion of the replica was begun and has not ended.
        compared: The last comparisons with the source: that of everything, then a later one of a part.
        signed: The newest seal and who signed it, as `name`; None if that was not asked, or no signature counts.
        unsigned: Why no signature counts; "" if one does, or that was not asked.
        different: The tables of chunks that were different when last compared, although the source had not changed.
        locks: Until when what is needed is locked; None for a store without the option `lock`.
        unlocked: Whether the first of these locks has ended.
    """

    uri: str
    location_id: str
    snapshot_id: str
    name: str
    revision: int
    sealed: bool
    seal: Moment | None
    export: Moment | None
    tag: Moment | None
    unsealed: Unsealed
    verified: tuple[Aged[Verification], ...]
    damaged: tuple[str, ...]
    damage: str
    collectable: Size | None
    waiting: Size | None
    transactions: Size
    checkpoints: Size
    held: tuple[str, ...] = ()
    replica_of: str | None = None
    promoting: bool = False
    compared: tuple[Aged[ComparisonRecord], ...] = ()
    different: tuple[str, ...] = ()
    locks: Locks | None = None
    unlocked: bool = False
    signed: Moment | None = None
    unsigned: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether damage is known."""
        return bool(self.damaged or self.damage or self.different or self.unsigned)

    def is_older(self, most: timedelta) -> bool:
        """Return whether the newest sealed export is older than a limit, or does not exist."""
        ages = [each.age_seconds for each in (self.export, self.signed) if each is not None]
        return self.export is None or max(ages) > most.total_seconds()


def location_status(store: ObjectStore, now: datetime, signing: Signing | None = None) -> Status:
    """Return the condition of a location; `signing` has whose signatures count.

    Raises:
        NoSnapshotError: The location is empty.
        LocationDeletedError: The snapshot was deleted.
        DamageError: The log has a fault, or the log or its end is lost.
    """
    for _ in range(_READS):
        status = _status(store, now, signing)
        if not status.is_damaged or read_state(store).revision == status.revision:
            break  # else others may have deleted on purpose what was missing
    return status


def _status(store: ObjectStore, now: datetime, signing: Signing | None) -> Status:
    marker, fault = marker_or_fault(store)
    objects = Listed(store)
    state = Catalog(store, newest_state(store, objects.values())).require_snapshot()
    infos = [info for info in objects.values() if not info.path.startswith(COLLECTED)]
    newest, export = state.seals[-1] if state.seals else None, None
    if newest is not None:
        first = next(seal for seal in state.seals if seal.exported_at == newest.exported_at)
        export = Moment(first.revision, first.exported_at, _age(first.exported_at, now))
    tags = [known.pin for known in state.tags.values()]
    tag = max(tags, key=attrgetter("created_at", "revision", "name"), default=None)
    verifications = current_verifications(store, state.location_id, infos)
    comparisons = current_comparisons(store, state, infos)
    assert state.header is not None
    before = now - timedelta(microseconds=state.header.grace)
    # Without the marker, nothing shows which versions the replica has.
    scan = str(fault) if fault else _scan(store, state, objects, before)
    known, unneeded, damage = None, set[str](), ""
    if isinstance(scan, str):
        damage = scan
    else:
        known, unneeded = scan.by_age(before), {each.path for each in scan.garbage}.union(scan.foreign)
    collectable, waiting = (_size([one.bytes for one in each]) for each in known) if known else (None, None)
    locks = known_locks(store, state, (info for info in objects.values() if info.path not in unneeded))
    damaged = known_damage(verifications) | _misfits(state, objects)
    signed, unsigned = _signature(store, state, now, signing)
    return Status(
        uri=store.uri,
        location_id=state.location_id,
        snapshot_id=state.snapshot_id,
        name=state.header.name,
        revision=state.revision,
        sealed=state.sealed,
        seal=Moment(newest.revision, newest.committed_at, _age(newest.committed_at, now)) if newest else None,
        export=export,
        tag=Moment(tag.revision, tag.created_at, _age(tag.created_at, now), tag.name) if tag else None,
        held=tuple(sorted(held_tags(state.pins))),
        replica_of=marker.source if marker is not None else None,
        promoting=marker is not None and marker.promoting,
        unsealed=unsealed_work(state),
        verified=tuple(Aged(each, _age(each.verified_at, now)) for each in verifications),
        compared=tuple(Aged(each, _age(each.started_at, now)) for each in comparisons),
        different=known_differences(comparisons),
        signed=signed,
        unsigned=unsigned,
        damaged=tuple(sorted(damaged)),
        damage=damage,
        collectable=collectable,
        waiting=waiting,
        transactions=_size([info.size for info in infos if revision_of(info.path)]),
        checkpoints=_size([info.size for info in infos if checkpointed_revision(info.path)]),
        locks=locks,
        unlocked=locks is not None and locks.earliest_end is not None and locks.earliest_end <= now,
    )


def _signature(store: ObjectStore, state: State, now: datetime, signing: Signing | None) -> tuple[Moment | None, str]:
    try:
        found = check_signed(store, state, signing, files=False)
    except SignatureError as error:
        return None, str(error)
    return found and Moment(found.revision, found.at, _age(found.at, now), found.by), ""


def _age(at: datetime, now: datetime) -> int:
    return max(0, round((now - at).total_seconds()))


def unsealed_work(state: State) -> Unsealed:
    """Return what the newest seal does not cover, and how many chunks are not exported."""
    sealed = state.newest_seal.revision if state.newest_seal else 0
    files = live_table(state, ["added", "bytes"])
    new = files.filter(pc.greater(files["added"], sealed))
    return Unsealed(len(state.missing()), new.num_rows, pc.sum(new["bytes"]).as_py() or 0)


def _misfits(state: State, objects: Listed) -> set[str]:
    """Return the paths of needed data files that are missing, or have another size than recorded."""
    unneeded, damaged = state.files.unreferenced(state.retained()), set[str]()
    table = state.files.merged().table.select(["path", "bytes"])
    for batch in table.to_batches(_BATCH):
        pairs = zip(*(column.to_pylist() for column in batch), strict=True)
        needed = {path: size for path, size in pairs if path not in unneeded}
        missing = objects.missing(needed)
        damaged |= {path for path, size in needed.items() if path in missing or objects[path].size != size}
    return damaged


def _scan(store: ObjectStore, state: State, objects: Listed, before: datetime) -> GarbageScan | str:
    """Return the garbage, or why it is unknown."""
    pinned = PinnedPaths()
    try:
        pinned.read(store, state.pins)
        return scan_state(store, state, objects, before, pinned.paths)
    except DamageError as error:
        return str(error)


def _size(sizes: Sequence[int]) -> Size:
    return Size(len(sizes), sum(sizes))
