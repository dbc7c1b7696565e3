"""A restore after a rollback: the target gets the rows of the older revision, or the error names --replace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.errors import RestoreError
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, rollback
from snapshot_assets_tests.catalog.tags import NOW
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.engine.restore.test_compacted import head, nothing_was_loaded
from snapshot_assets_tests.engine.restore.test_compacted_deletions import statuses
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, delete
from snapshot_assets_tests.faults.source import add_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def then(place: Place, tmp_path: Path) -> str:
    """The source as it was at the first export."""
    copy = tmp_path / "then.duckdb"
    shutil.copy(place.source.removeprefix("duckdb://"), copy)
    return f"duckdb://{copy}"


def back(place: Place, revision: int, **settings: bool) -> None:
    assert rollback(Catalog.open_for_writing(place.store), revision, **settings).revision


def replaced(place: Place) -> None:
    add_rows(place.source)
    place.export(chunks=[2], replace=True)


def test_rows_that_were_replaced_since_are_replaced_again(imported: Place, duck: Into, then: str) -> None:
    first = head(imported)
    replaced(imported)
    assert statuses(duck.restore(imported.store, replace=True)) == {2: "replaced"}
    assert duck.differences(then, IN_RANGE)
    back(imported, first)
    with pytest.raises(RestoreError, match=r"Chunk 2 .*Give --replace"):
        duck.restore(imported.store)
    assert statuses(duck.restore(imported.store, replace=True)) == {2: "replaced"}
    assert duck.differences(then, IN_RANGE) == {}
    assert nothing_was_loaded(duck.restore(imported.store))


def test_a_target_without_the_undone_changes_loads_nothing(imported: Place, duck: Into, then: str) -> None:
    first = head(imported)
    replaced(imported)
    delete(imported, FIRST_DAYS)
    back(imported, first, undelete=True)
    assert nothing_was_loaded(duck.restore(imported.store))
    assert duck.differences(then, IN_RANGE) == {}


def test_rows_that_were_deleted_come_back_after_a_rollback_that_undeletes(
    imported: Place, duck: Into, then: str
) -> None:
    first = head(imported)
    delete(imported, FIRST_DAYS)
    assert statuses(duck.restore(imported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    back(imported, first, undelete=True)
    with pytest.raises(RestoreError, match=r"Chunk 1 .*Give --replace"):
        duck.restore(imported.store)
    assert statuses(duck.restore(imported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert duck.differences(then, IN_RANGE) == {}


def test_a_rollback_to_a_compaction_restores_its_rows(imported: Place, duck: Into, then: str) -> None:
    compact(imported.store)
    compacted = head(imported)
    replaced(imported)
    back(imported, compacted)
    done = duck.restore(imported.store, replace=True)
    assert duck.differences(then, IN_RANGE) == {}
    assert nothing_was_loaded(duck.restore(imported.store))
    assert done.finished


def test_an_interrupted_restore_resumes_with_its_own_revision(exported: Place, duck: Into, then: str) -> None:
    first = head(exported)
    replaced(exported)
    newer = head(exported)
    now = exported.source
    duck.restore(exported.store, [1, 2], finish=False)
    back(exported, first, discard_newer=True)
    collect_garbage(Catalog.open_for_writing(exported.store), grace=NOW, unsafe=True)  # its tag keeps what it needs
    assert duck.restore(exported.store, version=f"rev:{newer}").finished
    assert duck.differences(now, IN_RANGE) == {}
    duck.restore(exported.store, replace=True)
    assert duck.differences(then, IN_RANGE) == {}


def test_an_import_after_the_imported_revision_expired(exported: Place, duck: Into, then: str) -> None:
    first = head(exported)
    replaced(exported)
    duck.restore(exported.store)
    back(exported, first, discard_newer=True)
    catalog = Catalog.open_for_writing(exported.store)
    expire(catalog, keep_last=1)
    collect_garbage(catalog, grace=NOW, unsafe=True)
    catalog.checkpoint()
    with pytest.raises(RestoreError, match=r"Chunk 2 .*Give --replace"):
        duck.restore(exported.store)
    assert statuses(duck.restore(exported.store, replace=True)) == {2: "replaced"}
    assert duck.differences(then, IN_RANGE) == {}
