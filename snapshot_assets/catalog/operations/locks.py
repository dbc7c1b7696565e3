"""Locks on S3: extended for as long as something needs the objects. A window is written once, and needed for years.

What needs a lock is what is not garbage, but for hints: all versions of it, because an attacker may have hidden or
overwritten the true one. A run gives all of it one end, at midnight, so that a run that is repeated on the same day
passes over what is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import NamedTuple

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.garbage import PinnedPaths, checked_grace, scan_head
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.altered import names_of, true_objects
from snapshot_assets.errors import DamageError, ObjectNotFoundError, StorageError, StoreDeniedError
from snapshot_assets.format import documents
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import HINTS, ICEBERG, LOCKS, in_layout, is_probe
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.bulk import in_parallel
from snapshot_assets.storage.s3_bucket import ObjectVersion, S3Bucket, bucket_of, locked_bucket

_ASKED = 3
_MAX_BYTES = 1 << 16
_DAY = timedelta(days=1)


class LockRun(NamedTuple):
    """A run that extended locks, as `locks.json` records it once it has ended (FORMAT.md, section 7).

    Attributes:
        revision: The newest revision when it began.
        began_at: The run locked what was written before, on this machine's clock.
        until: When its locks end.
        objects: How many versions of objects have such a lock, or a longer one.
    """

    location_id: str
    revision: int
    began_at: datetime
    until: datetime
    objects: int

    def document(self) -> bytes:
        """Return the bytes of `locks.json`."""
        times = {"began_at": time_text(self.began_at), "until": time_text(self.until)}
        return pretty_json({"version": documents.FORMAT_VERSION, **self._asdict(), **times})


def read_lock_run(store: ObjectStore, state: State) -> LockRun | None:
    """Return the recorded run; None without a usable record, or if a rebuild has brought back objects since."""
    try:
        found = parse_json(store.get(LOCKS, limit=_MAX_BYTES), LOCKS)
        times = parse_time(found["began_at"]), parse_time(found["until"])
        run = LockRun(str(found["location_id"]), int(found["revision"]), *times, int(found["objects"]))
    except (ObjectNotFoundError, DamageError, LookupError, TypeError, ValueError):  # a hint
        return None
    return run if run.location_id == state.location_id and run.revision >= state.rebuilt_at else None


def to_lock(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return those of needed objects that need a lock."""
    return [each for each in objects if _needs_lock(each.path)]


def _needs_lock(path: str) -> bool:
    """Return whether an object needs a lock if it is needed."""
    return in_layout(path) and path not in HINTS and not path.startswith(ICEBERG) and not is_probe(path)


@dataclass(frozen=True)
class Locks:
    """Until when all that is needed is locked, by times and by the store's answers on the oldest and newest objects.

    Attributes:
        earliest_end: When the first of the locks ends; None if this user gets no answer. What has no lock ended when it
            was written.
        object: The object that has it.
        period: How long new objects are locked, or extended locks, whichever is less.
        extended_at: When the last extension began that has ended; None if there is none.
    """

    earliest_end: datetime | None
    object: str
    period: timedelta
    extended_at: datetime | None


def known_locks(store: ObjectStore, state: State, needed: Iterable[ObjectInfo]) -> Locks | None:
    """Return until when needed objects are locked; None for a store without the option `lock`."""
    bucket = bucket_of(store)
    if bucket is None or bucket.options.lock is None:
        return None
    written = bucket.options.lock.period
    with suppress(StoreDeniedError):  # of readers, which may not read the bucket's configuration
        written = timedelta(days=bucket.protection.days) if bucket.protection.mode else written
    run = read_lock_run(store, state)

    def end_of(info: ObjectInfo) -> datetime:
        own = info.modified + written
        return max(own, run.until) if run is not None and info.modified < run.began_at else own

    objects = to_lock(needed)
    facts = min(written, bucket.options.lock.period), run.began_at if run else None
    ends = [(end_of(each), each.path) for each in objects]
    modified = attrgetter("modified")
    for each in {*nsmallest(_ASKED, objects, modified), *nlargest(_ASKED, objects, modified)}:
        try:  # what a record says, whoever may write can forge; and the newest writer may lack the option
            ends.append((bucket.proved_lock(each.path) or each.modified, each.path))
        except ObjectNotFoundError:  # collected meanwhile
            continue
        except StorageError:
            return Locks(None, "", *facts)
    return Locks(*min(ends), *facts)


@dataclass(frozen=True)
class LockExtension:
    """An extension of locks, planned or done.

    Attributes:
        run: What is recorded of it.
        versions: What it locks.
        extended: How many of them had no such lock; 0 until then.
    """

    run: LockRun
    versions: tuple[ObjectVersion, ...]
    extended: int = 0


def plan_extension(catalog: Catalog) -> LockExtension:
    """Return what an extension of locks locks, and until when; changes nothing.

    If the object of a pin or a receipt cannot be read, so that nobody knows what is garbage, it locks everything.

    Raises:
        PlanError: The location is not on S3, the option `lock` is missing, or the bucket has no Object Lock.
        DamageError: The log has a fault.
        StoreDeniedError: The right to `s3:ListBucketVersions` is missing.
    """
    store, bucket = catalog.store, locked_bucket(catalog.store)
    assert bucket.options.lock is not None
    catalog.refresh()
    state, now = catalog.require_snapshot(), catalog.now()
    names, garbage = names_of(bucket), set[str]()
    true, needed, _ = true_objects(store, bucket, names)
    with suppress(DamageError):
        scan = scan_head(store, now - checked_grace(state, None, unsafe=False), PinnedPaths())
        garbage = {each.path for each in scan.garbage} - needed.keys()  # which the shown log may not name
    wanted = (path for path in true if path not in garbage and _needs_lock(path))
    versions = tuple(each for path in wanted for each in names[path] if not each.marker)
    until = (now + bucket.options.lock.period).replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
    run = LockRun(state.location_id, state.revision, now.replace(microsecond=0), until, len(versions))
    return LockExtension(run, versions)


def execute_extension(
    catalog: Catalog, plan: LockExtension, progress: Callable[[], None] = lambda: None
) -> LockExtension:
    """Lock what was planned, unless its lock is as long or longer; then record it. `progress` is called for each.

    Raises:
        StoreDeniedError: The right to `s3:PutObjectRetention` is missing.
    """
    bucket, extended = locked_bucket(catalog.store), 0
    for locked in in_parallel(catalog.store, lambda each: _lock(bucket, each, plan.run.until), plan.versions):
        extended += locked
        progress()
    catalog.store.put(LOCKS, plan.run.document())
    return replace(plan, extended=extended)


def _lock(bucket: S3Bucket, each: ObjectVersion, until: datetime) -> bool:
    """Lock a version of an object; returns False if it is locked as long already, or was deleted meanwhile."""
    with suppress(ObjectNotFoundError):
        known = bucket.retained_until(each.path, each.version)
        if known is None or known < until:
            bucket.retain(each.path, until, each.version)
            return True
    return False
