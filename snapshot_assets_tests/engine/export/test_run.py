"""A resumed run needs the plan, tables and time columns of the existing snapshot."""

import shutil
from dataclasses import replace

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import (
    ConflictError,
    DatabaseError,
    ExportFailedError,
    LocationDeletedError,
    SnapshotExistsError,
)
from snapshot_assets_tests.engine.exports import Place, changed
from snapshot_assets_tests.faults.source import CHUNKS


def test_a_changed_plan_is_refused_even_where_every_chunk_is_completed(place):
    place.export()
    run = place.run(null_time="fail")
    with pytest.raises(SnapshotExistsError, match="null_time is chunk0 there and fail here"):
        run.read_catalog()
    with pytest.raises(SnapshotExistsError):
        run.seal()


def test_a_deleted_snapshot_is_neither_complete_nor_sealed(place):
    place.export()

    class Killed(Exception):
        pass

    class Store:
        def __getattr__(self, name):
            return getattr(place.store, name)

        def delete(self, path):
            if not path.startswith("transactions/probe-"):
                raise Killed

    with pytest.raises(Killed):
        delete_snapshot(Store())
    run = place.run()
    with pytest.raises(LocationDeletedError):
        run.read_catalog()
    with pytest.raises(LocationDeletedError):
        run.seal()


def test_finished_chunks_fix_the_time_index(place):
    place.export(chunks=CHUNKS[:2], seal=False)
    table = next(t for t in place.run().committed_schema().tables if t.time_index)
    before = read_state(place.store).revision
    with pytest.raises(SnapshotExistsError, match=f"the time index of {table.table_name} is {table.time_index} there"):
        place.export(time_columns={str(table.table_name): None})
    assert read_state(place.store).revision == before


def test_finished_chunks_fix_the_tables_of_a_plan_that_runs_once(place):
    place.export(chunks=CHUNKS[:2], seal=False)
    place.sql("CREATE TABLE newcomer AS SELECT 1 AS a")
    with pytest.raises(SnapshotExistsError, match="newcomer is not in the snapshot"):
        place.export()


def test_rows_without_a_time_are_noticed_where_no_chunk_0_is_due(place):
    fields = {"null_time": "fail", "untimed_tables": "skip"}
    place.export(chunks=[chunk for chunk in CHUNKS if chunk], seal=False, **fields)
    run = place.run(**fields)
    with pytest.raises((DatabaseError, ExportFailedError), match="NULL or infinite"):
        run.seal()
    assert not read_state(place.store).seals


def test_a_run_that_only_seals_notices_tables_that_changed_beside_another_run(place):
    fields = {"null_time": "fail", "untimed_tables": "skip"}
    timed = [chunk for chunk in CHUNKS if chunk]
    place.export(chunks=timed[:-1], seal=False, **fields)
    before = replace(place, source=place.source.replace("source.duckdb", "before.duckdb"))
    shutil.copy(place.source.removeprefix("duckdb://"), before.source.removeprefix("duckdb://"))
    place.sql("CREATE TABLE newcomer AS SELECT TIMESTAMP '2025-01-01' AS t")
    with place.run(**fields).open(extend=False) as sealing:
        before.export(chunks=timed[-1:], seal=False, **fields)
        with pytest.raises(ConflictError, match=r"tables changed while another run.*run again"):
            sealing.seal()
    assert not read_state(place.store).seals


class _Ready(InlineRunner):
    """Counts how often a run makes sure that executors can run its tasks."""

    count = 0

    def ready(self) -> None:
        self.count += 1


def test_executors_are_checked_before_a_snapshot_is_started_and_not_for_a_seal(place: Place) -> None:
    runner = _Ready()
    place.export(runner)
    assert runner.count == 1
    (place.folder / "manifest.json").unlink()
    with place.run(runner).open() as export:
        export.seal()
    assert runner.count == 1
    with place.run(runner, kind="once").open(extend=False) as export:
        export.seal()
    with changed(place.run(runner), force=True).open():
        assert runner.count == 2
