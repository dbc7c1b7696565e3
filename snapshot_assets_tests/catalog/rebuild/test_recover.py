"""The way back after an attack: names that were hidden, overwritten and forged are brought back from versions."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import REACH
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.rebuild.recover import execute_recovery, plan_recovery
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import LocationNotEmptyError, NoSnapshotError, PlanError, StoreUnavailableError
from snapshot_assets.format.layout import (
    SEALS,
    VERIFICATIONS,
    checkpoint_path,
    log_revision,
    seal_path,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import StoreWrapper
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.attacks import (
    ATTACKS,
    Attack,
    altered,
    contents,
    first_alteration,
    hide,
    overwrite,
    overwrite_and_hide,
    second_later,
    snapshot_at,
)
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.catalog.tags import save, wait_for_clock
from snapshot_assets_tests.servers.locked import LockedBucket


def test_a_hidden_transaction_is_named_and_brought_back(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store)
    assert verify(store).faults == []
    store.delete(transaction_path(3))
    assert altered(store) == {transaction_path(3)}
    done = execute_recovery(plan_recovery(store, datetime.now(UTC)))
    assert [each.path for each in done.written] == [transaction_path(3)]
    assert done.report is not None
    assert (done.report.faults, done.report.revision, done.restart) == ([], writer.catalog.state.revision, 0)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_fifty_attacked_objects_are_named_and_all_bytes_come_back(
    locked: LockedBucket, tmp_path: Path, seed: int
) -> None:
    store = locked.store()
    head = snapshot_at(store, 14).catalog.state.revision
    true, choose, before = contents(store), random.Random(seed), second_later()
    versions = {(each.path, each.version) for each in locked.versions()}
    attacked = choose.sample(sorted(true.keys() - {transaction_path(2)}), 50)  # to hide it first is to prune
    end = choose.randint(head - 4, head)
    attacked = [*{*attacked, *(path for path in true if log_revision(path) >= end)}]
    for path in attacked:
        (hide if log_revision(path) >= end else choose.choice(ATTACKS))(store, path)
    far = 10**20 - 1
    for revision in (head + 1, head + 2, head + 7, far):
        store.create(transaction_path(revision), true[transaction_path(head)])
    assert altered(store) == {*attacked}

    other = open_store(parse_location(f"file://{tmp_path}/recovered/here"))
    second = locked.store(f"s3://{locked.name}/second")
    for target in (other, second):
        done = execute_recovery(plan_recovery(store, before, target))
        assert done.report is not None
        assert ([fault for fault in done.report.faults if fault.is_damage], done.report.revision) == ([], head)
        assert contents(target) == true

    plan = plan_recovery(store, before)
    assert {each.path for each in plan.written} == {*attacked}
    assert (plan.revision, plan.restart, plan.lost) == (head, head + 8, (head + 1, head + 2, head + 7))
    assert plan.later == (transaction_path(far),)
    done = execute_recovery(plan)
    now = contents(store)
    assert {path: now[path] for path in true} == true
    assert versions <= {(each.path, each.version) for each in locked.versions()}
    assert done.report is not None
    assert [(fault.kind, fault.object) for fault in done.report.faults] == [
        (FaultKind.LOST, transaction_path(head + 8))
    ]
    assert (done.report.sealed, read_state(store).tags.keys()) == (True, {"one"})
    assert plan_recovery(store, second_later()).written == []  # not what the first one hid, either


def test_a_forged_object_far_above_the_log_is_hidden_by_a_recovery(lockable: LockedBucket) -> None:
    store = lockable.store()
    head = snapshot_at(store).catalog.state.revision
    before, far = second_later(), (seal_path(10**12) + ".sig", transaction_path(10**12))
    for path in far:
        store.put(path, b"forged")
    plan = plan_recovery(store, before)
    assert (plan.revision, plan.later, plan.lost) == (head, far, ())
    done = execute_recovery(plan)
    assert done.report is not None
    assert [fault for fault in done.report.faults if fault.is_damage] == []


def test_a_forged_object_that_a_recovery_hid_stays_out_of_reach_of_later_commits(lockable: LockedBucket) -> None:
    store = lockable.store()
    forged = snapshot_at(store).catalog.state.revision + REACH + 1
    before = second_later()
    for path in (transaction_path(forged), checkpoint_path(forged)):
        store.put(path, b"forged")
    execute_recovery(plan_recovery(store, before))
    catalog = Catalog.open_for_writing(store)
    create_tag(catalog, "two", catalog.state.seals[-1].revision)
    assert not verify(store).damaged
    again = plan_recovery(store, second_later())
    assert (again.written, again.later, again.lost) == ([], (), ())


@pytest.mark.parametrize("attack", [None, hide, overwrite])
def test_checkpoints_that_were_written_after_the_time_stay(
    lockable: LockedBucket, tmp_path: Path, attack: Attack | None
) -> None:
    """Of revisions before it: those that the log gives are no forgery."""
    store = lockable.store()
    writer = snapshot_at(store)
    before = second_later()
    honest = write_checkpoint(store, writer.catalog.state)
    data = store.get(honest)
    forged = checkpoint_path(3)
    store.put(forged, data)
    if attack is not None:
        attack(store, honest)
    plan = plan_recovery(store, before)
    assert (plan.later, [each.path for each in plan.written]) == ((forged,), [honest] * (attack is not None))
    done = execute_recovery(plan).report
    assert done is not None
    assert (done.faults, store.get(honest)) == ([], data)


def test_a_later_recovery_writes_nothing_back_that_an_earlier_one_gave_up(
    lockable: LockedBucket, tmp_path: Path
) -> None:
    store = lockable.store()
    head = snapshot_at(store).catalog.state.revision
    before, far = second_later(), {transaction_path(each) for each in (10**12, 2**63 - 1, 10**20 - 1)}
    for path in (*map(transaction_path, range(head + 1, head + 4)), *far, checkpoint_path(10**12)):
        store.put(path, b"forged")
    execute_recovery(plan_recovery(store, before))
    again = plan_recovery(store, second_later())
    assert (again.written, again.later, again.lost, again.restart) == ([], (), (), 0)
    true = contents(store)
    for path in true:  # a second attack
        hide(store, path)
    between = plan_recovery(store, before + timedelta(seconds=1))  # when the forged objects were there
    assert far.isdisjoint(each.path for each in between.written)
    found = first_alteration(store)
    for target in (open_store(parse_location(f"file://{tmp_path}/recovered/here")), store):
        plan = plan_recovery(store, found, target)
        assert {each.path for each in plan.written if not each.path.startswith(SEALS)} == true.keys()
        done = execute_recovery(plan).report
        assert done is not None
        assert [fault.kind for fault in done.faults] == [FaultKind.LOST]


def test_a_rebuild_below_the_true_end_is_undone(lockable: LockedBucket) -> None:
    """It wrote a checkpoint at a revision that had none, and the log continues behind that."""
    store = lockable.store()
    writer = snapshot_at(store, 0)
    early, catalog = contents(store), writer.catalog
    for tag in ("two", "three", "four"):
        create_tag(catalog, tag, catalog.state.seals[-1].revision)
    true, before = contents(store), second_later()
    for path in (true.keys() - early.keys()) | {transaction_path(2)}:
        hide(store, path)
    rebuilt = checkpoint_path(rebuild(store).revision)
    assert catalog.state.revision > log_revision(rebuilt)
    for again in (False, True):
        plan = plan_recovery(store, second_later() if again else before)
        assert (rebuilt in plan.later, bool(plan.written)) == (not again, not again)
        done = execute_recovery(plan).report
        assert done is not None
        assert (done.faults, contents(store)) == ([], true)


def test_records_that_were_written_before_the_attack_and_altered_by_it_are_hidden(lockable: LockedBucket) -> None:
    store = lockable.store()
    now = snapshot_at(store).catalog.now()
    before = second_later()
    record_verification(store, verify(store), now)
    [record] = [info.path for info in store.list(VERIFICATIONS)]
    overwrite(store, record)
    assert altered(store) == {record}
    plan = plan_recovery(store, before)
    assert plan.later == (record,)
    done = execute_recovery(plan).report
    assert done is not None
    assert (done.faults, altered(store)) == ([], set())


def test_an_attacker_who_begins_the_log_anew_hides_nothing(lockable: LockedBucket) -> None:
    store = lockable.store()
    head = snapshot_at(store).catalog.state.revision
    true, before = contents(store), second_later()
    hidden = [info.path for info in store.list()]
    for path in hidden:
        store.delete(path)
    Writer(store).begin(replace(HEADER, name="forged"))
    gone = {path for path in hidden if path in true or path.startswith(SEALS)}
    assert altered(store) == {path for path in gone if not path.startswith("schema/")}  # which it wrote again
    done = execute_recovery(plan_recovery(store, before))
    assert done.report is not None
    assert ([fault for fault in done.report.faults if fault.is_damage], done.revision) == ([], head)
    now = contents(store)
    assert {path: now[path] for path in true} == true


def test_a_commit_of_the_attacker_is_given_up_and_the_log_goes_on_above_it(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store)
    head, before = writer.catalog.state.revision, second_later()
    rename_tag(writer.catalog, "one", "forged")
    save(writer.catalog)
    writer.receipt(2)
    plan = plan_recovery(store, before)
    assert (plan.lost, plan.pins, plan.restart) == ((head + 1, head + 2), ("savepoint 1", "tag 'forged'"), head + 3)
    assert [each.path.split("-")[1] for each in plan.hidden] == ["one"]
    assert [path.split("-")[0] for path in plan.later] == ["data/2/chunk", "savepoint/savepoint", "tag/tag"]
    done = execute_recovery(plan)
    assert done.report is not None
    assert [fault.kind for fault in done.report.faults] == [FaultKind.LOST]
    catalog = Catalog.open_for_writing(store)
    assert (catalog.state.revision, catalog.state.sealed, *catalog.state.tags) == (head + 3, True, "one")
    create_tag(catalog, "two", head)
    assert [fault.kind for fault in verify(store).faults] == [FaultKind.LOST]
    again = execute_recovery(plan_recovery(store, before))  # gives up what followed the first recovery
    assert again.report is not None
    assert ({*again.lost}, again.report.damaged, *read_state(store).tags) == (
        {*range(head + 1, head + 5)},
        False,
        "one",
    )


class Broken(StoreWrapper):
    """A store that fails after some writes."""

    def __init__(self, store: ObjectStore, writes: int) -> None:
        super().__init__(store)
        self.left = writes

    def put(self, path: str, data: bytes) -> None:
        if log_revision(path) and not self.left:
            raise StoreUnavailableError("out of order")
        self.left -= bool(log_revision(path))
        self._store.put(path, data)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_recovery_that_was_interrupted_is_continued(lockable: LockedBucket, tmp_path: Path, elsewhere: bool) -> None:
    store = lockable.store()
    head = snapshot_at(store).catalog.state.revision
    true, before = contents(store), second_later()
    for path in true:
        overwrite_and_hide(store, path)
    target = open_store(parse_location(f"file://{tmp_path}/recovered/here")) if elsewhere else store
    for writes in range(0, 6, 2):
        plan = plan_recovery(store, before, target if elsewhere else None)
        broken = cast(ObjectStore, Broken(target, writes))
        with pytest.raises(StoreUnavailableError):
            execute_recovery(replace(plan, target=broken))
        assert read_state(target).revision < head
    done = execute_recovery(plan_recovery(store, before, target if elsewhere else None))
    assert done.report is not None
    assert (done.report.faults, done.report.revision, contents(target)) == ([], head, true)


def test_what_was_deleted_by_then_stays_deleted_and_what_was_deleted_later_comes_back(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store)
    expire(writer.catalog, keep_last=1)
    delete_tag(writer.catalog, "one")
    wait_for_clock(store, writer.catalog.refresh().committed_at)
    gone = {each.path for each in collect_garbage(writer.catalog, grace=timedelta(0), unsafe=True).deleted}
    true, before = contents(store), second_later()
    assert gone
    assert verify(store).faults == []
    delete_snapshot(store)
    assert execute_recovery(plan_recovery(store, before)).written
    now = contents(store)
    assert {path: now.get(path) for path in true} == true
    assert gone.isdisjoint(now)


def test_what_cannot_be_recovered_is_refused(lockable: LockedBucket, tmp_path: Path) -> None:
    store, now = lockable.store(), datetime.now(UTC)
    local = open_store(parse_location(f"file://{tmp_path}/not/s3"))
    with pytest.raises(PlanError, match="keeps versions"):
        plan_recovery(local, now)
    with pytest.raises(PlanError, match="future"):
        plan_recovery(store, now + timedelta(days=1))
    with pytest.raises(NoSnapshotError, match="give another time"):
        plan_recovery(store, now)
    snapshot_at(store)
    snapshot_at(local)
    with pytest.raises(NoSnapshotError, match="give another time"):
        plan_recovery(store, now - timedelta(days=1))
    with pytest.raises(LocationNotEmptyError, match="Recover to an empty one"):
        plan_recovery(store, second_later(), local)


def test_the_time_of_a_second_attack_is_its_own(lockable: LockedBucket) -> None:
    store = lockable.store()
    catalog = snapshot_at(store).catalog
    second_later()
    for info in list(store.list()):
        overwrite(store, info.path) if info.path.startswith("data/") else hide(store, info.path)
    found = plan_recovery(store, first_alteration(store))
    assert execute_recovery(found).report is not None
    catalog.refresh()
    second_later()
    create_tag(catalog, "gold", catalog.state.seals[-1].revision)
    true = contents(store)
    second_later()
    for info in list(store.list()):
        hide(store, info.path)
    plan = plan_recovery(store, first_alteration(store))
    assert (plan.lost, plan.pins) == ((), ())
    assert plan_recovery(store, found.before).pins == ("tag 'gold'",)  # which going back too far would give up
    done = execute_recovery(plan).report
    assert done is not None
    assert [fault for fault in done.faults if fault.is_damage] == []
    assert contents(store) == true
