"""Locks on S3: extended for as long as something needs the objects. A window is written once, and needed for years.

What needs a lock is what is not garbage, but for hints. A run gives all of it one end, which `locks.json` records, so
that nothing has to ask for the lock of each object.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.garbage import PinnedPaths, checked_grace, scan_head
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, ObjectNotFoundError, StoreDeniedError
from snapshot_assets.format import documents
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import HINTS, LOCKS, in_layout, is_probe
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.bulk import in_parallel
from snapshot_assets.storage.s3_bucket import S3Bucket, bucket_of, locked_bucket

_BATCH = 1000
_RESUMED_WITHIN = timedelta(days=1)
_SAMPLE = 16
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class LockRun:
    """A run that extended locks, as `locks.json` records it.

    Attributes:
        revision: The newest revision when it began.
        began_at: The run locked what was written before, on this machine's clock.
        until: When its locks end.
        objects: How many objects needed a lock.
        done_through: The last path that is locked of a run that did not end; None of one that ended.
    """

    location_id: str
    revision: int
    began_at: datetime
    until: datetime
    objects: int
    done_through: str | None

    def document(self) -> bytes:
        """Return the bytes of `locks.json`."""
        facts: dict[str, Any] = self.__dict__ | {"began_at": time_text(self.began_at), "until": time_text(self.until)}
        return pretty_json({"version": documents.FORMAT_VERSION, **facts})

    def covers(self, info: ObjectInfo) -> bool:
        """Return whether the run locked an object that needed it."""
        return info.modified < self.began_at and (self.done_through is None or info.path <= self.done_through)


def read_lock_run(store: ObjectStore, state: State) -> LockRun | None:
    """Return the recorded run; None without a usable record, or if a rebuild has brought back objects since."""
    try:
        found = parse_json(store.get(LOCKS, limit=_MAX_BYTES), LOCKS)
        times = {name: parse_time(found[name]) for name in ("began_at", "until")}
        through = found["done_through"]
        run = LockRun(
            found["location_id"],
            int(found["revision"]),
            objects=int(found["objects"]),
            done_through=None if through is None else str(through),
            **times,
        )
    except (ObjectNotFoundError, DamageError, KeyError, TypeError, ValueError):  # a hint
        return None
    return run if run.location_id == state.location_id and run.revision >= state.rebuilt_at else None


def to_lock(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return those of needed objects that need a lock, in the order of their paths."""
    return sorted(
        each for each in objects if in_layout(each.path) and each.path not in HINTS and not is_probe(each.path)
    )


@dataclass(frozen=True)
class Locks:
    """Until when everything that is needed is locked, as far as times tell.

    Attributes:
        earliest_end: When the first of the locks ends.
        object: The object that has it.
        period: How long new objects are locked, or extended locks, whichever is less.
        extended_at: When the last recorded extension began; None if there is none.
        complete: Whether that ended.
    """

    earliest_end: datetime
    object: str
    period: timedelta
    extended_at: datetime | None
    complete: bool


def known_locks(store: ObjectStore, state: State, needed: Iterable[ObjectInfo]) -> Locks | None:
    """Return until when needed objects are locked; None for a store without the option `lock`."""
    bucket = bucket_of(store)
    if bucket is None or bucket.options.lock is None:
        return None
    run, written = read_lock_run(store, state), written_period(bucket)
    ends = []
    for each in to_lock(needed):
        own = each.modified + written
        ends.append((max(own, run.until) if run is not None and run.covers(each) else own, each.path))
    end, path = min(ends)
    period = min(written, bucket.options.lock.period)
    complete = run is not None and run.done_through is None
    return Locks(end, path, period, run.began_at if run else None, complete)


def written_period(bucket: S3Bucket) -> timedelta:
    """Return how long objects are locked when they are written: by the bucket, or else by the option `lock`."""
    assert bucket.options.lock is not None
    found = bucket.protection
    return timedelta(days=found.days) if found.mode else bucket.options.lock.period


@dataclass(frozen=True)
class LockExtension:
    """An extension of locks, planned or done.

    Attributes:
        run: What is recorded of it.
        paths: What it locks, without what an interrupted run locked that it continues.
        resumed: Whether it continues one.
        longer: How many objects were locked for longer already, once it is done.
    """

    run: LockRun
    paths: tuple[str, ...]
    resumed: bool
    longer: int = 0


def plan_extension(catalog: Catalog) -> LockExtension:
    """Return what an extension of locks would lock, and until when; changes nothing.

    If the object of a pin or a receipt cannot be read, so that nobody knows what is garbage, it locks everything.

    Raises:
        PlanError: The location is not on S3, the option `lock` is missing, or the bucket has no Object Lock.
        DamageError: The log has a fault.
    """
    store = catalog.store
    bucket = locked_bucket(store)
    assert bucket.options.lock is not None
    catalog.refresh()
    state, period = catalog.require_snapshot(), bucket.options.lock.period
    began, run = catalog.now().replace(microsecond=0), read_lock_run(store, state)
    needed = to_lock(_needed(catalog))
    if (
        run is not None
        and run.done_through is not None
        and run.until == run.began_at + period
        and began - run.began_at < _RESUMED_WITHIN
        and _has_locked(store, bucket, run, needed)
    ):
        paths = tuple(each.path for each in needed if each.path > run.done_through)
        return LockExtension(replace(run, objects=len(needed)), paths, resumed=True)
    run = LockRun(state.location_id, state.revision, began, began + period, len(needed), "")
    return LockExtension(run, tuple(each.path for each in needed), resumed=False)


def _needed(catalog: Catalog) -> Iterable[ObjectInfo]:
    before = catalog.now() - checked_grace(catalog.require_snapshot(), None, unsafe=False)
    try:
        return scan_head(catalog.store, before, PinnedPaths()).needed
    except DamageError:
        return catalog.store.list()


def _has_locked(store: ObjectStore, bucket: S3Bucket, run: LockRun, needed: Iterable[ObjectInfo]) -> bool:
    """Return whether some objects have the locks that a record claims, which whoever may write can forge."""
    covered = [each.path for each in needed if run.covers(each)]
    chosen = random.sample(covered, min(_SAMPLE, len(covered)))
    return all(until is not None and until >= run.until for until in in_parallel(store, bucket.retained_until, chosen))


def execute_extension(
    catalog: Catalog, plan: LockExtension, progress: Callable[[], None] = lambda: None
) -> LockExtension:
    """Lock what was planned; a longer lock stays. If interrupted, a run within a day continues after what is recorded.

    `progress` is called for each object.

    Raises:
        StoreDeniedError: The right to `s3:PutObjectRetention` is missing.
    """
    store, longer, before = catalog.store, 0, read_lock_run(catalog.store, catalog.state)
    bucket, until = locked_bucket(store), plan.run.until
    # Elsewhere no lock can be longer. Some stores would shorten it.
    asks = until - plan.run.began_at < written_period(bucket) or (before is not None and before.until > until)
    for start in range(0, max(len(plan.paths), 1), _BATCH):
        batch = plan.paths[start : start + _BATCH]
        for was_longer in in_parallel(store, lambda path: _is_longer(bucket, path, until, asks), batch):
            longer += was_longer
            progress()
        ended = start + _BATCH >= len(plan.paths)
        store.put(LOCKS, replace(plan.run, done_through=None if ended else batch[-1]).document())
    return replace(plan, run=replace(plan.run, done_through=None), longer=longer)


def _is_longer(bucket: S3Bucket, path: str, until: datetime, asks: bool) -> bool:
    """Return whether an object is locked for longer already; if not, lock it, unless it was deleted meanwhile."""
    try:
        if asks and (bucket.retained_until(path) or until) > until:
            return True
        bucket.retain(path, until)
    except ObjectNotFoundError:
        return False
    except StoreDeniedError:
        found = bucket.retained_until(path)
        if found is None or found < until:
            raise
        return True
    return False
