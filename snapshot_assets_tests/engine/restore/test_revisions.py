"""A second restore into the same tables: of another revision or snapshot, or after a failure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.row_counts import differences
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import PlanError, RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, execute
from snapshot_assets_tests.faults.source import CHUNKS, add_rows

pytestmark = pytest.mark.slow

READINGS = "CREATE TABLE main.readings (t timestamptz, sensor varchar(10), value double precision)"
THEIRS = "INSERT INTO main.readings VALUES ('2025-01-02 05:00:00Z', 'theirs', 0)"


def new_snapshot(place: Place, windows: int, **plan: Any) -> None:
    """Begin a new snapshot at the same location, export it and seal it."""
    place.export(chunks=range(windows + 1), settings={"force": True}, **plan)


def test_later_restores_remember_that_rows_of_others_were_there(exported, duck):
    execute(duck, "CREATE SCHEMA IF NOT EXISTS main")
    execute(duck, READINGS)
    execute(duck, THEIRS)
    assert duck.restore(exported.store, into_nonempty=True).finished
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    with pytest.raises(RestoreError, match=r"Chunk 2 cannot be replaced.*--into-nonempty"):
        duck.restore(exported.store, replace=True)
    assert "theirs" in duck.tables()["readings"]["sensor"].to_pylist()
    assert [record.finished for record in duck.imports()] == [True]


def test_a_table_that_came_later_and_holds_rows_of_others_is_remembered(imported, duck):
    imported.sql("CREATE TABLE more (id INTEGER); INSERT INTO more VALUES (1)")
    new_snapshot(imported, 6)
    execute(duck, "CREATE TABLE main.more (id INTEGER); INSERT INTO main.more VALUES (2)")
    with pytest.raises(RestoreError, match=r"Chunk 0 cannot be replaced.*--into-nonempty"):
        duck.restore(imported.store, into_nonempty=True, replace=True)


def test_a_snapshot_of_other_windows_is_refused_before_anything_is_recorded(place, duck):
    place.export(chunks=[0, 1, 2], chunk_time_window="3d")
    assert duck.restore(place.store).finished
    before = duck.tables()["readings"].num_rows
    new_snapshot(place, 6)
    with pytest.raises(RestoreError, match=r"windows of 3d from 2025-01-01T00:00:00Z.*windows of 1d.*--forget-ledger"):
        duck.restore(place.store, replace=True)
    new_snapshot(place, 5, start_time="2025-01-02T00:00:00Z")
    with pytest.raises(RestoreError, match=r"windows of 1d from 2025-01-02T00:00:00Z"):
        duck.restore(place.store, replace=True)
    assert duck.tables()["readings"].num_rows == before
    assert len(duck.imports()) == 1


def test_loaded_windows_that_a_revision_lacks_are_refused(imported, duck):
    new_snapshot(imported, 3, end_time="2025-01-04T00:00:00Z")
    with pytest.raises(
        RestoreError, match=r"main\.\w+.* in the target holds? rows of chunks 5, 6.*does not have.*--forget-ledger"
    ):
        duck.restore(imported.store, replace=True)
    new_snapshot(imported, 6, end_time="2025-01-06T12:00:00Z")  # the last window is half of what it was
    with pytest.raises(RestoreError, match=r"Chunk 6.*2025-01-07T00:00:00Z.*2025-01-06T12:00:00Z"):
        duck.restore(imported.store, replace=True)
    new_snapshot(imported, 7, end_time="2025-01-08T00:00:00Z")
    done = duck.restore(imported.store, replace=True)
    assert done.finished
    assert set(done.run.check_counts().values()) == {(n, n) for n, _ in done.run.check_counts().values()}


def test_a_table_that_was_given_a_time_index_is_refused(place, duck):
    place.sql("CREATE TABLE logs (a TIMESTAMPTZ, b TIMESTAMPTZ); INSERT INTO logs VALUES ('2025-01-02', '2025-01-03')")
    place.export(time_columns={"main.logs": "a"})
    assert duck.restore(place.store).finished
    new_snapshot(place, 6, time_columns={"main.logs": "b"})
    with pytest.raises(RestoreError, match=r"main\.logs.*time index a.*now b.*--forget-ledger"):
        duck.restore(place.store, replace=True)


def test_a_record_without_windows_is_resumed_but_not_superseded(exported, duck):
    duck.restore(exported.store, [1])
    execute(duck, "ALTER TABLE snapshot_assets_ledger.imports DROP COLUMN windows")
    assert duck.restore(exported.store).finished
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    with pytest.raises(RestoreError, match=r"does not record the windows.*--forget-ledger"):
        duck.restore(exported.store, replace=True)
    execute(duck, "CREATE TABLE main.kept AS FROM main.places; DROP TABLE main.places")
    execute(duck, "DELETE FROM snapshot_assets_ledger.files; DROP TABLE main.readings; DROP TABLE main.events")
    assert duck.restore(exported.store).finished
    assert [bool(record.windows) for record in duck.imports()] == [False, True]


def test_preparing_refuses_a_time_range_over_times_carried_as_text(place, duck):
    place.export(carriers={"main.events.moment": "text"})
    noon = Filters(start=datetime(2025, 1, 1, 12, tzinfo=UTC))
    with pytest.raises(PlanError, match=r"events\.moment is carried as"):
        duck.run(place.store, filters=noon).prepare()
    with pytest.raises(PlanError, match=r"events\.moment is carried as"):
        duck.restore(place.store, filters=noon)
    assert duck.imports() == []


def test_a_file_that_the_ledger_lost_is_loaded_again(imported, duck):
    execute(duck, "DELETE FROM snapshot_assets_ledger.files WHERE chunk = 2 AND table_name = 'readings'")
    execute(duck, "DELETE FROM main.readings WHERE t >= '2025-01-02 00:00:00Z' AND t < '2025-01-03 00:00:00Z'")
    prepared = duck.run(imported.store).prepare()
    assert prepared.resumed
    assert not prepared.finished
    done = duck.restore(imported.store)
    assert done.finished
    assert done.outcomes[2].status == "loaded"
    assert duck.differences(imported.source, IN_RANGE) == {}
    assert read_state(imported.store).tags == {}


def test_a_table_dropped_after_its_restore_is_reported(imported, duck):
    execute(duck, "DROP TABLE main.places")
    with pytest.raises(RestoreError, match=r"main\.places.*not there any more.*--forget-ledger"):
        duck.restore(imported.store)
    add_rows(imported.source)
    imported.export(chunks=[2], replace=True)
    with pytest.raises(RestoreError, match=r"main\.places.*not there any more"):
        duck.restore(imported.store, replace=True)


def test_the_revision_is_pinned_while_a_window_of_a_finished_import_is_restored_again(imported, duck):
    done = duck.restore(imported.store, [2], again=True, finish=False)
    assert list(read_state(imported.store).tags) == [done.plan.record.tag]
    assert done.run.finish()
    assert read_state(imported.store).tags == {}


def test_a_chunk_that_the_pinned_revision_lacks_is_refused_naming_it(place, duck):
    place.export(chunks=[0, 1, 2, 3], end_time="2025-01-04T00:00:00Z")
    duck.restore(place.store, [1])
    pinned = duck.imports()[0].revision
    new_snapshot(place, 6)
    with pytest.raises(RestoreError, match=f"Revision {pinned}, .*has no chunks 5, 9.*Finish it first"):
        duck.restore(place.store, [0, 5, 9])
    assert duck.restore(place.store).finished
    with pytest.raises(RestoreError, match=r"has no chunk 9 "):
        duck.restore(place.store, [9], replace=True)


def test_the_next_restore_deletes_the_tag_that_a_killed_one_left(exported, duck, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr("snapshot_assets.engine.restore.run.unpin", lambda *_: None)
        assert duck.restore(exported.store).finished
    left = duck.imports()[0].tag
    assert list(read_state(exported.store).tags) == [left]
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    duck.restore(exported.store, [1], replace=True)
    assert list(read_state(exported.store).tags) == [duck.imports()[1].tag] != [left]
    assert duck.restore(exported.store, replace=True).finished
    assert read_state(exported.store).tags == {}


def test_counts_are_compared_with_the_revision_that_was_restored_chunk_by_chunk(imported, duck):
    add_rows(imported.source)
    imported.export(chunks=[2], replace=True)
    run = duck.run(imported.store)
    prepared = run.current(recorded=True)
    assert prepared.resumed
    with run.target() as target:
        assert differences(target, prepared, CHUNKS) == {key: {} for key in CHUNKS}
    execute(duck, "DELETE FROM main.places WHERE id = 1")
    execute(duck, "DELETE FROM main.readings WHERE t IS NULL OR (t >= '2025-01-03' AND t < '2025-01-04')")
    with run.target() as target:
        different = differences(target, prepared, CHUNKS)
        assert {chunk for chunk in CHUNKS if different[chunk]} == {0, 3}
        places, readings = TableName("main", "places"), TableName("main", "readings")
        assert different[0] == {places: (4, 2), readings: (2, 0)}


def test_counts_of_windows_that_a_time_range_cuts_are_those_of_the_rows_in_it(exported, duck):
    noons = Filters(start=datetime(2025, 1, 1, 12, tzinfo=UTC), end=datetime(2025, 1, 2, 12, tzinfo=UTC))
    done = duck.restore(exported.store, filters=noons)
    assert done.finished
    plan = done.plan
    later = duck.run(exported.store, filters=noons).current(recorded=True)
    with done.run.target() as target:
        assert differences(target, later, (0, 1, 2)) == {key: {} for key in (0, 1, 2)}
    for chunk, outcome in done.outcomes.items():
        assert plan.rows_after(outcome) == outcome.rows
        assert later.rows_after(ChunkOutcome(chunk, "present")) == outcome.rows
    assert plan.rows_after(done.outcomes[1]) == 8
