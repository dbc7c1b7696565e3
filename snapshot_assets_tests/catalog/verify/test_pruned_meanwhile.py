"""The log is pruned, or a part of it damaged, after verification has read it: no fault is named that is none."""

from datetime import timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.tags import flip, reseal


def delete(store, path: str) -> None:
    store.delete(path)


@pytest.mark.parametrize("end", [delete, flip])
def test_what_a_collection_left_is_no_orphan(sealed: Writer, end) -> None:
    """A collection committed what it was about to delete, and was killed: transactions name the object still."""
    left = next(sealed.catalog.state.live_files(1)).file.path
    reseal(sealed)
    expire(sealed.catalog, keep_last=1)
    sealed.catalog.commit(rules.purge([left]))
    scan = scan_log(sealed.store)
    end(sealed.store, transaction_path(2))
    assert FaultKind.ORPHAN not in {fault.kind for fault in verify(sealed.store, depth="quick", scan=scan).faults}


def test_sums_of_a_state_that_was_pruned_are_stale(sealed: Writer) -> None:
    """Whether SHA256SUMS is of an older revision shows in the log, which is read again for it."""
    sums = sealed.store.get("SHA256SUMS")
    for number in range(3):
        reseal(sealed, b"rows %d" % number)
        write_checkpoint(sealed.store, sealed.catalog.state)
    expire(sealed.catalog, keep_last=1)
    assert collect_garbage(sealed.catalog, grace=timedelta(0), unsafe=True).deleted
    sealed.store.put("SHA256SUMS", sums)
    scan = scan_log(sealed.store)
    assert prune(sealed.catalog, grace=timedelta(0), unsafe=True).released
    found = [(fault.kind, fault.object) for fault in verify(sealed.store, depth="quick", scan=scan).faults]
    assert found == [(FaultKind.STALE, "SHA256SUMS")]


@pytest.mark.parametrize("end", [delete, flip])
def test_the_states_of_a_log_do_not_end_early(sealed: Writer, end) -> None:
    scan = scan_log(sealed.store)
    assert [state.revision for state in scan.states()] == [1, 2, 3, 4, 5]
    end(sealed.store, transaction_path(4))
    with pytest.raises(ObjectNotFoundError, match=transaction_path(4)):
        assert [*scan.states()]
