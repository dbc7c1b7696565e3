"""Old versions: those that nothing needs go for ever, after their locks; what is true stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.operations.garbage import GarbagePlan
from snapshot_assets.catalog.operations.old_versions import execute_versions, plan_versions
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import delete_tag
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, PlanError
from snapshot_assets.format.layout import CHECKSUMS, MANIFEST, is_probe
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.attacks import contents, snapshot_at
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.tags import wait_for_clock
from snapshot_assets_tests.servers.locked import LockedBucket

NOW = {"grace": timedelta(0), "unsafe": True}


def collected(bucket: LockedBucket) -> Writer:
    """A location with garbage that was collected, and a pruned log."""
    writer = snapshot_at(bucket.store(), 4)
    delete_tag(writer.catalog, "one")
    expire(writer.catalog, keep_last=1)
    for _ in range(2):
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)
    wait_for_clock(writer.store, writer.catalog.refresh().committed_at)
    assert prune(writer.catalog, **NOW).released
    assert collect_garbage(writer.catalog, **NOW).deleted
    wait_for_clock(writer.store, writer.catalog.now())
    return writer


def collect(writer: Writer) -> GarbagePlan:
    return execute_versions(writer.catalog, plan_versions(writer.catalog, **NOW))


def test_versions_that_nothing_needs_go_and_what_is_needed_stays(lockable: LockedBucket) -> None:
    writer = collected(lockable)
    true = contents(writer.store)
    assert plan_versions(writer.catalog).deleted == ()  # within the grace period
    done = collect(writer)
    assert done.retained == ()
    assert {MANIFEST, CHECKSUMS} < {each.path for each in done.deleted}
    left = [each for each in lockable.versions() if not is_probe(each.path)]
    assert [each for each in left if each.marker or not each.newest] == []
    assert contents(writer.store) == true
    assert verify(writer.store).faults == []


def test_locked_versions_are_counted_and_stay_hidden(locked: LockedBucket) -> None:
    writer = collected(locked)
    before = contents(writer.store)
    done = collect(writer)
    assert done.retained
    asked = [locked.bucket().retained_until(each.path, each.version) for each in done.retained]
    assert done.retained_until == max(each for each in asked if each is not None)
    assert {each.path for each in done.deleted} <= {each.path for each in locked.versions()} | {
        each.path for each in done.deleted if is_probe(each.path)
    }
    assert contents(writer.store) == before
    assert {*collect(writer).retained} >= {*done.retained}


def test_nothing_goes_while_a_name_is_altered(lockable: LockedBucket) -> None:
    writer = snapshot_at(lockable.store())
    path = next(known.file.path for known in writer.catalog.state.live_files(1))
    writer.store.delete(path)
    versions = lockable.versions()
    with pytest.raises(DamageError, match="catalog recover --before"):
        plan_versions(writer.catalog, **NOW)
    assert [each for each in lockable.versions() if each in versions] == versions


def test_a_location_without_versions_is_refused(tmp_path: Path) -> None:
    writer = snapshot_at(open_store(parse_location(f"file://{tmp_path}/not/s3")))
    with pytest.raises(PlanError, match="leave out --versions"):
        plan_versions(writer.catalog)
