"""A restore after a rollback: the target gets the rows of the older revision, or the error names --replace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.errors import RestoreError
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, rollback
from snapshot_assets_tests.catalog.tags import NOW
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.engine.restore.test_compacted import nothing_was_loaded
from snapshot_assets_tests.engine.restore.test_compacted_deletions import statuses
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, delete
from snapshot_assets_tests.faults.source import add_rows


@pytest.fixture
def then(exported: Place, tmp_path: Path) -> str:
    """The source as it was at the first export."""
    copy = tmp_path / "then.duckdb"
    shutil.copy(exported.source.removeprefix("duckdb://"), copy)
    return f"duckdb://{copy}"


def head(place: Place) -> int:
    return read_state(place.store).revision


def back(place: Place, revision: int, **settings: bool) -> None:
    assert rollback(Catalog.open_for_writing(place.store), revision, **settings).revision


def replaced(place: Place) -> None:
    add_rows(place.source)
    place.export(chunks=[2], replace=True)


def test_rows_that_were_replaced_since_are_replaced_again(exported: Place, duck: Into, then: str) -> None:
    first = head(exported)
    duck.restore(exported.store)
    replaced(exported)
    assert statuses(duck.restore(exported.store, replace=True)) == {2: "replaced"}
    assert duck.differences(then, IN_RANGE)
    back(exported, first)
    with pytest.raises(RestoreError, match=r"Chunk 2 .*Give --replace"):
        duck.restore(exported.store)
    assert statuses(duck.restore(exported.store, replace=True)) == {2: "replaced"}
    assert duck.differences(then, IN_RANGE) == {}
    assert nothing_was_loaded(duck.restore(exported.store))


def test_a_target_without_the_undone_changes_loads_nothing(exported: Place, duck: Into, then: str) -> None:
    first = head(exported)
    duck.restore(exported.store)
    replaced(exported)
    delete(exported, FIRST_DAYS)
    back(exported, first, undelete=True)
    assert nothing_was_loaded(duck.restore(exported.store))
    assert duck.differences(then, IN_RANGE) == {}


@pytest.mark.slow
def test_rows_that_were_deleted_come_back_after_a_rollback_that_undeletes(
    exported: Place, duck: Into, then: str
) -> None:
    first = head(exported)
    duck.restore(exported.store)
    delete(exported, FIRST_DAYS)
    assert statuses(duck.restore(exported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    back(exported, first, undelete=True)
    with pytest.raises(RestoreError, match=r"Chunk 1 .*Give --replace"):
        duck.restore(exported.store)
    assert statuses(duck.restore(exported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert duck.differences(then, IN_RANGE) == {}


@pytest.mark.slow
def test_rows_that_a_compaction_left_out_come_back(scattered: Place, duck: Into, then: str) -> None:
    first = head(scattered)
    duck.restore(scattered.store)
    delete(scattered, FIRST_DAYS)
    compact(scattered.store)
    duck.restore(scattered.store, replace=True)
    back(scattered, first, undelete=True)
    with pytest.raises(RestoreError, match=r"Give --replace"):
        duck.restore(scattered.store)
    duck.restore(scattered.store, replace=True)
    assert duck.differences(then, IN_RANGE) == {}


@pytest.mark.slow
def test_a_rollback_to_a_compaction_restores_its_rows(scattered: Place, duck: Into, then: str) -> None:
    duck.restore(scattered.store)
    compact(scattered.store)
    compacted = head(scattered)
    replaced(scattered)
    back(scattered, compacted)
    done = duck.restore(scattered.store, replace=True)
    assert duck.differences(then, IN_RANGE) == {}
    assert nothing_was_loaded(duck.restore(scattered.store))
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
