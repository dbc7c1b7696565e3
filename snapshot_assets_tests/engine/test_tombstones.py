"""Rows that a tombstone deletes are neither read nor restored, whatever state they are looked up in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.delete import RowDeletionPlan
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.reading.planning import file_parts
from snapshot_assets.engine.reading.read import load_frames
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.predicate_text import parse_predicate
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import read, source_rows
from snapshot_assets_tests.engine.reading.data_source import rows as rows_of
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.faults.source import CHUNKS, TIMES

READINGS = TableName("main", "readings")
SOME = "sensor = 's0' and value < 5 or t is null"
FIRST_DAYS = "t < '2025-01-02T12:00:00Z'"
"""All rows of window 1, and half of window 2."""


def delete(place: Place, predicate: str, table: TableName = READINGS) -> RowDeletionPlan:
    return delete_rows(Catalog.open_for_writing(place.store), table, predicate)


def rows(store: ObjectStore, table: str = "main.readings", **options: str) -> list[tuple[Any, ...]]:
    """Return a table's rows as the data source reads them."""
    return rows_of(read(store.uri, table, **options))


def kept(place: Place, deleted: str = "false", columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of the source that its snapshot holds, but for the deleted ones."""
    where = f"({IN_RANGE['readings']}) AND ({deleted}) IS NOT TRUE"
    return source_rows(place, f"SELECT {columns} FROM readings WHERE {where}")


@pytest.mark.parametrize("predicate", [SOME, FIRST_DAYS, "t is not null", "not value <= 3 and sensor != 's2'"])
def test_deleted_rows_are_not_read_before_and_after_a_checkpoint(exported: Place, predicate: str) -> None:
    store = exported.store
    before = read_state(store).revision
    assert rows(store) == kept(exported)
    deleted = delete(exported, predicate)
    gone = len(kept(exported)) - len(kept(exported, predicate))
    assert deleted.whole_rows <= gone <= deleted.rows
    assert gone
    for _ in range(2):
        assert rows(store) == kept(exported, predicate)
        assert rows(store, columns="value") == kept(exported, predicate, "value")
        assert rows(store, version=f"rev:{before}") == kept(exported)
        window = f"t >= '2025-01-02 05:00:00Z' AND t < '2025-01-03 07:00:00Z' AND ({predicate}) IS NOT TRUE"
        chosen = rows(store, start="2025-01-02T05:00:00Z", end="2025-01-03T07:00:00Z")
        assert chosen == kept(exported, f"NOT ({window}) OR t IS NULL")
        write_checkpoint(store, read_state(store))
    assert not verify(store).faults


def test_files_that_are_deleted_whole_are_not_opened_and_others_are_filtered_only_if_need_be(exported: Place) -> None:
    delete(exported, FIRST_DAYS)
    state = read_state(exported.store)
    documents = read_schemas(exported.store, state)
    parts = file_parts(state, documents[state.schema_id].table(READINGS), documents, None)
    assert [(part.file.chunk, len(part.deleted)) for part in parts] == [(0, 0), (2, 1), (3, 0), (5, 0), (6, 0)]


def test_rows_exported_again_after_a_tombstone_are_there_again(exported: Place) -> None:
    delete(exported, FIRST_DAYS)
    exported.export(chunks=[1], replace=True)
    assert rows(exported.store) == kept(exported, f"{FIRST_DAYS} and t >= '2025-01-02T00:00:00Z'")
    manifest = exported.manifest()
    assert (len(manifest["tombstones"]), manifest["rows_visible"]) == (1, None)
    exported.export(chunks=CHUNKS, replace=True)
    assert rows(exported.store) == kept(exported)
    manifest = exported.manifest()
    assert (manifest["tombstones"], manifest["rows_visible"]) == ([], manifest["rows"])
    assert not verify(exported.store).faults


def test_rows_deleted_from_a_chunk_stay_deleted_when_it_is_repaired(exported: Place) -> None:
    delete(exported, FIRST_DAYS)
    damaged = {known.file.path for chunk in (1, 2) for known in read_state(exported.store).live_files(chunk)}
    for path in damaged:
        (exported.folder / path).unlink()
    found = exported.export()
    assert {chunk: outcome.status for chunk, outcome in found.items() if outcome.status != "present"} == {
        1: "repaired",
        2: "repaired",
    }
    assert {fault.object for chunk in (1, 2) for fault in found[chunk].faults} == damaged
    assert rows(exported.store) == kept(exported, FIRST_DAYS)
    compact(exported.store)
    assert rows(exported.store) == kept(exported, FIRST_DAYS)


def test_rows_of_a_source_that_was_held_before_a_tombstone_are_deleted(exported: Place) -> None:
    with exported.run().open() as export:
        delete(exported, FIRST_DAYS)
        assert [outcome.status for outcome in export.export([1, 2], replace_completed=True)] == ["replaced"] * 2
        export.seal()
    assert rows(exported.store) == kept(exported, FIRST_DAYS)


def test_several_tombstones_delete_what_any_of_them_does(exported: Place) -> None:
    delete(exported, FIRST_DAYS)
    delete(exported, SOME)
    delete(exported, "id = 1 and name = 'Zürich'", TableName("main", "places"))
    assert rows(exported.store) == kept(exported, f"({FIRST_DAYS}) or ({SOME})")
    assert rows(exported.store, "main.places") == [(2, None), (3, "")]


def test_old_files_are_filtered_by_what_a_column_was_however_the_table_changed_since(exported: Place) -> None:
    wanted = kept(exported, f"{SOME} or t >= '2025-01-02' and t < '2025-01-03'", "t, value")
    delete(exported, SOME)
    exported.sql("ALTER TABLE readings DROP sensor; ALTER TABLE readings ALTER value TYPE VARCHAR")
    exported.export(chunks=[2], replace=True)
    second = kept(exported, "NOT (t >= '2025-01-02' and t < '2025-01-03') or t is null", "t, value")
    found = {(t, float(value)) for t, value in rows(exported.store)}
    assert found == {*wanted, *((t, float(value)) for t, value in second)}
    assert len(rows(exported.store)) == len(wanted) + len(second)


def test_a_column_that_a_file_lacks_is_null_for_a_predicate_too(exported: Place) -> None:
    [file] = [known.file for known in read_state(exported.store).live_files(0) if known.file.table == "places"]
    schema = pa.schema([("id", pa.int32()), ("added", pa.int64())])
    for text, count in (("added is null", 0), ("added > 3", 4), ("not added > 3", 4), ("id = 1 or added = 1", 2)):
        predicate = parse_predicate(text, schema, "main.places")
        for wanted in (schema, pa.schema([("added", pa.int64())])):
            batches = list(read_batches(exported.store, file, wanted, deleted=[predicate]))
            assert sum(batch.num_rows for batch in batches) == count, (text, wanted)


def without(deleted: str) -> dict[str, str]:
    return IN_RANGE | {"readings": f"({IN_RANGE['readings']}) AND ({deleted}) IS NOT TRUE"}


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [False, True])
def test_deleted_rows_are_not_restored_and_the_ledger_counts_the_others(
    exported: Place, duck: Into, checkpoint: bool
) -> None:
    delete(exported, FIRST_DAYS)
    delete(exported, SOME)
    if checkpoint:
        write_checkpoint(exported.store, read_state(exported.store))
    deleted = f"({FIRST_DAYS}) or ({SOME})"
    done = duck.restore(exported.store)
    assert done.finished
    assert duck.differences(exported.source, without(deleted)) == {}
    counts = done.run.check_counts()
    assert counts[READINGS] == (len(kept(exported, deleted)),) * 2
    assert {table for table, _ in (name for name in counts)} == {"main"}
    assert len(counts) == len(TIMES)
    assert duck.restore(exported.store).rows == 0


def test_an_older_version_is_restored_with_the_rows_deleted_later(exported: Place, duck: Into) -> None:
    before = read_state(exported.store).revision
    delete(exported, SOME)
    duck.restore(exported.store, version=f"rev:{before}")
    assert duck.differences(exported.source, IN_RANGE) == {}


@pytest.mark.slow
def test_rows_deleted_after_they_were_restored_go_when_the_chunks_are_replaced(exported: Place, duck: Into) -> None:
    duck.restore(exported.store)
    delete(exported, FIRST_DAYS)
    with pytest.raises(
        RestoreError, match=r"Chunk 1 was loaded when other rows of main\.readings were deleted.*--replace"
    ):
        duck.restore(exported.store)
    done = duck.restore(exported.store, replace=True)
    statuses = {chunk: outcome.status for chunk, outcome in done.outcomes.items()}
    assert {chunk for chunk, status in statuses.items() if status == "replaced"} == {1, 2}
    assert duck.differences(exported.source, without(FIRST_DAYS)) == {}
    assert duck.restore(exported.store).rows == 0


@pytest.mark.slow
def test_rows_deleted_before_they_were_restored_come_with_an_older_version(exported: Place, duck: Into) -> None:
    delete(exported, SOME)
    before = read_state(exported.store).revision
    delete(exported, FIRST_DAYS)
    duck.restore(exported.store)
    write_checkpoint(exported.store, read_state(exported.store))
    with pytest.raises(
        RestoreError, match=r"Chunk 1 was loaded when other rows of main\.readings were deleted.*--replace"
    ):
        duck.restore(exported.store, version=f"rev:{before}")
    done = duck.restore(exported.store, version=f"rev:{before}", replace=True)
    assert {chunk for chunk, outcome in done.outcomes.items() if outcome.status == "replaced"} == {1, 2}
    assert done.finished
    assert duck.differences(exported.source, without(SOME)) == {}
    assert duck.restore(exported.store, version=f"rev:{before}").rows == 0
    assert duck.restore(exported.store, replace=True).finished
    assert duck.differences(exported.source, without(f"({SOME}) or ({FIRST_DAYS})")) == {}


@pytest.mark.slow
def test_an_import_is_not_finished_while_a_chunk_lacks_what_was_deleted_since_or_has_it(
    exported: Place, duck: Into
) -> None:
    before = read_state(exported.store).revision
    duck.restore(exported.store)
    delete(exported, FIRST_DAYS)
    for version, predicate in ((None, FIRST_DAYS), (f"rev:{before}", "false")):
        assert not duck.restore(exported.store, [1], version=version, replace=True).finished
        assert duck.differences(exported.source, without(predicate))
        assert duck.restore(exported.store, version=version, replace=True).finished
        assert duck.differences(exported.source, without(predicate)) == {}


def test_rows_that_a_lost_tombstone_had_deleted_are_missed(
    exported: Place, duck: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has fewer rows of a file than expected, also if the log lost the tombstone."""
    before = read_state(exported.store).revision
    delete(exported, FIRST_DAYS)
    duck.restore(exported.store)
    monkeypatch.setattr("snapshot_assets.engine.restore.files.tombstones_at", lambda *_: {})
    with pytest.raises(RestoreError, match=r"Chunk 1 was loaded when other rows of main\.readings were deleted"):
        duck.restore(exported.store, version=f"rev:{before}")


@pytest.mark.slow
def test_deleted_rows_are_not_in_dataframes_of_chunks(exported: Place, spark) -> None:
    delete(exported, SOME)
    frame = load_frames(spark, exported.store, read_state(exported.store), CHUNKS)[READINGS]
    assert rows_of(frame) == kept(exported, SOME)
