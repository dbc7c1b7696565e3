"""The way back after an attack: names that were hidden, overwritten and forged are brought back from versions."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.recover import execute_recovery, plan_recovery
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import is_written_once, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.servers.locked import LockedBucket
from snapshot_assets_tests.waiting import until

Attack = Callable[[ObjectStore, str], object]


def altered(store: ObjectStore) -> set[str]:
    return {fault.object for fault in verify(store).faults if fault.kind is FaultKind.ALTERED}


def contents(store: ObjectStore) -> dict[str, bytes]:
    """Return all of a location but its hints and probes."""
    return {info.path: store.get(info.path) for info in store.list() if is_written_once(info.path)}


def second_later() -> datetime:
    """Return the present second, once it has passed: S3 counts in whole ones."""
    now = datetime.now(UTC).replace(microsecond=0)
    return until(lambda: datetime.now(UTC), lambda then: then >= now + timedelta(seconds=2)) - timedelta(seconds=1)


def snapshot_at(store: ObjectStore, rounds: int = 2) -> Writer:
    """A location with sealed revisions, a tag, a checkpoint, and receipts and files that older ones need."""
    writer = Writer(store)
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    create_tag(writer.catalog, "one", writer.catalog.state.revision)
    for number in range(rounds):
        if number == rounds // 2:
            write_checkpoint(store, writer.catalog.state)
        old = next(known.file.path for known in writer.catalog.state.live_files(1))
        writer.complete(1, writer.file(1, b"newer rows %d" % number), replaces=(old,))
        seal(writer.catalog)
    return writer


def hide(store: ObjectStore, path: str) -> None:
    store.delete(path)


def hide_and_create(store: ObjectStore, path: str) -> None:
    store.delete(path)
    store.create(path, b"forged")


def overwrite(store: ObjectStore, path: str) -> None:
    store.put(path, b"overwritten")


def overwrite_twice(store: ObjectStore, path: str) -> None:
    true = store.get(path)
    store.put(path, b"overwritten")
    store.put(path, true[:-1] + bytes([true[-1] ^ 1]))


def overwrite_and_hide(store: ObjectStore, path: str) -> None:
    store.put(path, b"overwritten")
    store.delete(path)


ATTACKS: list[Attack] = [hide, hide_and_create, overwrite, overwrite_twice, overwrite_and_hide]


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
    assert plan.forged == (transaction_path(far),)
    done = execute_recovery(plan)
    now = contents(store)
    assert {path: now[path] for path in true} == true
    assert versions <= {(each.path, each.version) for each in locked.versions()}
    assert done.report is not None
    assert [(fault.kind, fault.object) for fault in done.report.faults] == [
        (FaultKind.LOST, transaction_path(head + 8))
    ]
    assert (done.report.sealed, read_state(store).tags.keys()) == (True, {"one"})
