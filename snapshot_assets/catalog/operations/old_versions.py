"""Deletes for ever the old versions that nothing needs, in a bucket that keeps the versions of what was deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.operations.garbage import Garbage, GarbagePlan, checked_grace
from snapshot_assets.catalog.state.retained import needed_seals
from snapshot_assets.catalog.verify.altered import alterations, names_of, remedy, versioned_bucket
from snapshot_assets.catalog.verify.retained import needed_objects
from snapshot_assets.errors import DamageError, ObjectRetainedError, PlanError, StorageError
from snapshot_assets.format.layout import in_layout, is_written_once
from snapshot_assets.storage.create import probe
from snapshot_assets.storage.s3_bucket import ObjectVersion, S3Bucket


def plan_versions(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> GarbagePlan:
    """Return which versions nothing needs, and have been so for the grace period; changes nothing.

    These are all versions of what was deleted, and the older versions of hints, markers and probes. See
    `plan_collection` for the options.

    Raises:
        PlanError: The location keeps no versions, or the grace period is shorter than the plan's.
        DamageError: The log has a fault, or a name was altered: its older version may be the true one.
    """
    bucket = versioned_bucket(catalog.store)
    if bucket is None:
        raise PlanError(f"{catalog.store.uri} is not in a bucket of S3 that keeps versions; leave out --versions.")
    catalog.refresh()
    grace = checked_grace(catalog.require_snapshot(), grace, unsafe)
    old = _unneeded(catalog, bucket, catalog.now() - grace)
    return GarbagePlan(tuple(_garbage(each) for each in old), (), (), grace)


def _garbage(each: ObjectVersion) -> Garbage:
    return Garbage(each.path, each.bytes, "old version", each.modified, each.version)


def _unneeded(catalog: Catalog, bucket: S3Bucket, before: datetime) -> Iterator[ObjectVersion]:
    names, scan = names_of(bucket), scan_log(catalog.store)
    refuse_faults(scan, "nothing was deleted")
    if found := alterations(catalog.store, bucket, names, scan):
        raise DamageError(
            f"{found[0].path} in {catalog.store.uri} was hidden or replaced since it was written, so nothing was "
            f"deleted: an older version may be the true one. {remedy(found)} `snapshots export verify` names all.",
            object=found[0].path,
        )
    needed = needed_objects(scan.state).keys() | needed_seals(scan.state, names)
    for path, entries in names.items():
        if in_layout(path) and path not in needed:
            yield from _old(path, entries, before)


def _old(path: str, entries: list[ObjectVersion], before: datetime) -> Iterator[ObjectVersion]:
    """Yield the old entries of a name, markers last: all if it was deleted, else the older ones of what is replaced."""
    if entries[0].marker and entries[0].modified <= before:
        yield from sorted(entries, key=lambda each: each.marker)
    elif not is_written_once(path):
        replaced = zip(entries[1:], entries, strict=False)
        yield from (each for each, later in replaced if later.modified <= before)


def execute_versions(
    catalog: Catalog, plan: GarbagePlan, progress: Callable[[Garbage], None] = lambda _: None
) -> GarbagePlan:
    """Delete the versions of a plan that still are not needed, and return what was deleted.

    A marker goes after all versions that it hides. If the store keeps one of them, it stays.

    Raises:
        DamageError: See `plan_versions`.
    """
    bucket = versioned_bucket(catalog.store)
    assert bucket is not None
    before = probe(catalog.store, single_writer=True).store_time - plan.grace
    planned, deleted, retained, ends = {*plan.deleted}, list[Garbage](), list[Garbage](), list[datetime | None]()
    for each in [each for each in _unneeded(catalog, bucket, before) if _garbage(each) in planned]:
        if each.marker and retained and retained[-1].path == each.path:
            continue
        try:
            bucket.delete_version(each.path, each.version)
        except ObjectRetainedError:
            retained.append(_garbage(each))
            with suppress(StorageError):  # of a user who may not ask
                ends.append(bucket.retained_until(each.path, each.version))
        else:
            deleted.append(_garbage(each))
            progress(_garbage(each))
    until = max((each for each in ends if each is not None), default=None)
    return replace(plan, deleted=tuple(deleted), retained=tuple(retained), retained_until=until)
