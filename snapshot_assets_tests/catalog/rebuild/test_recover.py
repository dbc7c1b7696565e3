"""The way back after an attack: names that were hidden, overwritten and forged are brought back from versions."""

from __future__ import annotations

from datetime import UTC, datetime

from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.recover import execute_recovery, plan_recovery
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.servers.locked import LockedBucket


def altered(store: ObjectStore) -> list[str]:
    return [fault.object for fault in verify(store).faults if fault.kind is FaultKind.ALTERED]


def snapshot_at(store: ObjectStore) -> Writer:
    """A location that was sealed twice and has a tag."""
    writer = Writer(store)
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    create_tag(writer.catalog, "one", writer.catalog.state.revision)
    old = next(known.file.path for known in writer.catalog.state.live_files(1))
    writer.complete(1, writer.file(1, b"newer rows"), replaces=(old,))
    seal(writer.catalog)
    return writer


def test_a_hidden_transaction_is_named_and_brought_back(lockable: LockedBucket) -> None:
    store = lockable.store()
    writer = snapshot_at(store)
    assert verify(store).faults == []
    before = lockable.versions()[-1].modified
    before = datetime.now(UTC)
    store.delete(transaction_path(3))
    assert altered(store) == [transaction_path(3)]
    done = execute_recovery(plan_recovery(store, before))
    assert [each.path for each in done.written] == [transaction_path(3)]
    assert done.report is not None
    assert (done.report.faults, done.report.revision) == ([], writer.catalog.state.revision)
