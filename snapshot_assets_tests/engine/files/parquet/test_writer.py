"""The writer: every row once, every byte hashed, bounded files and memory, nothing visible after an error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.engine.files.parquet.writer import ROW_GROUP_BYTES
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.write import write_files
from snapshot_assets.errors import DatabaseError, StoreFullError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import check_data_path
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectWriter
from snapshot_assets.storage.local import LocalStore
from snapshot_assets.storage.location import parse_location

MIB = 1 << 20
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("device", pa.string()), ("value", pa.float64())])
TARGET = FileTarget(
    chunk=7,
    schema="public",
    table="readings",
    schema_id=3,
    attempt="1a2b3c4d",
    tombstones_through=11,
    stem="data/7/public.readings-1a2b3c4d",
    metadata={"location_id": "the-location", "window": "2024-01-01/2024-01-02"},
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(parse_location(f"file://{tmp_path}/snapshots/one"))


def batch(start: int, rows: int) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    columns = [
        pa.array([number * 1_000_000 for number in numbers], SCHEMA.field("ts").type),
        pa.array([f"device-{number % 10}" for number in numbers]),
        pa.array([number * 0x9E3779B97F4A7C15 % 2**64 / 7 for number in numbers], pa.float64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(
    store: LocalStore, batches: Iterable[pa.RecordBatch], *, schema: pa.Schema = SCHEMA, max_file_size: int = 256 * MIB
) -> list[DataFile]:
    return write_files(store, TARGET, schema, batches, max_file_size=max_file_size)


def read(store: LocalStore, files: Iterable[DataFile]) -> pa.Table:
    return pa.concat_tables(pq.read_table(pa.BufferReader(store.get(file.path))) for file in files)


def metadata_of(store: LocalStore, file: DataFile) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(store.get(file.path)))


def wide_rows(count: int, width: int) -> pa.RecordBatch:
    texts = [hashlib.sha256(str(number).encode()).hexdigest() * (width // 64) for number in range(count)]
    return pa.RecordBatch.from_pydict({"text": texts})


def test_rows_come_back_in_order_across_batches(store: LocalStore) -> None:
    batches = [batch(0, 1000), batch(1000, 1), batch(1001, 500)]
    files = write(store, batches)
    assert read(store, files).equals(pa.Table.from_batches(batches))


def test_a_file_is_described_as_it_lies_in_the_store(store: LocalStore) -> None:
    (file,) = write(store, [batch(0, 1000)])
    data = store.get(file.path)
    assert (file.rows, file.bytes, file.sha256) == (1000, len(data), hashlib.sha256(data).hexdigest())
    assert (file.schema, file.table, file.chunk, file.attempt) == ("public", "readings", 7, "1a2b3c4d")
    assert (file.schema_id, file.tombstones_through) == (3, 11)
    assert file.path == check_data_path("data/7/public.readings-1a2b3c4d-000000.parquet", 7)
    assert [info.path for info in store.list()] == [file.path]


@pytest.mark.parametrize("batches", [[], [batch(0, 0), batch(0, 0)]])
def test_no_rows_make_no_file(store: LocalStore, batches: list[pa.RecordBatch]) -> None:
    assert write(store, batches) == []
    assert list(store.list()) == []


def test_batches_without_rows_between_others_leave_no_row_group(store: LocalStore) -> None:
    (file,) = write(store, [batch(0, 0), batch(0, 5), batch(0, 0)])
    assert [group.rows for group in file.row_groups] == [5]


def test_the_footer_says_what_the_file_is(store: LocalStore) -> None:
    before = datetime.now(UTC)
    (file,) = write(store, [batch(0, 10)])
    after = datetime.now(UTC)
    found = {key.decode(): value.decode() for key, value in metadata_of(store, file).metadata.items()}
    first, last = (parse_time(found.pop(f"snapshot.{name}_ingest_time")) for name in ("first", "last"))
    assert before <= first <= last <= after
    del found["ARROW:schema"]
    assert found == {
        "snapshot.location_id": "the-location",
        "snapshot.window": "2024-01-01/2024-01-02",
        "snapshot.schema": "public",
        "snapshot.table": "readings",
        "snapshot.chunk": "7",
        "snapshot.attempt": "1a2b3c4d",
    }


def test_ingest_times_are_those_of_the_files_own_batches(store: LocalStore) -> None:
    arrivals: list[datetime] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            arrivals.append(datetime.now(UTC))
            yield batch(number * 10_000, 10_000)

    files = write(store, batches(), max_file_size=256 << 10)
    assert len(files) > 2
    footers = [metadata_of(store, file).metadata for file in files]
    firsts = [parse_time(footer[b"snapshot.first_ingest_time"].decode()) for footer in footers]
    lasts = [parse_time(footer[b"snapshot.last_ingest_time"].decode()) for footer in footers]
    assert arrivals[0] <= firsts[0]
    assert all(first <= last for first, last in zip(firsts, lasts, strict=True))
    assert all(last <= first for last, first in zip(lasts, firsts[1:], strict=False))
    assert firsts[-1] >= arrivals[1]


def test_files_are_closed_at_the_limit_and_exceed_it_by_at_most_a_row_group(store: LocalStore) -> None:
    limit = MIB // 2
    batches = [batch(start, 5_000) for start in range(0, 400_000, 5_000)]
    files = write(store, batches, max_file_size=limit)
    assert len(files) > 3
    assert all(limit <= file.bytes for file in files[:-1])
    assert all(file.bytes <= limit + limit // 4 + 10_000 for file in files)
    assert [file.path[-15:] for file in files[:3]] == ["-000000.parquet", "-000001.parquet", "-000002.parquet"]
    assert read(store, files).equals(pa.Table.from_batches(batches))


def test_a_batch_larger_than_a_row_group_is_cut(store: LocalStore) -> None:
    big = wide_rows(6000, 64 * 256)
    assert big.nbytes > 2 * ROW_GROUP_BYTES
    (file,) = write(store, [big], schema=big.schema)
    assert len(file.row_groups) >= 3
    assert max(group.rows for group in file.row_groups) * 64 * 256 <= ROW_GROUP_BYTES
    assert read(store, [file]).equals(pa.Table.from_batches([big]))


def test_one_huge_row_among_small_ones_is_a_row_group_by_itself(store: LocalStore) -> None:
    texts = ["small"] * 1000 + ["x" * (ROW_GROUP_BYTES + 1)] + ["small"] * 1000
    rows = pa.RecordBatch.from_pydict({"text": texts})
    (file,) = write(store, [rows], schema=rows.schema)
    assert 1 in [group.rows for group in file.row_groups]
    assert read(store, [file]).equals(pa.Table.from_batches([rows]))


def test_rows_without_columns_are_refused_rather_than_lost(store: LocalStore) -> None:
    nothing = batch(0, 3).select([])
    with pytest.raises(DatabaseError, match=r"public\.readings has rows and no columns"):
        write(store, [nothing], schema=pa.schema([]))
    assert write(store, [nothing.slice(0, 0)], schema=pa.schema([])) == []
    assert list(store.list()) == []


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("ts", pa.timestamp("us", "UTC")), ("device", pa.string()), ("value", pa.float32())]),
        pa.schema([("ts", pa.timestamp("us", "UTC")), ("value", pa.float64()), ("device", pa.string())]),
        pa.schema([("ts", pa.timestamp("us", "UTC")), ("device", pa.string())]),
    ],
    ids=["type", "order", "missing"],
)
def test_a_batch_of_another_schema_is_refused_and_leaves_nothing(store: LocalStore, schema: pa.Schema) -> None:
    with pytest.raises(DatabaseError, match=r"public\.readings.*expected ts timestamp\[us, tz=UTC\], device string"):
        write(store, [batch(0, 10), pa.RecordBatch.from_pylist([], schema=schema)])
    assert list(store.list()) == []
    assert list(store.temporaries()) == []


def test_metadata_of_the_source_does_not_reach_the_file(store: LocalStore) -> None:
    field = SCHEMA.field("device").with_metadata({"driver:type": "text"})
    marked = SCHEMA.set(1, field).with_metadata({"driver": "some"})
    rows = pa.RecordBatch.from_arrays(batch(0, 10).columns, schema=marked)
    files = write(store, [batch(0, 10), rows])
    assert read(store, files).schema.equals(SCHEMA, check_metadata=True)


def test_an_error_of_the_source_aborts_the_open_file_only(store: LocalStore) -> None:
    failure = ConnectionResetError("the server went away")

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(7):
            yield batch(number * 10_000, 10_000)
        raise failure

    with pytest.raises(ConnectionResetError) as raised:
        write(store, batches(), max_file_size=256 << 10)
    assert raised.value is failure
    left = [info.path for info in store.list()]
    assert left
    for path in left:
        pq.read_table(pa.BufferReader(store.get(path)))
    assert list(store.temporaries()) == []


class _FillingStore(LocalStore):
    """A local store whose disk is full after some bytes of each object."""

    failure = StoreFullError("no space is left")

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        with super().open_writer(path) as out:
            yield _FillingWriter(out, 20_000)


class _FillingWriter:
    def __init__(self, out: ObjectWriter, room: int) -> None:
        self.out, self.room = out, room

    def write(self, data: bytes | memoryview, /) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise _FillingStore.failure
        return self.out.write(data)


def test_an_error_of_the_store_is_raised_as_it_is(tmp_path: Path) -> None:
    store = _FillingStore(parse_location(f"file://{tmp_path}/snapshots/one"))
    with pytest.raises(StoreFullError) as raised:
        write(store, [batch(0, 10_000)])
    assert raised.value is _FillingStore.failure
    assert list(store.list()) == []
    assert list(store.temporaries()) == []


def test_duckdb_reads_every_encoding(store: LocalStore, tmp_path: Path) -> None:
    rows = pa.Table.from_batches([batch(0, 20_000)])
    columns: dict[str, Any] = {
        "delta": rows["ts"],
        "words": rows["device"],
        "split": rows["value"],
        "split32": rows["value"].cast(pa.float32()),
        "keys": pa.array([hashlib.md5(str(number).encode()).hexdigest() for number in range(20_000)]),
        "amount": pa.array([number % 7 * 10**20 for number in range(20_000)], pa.decimal128(38, 2)),
        "flag": pa.array([number % 3 == 0 for number in range(20_000)]),
    }
    table = pa.table(columns)
    (file,) = write(store, table.to_batches(), schema=table.schema)
    encodings = {
        encoding
        for index in range(table.num_columns)
        for encoding in metadata_of(store, file).row_group(0).column(index).encodings
    }
    assert {"DELTA_BINARY_PACKED", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT", "DELTA_LENGTH_BYTE_ARRAY"} <= encodings
    path = tmp_path / "snapshots" / "one" / file.path
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.read_parquet(str(path)).to_arrow_table()
    assert found.cast(table.schema).equals(table)


def test_memory_does_not_grow_with_the_chunk(store: LocalStore, pool: pa.MemoryPool) -> None:
    noise = [os.urandom(3_000) * 8 for _ in range(800)]
    schema = pa.schema([("text", pa.binary())])
    batches = (pa.record_batch([pa.array(noise)], schema=schema) for _ in range(12))
    (file,) = write(store, batches, schema=schema)
    assert file.rows == 9_600
    assert pool.max_memory() < 128 * MIB < 12 * sum(map(len, noise))
