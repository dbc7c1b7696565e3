"""Spark tables as a target: an import restores every row once, or reports why it cannot go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.cli import main
from snapshot_assets.databases.renaming import Renaming
from snapshot_assets.databases.source import DatabaseAddress, Selection
from snapshot_assets.databases.spark.ledger import Claim, LedgerEvent
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.databases.spark.target import SparkTarget
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import (
    OtherImportError,
    PlanError,
    RefusedImportError,
    RestoreError,
    RestoreFailedError,
    SchemaIncompleteError,
    TargetNotEmptyError,
)
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.restores import utc
from snapshot_assets_tests.databases.spark.conftest import Lake
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, execute, unequal_rows
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, delete
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW, TIMES, make_source

READINGS = TableName("main", "readings")
NOTES = TableName("main", "notes")
PLACES = TableName("main", "places")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("lake")
    place = Place(make_source(folder / "source.duckdb"), folder / "location")
    place.export()
    return place


@pytest.fixture
def own(tmp_path: Path) -> Place:
    """A location that a test changes."""
    place = Place(make_source(tmp_path / "source.duckdb"), tmp_path / "location")
    place.export()
    return place


def test_every_row_comes_back_and_a_second_run_has_nothing_to_do(exported: Place, lake: Lake) -> None:
    outcomes = lake.restore(exported, tables=(READINGS, PLACES))
    assert {chunk: outcome.status for chunk, outcome in outcomes.items()} == {
        chunk: "empty" if chunk == EMPTY_WINDOW else "loaded" for chunk in CHUNKS
    }
    assert lake.differences(exported.source, tables=("readings", "places")) == {}
    only = Filters(tables=(READINGS, PLACES))
    assert lake.run(exported, only).check_counts() == {READINGS: (82, 82), PLACES: (4, 4)}
    assert sum(outcome.rows for outcome in outcomes.values()) == 86
    assert {outcome.status for outcome in lake.restore(exported, tables=only.tables).values()} == {"present", "empty"}
    assert lake.table("readings").num_rows == 82
    assert [record.finished for record in lake.target.imports()] == [True]


@pytest.mark.slow
def test_renamed_tables_get_every_row_once_and_another_name_is_another_import(exported: Place, lake: Lake) -> None:
    names = {"main.readings": "readings_2", "main.places": "places_2"}
    pairs = [(parse_table(old), TableName("elsewhere", new)) for old, new in names.items()]
    renamed = Filters(tables=(READINGS, PLACES), renaming=Renaming.of((), pairs))
    for filters in (renamed, Filters(tables=(READINGS, PLACES)), renamed):
        run = lake.run(exported, filters)
        run.begin()
        outcomes = list(run.restore())
        assert run.finish()
        assert all(expected == found for expected, found in run.check_counts().values())
    assert sum(outcome.rows for outcome in outcomes) == 0
    assert unequal_rows(exported.source, {"readings": lake.table("readings_2")}, IN_RANGE) == {}
    assert lake.differences(exported.source, tables=("readings", "places")) == {}
    assert (lake.table("places_2").num_rows, len(lake.target.imports())) == (4, 2)
    clash = Filters(renaming=Renaming.of((), [(READINGS, TableName("main", "Places"))]))
    with pytest.raises(PlanError, match=r"would both be main\.places"):
        lake.run(exported, clash).begin()


class Killed(BaseException):
    """What ends a run as a signal would: nothing catches it."""


def die(*_: object, **__: object) -> None:
    raise Killed


FIRST_DAY = {"readings": "t >= '2025-01-01' AND t < '2025-01-02'", "events": "moment < '2025-01-02'", "places": "false"}


def cut_off(
    lake: Lake, place: Place, monkeypatch: pytest.MonkeyPatch, method: str, *chunks: int, **settings: Any
) -> None:
    """Run an import that dies when it calls a method of the target, and writes nothing to its ledger afterwards."""
    with monkeypatch.context() as patch:
        for name in (method, "note", "withdraw"):
            patch.setattr(SparkTarget, name, die)
        with pytest.raises(Killed):
            lake.restore(place, *chunks, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["write", "note"])
def test_a_load_that_was_cut_off_before_or_after_its_rows_goes_on_and_doubles_none(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    cut_off(lake, exported, monkeypatch, method, 1)
    assert lake.table("readings").num_rows == (16 if method == "note" else 0)
    assert [claim.done for claim in lake.ledger.read().claims.values()] == [False, False]
    assert lake.restore(exported, 1)[1].status == "loaded"
    assert lake.differences(exported.source, FIRST_DAY) == {}
    assert {each.chunk for each in lake.target.loaded(lake.target.imports()[0].location_id)} == {1}


@pytest.mark.slow
def test_a_load_that_was_cut_off_in_the_middle_is_refused_where_the_format_cannot_delete(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(lake, exported, monkeypatch, "write", 1)
    lake.spark.sql("INSERT INTO restored.readings VALUES (TIMESTAMP '2025-01-01 00:00:00 UTC', 's0', 0)")
    with pytest.raises(RestoreFailedError, match=r"chunk 1: .*does not take DELETE.*--forget-ledger"):
        lake.restore(exported, 1)
    assert lake.table("readings").num_rows == 1
    for table in TIMES:
        lake.spark.sql(f"DROP TABLE restored.{table}")
    lake.target.forget()
    lake.restore(exported, 1)
    assert lake.differences(exported.source, FIRST_DAY) == {}


@pytest.mark.slow
def test_an_interrupted_load_notes_what_it_wrote_and_claims_no_more(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = SparkTarget.write, []

    def interrupted(target: SparkTarget, claim: Claim, rows: DataFrame) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(claim)
        write(target, claim, rows)

    with monkeypatch.context() as patch:
        patch.setattr(SparkTarget, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lake.restore(exported, 1, 2)
    claims = lake.ledger.read().claims.values()
    assert {claim.id for claim in claims if claim.done} == {written[0].id}
    assert len([claim for claim in claims if not claim.done]) == 1  # the one that was being written
    lake.restore(exported, 1, 2)
    two_days = {"readings": "t >= '2025-01-01' AND t < '2025-01-03'", "events": "moment < '2025-01-03'"}
    assert lake.differences(exported.source, {**FIRST_DAY, **two_days}) == {}


@pytest.mark.slow
def test_a_whole_table_that_was_cut_off_in_the_middle_is_overwritten(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(lake, exported, monkeypatch, "write", tables=(PLACES,))
    lake.spark.sql("INSERT INTO restored.places VALUES (1, 'Zürich')")
    outcomes = lake.restore(exported, tables=(PLACES,))
    assert [outcome.rows for outcome in outcomes.values() if outcome.status == "loaded"] == [4]
    assert lake.run(exported, Filters(tables=(PLACES,))).check_counts() == {PLACES: (4, 4)}


@pytest.mark.slow
def test_rows_of_others_in_a_table_make_a_cut_off_load_undecidable(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.spark.sql("CREATE DATABASE restored")
    lake.spark.sql("CREATE TABLE restored.readings (value DOUBLE, t TIMESTAMP, sensor STRING)")
    lake.spark.sql("INSERT INTO restored.readings VALUES (0, TIMESTAMP '2025-01-01 00:00:00 UTC', 'own')")
    with pytest.raises(TargetNotEmptyError, match=r"main\.readings"):
        lake.restore(exported, 1)
    cut_off(lake, exported, monkeypatch, "note", 1, into_nonempty=True)
    assert lake.table("readings").num_rows == 17  # by name, though the columns stand in another order
    with pytest.raises(RestoreFailedError, match=r"a count cannot show how many rows were loaded"):
        lake.restore(exported, 1, into_nonempty=True)
    assert lake.table("readings").num_rows == 17


@pytest.mark.slow
def test_a_chunk_that_another_run_may_be_loading_is_refused(exported: Place, lake: Lake) -> None:
    run = lake.run(exported)
    record = run.begin().record
    other = Claim("f" * 32, record.location_id, READINGS, 1, (), owner=("elsewhere", 7, "other"))
    lake.ledger.append([LedgerEvent.of("claimed", other)])
    run.begin([1])
    with pytest.raises(RestoreFailedError, match="being loaded by process 7 on elsewhere"):
        list(run.restore())
    assert list(lake.ledger.read().claims) == [other.id]
    assert lake.table("readings").num_rows == 0
    lake.ledger.append([LedgerEvent("undone", other.id)])
    assert [outcome.status for outcome in run.restore()] == ["loaded"]


def test_of_two_imports_that_begin_at_once_one_goes_on(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lake.run(exported), lake.run(exported)
    late = second.prepare()
    winner = first.begin().record
    assert lake.target.begin(late.record, "") == winner
    seen = iter([[]])
    monkeypatch.setattr(lake.target.__class__, "_overlapping", lambda self, record: next(seen, self.imports()))
    assert lake.target.begin(late.record, "") == winner
    monkeypatch.undo()
    assert lake.target.imports() == [winner]


@pytest.fixture
def notes(own: Place, lake: Lake) -> Place:
    """A snapshot whose window 1 also holds a user's own DataFrame, without a time."""
    frame = lake.spark.sql("SELECT 'a' AS note UNION ALL SELECT 'b'")
    run = own.run(SparkRunner(lambda: lake.spark))
    started = run.open_frames({1: {NOTES: frame}})
    list(started.export([1], replace_completed=True))
    run.seal()
    return own


@pytest.mark.slow
def test_a_window_s_rows_of_a_table_without_a_time_are_loaded_and_a_load_cut_off_is_refused(
    notes: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(lake, notes, monkeypatch, "note", 1, tables=(NOTES,))
    assert sorted(lake.table("notes")["note"].to_pylist()) == ["a", "b"]
    with pytest.raises(RestoreFailedError, match=r"main\.notes was cut off, and the table has no time index.*--forget"):
        lake.restore(notes, tables=(NOTES,))
    lake.spark.sql("DROP TABLE restored.notes")
    lake.target.forget()
    outcomes = lake.restore(notes, tables=(NOTES,))
    assert (outcomes[1].status, outcomes[1].rows) == ("loaded", 2)
    assert sorted(lake.table("notes")["note"].to_pylist()) == ["a", "b"]
    assert lake.target.imports()[0].finished


@pytest.mark.slow
def test_a_run_that_stalled_loads_nothing_beside_a_newer_import(exported: Place, lake: Lake) -> None:
    stalled = lake.run(exported)
    record = stalled.begin().record
    lake.ledger.append([LedgerEvent.of("begun", replace(record, id="e" * 32, tables=(READINGS,)))])
    with pytest.raises(RestoreFailedError, match=rf"nothing more into main\.readings: import {'e' * 32} was started"):
        list(stalled.restore())
    assert lake.table("readings").num_rows == 0
    assert lake.ledger.read().claims == {}


@pytest.mark.slow
def test_changed_chunks_are_not_replaced_where_the_format_cannot_delete(own: Place, lake: Lake) -> None:
    lake.restore(own, 0, 1, 2)
    before = lake.table("readings").num_rows
    run = lake.run(own)
    run.begin([2], [2])
    with pytest.raises(RestoreFailedError, match=r"chunk 2: Rows of chunk 2 .* cannot be deleted"):
        list(run.restore())
    assert lake.table("readings").num_rows == before


@pytest.mark.slow
def test_only_rows_of_a_time_range_come_back_and_other_filters_are_refused(exported: Place, lake: Lake) -> None:
    half_days = Filters(tables=(READINGS,), start=utc(2025, 1, 1, 12), end=utc(2025, 1, 2, 12))
    run = lake.run(exported, half_days)
    assert {outcome.chunk for outcome in run.restore()} == {0, 1, 2}
    assert run.finish()
    assert run.check_counts() == {READINGS: (16, 16)}
    times = lake.table("readings")["t"].to_pylist()
    assert (min(times), max(times)) == (utc(2025, 1, 1, 12), utc(2025, 1, 2, 10))
    with pytest.raises(OtherImportError, match=r"with tables main\.readings, times from"):
        lake.run(exported).prepare()


@pytest.mark.slow
def test_compacted_chunks_are_not_loaded_again_and_the_ledger_knows_their_new_files(own: Place, lake: Lake) -> None:
    """Also where rows are left out that the target does not have, all those of chunk 1 among them."""
    scatter(own.store, table="readings", chunks=(1, 2))
    delete(own, FIRST_DAYS)
    lake.restore(own, tables=(READINGS,))
    compact(own.store)
    outcomes = lake.restore(own, tables=(READINGS,))
    assert {each.status for each in outcomes.values()} <= {"present", "empty", "left_out"}
    contents = lake.ledger.read()
    assert [record.finished for record in contents.imports.values()] == [True, True]
    live = [known.file for known in read_state(own.store).live_files() if known.file.table == "readings"]
    loaded = contents.loaded(read_state(own.store).location_id)
    assert {file.path: file.rows for file in loaded} == {file.path: file.rows for file in live}
    assert lake.table("readings").num_rows == sum(file.rows for file in live)


def test_checking_makes_nothing_and_the_ledger_is_no_table_of_the_catalog_s_users(exported: Place, lake: Lake) -> None:
    prepared = lake.run(exported).prepare(depth="full")
    assert [each.name for each in prepared.to_create()] == [f"table main.{name}" for name in sorted(TIMES)]
    assert [row[0] for row in lake.spark.sql("SHOW DATABASES").collect()].count("restored") == 0
    lake.run(exported).begin()
    database = SparkCatalogDatabase(DatabaseAddress("lake", lake.uri), lake.spark)
    assert [table.name for table in database.extract(Selection()).tables] == sorted(TIMES)


@pytest.mark.slow
def test_a_damaged_file_leaves_no_row_of_its_chunk(own: Place, lake: Lake) -> None:
    file = next(path for path in own.folder.rglob("*.parquet") if "events" in str(path))
    run = lake.run(own)
    run.begin()
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(RestoreFailedError, match="SHA-256"):
        list(run.restore())
    chunks = {claim.chunk for claim in lake.ledger.read().claims.values()}
    assert len(chunks) == len(CHUNKS) - 2  # neither the damaged one nor the empty window


def test_tables_of_two_schemas_that_would_be_one_are_refused(lake: Lake) -> None:
    with pytest.raises(RestoreError, match=r"a\.t and b\.t would be one table in spark_catalog\.restored"):
        lake.target.existing([TableName("a", "t"), TableName("b", "t")])


@pytest.mark.slow
def test_the_command_restores_into_a_spark_catalog_through_dagster_and_says_when_there_is_nothing_to_do(
    exported: Place,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.chdir(tmp_path)
    call = ["import", "--from", exported.store.uri, "--target", lake.uri, "--tables", "main.readings"]
    assert main(call) == 0
    assert "1 table holds 82 rows, as many as were loaded" in capsys.readouterr().out
    assert main(call) == 0
    assert "was restored before; nothing was done" in capsys.readouterr().out
    assert lake.target.imports()[0].finished
    assert main([*call, "--forget-ledger"]) == 0
    assert lake.target.imports() == []


@pytest.mark.slow
def test_a_table_that_cannot_be_created_keeps_no_other_from_being_restored(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.spark.sql("CREATE DATABASE restored")
    lake.spark.sql("CREATE TABLE restored.events (of_another_user INT)")
    monkeypatch.setattr(SparkTarget, "existing", lambda self, tables: {})  # the user creates it after the plan
    run = lake.run(exported)
    run.begin()
    monkeypatch.undo()
    assert {outcome.status for outcome in run.restore()} == {"loaded", "empty"}
    with pytest.raises(SchemaIncompleteError, match=r"All rows are loaded but those of main\.events") as error:
        run.finish()
    [failed] = error.value.attributes["steps"]
    assert failed["object"] == "table main.events"
    assert "already exists" in failed["message"]
    assert failed["statements"][0].startswith("CREATE TABLE `spark_catalog`.`restored`.`events` (")
    assert lake.table("events").column_names == ["of_another_user"]
    there = [name for name in TIMES if name != "events"]
    assert lake.differences(exported.source, tables=there) == {}

    lake.spark.sql("DROP TABLE restored.events")
    again = lake.run(exported)
    again.begin()
    assert sum(outcome.rows for outcome in again.restore()) == lake.table("events").num_rows > 0
    assert again.finish()
    assert lake.differences(exported.source) == {}


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path, lake: Lake, postgresql_database: str) -> None:
    place = Place(postgresql_database, tmp_path / "location")
    execute(place.source, 'CREATE TABLE "T1" (id int)', "CREATE TABLE t1 (id int)", 'CREATE TABLE c ("A" int, a int)')
    place.export()
    with pytest.raises(RefusedImportError) as raised:
        lake.run(place, Filters(tables=tuple(TableName("public", name) for name in ("t1", "c")))).prepare()
    assert "Columns A and a of public.c would be one in Spark" in str(raised.value)
    with pytest.raises(RefusedImportError, match=r"Tables public\.T1 and public\.t1 would be one in Spark") as raised:
        lake.run(place).prepare()
    assert "Columns A and a" in str(raised.value)


def test_values_that_are_too_long_for_an_existing_table_are_refused(exported: Place, lake: Lake) -> None:
    lake.spark.sql("CREATE DATABASE restored")
    lake.spark.sql("CREATE TABLE restored.places (id INT, name VARCHAR(5))")
    with pytest.raises(RestoreError, match=r"main\.places\.name is varchar\(5\) .* longer: 2; .* has 6"):
        lake.run(exported, Filters(tables=(PLACES,))).prepare()
    lake.spark.sql("DROP TABLE restored.places")
    lake.spark.sql("CREATE TABLE restored.places (id INT, name VARCHAR(6))")
    lake.restore(exported, tables=(PLACES,))
    assert lake.table("places").num_rows == 4
