"""Which files and row groups a read opens, without Spark."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import certifi
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.files.parquet import writer
from snapshot_assets.engine.reading.options import parse_options
from snapshot_assets.engine.reading.planning import FilePart, choose_read, file_parts
from snapshot_assets.engine.reading.source import SnapshotSource
from snapshot_assets.engine.reading.tasks import PlannedRead, grouped, metadata_work, table_work
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.errors import DocumentError, PlanError, StoreDeniedError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import export, make_plan
from snapshot_assets_tests.servers.s3 import S3Server

FOUR_ROWS = 4
TIMES = {
    "TIMESTAMPTZ": "UTC",
    "TIMESTAMP": "Europe/Zurich",
    "TIMESTAMP_S": "UTC",
    "TIMESTAMP_MS": "America/New_York",
    "TIMESTAMP_NS": "UTC",
}
START = datetime(2025, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class CountingStore:
    """A store that notes which objects are opened, and how much is read of each."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.opened: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def open_reader(self, path: str) -> Iterator[BinaryIO]:
        self.opened.append(path)
        with self._store.open_reader(path) as reader:
            yield reader


@pytest.fixture
def hourly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Export a table with a row an hour for three days, four in a row group; returns the location."""
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", FOUR_ROWS)

    def make(kind: str = "TIMESTAMPTZ", zone: str = "UTC", **fields: Any) -> str:
        with duckdb.connect(str(tmp_path / "hourly.duckdb")) as connection:
            local = "instant" if kind == "TIMESTAMPTZ" else f"timezone('{zone}', instant)"
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(
                f"CREATE TABLE hourly AS SELECT ({local})::{kind} AS moment, n FROM"
                " (SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(n::INT) AS instant, n FROM range(72) r(n))"
            )
            connection.execute("INSERT INTO hourly VALUES (NULL, -1)")
        uri = (tmp_path / "location").as_uri()
        plan = make_plan(f"duckdb://{tmp_path}/hourly.duckdb", uri, time_zone=zone, **fields)
        export(plan, open_store(parse_location(uri)))
        return uri

    return make


def planned(store: Any, uri: str, **options: str) -> PlannedRead:
    chosen = choose_read(store, parse_options({"path": uri, "table": "main.hourly"} | options, {}))
    return metadata_work(chosen) if isinstance(chosen, pa.Table) else table_work(chosen)


def parts_of(read: PlannedRead) -> list[FilePart]:
    return [part for work in read.work for part in work]


def numbers(read: PlannedRead) -> list[int]:
    """Return the column `n` of a planned read, in order."""
    return sorted(n for work in read.work for batch in read.read(work) for n in batch.column("n").to_pylist())


def hours_of_groups(uri: str) -> dict[str, list[set[int]]]:
    """Return the values of `n` by row group, by path of the files of windows."""
    folder = parse_location(uri).local_path
    found = {}
    for file in folder.glob("data/[1-9]/*.parquet"):
        with pq.ParquetFile(file) as parquet:
            groups = [parquet.read_row_group(number, ["n"]) for number in range(parquet.num_row_groups)]
        found[file.relative_to(folder).as_posix()] = [set(group["n"].to_pylist()) for group in groups]
    return found


def chosen_groups(part: FilePart, read: PlannedRead, uri: str) -> list[int]:
    with pq.ParquetFile(parse_location(uri).local_path / part.file.path) as parquet:
        return [*read.read.groups(part, parquet.metadata, parquet.schema_arrow)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TIMES)
def test_every_range_gives_its_rows_and_reads_only_the_row_groups_that_may_hold_them(
    hourly: Callable[..., str], kind: str
) -> None:
    uri = hourly(kind, TIMES[kind])
    store = CountingStore(open_store(parse_location(uri)))
    groups = hours_of_groups(uri)
    assert min(map(len, groups.values())) >= 6
    chance = random.Random(kind)
    for number in range(16):
        if number == 8:  # from here on, the log lacks statistics of row groups
            write_checkpoint(store, read_state(store))
        first, last = sorted(chance.sample(range(-3, 76), 2))
        offset = timedelta(microseconds=chance.choice([0, 0, 1, -1]))
        start, end = START + first * HOUR + offset, START + last * HOUR + offset
        wanted = [n for n in range(72) if start <= START + n * HOUR < end]
        read = planned(store, uri, start=time_text(start), end=time_text(end), columns="n")
        store.opened.clear()
        assert numbers(read) == wanted
        assert len(set(store.opened)) == len({n // 24 for n in wanted})
        opened = {path: groups[path] for path in store.opened}
        needed = {path: [n for n, hours in enumerate(opened[path]) if hours & set(wanted)] for path in opened}
        assert {part.file.path: chosen_groups(part, read, uri) for part in parts_of(read)} == needed


def test_without_a_range_all_files_are_read_those_of_rows_without_a_time_too(hourly: Callable[..., str]) -> None:
    uri = hourly()
    store = CountingStore(open_store(parse_location(uri)))
    assert numbers(planned(store, uri, verify="false")) == [-1, *range(72)]
    assert len(store.opened) == 4
    assert numbers(planned(store, uri, start="2025-01-01T00:00:00Z")) == [*range(72)]


def test_verification_reads_a_file_once_more_before_its_rows(hourly: Callable[..., str]) -> None:
    uri = hourly()
    store = CountingStore(open_store(parse_location(uri)))
    one_hour = {"start": "2025-01-02T05:00:00Z", "end": "2025-01-02T06:00:00Z"}
    for verify, times in (("true", 2), ("false", 1)):
        store.opened.clear()
        read = planned(store, uri, verify=verify, **one_hour)
        assert (numbers(read), len(store.opened)) == ([29], times)
        [part] = parts_of(read)
        groups = hours_of_groups(uri)
        [chosen] = chosen_groups(part, read, uri)
        assert 29 in groups[part.file.path][chosen]


def test_bounds_that_are_not_known_exclude_nothing(hourly: Callable[..., str]) -> None:
    uri = hourly()
    store = open_store(parse_location(uri))
    state = read_state(store)
    schema = read_schema(store, state.schemas[1])
    for chunk, files in state.files.added.items():
        state.files.added[chunk] = {
            path: replace(known, file=_without_bounds(known.file)) for path, known in files.items()
        }
    one_hour = TimeFilter(START + 5 * HOUR, START + 6 * HOUR)
    [part] = file_parts(state, schema.table(TableName("main", "hourly")), {1: schema}, one_hour)
    assert (part.file.chunk, part.cut) == (1, True)


def _without_bounds(file: DataFile) -> DataFile:
    groups = tuple(
        replace(group, columns=tuple(replace(c, minimum=None, maximum=None) for c in group.columns))
        for group in file.row_groups
    )
    return replace(file, columns=(), row_groups=groups)


def test_a_time_that_travelled_as_text_is_cut_only_at_the_bounds_of_chunks(hourly: Callable[..., str]) -> None:
    uri = hourly(carriers={"main.hourly.moment": "text"})
    store = open_store(parse_location(uri))
    assert numbers(planned(store, uri, start="2025-01-02T00:00:00Z")) == [*range(24, 72)]
    with pytest.raises(PlanError, match=r"main\.hourly\.moment is carried as string.*bounds of chunks"):
        planned(store, uri, start="2025-01-02T00:00:01Z")


def test_small_files_share_a_task_and_large_ones_do_not() -> None:
    file = DataFile("data/1/a", "main", "t", 1, "00000000", 1, 0, "", 1, 0)
    sizes = [1, 1, 200 << 20, 1, *[1] * 40]
    groups = grouped([FilePart(replace(file, bytes=size)) for size in sizes])
    assert [len(group) for group in groups] == [2, 1, 7, 7, 7, 7, 7, 6]
    assert grouped([]) == []


def test_a_planned_read_carries_no_statistics_to_the_tasks(hourly: Callable[..., str]) -> None:
    uri = hourly()
    for options in ({}, {"start": "2025-01-02T05:00:00Z"}):
        parts = parts_of(planned(open_store(parse_location(uri)), uri, **options))
        assert parts
        assert not [part for part in parts if part.file.columns or part.file.row_groups]


def test_credentials_of_a_read_replace_the_known_ones_as_a_whole() -> None:
    known = StoreOptions(endpoint="https://here", access_key_id="a", secret_access_key="b", session_token="c")
    base = {"path": "s3://bucket/shop", "table": "public.trips"}
    assert parse_options(base, {"s3": known}).store == known
    given = base | {"access_key_id": "x", "secret_access_key": "y", "allow_http": "TRUE", "retries": "2"}
    expected = StoreOptions("https://here", access_key_id="x", secret_access_key="y", allow_http=True, retries=2)
    assert parse_options(given, {"s3": known}).store == expected
    assert parse_options(given | {"path": "gs://bucket/shop"}, {"s3": known}).store == replace(expected, endpoint=None)
    assert "'y'" not in repr(parse_options(given, {}))


def test_a_nanosecond_that_spark_cannot_hold_fails_naming_the_column_and_may_be_left_out(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hourly.duckdb")) as connection:
        connection.execute("CREATE TABLE hourly (n INTEGER, fine TIMESTAMP_NS)")
        connection.execute("INSERT INTO hourly VALUES (1, '2025-01-01 00:00:00.000001'), (2, NULL)")
        connection.execute("INSERT INTO hourly VALUES (3, '2025-01-01 00:00:00.000000001')")
    uri = (tmp_path / "location").as_uri()
    store = open_store(parse_location(uri))
    export(make_plan(f"duckdb://{tmp_path}/hourly.duckdb", uri, time_columns={"main.hourly": None}), store)
    assert numbers(planned(store, uri, columns="n")) == [1, 2, 3]
    with pytest.raises(
        DocumentError, match=r"main\.hourly\.fine is timestamp\[ns\] in data/0/.*timestamp\[us\] without"
    ):
        numbers(planned(store, uri))


def test_types_of_spark_lose_nothing_however_deep_they_lie() -> None:
    fields = {
        "unsigned": (pa.uint64(), pa.decimal128(20)),
        "nested": (
            pa.map_(pa.string(), pa.list_(pa.struct([pa.field("a b", pa.uint8()), pa.field("t", pa.time64("ns"))]))),
            pa.map_(pa.string(), pa.list_(pa.struct([pa.field("a b", pa.int16()), pa.field("t", pa.string())]))),
        ),
        "seconds": (pa.duration("s"), pa.duration("us")),
        "zoned": (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        "local": (pa.timestamp("ns"), pa.timestamp("us")),
    }
    found = batch_schema(pa.field(name, given) for name, (given, _) in fields.items())
    assert {field.name: field.type for field in found} == {name: wanted for name, (_, wanted) in fields.items()}
    assert spark_schema(found)["nested"].dataType.simpleString() == "map<string,array<struct<a b:smallint,t:string>>>"


def test_a_planned_read_can_be_pickled_after_its_store_was_used(hourly: Callable[..., str]) -> None:
    uri = hourly()
    read = planned(open_store(parse_location(uri)), uri)
    assert numbers(pickle.loads(pickle.dumps(read))) == numbers(read)


def loaded(uri: str, *, master: str = "local[2]", environment: dict[str, str] | None = None) -> StructType:
    """Return the schema of table `main.hourly`, as a source registered under a master and an environment gives it."""

    class Registered(SnapshotSource):
        _master = master
        _environment = environment or {}

    return Registered({"path": uri, "table": "main.hourly"}).schema()


def test_files_of_one_machine_are_refused_where_tasks_run_on_others(hourly: Callable[..., str]) -> None:
    uri = hourly()
    assert loaded(uri).names == ["moment", "n"]
    with pytest.raises(PlanError, match=r"can be on one machine only, and Spark's master is 'spark://host:7077'"):
        loaded(uri, master="spark://host:7077")


def test_credentials_come_from_the_environment_of_the_process_that_registered(
    hourly: Callable[..., str], s3_server: S3Server, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = s3_server.options
    folder = parse_location(hourly()).local_path
    for file in folder.glob("[st]*/**/*.*"):
        open_store(parse_location(s3_location), options).put(file.relative_to(folder).as_posix(), file.read_bytes())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    environment = {
        "AWS_ENDPOINT_URL": options.endpoint,
        "AWS_REGION": options.region,
        "AWS_ACCESS_KEY_ID": options.access_key_id,
        "AWS_SECRET_ACCESS_KEY": options.secret_access_key,
        "AWS_ALLOW_HTTP": "true",
        "AWS_CA_BUNDLE": certifi.where(),  # it may begin with comments, so that its content is not taken for a path
    }
    assert loaded(s3_location, environment=environment).names == ["moment", "n"]
    with pytest.raises(StoreDeniedError):
        loaded(s3_location, environment=environment | {"AWS_SECRET_ACCESS_KEY": "wrong"})
