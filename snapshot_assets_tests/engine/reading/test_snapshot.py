"""`snapshot_assets.open`: one version of a snapshot as Arrow, pandas, Polars and DuckDB, without Spark."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import snapshot_assets
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.engine.files.parquet import writer
from snapshot_assets.engine.reading import parallel, planning
from snapshot_assets.engine.reading import snapshot as snapshot_module
from snapshot_assets.engine.reading.parallel import read_parts
from snapshot_assets.engine.reading.snapshot import Snapshot, open_version
from snapshot_assets.errors import (
    ChecksumMismatchError,
    IncompleteError,
    NoSnapshotError,
    ObjectNotFoundError,
    PlanError,
    UnknownRelationError,
    VersionNotFoundError,
)
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import read, rows
from snapshot_assets_tests.engine.reading.test_reading import CountingStore, hourly
from snapshot_assets_tests.faults.source import add_rows
from snapshot_assets_tests.waiting import until

__all__ = ["hourly"]

READINGS = "main.readings"
MIDDLE = datetime(2025, 1, 3, tzinfo=UTC)


@pytest.fixture
def snapshot(exported_place: Place) -> Snapshot:
    return snapshot_assets.open(exported_place.store.uri)


def counting(snapshot: Snapshot) -> tuple[Snapshot, CountingStore]:
    """Return the snapshot by a store that notes which files are opened."""
    store: Any = CountingStore(snapshot.store)
    return replace(snapshot, store=store), store


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))


# Versions


def test_the_schemas_of_a_version_are_read_once(exported: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[object]()
    call = snapshot_module.read_schemas
    monkeypatch.setattr(snapshot_module, "read_schemas", lambda *all_: (read.append(all_), call(*all_))[1])
    monkeypatch.setattr(planning, "read_schemas", snapshot_module.read_schemas)
    snapshot = snapshot_assets.open(exported.store.uri)
    for _ in range(3):
        assert snapshot.table(READINGS).to_arrow(start=datetime(2025, 1, 2, tzinfo=UTC)).num_rows > 0
    assert len(read) == 1


def test_every_name_of_a_version_opens_the_rows_that_it_had(place: Place) -> None:
    place.export()
    first = Catalog.open(place.store).state.revision
    create_tag(Catalog.open_for_writing(place.store), "before", first)
    create_savepoint(Catalog.open_for_writing(place.store), Catalog.open(place.store).state.data_revision)
    add_rows(place.source)
    place.export(chunks=[2], replace=True)
    uri, newest = place.store.uri, Catalog.open(place.store).state.revision
    sealed = Catalog.open(place.store).state.seals[0].committed_at
    names = ("tag:before", "savepoint:1", f"rev:{first}", f"ts:{time_text(sealed)}")
    before = [snapshot_assets.open(uri, name) for name in names]
    assert {opened.revision for opened in before} == {first}
    assert {opened.table(READINGS).to_arrow().num_rows for opened in before} == {82}
    after = snapshot_assets.open(uri)
    assert (after.revision, after.table(READINGS).to_arrow().num_rows) == (newest, 84)
    for opened, name in [(after, None), *zip(before, names, strict=True)]:
        options = {} if name is None else {"version": name}
        assert rows(opened.table(READINGS).to_arrow()) == rows(read(uri, READINGS, **options))


def test_an_open_snapshot_keeps_its_version(place: Place) -> None:
    place.export()
    opened = snapshot_assets.open(place.store.uri)
    delete_rows(Catalog.open_for_writing(place.store), parse_table(READINGS), "sensor = 's0'")
    add_rows(place.source)
    place.export(chunks=[2], replace=True)
    assert (opened.table(READINGS).count(), opened.table(READINGS).to_arrow().num_rows) == (82, 82)


def test_an_unsealed_export_is_refused(place: Place) -> None:
    with pytest.raises(NoSnapshotError, match=re.escape(place.store.uri)):
        snapshot_assets.open(place.store.uri)
    place.export(chunks=[1], seal=False)
    with pytest.raises(IncompleteError, match="was not sealed yet"):
        snapshot_assets.open(place.store.uri)
    with pytest.raises(VersionNotFoundError, match="is not sealed"):
        snapshot_assets.open(place.store.uri, f"rev:{Catalog.open(place.store).state.revision}")


def test_what_is_not_there_is_named_with_what_is(snapshot: Snapshot) -> None:
    assert snapshot.tables == ("main.events", "main.places", "main.readings")
    with pytest.raises(VersionNotFoundError, match="friday"):
        snapshot_assets.open(snapshot.store.uri, "tag:friday")
    with pytest.raises(UnknownRelationError, match=r"'reading' does not exist in schema 'main'.*'readings'"):
        snapshot.table("main.reading")
    with pytest.raises(PlanError, match=r"has no column 'valu'.*value"):
        snapshot.table(READINGS).scan(["valu"])
    with pytest.raises(PlanError, match=r"no metadata table '\$file'.*\$files"):
        snapshot.metadata("$file")
    with pytest.raises(PlanError, match=r"at which \$diff starts"):
        snapshot.metadata("$diff")
    for columns in ("value", []):
        with pytest.raises(PlanError, match="write a list of names"):
            snapshot.table(READINGS).scan(columns)
    with pytest.raises(PlanError, match=r"filter is 'value > 3'; write an expression"):
        snapshot.table(READINGS).scan(filter="value > 3")
    assert snapshot.metadata("$files").num_rows == len(list(snapshot.state.live_files()))


# Rows


def test_a_scan_returns_the_rows_and_columns_that_it_is_asked_for(snapshot: Snapshot) -> None:
    table, uri = snapshot.table(READINGS), snapshot.store.uri
    assert table.to_arrow().equals(read(uri, READINGS))
    assert table.schema == table.scan().schema == table.to_arrow().schema
    assert table.to_arrow(["value", "t"]).equals(read(uri, READINGS, columns="value, t"))
    end = MIDDLE + timedelta(hours=5)
    found = table.to_arrow(["sensor"], MIDDLE, end)
    expected = read(uri, READINGS, columns="sensor", start=time_text(MIDDLE), end=time_text(end))
    assert 0 < found.num_rows < 10
    assert found.equals(expected)
    whole = table.to_arrow(["value"]).num_rows
    assert table.to_arrow(["value"], end=MIDDLE).num_rows + table.to_arrow(["value"], MIDDLE).num_rows == whole - 2


def test_a_filter_may_use_columns_that_are_not_returned(snapshot: Snapshot) -> None:
    table = snapshot.table(READINGS)
    found = table.to_arrow(["value"], MIDDLE, filter=pc.field("sensor") == "s1")
    assert found.schema.names == ["value"]
    every = table.to_arrow(start=MIDDLE)
    assert found.num_rows == every.filter(pc.field("sensor") == "s1").num_rows > 0


@pytest.mark.parametrize("share", [1, 300, 4 << 20])
def test_rows_keep_the_order_of_the_files_in_any_shares(
    hourly: Callable[..., str], monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(parallel, "_SHARE_BYTES", share)
    table = snapshot_assets.open(hourly()).table("main.hourly")
    assert table.to_arrow(["n"])["n"].to_pylist() == [-1, *range(72)]
    start = datetime(2025, 1, 1, 5, tzinfo=UTC)
    assert table.to_arrow(["n"], start, start + timedelta(hours=40))["n"].to_pylist() == [*range(5, 45)]
    batches = [batch.num_rows for batch in table.scan()]
    assert len(batches) > 4
    assert sum(batches) == 73


def test_only_files_and_row_groups_of_a_range_are_read(hourly: Callable[..., str]) -> None:
    snapshot, store = counting(snapshot_assets.open(hourly()))
    start = datetime(2025, 1, 2, 5, tzinfo=UTC)
    found = snapshot.table("main.hourly").to_arrow(["n"], start, start + timedelta(hours=1), verify=False)
    assert found["n"].to_pylist() == [29]
    assert len(store.opened) == 1


def test_counts_come_from_the_log_until_rows_are_deleted(exported: Place) -> None:
    def opened() -> tuple[Snapshot, CountingStore]:
        return counting(snapshot_assets.open(exported.store.uri))

    snapshot, store = opened()
    assert [snapshot.table(name).count() for name in snapshot.tables] == [4, 4, 82]
    assert store.opened == []
    delete_rows(Catalog.open_for_writing(exported.store), parse_table(READINGS), "sensor = 's0'")
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.places"), "not (id = 77)")
    exported.export()
    snapshot, store = opened()
    assert snapshot.table(READINGS).count() == snapshot.table(READINGS).to_arrow().num_rows == 62
    assert store.opened != []
    assert snapshot.table("main.places").count() == snapshot.table("main.places").to_arrow().num_rows == 0


def test_times_without_a_zone_and_empty_ranges_are_refused(snapshot: Snapshot) -> None:
    table, naive = snapshot.table(READINGS), datetime(2025, 1, 1)
    for start, end in ((naive, None), (None, naive), (naive, MIDDLE), (MIDDLE, naive), (naive, naive)):
        with pytest.raises(PlanError, match="has no time zone"):
            table.scan(start=start, end=end)
    with pytest.raises(PlanError, match="is empty"):
        table.scan(start=MIDDLE, end=MIDDLE)
    with pytest.raises(PlanError, match=r"main\.places has no time index"):
        snapshot.table("main.places").scan(start=MIDDLE)


# Other libraries


def test_arrow_pandas_polars_and_duckdb_take_a_table_as_it_is(snapshot: Snapshot) -> None:
    table = snapshot.table(READINGS)
    expected = table.to_arrow()
    assert pa.table(table).equals(expected)
    assert pa.RecordBatchReader.from_stream(table).read_all().equals(expected)
    assert pl.DataFrame(table).to_arrow().cast(expected.schema).equals(expected)
    assert table.to_pandas().equals(expected.to_pandas())
    assert table.to_polars().collect().equals(pl.DataFrame(expected))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("readings", table)
        assert rows(connection.sql("FROM readings").to_arrow_table()) == rows(expected)


def test_polars_reads_only_the_columns_of_a_query(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    call = planning.FileRows.__call__
    monkeypatch.setattr(
        planning.FileRows, "__call__", lambda self, parts: (asked.append(self.schema.names), call(self, parts))[1]
    )
    frame, expected = snapshot.table(READINGS).to_polars(), pl.DataFrame(snapshot.table(READINGS).to_arrow())
    asked.clear()
    assert frame.select(pl.col("value").sum()).collect().equals(expected.select(pl.col("value").sum()))
    assert {name for names in asked for name in names} == {"value"}
    asked.clear()
    query = (pl.col("sensor") == "s1") & (pl.col("value") > 3)
    assert frame.filter(query).select("value").collect().equals(expected.filter(query).select("value"))
    assert {name for names in asked for name in names} == {"value", "sensor"}
    assert frame.select(pl.len()).collect().item() == 82
    assert frame.select("t", "sensor").head(7).collect().equals(expected.select("t", "sensor").head(7))
    assert frame.head(0).collect().equals(expected.head(0))
    assert (
        frame.group_by("sensor").len().collect().sort("sensor").equals(expected.group_by("sensor").len().sort("sensor"))
    )


def test_a_filter_after_a_limit_of_polars_selects_among_the_first_rows(hourly: Callable[..., str]) -> None:
    table = snapshot_assets.open(hourly()).table("main.hourly")
    first, late = table.to_polars().head(10), pl.col("n") >= 5
    found = sorted(pl.DataFrame(table).head(10).filter(late)["n"].to_list())
    assert sorted(first.filter(late).collect()["n"].to_list()) == found
    assert 0 < len(found) < 10
    assert table.to_polars().filter(late).head(3).collect().height == 3


def test_polars_has_as_many_rows_where_no_column_is_used(hourly: Callable[..., str]) -> None:
    table = snapshot_assets.open(hourly()).table("main.hourly")
    for query in (table.to_polars().with_row_index().select("index"), table.to_polars().select(pl.int_range(pl.len()))):
        assert query.collect().height == table.count() > 0


def test_a_limit_of_polars_opens_no_further_files(hourly: Callable[..., str]) -> None:
    snapshot, store = counting(snapshot_assets.open(hourly()))
    assert len(snapshot.table("main.hourly").to_polars(verify=False).head(1).collect()) == 1
    assert len(set(store.opened)) <= 3  # two threads may be ahead


# Damage


def test_a_damaged_and_a_missing_file_are_named_before_any_of_their_rows(exported: Place) -> None:
    table = snapshot_assets.open(exported.store.uri).table(READINGS)
    [file] = exported.folder.glob("data/3/main.readings-*")
    path = file.relative_to(exported.folder).as_posix()
    flip(file)
    batches, found = table.scan(["t"]), []
    with pytest.raises(ChecksumMismatchError, match=rf"{re.escape(path)} has SHA-256 \w+; expected"):
        found.extend(batch.num_rows for batch in batches)
    assert sum(found) == 2 + 32  # rows without a time, and those of two days
    assert table.to_arrow(end=MIDDLE).num_rows == 32
    file.unlink()
    with pytest.raises(ObjectNotFoundError, match=re.escape(path)):
        table.to_arrow()
    with pytest.raises(ObjectNotFoundError, match=re.escape(path)):
        table.to_arrow(verify=False)
    with pytest.raises(ObjectNotFoundError, match=re.escape(path)):
        table.to_polars().collect()


@pytest.mark.parametrize("bad", [0, 1, 3, 5])
def test_an_error_of_any_file_is_raised_after_the_rows_before_it(scattered: Place, bad: int) -> None:
    snapshot = open_version(scattered.store, None)
    table = snapshot.table("main.readings")
    parts = table._all.parts
    flip(scattered.folder / parts[bad].file.path)
    batches, found = table.scan(), []
    with pytest.raises(ChecksumMismatchError, match=re.escape(parts[bad].file.path)):
        found.extend(batch.num_rows for batch in batches)
    assert sum(found) == sum(part.file.rows for part in parts[:bad])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_readers_of_any_number_of_threads_return_the_same_rows(hourly: Callable[..., str], workers: int) -> None:
    read = snapshot_assets.open(hourly()).table("main.hourly")._all
    found = pa.Table.from_batches(read_parts(read.rows(), read.parts, workers))
    assert found["n"].to_pylist() == [-1, *range(72)]


class Threads(CountingStore):
    """A store that notes the threads that have files open."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.threads: set[threading.Thread] = set()

    def open_reader(self, path: str) -> AbstractContextManager[BinaryIO]:
        self.threads.add(threading.current_thread())
        return super().open_reader(path)


@pytest.mark.timeout(60)
def test_a_reader_that_is_abandoned_ends_its_threads(
    hourly: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = hourly()
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 1)
    store = Threads(snapshot_assets.open(uri).store)
    read = replace(snapshot_assets.open(uri), store=store).table("main.hourly")._all
    batches = read_parts(read.rows(), read.parts, 3)
    next(batches)
    until(lambda: len(store.threads) >= 2)  # some wait for room, with six batches in a file
    del batches
    gc.collect()
    until(lambda: not any(thread.is_alive() for thread in store.threads))


# Imports


def test_a_read_imports_no_spark_and_the_package_nothing_heavy(exported_place: Place) -> None:
    code = f"""
import sys
import snapshot_assets
heavy = ("pyarrow", "duckdb", "polars", "pandas", "numpy", "pyspark", "py4j", "dagster", "obstore")
print([name for name in heavy if name in sys.modules])
table = snapshot_assets.open({exported_place.store.uri!r}).table("main.readings")
print(table.to_arrow().num_rows, table.to_polars().collect().height, len(table.to_pandas()))
from snapshot_assets.cli import main
main(["sql", "--snapshot", {exported_place.store.uri!r}, "--format", "csv", "SELECT count(*) AS n FROM readings"])
print([name for name in ("pyspark", "py4j", "dagster") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "82 82 82", "n", "82", "[]"], "")


def test_a_process_ends_though_it_left_a_stream_open(scattered: Place) -> None:
    """Threads that read ahead wait for room, and a process waits for its threads."""
    program = (
        "import sys, snapshot_assets.engine.files.parquet.reader as reader; reader.BATCH_ROWS = 1\n"
        "import snapshot_assets\n"
        "stream = snapshot_assets.open(sys.argv[1]).table(sys.argv[2]).scan()\n"
        "print(stream.read_next_batch().num_rows)"
    )
    call = [sys.executable, "-c", program, scattered.store.uri, READINGS]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
