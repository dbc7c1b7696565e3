"""Objects that readers refuse are never written: they are refused before, or split into several commits."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import LimitExceededError
from snapshot_assets.format import actions as act
from snapshot_assets.format import checkpoint, documents
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, rollback
from snapshot_assets_tests.catalog.tags import NOW, SEAL, save, sealed_by

LIMIT = 8192
"""Stands for the 256 MiB of a transaction: more than any that the tests commit by chunk."""


@pytest.fixture
def sealed(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Seals at 5 and 10; all 30 files of 5 were replaced since, chunk by chunk."""
    for files in (b"old", b"new"):
        for chunk in (1, 2, 3):
            old = tuple(writer.catalog.state.files.chunk(chunk))
            writer.complete(chunk, *(writer.file(chunk, files) for _ in range(10)), replaces=old or None)
        seal(writer.catalog)
    assert [each.revision for each in writer.catalog.state.seals] == [SEAL, 9]
    assert max(info.size for info in writer.store.list("transactions/") if info.path.endswith("txn")) < LIMIT
    monkeypatch.setattr(documents, "MAX_TRANSACTION_BYTES", LIMIT)
    return writer


def test_a_rollback_that_is_too_large_is_refused(sealed: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [info.path for info in sealed.store.list()]
    monkeypatch.setattr(documents, "MAX_TRANSACTION_BYTES", LIMIT // 4)
    with pytest.raises(
        LimitExceededError, match=rf"10\.txn would have [\d,]+ bytes; at most {LIMIT // 4:,} .* \d+ actions"
    ):
        rollback(sealed.catalog, SEAL)
    assert [info.path for info in sealed.store.list()] == before
    monkeypatch.setattr(documents, "MAX_TRANSACTION_BYTES", LIMIT)
    assert Catalog.open_for_writing(sealed.store).state.revision == sealed.catalog.state.revision == 9
    assert not verify(sealed.store).faults
    assert rollback(sealed.catalog, SEAL).revision == 10
    assert read_state(sealed.store).revision == 10


def test_garbage_collection_records_what_it_deletes_in_several_commits(sealed: Writer) -> None:
    gone = set(sealed.catalog.state.files.at(SEAL).paths())
    expire(sealed.catalog, keep_last=1)
    head = sealed.catalog.state.revision
    found = collect_garbage(sealed.catalog, grace=NOW, unsafe=True)
    assert gone <= {each.path for each in found.deleted}
    commits = [entry.transaction for entry in scan_log(sealed.store).entries if entry.transaction.revision > head]
    assert len(commits) == 9  # of at most four paths: 30 files and 3 receipts
    purged = [
        path for each in commits for action in each.actions if isinstance(action, act.Purged) for path in action.paths
    ]
    assert sorted(purged) == sorted(gone)
    assert gone.isdisjoint(info.path for info in sealed.store.list())
    assert not verify(sealed.store).faults


def test_a_pin_whose_object_is_too_large_is_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed_by(writer)
    before = [info.path for info in writer.store.list()]
    with monkeypatch.context() as patch:
        patch.setattr(documents, "MAX_DOCUMENT_BYTES", 1000)
        for create in (lambda: create_tag(writer.catalog, "a", SEAL), lambda: save(writer.catalog)):
            with pytest.raises(LimitExceededError, match=r"bytes; at most 1,000 .* Revision 5 has 2 files"):
                create()
    assert [info.path for info in writer.store.list()] == before
    assert writer.catalog.refresh().revision == SEAL
    assert create_tag(writer.catalog, "a", SEAL).new


@pytest.mark.parametrize("limit", ["MAX_DOCUMENT_BYTES", "MAX_SECTION_BYTES"])
def test_a_checkpoint_that_is_too_large_is_refused_and_no_commit_fails(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    sealed_by(writer)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, limit, 100)
        with pytest.raises(LimitExceededError, match=r"bytes; at most 100 "):
            writer.catalog.checkpoint()
        patch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", 1)
        create_tag(writer.catalog, "a", SEAL)
    assert not [info.path for info in writer.store.list() if info.path.endswith("ckpt")]
    assert read_state(writer.store).revision == SEAL + 1
