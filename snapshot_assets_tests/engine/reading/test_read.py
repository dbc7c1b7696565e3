"""`snapshot_assets.read`: Spark's own Parquet reader returns the rows and types of the Python source, or gives way."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import snapshot_assets
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.engine.reading import parallel
from snapshot_assets.engine.reading import read as read_module
from snapshot_assets.engine.reading.planning import FilePart
from snapshot_assets.errors import ChecksumMismatchError, ObjectNotFoundError, PlanError
from snapshot_assets.format.arrow_types import with_leaves
from snapshot_assets.format.names import parse_table
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import RANGE, is_native, read, rows, source
from snapshot_assets_tests.servers.s3 import S3Server

UNLIKE = r"\bTIME(TZ|_NS)?\b|TIMESTAMP(TZ)?_NS|GEOMETRY|UNION|HUGEINT|NULL"
"""DuckDB's types that Spark's own reader lacks, or that become text."""


def compared(spark: SparkSession, uri: str, table: str, *, native: bool, **options: Any) -> DataFrame:
    """Return a table that Spark's reader reads, or not, as wanted; its schema and rows are the Python source's."""
    found = snapshot_assets.read(spark, uri, table, **options)
    assert is_native(found) is native
    if "columns" in options:
        options["columns"] = ", ".join('"' + name.replace('"', '""') + '"' for name in options["columns"])
    assert found.schema == source(uri, table=table, **options).schema()
    expected = read(uri, table, **options)
    assert rows(found) == rows(expected)
    assert found.count() == expected.num_rows
    return found


def texts(table: pa.Table) -> list[str]:
    """Return all values as texts, in order: Python has not all dates, and no NaN equals another."""

    def number(kind: pa.DataType) -> pa.DataType:
        return kind if not pa.types.is_temporal(kind) else pa.int32() if kind.bit_width == 32 else pa.int64()

    return [repr(column.cast(with_leaves(column.type, number)).to_pylist()) for column in table.columns]


def test_a_table_is_read_by_sparks_own_reader(spark: SparkSession, exported_place: Place) -> None:
    uri = exported_place.store.uri
    for table in ("main.readings", "main.places", "main.events"):
        assert compared(spark, uri, table, native=True).count() > 0
    compared(spark, uri, "main.readings", columns=["value", "t"], native=True)


@pytest.mark.slow
def test_a_time_range_opens_only_its_files(spark: SparkSession, exported_place: Place) -> None:
    uri = exported_place.store.uri
    every = compared(spark, uri, "main.readings", native=True)
    found = compared(spark, uri, "main.readings", native=True, **RANGE)
    assert 0 < len(found.inputFiles()) < len(every.inputFiles())
    compared(spark, uri, "main.events", native=True, start="2025-01-03T11:00:00Z", end="2025-01-03T13:00:00Z")
    compared(spark, uri, "main.readings", native=True, columns=["sensor"], start=RANGE["start"])
    moment = datetime(2025, 1, 3, tzinfo=UTC)
    later = snapshot_assets.read(spark, uri, "main.readings", start=moment)
    assert rows(later) == rows(read(uri, "main.readings", start="2025-01-03T00:00:00Z"))
    compared(spark, uri, "main.readings", native=False, start="2031-01-04T00:00:00Z")  # no files at all


def test_every_type_is_read_as_the_source_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(f"duckdb://{tmp_path}/types.duckdb", tmp_path / "types")
    kinds = [kind for kind in CASES if not re.search("GEOMETRY|UNION|TIMESTAMP(TZ)?_NS", kind)]
    like = [number for number, kind in enumerate(kinds) if not re.search(UNLIKE, kind)]
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    place.sql(f"CREATE TABLE t (t TIMESTAMPTZ, {columns})")
    with duckdb.connect(place.source.removeprefix("duckdb://")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for row in range(max(len(CASES[kind][2]) for kind in kinds)):
            values = [(CASES[kind][2] + ["NULL"] * 9)[row] for kind in kinds]
            connection.execute(f"INSERT INTO t VALUES ('2025-01-02 00:00:00Z', {', '.join(values)})")
        connection.execute("CREATE TABLE readings (t TIMESTAMPTZ); CREATE TABLE events (moment TIMESTAMP)")
        connection.execute("CREATE TABLE places (id INT)")
    place.export(time_columns={"main.t": "t"})
    uri = place.store.uri
    assert len(like) > 20
    native = []
    for number in range(len(kinds)):
        found = snapshot_assets.read(spark, uri, "main.t", columns=[f"c{number}"])
        native += [number] * is_native(found)
    assert set(native) >= set(like), [kinds[number] for number in like if number not in native]
    chosen = [f"c{number}" for number in native]
    for columns in (chosen, ["t"] + [f"c{number}" for number in range(len(kinds))]):
        found = snapshot_assets.read(spark, uri, "main.t", columns=columns)
        assert is_native(found) is (columns == chosen)
        assert found.schema == source(uri, table="main.t", columns=",".join(columns)).schema()
        assert texts(found.toArrow()) == texts(read(uri, "main.t", columns=",".join(columns)))


DELETED = (
    "value >= 5 and sensor in ('s0', 's2')",
    "not (value < 5) or t is null",
    "t < '2025-01-03T01:00:00Z' and not sensor is null",
)


@pytest.mark.slow
@pytest.mark.parametrize("predicate", DELETED)
def test_deleted_rows_are_filtered(spark: SparkSession, exported: Place, predicate: str) -> None:
    uri = exported.store.uri
    before = snapshot_assets.read(spark, uri, "main.readings").count()
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.readings"), predicate)
    exported.export()
    assert compared(spark, uri, "main.readings", native=True).count() < before
    compared(spark, uri, "main.readings", columns=["value"], native=True)
    compared(spark, uri, "main.readings", native=True, **RANGE)


OF_KINDS = (
    "f > 5; f < 5; f = 'NaN'; f != 'NaN'; f = 0; not f = 'NaN'; f4 in (1, 2, 3); f4 >= 30; d = 1.25; d in (0, 2.5);"
    " day >= '2025-01-30'; ntz < '2025-01-01T03:00:00'; u = 7; u1 in (8, 9); even = true and n < 6; b = x'7830';"
    " id = 'c20ad4d7-6fe9-7759-aa27-a0c99bff6710'"
)


@pytest.mark.slow
def test_predicates_of_all_kinds_of_values_select_the_rows_that_python_selects(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(f"duckdb://{tmp_path}/kinds.duckdb", tmp_path / "kinds")
    place.sql(
        "CREATE TABLE kinds AS SELECT n, n / 2 AS half, CASE n % 4 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN -0.0 WHEN 2"
        " THEN NULL ELSE n END AS f, n::FLOAT AS f4, (n * 1.25)::DECIMAL(9, 2) AS d, DATE '2025-01-01' + n::INT AS day,"
        " TIMESTAMP '2025-01-01' + to_hours(n::INT) AS ntz, n::UBIGINT AS u, n::UTINYINT AS u1, n % 2 = 0 AS even,"
        " md5(n::VARCHAR)::UUID AS id, ('x' || n)::BLOB AS b FROM range(40) r(n)"
    )
    place.export(time_columns={"main.kinds": None})
    uri, predicates = place.store.uri, OF_KINDS.split("; ")
    for predicate in predicates:
        delete_rows(Catalog.open_for_writing(place.store), parse_table("main.kinds"), predicate)
        place.export(time_columns={"main.kinds": None})
        compared(spark, uri, "main.kinds", native="f4 in" not in "".join(predicates[: predicates.index(predicate) + 1]))


@pytest.mark.slow
def test_files_of_several_schemas_are_read_in_the_newest(spark: SparkSession, place: Place) -> None:
    place.sql("ALTER TABLE places ADD COLUMN wide INTEGER; ALTER TABLE readings ADD COLUMN n INTEGER DEFAULT 7")
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("ALTER TABLE readings ADD COLUMN note VARCHAR; UPDATE readings SET note = 'new'")
    place.sql("ALTER TABLE readings DROP COLUMN value; ALTER TABLE readings ALTER n TYPE BIGINT")
    place.export()
    uri = place.store.uri
    assert compared(spark, uri, "main.readings", native=True).columns == ["t", "sensor", "n", "note"]
    place.sql("ALTER TABLE readings ALTER n TYPE VARCHAR")
    place.sql("ALTER TABLE readings RENAME note TO NOTE")
    place.export(chunks=[2], replace=True)
    compared(spark, uri, "main.readings", columns=["n"], native=False)
    compared(spark, uri, "main.readings", columns=["sensor", "t"], native=True)
    compared(spark, uri, "main.readings", columns=["sensor", "NOTE"], native=False)  # others have note


def test_compacted_and_scattered_files_are_read(spark: SparkSession, scattered: Place) -> None:
    uri = scattered.store.uri
    before = compared(spark, uri, "main.readings", native=True)
    delete_rows(Catalog.open_for_writing(scattered.store), parse_table("main.readings"), "sensor = 's0'")
    compact(scattered.store)
    after = compared(spark, uri, "main.readings", native=True)
    assert len(after.inputFiles()) < len(before.inputFiles())
    assert before.count() == 82  # a DataFrame keeps its version


def test_odd_names_lose_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "ein Ort%20 ä#+=,"
    folder.mkdir()
    place = Place(f"duckdb://{tmp_path}/odd.duckdb", folder / "x=1")
    place.sql('CREATE TABLE "a.b ?*" (t TIMESTAMP, "x,y" INT, "q`""q." INT, "Größe {}" INT, " z;()\n\t=" INT)')
    place.sql("INSERT INTO \"a.b ?*\" VALUES ('2025-01-01', 1, 2, 3, 4), ('2025-01-02', 5, 6, 7, 8)")
    place.sql('CREATE TABLE _hidden AS SELECT 1 AS n; CREATE TABLE none (n INT); CREATE TABLE "UPPER" AS SELECT 1 AS n')
    place.export()
    uri = place.store.uri
    compared(spark, uri, 'main."a.b ?*"', native=True)
    compared(spark, uri, "main._hidden", native=True)
    compared(spark, uri, 'main."UPPER"', native=True)
    compared(spark, uri, "main.none", native=False)
    delete_rows(Catalog.open_for_writing(place.store), parse_table('main."a.b ?*"'), '"q`""q." = 2')
    place.export()
    compared(spark, uri, 'main."a.b ?*"', native=True, columns=["x,y"])


def test_names_that_spark_takes_for_hidden_files_and_patterns_are_left_to_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(f"duckdb://{tmp_path}/odd.duckdb", tmp_path / "{a,b}[c]")
    place.sql("CREATE SCHEMA _s; CREATE TABLE _s.t AS SELECT 1 AS n; CREATE TABLE t AS SELECT 1 AS n")
    place.export()
    compared(spark, place.store.uri, "main.t", native=False)
    place = Place(place.source, tmp_path / "plain")
    place.export()
    compared(spark, place.store.uri, "_s.t", native=False)
    compared(spark, place.store.uri, "main.t", native=True)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_files_are_left_to_python(spark: SparkSession, place: Place, form: str) -> None:
    place.export(format=form)
    compared(spark, place.store.uri, "main.readings", native=False, **RANGE)


def test_metadata_tables_come_from_the_log(spark: SparkSession, exported: Place) -> None:
    uri = exported.store.uri
    for file in (exported.folder / "data").rglob("*.parquet"):
        file.unlink()
    chunks = snapshot_assets.read(spark, uri, "$chunks", columns=["chunk", "rows"])
    assert rows(chunks) == rows(read(uri, "$chunks", columns="chunk, rows")) != []
    assert snapshot_assets.read(spark, uri, "$diff", since=f"rev:{exported.manifest()['revision']}").count() == 0


# Hashing


def test_damage_is_named_before_a_dataframe_is_returned(spark: SparkSession, exported: Place) -> None:
    uri = exported.store.uri
    found = snapshot_assets.read(spark, uri, "main.readings")
    [file] = exported.folder.glob("data/3/main.readings-*")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))
    path = file.relative_to(exported.folder).as_posix()
    with pytest.raises(ChecksumMismatchError, match=rf"{re.escape(path)} has SHA-256 \w+; expected"):
        snapshot_assets.read(spark, uri, "main.readings")
    assert is_native(snapshot_assets.read(spark, uri, "main.readings", verify=False))
    assert snapshot_assets.read(spark, uri, "main.readings", end="2025-01-03T00:00:00Z").count() == 32
    file.unlink()
    with pytest.raises(ObjectNotFoundError, match=re.escape(path)):
        snapshot_assets.read(spark, uri, "main.readings")
    assert found.columns == ["t", "sensor", "value"]


def test_a_session_hashes_a_file_once(spark: SparkSession, exported: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    check = parallel.check_hash
    monkeypatch.setattr(parallel, "check_hash", lambda store, file: (hashed.append(file.path), check(store, file))[1])
    uri = exported.store.uri
    snapshot_assets.read(spark, uri, "main.readings", **RANGE)
    first = list(hashed)
    assert len(first) == 2
    snapshot_assets.read(spark, uri, "main.readings", verify=False)
    assert hashed == first
    every = snapshot_assets.read(spark, uri, "main.readings")
    snapshot_assets.read(spark, uri, "main.readings")
    assert len(set(hashed)) == len(hashed) == len(every.inputFiles())


def test_a_job_hashes_where_files_are_not_on_this_machine(spark: SparkSession, exported: Place) -> None:
    parts = [FilePart(known.file) for known in read_state(exported.store).live_files()]
    read_module.hash_files(spark, exported.store, parts, local=False)
    [file] = exported.folder.glob("data/3/main.readings-*")
    file.write_bytes(b"else")
    read_module.hash_files(spark, exported.store, parts, local=False)  # hashed before
    fresh = exported.folder.rename(exported.folder.with_name("moved"))
    moved = Place(exported.source, fresh)
    with pytest.raises(ChecksumMismatchError, match=r"data/3/main\.readings"):
        read_module.hash_files(spark, moved.store, parts, local=False)
    (fresh / file.relative_to(exported.folder)).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"data/3/main\.readings"):
        read_module.hash_files(spark, moved.store, parts, local=False)


# Options and stores


def test_wrong_options_are_refused(spark: SparkSession, exported_place: Place) -> None:
    uri = exported_place.store.uri
    with pytest.raises(PlanError, match="has no column 'valu'"):
        snapshot_assets.read(spark, uri, "main.readings", columns=["valu"])
    for columns in ("value", []):
        with pytest.raises(PlanError, match="write a list of names"):
            snapshot_assets.read(spark, uri, "main.readings", columns=columns)
    with pytest.raises(PlanError, match="'versions' is not an option"):
        snapshot_assets.read(spark, uri, "main.readings", versions="1")
    with pytest.raises(PlanError, match="option start"):
        snapshot_assets.read(spark, uri, "main.readings", start=datetime(2025, 1, 1))


def test_a_store_that_hadoop_does_not_reach_is_read_by_python(
    spark: SparkSession, exported_place: Place, s3_server: S3Server, s3_location: str
) -> None:
    options = s3_server.options
    store = open_store(parse_location(s3_location), options)
    for file in exported_place.folder.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(exported_place.folder).as_posix(), file.read_bytes())
    found = snapshot_assets.read(spark, s3_location, "main.readings", storage={"s3": options})
    assert not is_native(found)
    assert rows(found) == rows(read(exported_place.store.uri, "main.readings"))
