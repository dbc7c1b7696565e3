"""A Spark catalog's tables exported as DataFrames, by the same run that exports databases."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.totals import outside_text
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.changes import find_changes
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.reading.read import load_frames
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import ChecksumMismatchError, ExportFailedError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store


@pytest.fixture(scope="module")
def shop(spark):
    spark.sql("CREATE DATABASE shop")
    spark.sql("CREATE TABLE shop.orders (id BIGINT, at TIMESTAMP, price DECIMAL(9,2)) USING parquet")
    spark.sql(
        "INSERT INTO shop.orders SELECT id, timestamp'2025-01-01T00:00:00Z' + make_interval(0, 0, 0, 0, id), id / 4 "
        "FROM range(72)"
    )
    spark.sql("INSERT INTO shop.orders VALUES (999, NULL, 1), (1000, timestamp'2030-01-01T00:00:00Z', 1)")
    spark.sql("CREATE TABLE shop.colours (name STRING) USING parquet")
    spark.sql("INSERT INTO shop.colours VALUES ('red'), (NULL)")
    yield
    spark.sql("DROP DATABASE shop CASCADE")


def export_run(spark, tmp_path, **fields):
    given = {
        "name": "shop",
        "source": "spark:spark_catalog.shop",
        "to": f"file://{tmp_path}/snapshots/shop",
        "start_time": "2025-01-01T00:00:00Z",
        "end_time": "2025-01-04T00:00:00Z",
    }
    given |= fields
    plan = Plan(**given)
    store = open_store(parse_location(plan.to))
    address = DatabaseAddress("shop", given["source"])
    return ExportRun(plan, address, store, SparkRunner(lambda: spark), "r1", session=lambda: spark)


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_a_catalogs_tables_are_exported_sealed_and_loaded_back(spark, tmp_path):
    run = export_run(spark, tmp_path)
    with run.open() as export:
        outcomes = {outcome.chunk: outcome.rows for outcome in export.export([0, 1, 2, 3])}
        assert outcomes == {0: 3, 1: 24, 2: 24, 3: 24}
        sealed = export.seal()
    state = read_state(run.store)
    assert [(item.table, item.rows) for item in sealed.seal.seal.rows_outside] == [("orders", 1)]
    where = "outside 2025-01-01T00:00:00Z … 2025-01-04T00:00:00Z"
    assert outside_text(state) == f"1 row {where} was not exported (shop.orders 1)"
    assert verify(run.store).faults == []
    frames = load_frames(spark, run.store, state, [0, 1, 2, 3])
    found = {str(name): frame for name, frame in frames.items()}
    orders = spark.table("shop.orders").where("at IS NULL OR at < timestamp'2025-01-04T00:00:00Z'")
    assert found["shop.orders"].exceptAll(orders).isEmpty()
    assert orders.exceptAll(found["shop.orders"]).isEmpty()
    assert sorted(str(row["name"]) for row in found["shop.colours"].collect()) == ["None", "red"]


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_a_session_in_utc_by_another_name_writes_and_reads_the_same_rows(spark, tmp_path):
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Etc/UTC")
    rows = {}
    for name, session in (("UTC", spark), ("Etc/UTC", other)):
        run = export_run(session, tmp_path / name, tables=["shop.orders"])
        with run.open() as export:
            list(export.export([0, 1, 2, 3]))
            export.seal()
        [frame] = load_frames(session, run.store, read_state(run.store), [0, 1, 2, 3]).values()
        [written, *_] = sorted((tmp_path / name).glob("**/data/1/*.parquet"))
        rows[name] = sorted(frame.collect(), key=str), pq.read_schema(written), pq.read_table(written).sort_by("id")
    assert rows["UTC"] == rows["Etc/UTC"]
    assert rows["UTC"][1].field("at").type == pa.timestamp("us", "UTC")


@pytest.mark.usefixtures("shop")
def test_rows_without_a_time_fail_chunk_0_where_the_plan_says_so(spark, tmp_path):
    run = export_run(spark, tmp_path, null_time="fail")
    with run.open() as export, pytest.raises(ExportFailedError, match="orders holds rows whose at is NULL"):
        list(export.export([0, 1]))
    state = read_state(run.store)
    assert (state.completed(0), state.completed(1)) == (False, True)


@pytest.mark.usefixtures("shop")
def test_a_damaged_file_yields_no_row_when_it_is_loaded(spark, tmp_path):
    run = export_run(spark, tmp_path, tables=["shop.colours"])
    with run.open() as export:
        list(export.export([0]))
    state = read_state(run.store)
    file = next(state.live_files()).file
    data = bytearray(run.store.get(file.path))
    data[10] ^= 1
    run.store.put(file.path, bytes(data))
    [name] = load_frames(spark, run.store, state, [0])
    schema = run.committed_schema().table(name).arrow_schema()
    with pytest.raises(ChecksumMismatchError, match=file.path):
        next(read_batches(run.store, file, schema, verify=True))


@pytest.fixture
def followed(spark, tmp_path):
    """A catalog with a partitioned table of three days, an untimed one and a view, and a run that exported them."""
    spark.sql(f"CREATE DATABASE followed LOCATION '{tmp_path}/warehouse'")
    spark.sql(
        "CREATE TABLE followed.visits USING parquet PARTITIONED BY (day) AS SELECT id,"
        " timestamp'2025-01-01T00:00:00Z' + make_interval(0, 0, 0, 0, id) AS at,"
        " DATE '2025-01-01' + CAST(id / 24 AS INT) AS day FROM range(72)"
    )
    spark.sql("CREATE TABLE followed.colours USING csv AS SELECT 'red' AS name")
    spark.sql("CREATE VIEW followed.seen AS SELECT id, at FROM followed.visits")
    age(tmp_path)
    tables = ["followed.visits", "followed.colours", "followed.seen"]
    run = export_run(
        spark, tmp_path, source="spark:spark_catalog.followed", tables=tables, time_columns={"followed.visits": "at"}
    )
    with run.open() as export:
        list(export.export([0, 1, 2, 3]))
        assert export.seal().seal.seal.consistency == "chunk"
    yield run
    spark.sql("DROP DATABASE followed CASCADE")


def age(folder):
    """Let all files be written long ago: files that are younger than two seconds prove nothing."""
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))


def changed_parts(run):
    with run.look() as opened:
        changes = find_changes(opened, [0, 1, 2, 3])
    return [(part.chunk, part.table.table, part.answer.reason) for part in changes.changed], changes


@pytest.mark.slow
def test_tables_with_the_same_version_are_not_exported_again(spark, followed, tmp_path):
    views = [(chunk, "seen", "Spark shows no version of the table") for chunk in (0, 1, 2, 3)]
    found, changes = changed_parts(followed)
    assert found == views
    spark.sql("INSERT INTO followed.visits VALUES (99, timestamp'2025-01-02T01:30:00Z', DATE '2025-01-02')")
    age(tmp_path / "warehouse")
    found, changes = changed_parts(followed)
    reason = "the table has another version"
    assert [each for each in found if each not in views] == [(chunk, "visits", reason) for chunk in (0, 1, 2, 3)]
    with followed.open() as export:
        changes = find_changes(export, [0, 1, 2, 3])
        only = list(export.commits(list(changes.only), replace_completed=True, only=changes.only))
    assert sum(outcome.rows for outcomes in only for outcome in outcomes) == 2 * 73 + 1
    assert verify(followed.store).faults == []
    assert changed_parts(followed)[0] == views
