"""A second restore after a compaction that left out rows: no change if the target has lost them already."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.compact.compactions import append, compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, Restored, execute
from snapshot_assets_tests.engine.restore.test_compacted import head, known, live, nothing_was_loaded
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, READINGS, delete, without

pytestmark = pytest.mark.slow

ITEMS = TableName("main", "items")


def statuses(done: Restored) -> dict[int, str]:
    """Return the status of every chunk that the run changed."""
    return {chunk: each.status for chunk, each in done.outcomes.items() if each.changed}


def rows_of(place: Place, chunk: int, revision: int | None) -> int:
    """Return the rows of a chunk's readings at a revision."""
    files = [known.file for known in read_state(place.store, through=revision).live_files(chunk)]
    return sum(file.rows for file in files if file.table == "readings")


def test_rows_that_a_compaction_left_out_after_the_target_lost_them_are_no_change(imported: Place, duck: Into) -> None:
    delete(imported, FIRST_DAYS)
    assert statuses(duck.restore(imported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    compact(imported.store, tables=(TableName("main", "events"),))
    compact(imported.store)
    assert nothing_was_loaded(duck.restore(imported.store))
    assert known(duck, imported) == live(imported)
    assert duck.differences(imported.source, without(FIRST_DAYS)) == {}
    assert nothing_was_loaded(duck.restore(imported.store))


def test_rows_that_were_deleted_before_the_first_import_may_be_left_out_later(exported: Place, duck: Into) -> None:
    delete(exported, FIRST_DAYS)
    duck.restore(exported.store)
    compact(exported.store)
    delete(exported, "sensor = 's1' and t < '2025-01-04T12:00:00Z'")
    compact(exported.store)
    with pytest.raises(
        RestoreError, match=r"Chunk 2 .*compactions left out rows: the target has \d+ rows of main.readings"
    ):
        duck.restore(exported.store)
    assert statuses(duck.restore(exported.store, replace=True)) == {2: "replaced", 3: "replaced"}
    compact(exported.store, tables=(READINGS,))
    assert nothing_was_loaded(duck.restore(exported.store))
    deleted = f"({FIRST_DAYS}) OR sensor = 's1' and t < '2025-01-04T12:00:00Z'"
    assert duck.differences(exported.source, without(deleted)) == {}


def test_a_chunk_that_was_compacted_and_lost_rows_is_loaded_again_only_when_asked(imported: Place, duck: Into) -> None:
    before = head(imported)
    delete(imported, FIRST_DAYS)
    compact(imported.store)
    then, now = (rows_of(imported, 1, revision) for revision in (before, None))
    found = rf"left out rows: the target has {then} rows of main\.readings, this revision {now}\)"
    with pytest.raises(RestoreError, match=found):
        duck.restore(imported.store)
    assert known(duck, imported) == live(imported, before)
    assert statuses(duck.restore(imported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert known(duck, imported) == live(imported)
    assert duck.differences(imported.source, without(FIRST_DAYS)) == {}
    older = f"rev:{before}"
    with pytest.raises(RestoreError, match=r"Chunk 0 was loaded from other files.*--replace"):
        duck.restore(imported.store, version=older)
    done = duck.restore(imported.store, version=older, replace=True)
    assert statuses(done).items() >= {1: "loaded", 2: "replaced"}.items()
    assert duck.differences(imported.source, IN_RANGE) == {}


def test_deleted_rows_are_a_change_though_another_table_was_compacted(imported: Place, duck: Into) -> None:
    delete(imported, FIRST_DAYS)
    compact(imported.store, tables=(TableName("main", "events"),))
    with pytest.raises(RestoreError, match=r"Chunk 1 was loaded when other rows of main\.readings were deleted"):
        duck.restore(imported.store)
    assert statuses(duck.restore(imported.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert duck.differences(imported.source, without(FIRST_DAYS)) == {}


def test_rows_of_an_unfinished_restore_are_not_taken_for_all_rows(imported: Place, duck: Into) -> None:
    """Rows that it did not load must not be taken for rows that the compaction left out."""
    delete(imported, FIRST_DAYS)
    second = duck.restore(imported.store, replace=True).plan.record.id
    delete(imported, "t > '2025-01-06T12:00:00Z'")
    duck.restore(imported.store, replace=True)
    compact(imported.store)
    execute(duck, f"UPDATE snapshot_assets_ledger.imports SET finished = false WHERE id = '{second}'")
    with pytest.raises(
        RestoreError, match=r"Chunk 1 .*they were compacted, and nothing proves that they hold the same"
    ):
        duck.restore(imported.store)
    execute(duck, "UPDATE snapshot_assets_ledger.imports SET finished = true")
    assert nothing_was_loaded(duck.restore(imported.store))


@pytest.fixture
def ambiguous(place: Place) -> Place:
    """A table with a primary key that has five rows twice."""
    place.sql("CREATE TABLE items (id INTEGER PRIMARY KEY, moment TIMESTAMPTZ)")
    place.sql("INSERT INTO items SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i) FROM range(20) r(i)")
    place.export()
    [file] = [known.file for known in read_state(place.store).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    append(place.store, 1, ITEMS, rows.slice(0, 5))
    seal(Catalog.open_for_writing(place.store))
    return place


@pytest.fixture
def doubled(ambiguous: Place, duck: Into) -> Place:
    """The same table, restored into a target whose table has no key."""
    execute(duck, "CREATE TABLE main.items (id INTEGER, moment TIMESTAMP WITH TIME ZONE)")
    duck.restore(ambiguous.store)
    return ambiguous


def test_rows_that_violate_a_key_are_refused_with_a_remedy(ambiguous: Place, duck: Into) -> None:
    with pytest.raises(RestoreError, match=r"primary key of main\.items could not be made: .*--dedupe primary_key"):
        duck.restore(ambiguous.store)
    assert duck.tables()["items"].num_rows == 25


def test_duplicates_that_a_compaction_removed_are_a_change(doubled: Place, duck: Into) -> None:
    before = known(duck, doubled)
    compact(doubled.store, dedupe="primary_key")
    with pytest.raises(RestoreError, match=r"left out rows: the target has 25 rows of main\.items, this revision 20"):
        duck.restore(doubled.store)
    assert known(duck, doubled) == before
    assert statuses(duck.restore(doubled.store, replace=True)) == {1: "replaced"}
    assert duck.tables()["items"].num_rows == 20


def test_rows_that_came_and_went_between_two_imports_are_a_change(place: Place, duck: Into) -> None:
    """As many rows were added as a compaction left out."""
    place.sql("CREATE TABLE items (id INTEGER, moment TIMESTAMPTZ)")
    place.sql("INSERT INTO items SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i) FROM range(20) r(i)")
    place.export()
    duck.restore(place.store)
    [file] = [known.file for known in read_state(place.store).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    delete(place, "id < 5", ITEMS)
    append(place.store, 1, ITEMS, rows.slice(10, 5))
    compact(place.store)
    seal(Catalog.open_for_writing(place.store))
    with pytest.raises(RestoreError, match=r"Chunk 1 .*nothing proves that they hold the same rows"):
        duck.restore(place.store)
