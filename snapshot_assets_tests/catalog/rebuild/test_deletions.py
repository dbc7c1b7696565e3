"""Deleted rows do not come back silently, whatever part of the log is lost."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import hints_of, manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.errors import AcceptanceNeededError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.catalog.rebuild.test_rebuild import lose
from snapshot_assets_tests.catalog.tags import damage, flip, reseal, sealed_by

TABLE = TableName("main", "m")


def deleted(writer: Writer, where: str) -> int:
    """Delete rows; returns the revision."""
    revision = delete_rows(writer.catalog, TABLE, where).revision
    assert revision is not None
    return revision


def replace_chunk(writer: Writer) -> None:
    """Unseal the head."""
    old = next(writer.catalog.state.live_files(1)).file.path
    writer.complete(1, writer.file(1, b"more"), replaces=(old,))


@pytest.fixture
def two(writer: Writer) -> Writer:
    """Tombstones at 19, of a sealed state, and at 25, of one that is not: nothing but the log has the second."""
    sealed_by(writer)
    for _ in range(6):
        reseal(writer)
    work = rules.in_progress(writer.catalog.token(), [1], "run")
    writer.catalog.commit(work)
    assert deleted(writer, "t < '2025-01-01T01:00:00Z'") == 19
    replace_chunk(writer)
    for _ in range(4):
        writer.catalog.commit(work)
    assert deleted(writer, "t < '2025-01-01T02:00:00Z'") == 25
    return writer


@pytest.mark.parametrize("hole", ["gone", "torn"])
def test_a_deletion_behind_the_base_that_can_be_read_is_named_and_asks_for_consent(two: Writer, hole: str) -> None:
    path = transaction_path(22)
    two.store.delete(path) if hole == "gone" else flip(two.store, path, 40)
    there = list_log(two.store)
    with pytest.raises(AcceptanceNeededError, match=r"main\.m were deleted at revision 25, those where .*undeleted"):
        rebuild(two.store)
    assert list_log(two.store) == there
    done = rebuild(two.store, accept_undeleted=True)
    assert (done.proved, done.revision) == (21, 26)
    assert pending_tombstones(read_state(two.store)).keys() == {19}
    assert any("were deleted at revision 25" in line and "Delete them again" in line for line in done.lost)
    assert damage(two.store) == {}


def test_a_deletion_that_is_lost_itself_is_named_with_its_revision(two: Writer) -> None:
    flip(two.store, transaction_path(25), 40)
    [named, *_] = rebuild(two.store).lost
    assert named.startswith(
        "Revision 25 is lost (transactions/00000000000000000025.txn does not match its own checksum"
    )
    assert "the rows they deleted" in named


def test_deletions_come_back_from_manifests_at_their_own_revisions(writer: Writer) -> None:
    """Whether they are pending at each is as it was: one is, at a later revision, what an earlier pin lacks."""
    sealed_by(writer)
    first = deleted(writer, "t < '2025-01-01T01:00:00Z'")
    create_tag(writer.catalog, "one", first)
    replace_chunk(writer)
    second = deleted(writer, "t < '2025-01-03T01:00:00Z'")
    seal(writer.catalog)
    before = read_state(writer.store)
    lose(writer.store, "transactions/")
    done = rebuild(writer.store)
    after = read_state(writer.store)
    assert pending_tombstones(after) == pending_tombstones(before)
    assert after.tombstones.keys() == {first, second}
    assert manifest_of(after) == manifest_of(before)
    assert manifest_of(after.at(first)) == manifest_of(before.at(first))
    assert not any("deleted at revision" in line for line in done.lost)
    assert damage(writer.store) == {}


@pytest.mark.parametrize("log", ["all", "end"])
def test_deletions_of_work_in_progress_are_named(writer: Writer, log: str) -> None:
    """`manifest.json` of a snapshot that was never sealed is no base, but it shows its tombstones."""
    writer.complete(1, writer.file(1))
    revision = deleted(writer, "t is not null")
    for path, data in hints_of(writer.catalog.state).items():
        writer.store.put(path, data)
    lose(writer.store, "transactions/") if log == "all" else writer.store.delete(transaction_path(revision))
    with pytest.raises(AcceptanceNeededError, match="lost deletions of rows"):
        rebuild(writer.store)
    done = rebuild(writer.store, accept_undeleted=True)
    assert any(f"were deleted at revision {revision}" in line for line in done.lost)
    assert not Catalog.open(writer.store).state.tombstones
    assert damage(writer.store) == {}
