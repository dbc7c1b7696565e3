"""Which names count as altered: what an attacker hides or replaces, and nothing that this program deletes or mends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import bring_back, list_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.maintain_log import execute_repair, plan_repair
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.rebuild.recover import plan_recovery
from snapshot_assets.catalog.verify.altered import refuse_hidden_log
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import LostLogError
from snapshot_assets.format.layout import VERIFICATIONS, checkpoint_path, is_receipt, transaction_path
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.attacks import altered, second_later, snapshot_at
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.tags import reseal, wait_for_clock
from snapshot_assets_tests.servers.locked import LockedBucket
from snapshot_assets_tests.servers.s3 import S3Server

NOW = {"grace": timedelta(0), "unsafe": True}


def test_a_location_that_was_pruned_collected_and_repaired_is_not_altered(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store, 4)
    write_checkpoint(store, writer.catalog.state)
    create_tag(writer.catalog, "two", writer.catalog.state.seals[-1].revision)
    rename_tag(writer.catalog, "two", "three")
    replace_tag(writer.catalog, "three", writer.catalog.state.seals[0].revision, None)
    delete_tag(writer.catalog, "one")
    expire(writer.catalog, keep_last=1)
    seal(writer.catalog)
    write_checkpoint(store, writer.catalog.state)
    wait_for_clock(store, writer.catalog.refresh().committed_at)
    assert prune(writer.catalog, **NOW).released
    assert collect_garbage(writer.catalog, **NOW).deleted
    receipt = next(info.path for info in store.list("data/") if is_receipt(info.path))
    for path in (receipt, checkpoint_path(list_log(store).checkpoints[-1])):
        store.put(path, b"damaged")
        assert altered(store) == {path}
        execute_repair(writer.catalog, plan_repair(writer.catalog))
        assert altered(store) == set()
    assert not verify(store).damaged


def test_a_repair_of_what_was_damaged_from_the_start_is_not_altered(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store)
    bucket, path = lockable.bucket(), checkpoint_path(list_log(store).checkpoints[-1])
    true = store.get(path)
    for each in lockable.versions():
        if each.path == path:
            bucket.delete_version(path, each.version)
    store.put(path, true[:-30])
    execute_repair(writer.catalog, plan_repair(writer.catalog))
    assert store.get(path) == true
    assert verify(store).faults == []


def test_names_below_a_rebuild_are_not_altered(lockable: LockedBucket) -> None:
    store = lockable.store()
    head = snapshot_at(store).catalog.state.revision
    store.delete(transaction_path(head - 1))
    assert altered(store) == {transaction_path(head - 1)}
    rebuild(store)
    assert altered(store) == set()


def test_an_overwritten_record_is_altered_and_one_that_was_superseded_is_not(lockable: LockedBucket) -> None:
    store = lockable.store()
    now = snapshot_at(store).catalog.now()
    for _ in range(2):
        record_verification(store, verify(store), now)
    first, second = (info.path for info in store.list(VERIFICATIONS))
    store.delete(first)
    assert altered(store) == set()
    store.put(second, b"{}")
    assert altered(store) == {second}


def test_the_fault_is_damage_and_names_the_command_with_the_time(lockable: LockedBucket) -> None:
    store = lockable.store()
    snapshot_at(store)
    store.delete(transaction_path(4))
    faults = verify(store, depth="quick").faults
    fault = next(fault for fault in faults if fault.kind is FaultKind.ALTERED)
    [gap] = [fault.message for fault in faults if fault.kind is FaultKind.LOG]
    assert gap.find("`snapshots catalog recover`") < gap.find("`snapshots catalog rebuild`")
    since = next(each.modified for each in lockable.versions() if each.marker and each.path == transaction_path(4))
    assert fault.is_damage
    assert f"`snapshots catalog recover --before {since:%Y-%m-%dT%H:%M:%S}" in fault.message


def test_recover_is_named_only_where_the_bucket_keeps_versions(
    lockable: LockedBucket, s3_server: S3Server, s3_location: str
) -> None:
    assert "recover" in bring_back(lockable.store())
    assert "recover" not in bring_back(open_store(parse_location(s3_location), s3_server.options))


def test_without_the_right_to_list_versions_verify_says_so_and_goes_on(
    lockable: LockedBucket, s3_server: S3Server
) -> None:
    if lockable.is_moto:
        pytest.skip("moto enforces no policies")
    store = lockable.store()
    snapshot_at(store)
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:ListBucketVersions",
        "Resource": f"arn:aws:s3:::{lockable.name}",
    }
    policy = {"Version": "2012-10-17", "Statement": [deny]}
    lockable.client.put_bucket_policy(Bucket=lockable.name, Policy=json.dumps(policy))
    reader = LockedBucket(lockable.name, s3_server.as_user("reader")).store()
    report = verify(reader)
    assert [fault.kind for fault in report.faults] == [FaultKind.UNCHECKED]
    assert not report.damaged


def _hide_all(store: ObjectStore) -> None:
    for info in list(store.list()):
        store.delete(info.path)


def _delete_slowly(store: ObjectStore) -> None:
    """Delete the data in another second than the log."""
    pauses = iter([second_later])
    delete_snapshot(store, with_tags=True, progress=lambda _: next(pauses, lambda: None)())


@pytest.mark.parametrize("lose", [_hide_all, _delete_slowly])
def test_the_time_of_a_log_that_is_gone_gives_up_no_commit(
    lockable: LockedBucket, lose: Callable[[ObjectStore], None]
) -> None:
    """Pruning hid a part of the log before the newest commits."""
    store = lockable.store()
    writer = snapshot_at(store)
    for _ in range(2):
        reseal(writer)
        write_checkpoint(store, writer.catalog.state)
    wait_for_clock(store, writer.catalog.refresh().committed_at)
    assert prune(writer.catalog, **NOW).released
    second_later()
    reseal(writer)
    second_later()
    head = writer.catalog.state.revision
    lose(store)
    with pytest.raises(LostLogError, match="has no log, but versions of one") as error:
        refuse_hidden_log(store)
    before = re.search(r"--before (\S+)`", str(error.value))
    assert before is not None
    plan = plan_recovery(store, parse_time(before[1]))
    assert (plan.revision, plan.missing, plan.lost) == (head, (), () if lose is _hide_all else (head + 1,))


def test_names_of_a_log_whose_versions_all_expired_refuse_no_export(lockable: LockedBucket) -> None:
    store = lockable.store()
    snapshot_at(store)
    _hide_all(store)
    for each in lockable.versions():
        if not each.marker:
            lockable.bucket().delete_version(each.path, each.version)
    assert any(each.marker for each in lockable.versions())
    refuse_hidden_log(store)
