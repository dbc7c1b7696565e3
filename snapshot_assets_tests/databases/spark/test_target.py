"""Spark tables as a target: every row comes back once, or the import says why it cannot go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.cli import main
from snapshot_assets.databases.source import DatabaseAddress, Selection
from snapshot_assets.databases.spark.ddl import define, type_for
from snapshot_assets.databases.spark.ledger import Claim, Ledger, LedgerEvent, claim_event, restore_event
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.databases.spark.target import SparkTarget
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.parquet.frames import FrameChunk
from snapshot_assets.engine.restore.check import RestoreSettings
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.plan import Filters
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner, SparkRunner
from snapshot_assets.errors import (
    DocumentError,
    OtherImportError,
    RestoreError,
    RestoreFailedError,
    TargetNotEmptyError,
)
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, delete
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW, PLAN, TIMES, make_source

READINGS = TableName("main", "readings")
NOTES = TableName("main", "notes")


class Lake:
    """A namespace of the session's catalog, and imports into it."""

    uri = "spark:spark_catalog.restored"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def target(self) -> SparkTarget:
        return SparkTarget(DatabaseAddress("lake", self.uri), self.spark)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.spark, "lake", ("spark_catalog", "restored", "snapshot_assets_ledger"))

    def run(self, place: Place, filters: Filters | None = None, **settings: bool) -> RestoreRun:
        return RestoreRun(
            place.store,
            DatabaseAddress("lake", self.uri),
            InlineRunner(),
            RestoreSettings(filters or Filters(), **settings),
            retry=RetryPolicy(base=0),
            session=lambda: self.spark,
        )

    def restore(
        self, place: Place, *chunks: int, tables: tuple[TableName, ...] = (), **settings: bool
    ) -> dict[int, ChunkOutcome]:
        run = self.run(place, Filters(tables=tables), **settings)
        outcomes = {each.chunk: each for each in run.restore(chunks)}
        run.finish()
        return outcomes

    def table(self, name: str) -> pa.Table:
        self.spark.sql(f"REFRESH TABLE restored.{name}")
        return self.spark.table(f"restored.{name}").toArrow()

    def differences(self, source: str, where: dict[str, str] = IN_RANGE) -> dict[str, list[tuple]]:
        """Return, by table, the rows that source and target do not have equally often."""
        different = {}
        with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for table in TIMES:
                connection.register("restored", self.table(table))
                wanted = f"SELECT * FROM main.{table} WHERE {where.get(table, 'true')}"
                rows = connection.sql(
                    f"(({wanted}) EXCEPT ALL (FROM restored)) UNION ALL ((FROM restored) EXCEPT ALL ({wanted}))"
                ).fetchall()
                if rows:
                    different[table] = rows
        return different


@pytest.fixture
def lake(spark: SparkSession) -> Iterator[Lake]:
    yield Lake(spark)
    spark.sql("DROP DATABASE IF EXISTS restored CASCADE")


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
    outcomes = lake.restore(exported)
    assert {chunk: outcome.status for chunk, outcome in outcomes.items()} == {
        chunk: "skipped" if chunk == EMPTY_WINDOW else "loaded" for chunk in CHUNKS
    }
    assert lake.differences(exported.source) == {}
    counts = lake.run(exported).check_counts()
    assert counts[READINGS] == (82, 82)
    assert all(expected == found for expected, found in counts.values())
    assert sum(outcome.rows for outcome in outcomes.values()) == sum(found for _, found in counts.values())
    assert {outcome.status for outcome in lake.restore(exported).values()} == {"skipped"}
    assert lake.differences(exported.source) == {}
    assert [record.finished for record in lake.target.imports()] == [True]


class Killed(BaseException):
    """What ends a run as a signal would: nothing catches it."""


def die(*_: object, **__: object) -> None:
    raise Killed


FIRST_DAY = {"readings": "t >= '2025-01-01' AND t < '2025-01-02'", "events": "moment < '2025-01-02'", "places": "false"}


def cut_off(
    lake: Lake, place: Place, monkeypatch: pytest.MonkeyPatch, method: str, *chunks: int, **settings: Any
) -> None:
    """Run an import that dies when it calls a method of the target."""
    with monkeypatch.context() as patch:
        patch.setattr(SparkTarget, method, die)
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
def test_a_whole_table_that_was_cut_off_in_the_middle_is_overwritten(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = Filters(tables=(TableName("main", "places"),))
    with monkeypatch.context() as patch:
        patch.setattr(SparkTarget, "write", die)
        with pytest.raises(Killed):
            list(lake.run(exported, only).restore())
    lake.spark.sql("INSERT INTO restored.places VALUES (1, 'Zürich')")
    run = lake.run(exported, only)
    assert [outcome.rows for outcome in run.restore() if outcome.status == "loaded"] == [4]
    assert run.finish()
    assert run.check_counts() == {TableName("main", "places"): (4, 4)}


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


def test_a_chunk_that_another_run_may_be_loading_is_refused(exported: Place, lake: Lake) -> None:
    run = lake.run(exported)
    record = run.begin().record
    other = Claim("f" * 32, record.location_id, READINGS, 1, (), owner=("elsewhere", 7, "other"))
    lake.ledger.append([claim_event(other)])
    with pytest.raises(RestoreFailedError, match="being loaded by process 7 on elsewhere"):
        list(run.restore([1]))
    assert list(lake.ledger.read().claims) == [other.id]
    assert lake.table("readings").num_rows == 0
    lake.ledger.append([LedgerEvent("undone", other.id)])
    assert [outcome.status for outcome in run.restore([1])] == ["loaded"]


def test_of_two_imports_that_begin_at_once_one_goes_on(
    exported: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lake.run(exported), lake.run(exported)
    late = second.prepare()
    winner = first.begin().record
    assert lake.target.begin(late.record, [], "") == winner
    seen = iter([[]])
    monkeypatch.setattr(lake.target.__class__, "_overlapping", lambda self, record: next(seen, self.imports()))
    assert lake.target.begin(late.record, [], "") == winner
    monkeypatch.undo()
    assert lake.target.imports() == [winner]


@pytest.fixture
def notes(own: Place, lake: Lake) -> Place:
    """A snapshot whose window 1 also holds a user's own DataFrame, without a time."""
    frame = lake.spark.sql("SELECT 'a' AS note UNION ALL SELECT 'b'")
    run = own.run(SparkRunner(lake.spark))
    started = run.open_frames([FrameChunk(1, {NOTES: frame})])
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


def test_a_run_that_stalled_loads_nothing_beside_a_newer_import(exported: Place, lake: Lake) -> None:
    stalled = lake.run(exported)
    record = stalled.begin().record
    lake.ledger.append([restore_event(replace(record, id="e" * 32, tables=(READINGS,)))])
    with pytest.raises(RestoreFailedError, match=rf"nothing more into main\.readings: import {'e' * 32} was begun"):
        list(stalled.restore([1]))
    assert lake.table("readings").num_rows == 0
    assert lake.ledger.read().claims == {}


@pytest.mark.slow
def test_changed_chunks_are_not_replaced_where_the_format_cannot_delete(own: Place, lake: Lake) -> None:
    lake.restore(own, 0, 1, 2)
    before = lake.table("readings").num_rows
    run = lake.run(own)
    with pytest.raises(RestoreFailedError, match=r"chunk 2: Rows of chunk 2 .* cannot be deleted"):
        list(run.restore([2], again=True))
    assert lake.table("readings").num_rows == before


def test_only_rows_of_a_time_range_come_back_and_other_filters_are_refused(exported: Place, lake: Lake) -> None:
    half_days = Filters(
        tables=(READINGS,), start=datetime(2025, 1, 1, 12, tzinfo=UTC), end=datetime(2025, 1, 2, 12, tzinfo=UTC)
    )
    run = lake.run(exported, half_days)
    assert {outcome.chunk for outcome in run.restore()} == {0, 1, 2}
    assert run.finish()
    assert run.check_counts() == {READINGS: (16, 16)}
    times = lake.table("readings")["t"].to_pylist()
    assert (min(times), max(times)) == (
        datetime(2025, 1, 1, 12, tzinfo=UTC),
        datetime(2025, 1, 2, 10, tzinfo=UTC),
    )
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
    assert {each.status for each in outcomes.values()} == {"skipped"}
    contents = lake.ledger.read()
    assert [record.finished for record in contents.imports.values()] == [True, True]
    live = [known.file for known in read_state(own.store).live_files() if known.file.table == "readings"]
    loaded = contents.loaded(read_state(own.store).location_id)
    assert {file.path: file.rows for file in loaded} == {file.path: file.rows for file in live}
    assert lake.table("readings").num_rows == sum(file.rows for file in live)


def test_checking_an_import_makes_nothing(exported: Place, lake: Lake) -> None:
    prepared = lake.run(exported).prepare(depth="full")
    assert [each.makes for each in prepared.to_make()] == [f"table main.{name}" for name in sorted(TIMES)]
    assert [row[0] for row in lake.spark.sql("SHOW DATABASES").collect()].count("restored") == 0


def test_the_ledger_is_no_table_of_the_catalog_s_users(exported: Place, lake: Lake) -> None:
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


TYPES = {
    pa.uint64(): "decimal(20,0)",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("ms"): "timestamp_ntz",
    pa.time64("us"): "string",
    pa.decimal128(12, 3): "decimal(12,3)",
    pa.list_(pa.struct([("a b", pa.int8())])): "array<struct<`a b`:tinyint>>",
    pa.map_(pa.string(), pa.float32()): "map<string,float>",
    pa.null(): "string",
}


@pytest.mark.parametrize(("arrow", "expected"), TYPES.items(), ids=str)
def test_every_arrow_type_has_a_type_that_a_definition_takes(arrow: pa.DataType, expected: str) -> None:
    assert type_for(arrow) == expected
    assert expected in definition_of(expected)


def definition_of(kind: str) -> str:
    table = Table(schema_name="s", name="t", columns=(Column(name="c", type=kind, arrow_type="int32"),))
    (statement,) = define(DatabaseSchema(database="spark", tables=(table,))).before
    return statement.sql


@pytest.mark.parametrize(
    "kind",
    [
        "char(3)",
        "varchar(5)",
        "string collate UTF8_LCASE",
        "interval day to second",
        "interval year",
        "time(6)",
        "timestamp_ntz",
        "struct<`x``) LOCATION`:array<map<string,decimal(10,2)>>>",
    ],
)
def test_types_that_spark_documents_are_taken(kind: str) -> None:
    assert f"`c` {kind})" in definition_of(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "int) LOCATION 's3://bucket/x' --",
        "int, d int",
        "int DEFAULT now()",
        "int COMMENT 'x'",
        "int) USING csv",
        "int /* */",
        "`x`",
        "collate UTF8_LCASE int",
        "struct<a:int>>",
        "struct<",
        ":int",
        "x",
        "",
    ],
)
def test_a_type_text_that_is_more_than_a_type_is_refused(kind: str) -> None:
    with pytest.raises(DocumentError, match="no type of Spark"):
        definition_of(kind)


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
    assert "1 tables hold 82 rows, as many as were loaded" in capsys.readouterr().out
    assert main(call) == 0
    assert "was restored before; nothing was done" in capsys.readouterr().out
    assert lake.target.imports()[0].finished
    assert main([*call, "--forget-ledger"]) == 0
    assert lake.target.imports() == []


def test_values_of_other_types_come_back_in_the_nearest_type_and_what_is_lost_is_told(
    lake: Lake, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("""
            CREATE TABLE kinds (id INTEGER PRIMARY KEY, whole UBIGINT DEFAULT 5, exact DECIMAL(30, 4), clock TIME,
                day DATE, bytes BLOB, items STRUCT("a b" TINYINT, c VARCHAR)[], facts MAP(VARCHAR, DOUBLE),
                huge HUGEINT, local TIMESTAMP, span INTERVAL, truth BOOLEAN);
            CREATE VIEW few AS SELECT id FROM kinds;
            INSERT INTO kinds VALUES (1, 18446744073709551615, -12345678901234567890123456.7891, '23:59:59.999999',
                '1582-10-10', '\\x00\\xff'::BLOB, [{'a b': -128, 'c': 'ü'}, NULL], MAP {'x': 0.1, 'y': NULL},
                -170141183460469231731687303715884105727, '0001-01-01 00:00:00', INTERVAL 1 MONTH, true);
            INSERT INTO kinds (id, whole) VALUES (2, NULL);
        """)
    place = Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location")
    place.export(time_columns={"main.kinds": None}, chunks=CHUNKS)
    run = lake.run(place)
    assert [outcome.rows for outcome in run.restore() if outcome.status == "loaded"] == [2]
    assert run.check_counts() == {TableName("main", "kinds"): (2, 2)}
    first, second = sorted(lake.spark.table("restored.kinds").collect(), key=lambda row: row["id"])
    assert first.asDict(recursive=True) == {
        "id": 1,
        "whole": Decimal(18446744073709551615),
        "exact": Decimal("-12345678901234567890123456.7891"),
        "clock": "23:59:59.999999",
        "day": date(1582, 10, 10),
        "bytes": b"\x00\xff",
        "items": [{"a b": -128, "c": "ü"}, None],
        "facts": {"x": 0.1, "y": None},
        "huge": "-170141183460469231731687303715884105727",
        "local": datetime(1, 1, 1),
        "span": "1 month",
        "truth": True,
    }
    assert set(second.asDict().values()) == {2, None}
    lost = "\n".join(run.begin().lost)
    for sentence in ("View main.few", "Primary key", "Default 5", "main.kinds.clock of type TIME becomes string"):
        assert sentence in lost


@pytest.mark.slow
def test_tables_of_spark_come_back_as_the_types_they_were(lake: Lake, tmp_path: Path) -> None:
    spark = lake.spark
    spark.sql("CREATE DATABASE kept")
    try:
        spark.sql("""CREATE TABLE kept.kinds (id BIGINT COMMENT 'its id', code CHAR(3), note VARCHAR(5), clock TIME(6),
            span INTERVAL DAY TO SECOND, months INTERVAL YEAR TO MONTH, exact DECIMAL(38, 10), local TIMESTAMP_NTZ,
            nested STRUCT<`x y`: ARRAY<MAP<STRING, INTERVAL YEAR>>>, at TIMESTAMP) USING parquet
            COMMENT 'it\\'s all'""")
        spark.sql("""INSERT INTO kept.kinds VALUES (1, 'a', 'b', TIME '01:02:03.000004', INTERVAL '-1 2:3:4.5' DAY TO
            SECOND, INTERVAL '2-3' YEAR TO MONTH, 0.1, TIMESTAMP_NTZ '0001-01-01', named_struct('x y',
            array(map('k', INTERVAL '3' YEAR))), TIMESTAMP '2025-01-01 01:00:00 UTC'), (2, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL)""")
        location = f"file://{tmp_path}/location"
        plan = Plan(
            **(PLAN | {"source": "spark:spark_catalog.kept", "to": location, "time_columns": {"kept.kinds": "at"}})
        )
        run = ExportRun(
            plan,
            DatabaseAddress("kept", "spark:spark_catalog.kept"),
            open_store(parse_location(location)),
            SparkRunner(spark),
            "run",
            session=lambda: spark,
        )
        with run.open() as export:
            list(export.export(CHUNKS))
            export.seal()
        back = lake.run(Place("", tmp_path / "location"))
        list(back.restore())
        assert back.finish()
        before, after = spark.table("kept.kinds"), spark.table("restored.kinds")
        assert before.schema == after.schema
        texts = [
            [row[0] for row in frame.orderBy("id").selectExpr("CAST(struct(*) AS STRING)").collect()]
            for frame in (before, after)
        ]
        assert texts[0] == texts[1]
        assert texts[1][0].startswith("{1, a  , b, 01:02:03.000004, ")
    finally:
        spark.sql("DROP DATABASE kept CASCADE")
