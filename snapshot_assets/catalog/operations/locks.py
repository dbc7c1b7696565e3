"""Locks on S3: extended for as long as something needs the objects. A window is written once, and needed for years.

What needs a lock is what is not garbage, but for hints. A run gives all of it one end, which `locks.json` records, so
that nothing has to ask for the lock of each object.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.garbage import PinnedPaths, checked_grace, scan_head
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.retained import needed_objects
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
        previous: Of a run that did not end: `began_at` and `until` of the last one that did.
    """

    location_id: str
    revision: int
    began_at: datetime
    until: datetime
    objects: int
    done_through: str | None
    previous: tuple[datetime, datetime] | None = None

    def document(self) -> bytes:
        """Return the bytes of `locks.json`."""
        times = {"began_at": time_text(self.began_at), "until": time_text(self.until)}
        previous = self.previous and [*map(time_text, self.previous)]
        return pretty_json({"version": documents.FORMAT_VERSION, **asdict(self), **times, "previous": previous})

    def covers(self, info: ObjectInfo) -> bool:
        """Return whether the run itself locked an object that needed it."""
        return info.modified < self.began_at and (self.done_through is None or info.path <= self.done_through)

    def end_of(self, info: ObjectInfo, written: timedelta) -> datetime:
        """Return when the lock of an object ends that was locked for some time when it was written."""
        ends = [info.modified + written, *([self.until] if self.covers(info) else [])]
        if self.previous and info.modified < self.previous[0]:
            ends.append(self.previous[1])
        return max(ends)


def read_lock_run(store: ObjectStore, state: State) -> LockRun | None:
    """Return the recorded run; None without a usable record, or if a rebuild has brought back objects since."""
    try:
        found = parse_json(store.get(LOCKS, limit=_MAX_BYTES), LOCKS)
        began, until = parse_time(found["began_at"]), parse_time(found["until"])
        through = None if found["done_through"] is None else str(found["done_through"])
        previous = found["previous"] and (parse_time(found["previous"][0]), parse_time(found["previous"][1]))
        counts = int(found["revision"]), began, until, int(found["objects"])
        run = LockRun(str(found["location_id"]), *counts, through, previous)
    except (ObjectNotFoundError, DamageError, LookupError, TypeError, ValueError):  # a hint
        return None
    return run if run.location_id == state.location_id and run.revision >= state.rebuilt_at else None


def to_lock(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return those of needed objects that need a lock, in the order of their paths."""
    ours = (each for each in objects if in_layout(each.path) and each.path not in HINTS)
    return sorted(each for each in ours if not is_probe(each.path))


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
    written = bucket.options.lock.period
    with suppress(StoreDeniedError):  # of readers, which may not read the bucket's configuration
        written = _written_period(bucket)
    run = read_lock_run(store, state)
    ends = [(run.end_of(each, written) if run else each.modified + written, each.path) for each in to_lock(needed)]
    period = min(written, bucket.options.lock.period)
    began, complete = (run.began_at, run.done_through is None) if run else (None, False)
    return Locks(*min(ends), period, began, complete)


def _written_period(bucket: S3Bucket) -> timedelta:
    """Return how long objects are locked when they are written: by the bucket, or else by the option `lock`."""
    assert bucket.options.lock is not None
    found = bucket.protection
    return timedelta(days=found.days) if found.mode else bucket.options.lock.period


@dataclass(frozen=True)
class LockExtension:
    """An extension of locks, planned or done: what is recorded of it, and what it locks itself.

    An interrupted run that it continues has locked the other objects.
    """

    run: LockRun
    paths: tuple[str, ...]


def plan_extension(catalog: Catalog) -> LockExtension:
    """Return what an extension of locks would lock, and until when; changes nothing.

    If the object of a pin or a receipt cannot be read, so that nobody knows what is garbage, it locks everything.

    Raises:
        PlanError: The location is not on S3, the option `lock` is missing, or the bucket has no Object Lock.
        DamageError: The log has a fault.
    """
    store, bucket = catalog.store, locked_bucket(catalog.store)
    assert bucket.options.lock is not None
    catalog.refresh()
    state, now, period = catalog.require_snapshot(), catalog.now(), bucket.options.lock.period
    began, run, previous = now.replace(microsecond=0), read_lock_run(store, state), None
    try:
        needed = to_lock(scan_head(store, now - checked_grace(state, None, unsafe=False), PinnedPaths()).needed)
    except DamageError:
        needed = to_lock(store.list())
    if run is not None and run.done_through is not None:
        recent = began - run.began_at < _RESUMED_WITHIN and run.until == run.began_at + period
        if recent and _has_locked(store, bucket, run, needed):
            paths = tuple(each.path for each in needed if each.path > run.done_through)
            return LockExtension(replace(run, objects=len(needed)), paths)
        previous = run.previous
    elif run is not None:
        previous = run.began_at, run.until
    run = LockRun(state.location_id, state.revision, began, began + period, len(needed), "", previous)
    return LockExtension(run, tuple(each.path for each in needed))


def _has_locked(store: ObjectStore, bucket: S3Bucket, run: LockRun, needed: Iterable[ObjectInfo]) -> bool:
    """Return whether some objects have the locks that a record claims, which whoever may write can forge."""
    covered = [each.path for each in needed if run.covers(each)]
    chosen = random.sample(covered, min(_SAMPLE, len(covered)))
    return all(until is not None and until >= run.until for until in in_parallel(store, bucket.retained_until, chosen))


def execute_extension(
    catalog: Catalog, plan: LockExtension, progress: Callable[[], None] = lambda: None
) -> LockExtension:
    """Lock what was planned; a longer lock stays. If interrupted, a run within a day continues after what is recorded.

    Of what was overwritten or hidden, the first version is locked, too: if somebody attacks, it is the one to recover.
    `progress` is called for each object.

    Raises:
        StoreDeniedError: The right to `s3:PutObjectRetention` or `s3:ListBucketVersions` is missing.
    """
    store, run, until = catalog.store, plan.run, plan.run.until
    bucket = locked_bucket(store)
    # Elsewhere no lock can be longer. Some stores would shorten it.
    longest = max(run.began_at + _written_period(bucket), run.previous[1] if run.previous else until)
    asks = longest > until
    first = {each.path: each.version for each in bucket.versions() if not (each.marker or each.newest)}

    def lock(path: str) -> None:
        _lock(bucket, path, first.get(path), until, asks)

    hidden = needed_objects(catalog.state).keys() & first.keys() - {*plan.paths}
    list(in_parallel(store, lock, sorted(hidden)))
    for start in range(0, max(len(plan.paths), 1), _BATCH):
        batch = plan.paths[start : start + _BATCH]
        for _ in in_parallel(store, lock, batch):
            progress()
        ended = start + _BATCH >= len(plan.paths)
        run = replace(run, done_through=None, previous=None) if ended else replace(run, done_through=batch[-1])
        store.put(LOCKS, run.document())
    return replace(plan, run=run)


def _lock(bucket: S3Bucket, path: str, first: str | None, until: datetime, asks: bool) -> None:
    """Lock an object and its first version, unless they are locked for longer already, or were deleted meanwhile."""
    for version in ("", first):
        with suppress(ObjectNotFoundError):
            try:
                if version is not None and not (asks and (bucket.retained_until(path, version) or until) > until):
                    bucket.retain(path, until, version)
            except StoreDeniedError:
                found = bucket.retained_until(path, version or "")
                if found is None or found < until:
                    raise
