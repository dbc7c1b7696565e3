"""Hostile data files: no row of a refused file gets into the target."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.engine.files import read as data_files
from snapshot_assets.engine.files.parquet import reader
from snapshot_assets.engine.files.target import FileTarget
from snapshot_assets.engine.files.write import write_files
from snapshot_assets.errors import LimitExceededError, RestoreFailedError
from snapshot_assets.format.actions import ColumnStatistics
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.engine.files.parquet.forged_parquet import (
    BYTE_ARRAY,
    DELTA_LENGTH,
    REPEATED,
    Page,
    parquet,
    zeros,
)
from snapshot_assets_tests.engine.forged import Forged, column, table
from snapshot_assets_tests.engine.restore.imports import Into

pytestmark = pytest.mark.slow

T, GOOD = TableName("main", "t"), TableName("main", "good")
MOST_MEMORY = 64 << 20


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a location"))


def written(rows: pa.Table, **options: Any) -> bytes:
    """Return rows as a Parquet file, without Arrow's own schema in it."""
    out = io.BytesIO()
    pq.write_table(rows, out, store_schema=False, compression="zstd", **options)
    return out.getvalue()


def repeated(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype="int32"), pa.array([value]))


@cache
def gigabyte() -> bytes:
    return zeros(1 << 30)


def pages_of_zeros(**options: Any) -> tuple[bytes, int]:
    """Ten pages of a gigabyte."""
    page = Page(gigabyte(), 1 << 30, 1 << 27)
    return parquet({"a": [page] * 10}, 10 << 27, **options), 10 << 27


def lying_footer() -> tuple[bytes, int]:
    """Ten columns of a page of a gigabyte; footer and headers have two values."""
    columns = {"a": [Page(gigabyte(), 1 << 30, 2)], **{f"b{n}": [Page(gigabyte(), 1 << 30, 2)] for n in range(9)}}
    return parquet(columns, 2, size=16), 2


def one_row_of_pages() -> tuple[bytes, int]:
    """A single row may be larger than others, but not as large as this."""
    return parquet({"a": [Page(gigabyte(), 1 << 30, 1 << 27)] * 10}, 1, repetition=REPEATED, size=8), 1


def huge_value_in_a_dictionary() -> tuple[bytes, int]:
    return written(pa.table({"a": repeated("x" * 10_000, 1_000_000)})), 1_000_000


def huge_value_in_a_dictionary_of_lists() -> tuple[bytes, int]:
    lists = pa.ListArray.from_arrays(pa.array([0, 1_000_000, 1_000_000], pa.int32()), repeated("x" * 10_000, 1_000_000))
    return written(pa.table({"a": lists})), 2


def endless_list() -> tuple[bytes, int]:
    """Two rows of 2 GiB of values that take no byte: levels repeat by counting."""
    return parquet({"a": [Page(zeros(16), 16, (1 << 31) - 1)]}, 2, repetition=REPEATED), 2


def endless_lengths() -> tuple[bytes, int]:
    """Two texts in a page with 2 GiB of lengths, for which Arrow makes 8 GiB of room: they take no byte each."""
    head = b"\x80\x01\x04" + b"\xff\xff\xff\xff\x07" + b"\0"  # blocks of 128 in 4 parts, how many, and the first
    packed = pa.compress(head + bytes(84 << 20), "zstd", asbytes=True)
    return parquet({"a": [Page(packed, 84 << 20, 2, DELTA_LENGTH)]}, 2, physical=BYTE_ARRAY), 2


BOMBS = (
    (endless_lengths, "varchar", "binary"),
    (pages_of_zeros, "bigint", "int64"),
    (lying_footer, "bigint", "int64"),
    (one_row_of_pages, "bigint[]", "list<int64>"),
    (huge_value_in_a_dictionary, "varchar", "string"),
    (huge_value_in_a_dictionary_of_lists, "varchar[]", "list<string>"),
    (endless_list, "bigint[]", "list<int64>"),
)


@pytest.mark.parametrize(("bomb", "type_", "arrow_type"), BOMBS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_decompression_bomb_is_refused_by_name_in_little_memory(
    bomb: Any, type_: str, arrow_type: str, store: ObjectStore, duck: Into, pool: pa.MemoryPool
) -> None:
    data, rows = bomb()
    assert len(data) < 2 << 20
    columns = [column("a", type_, arrow_type)]
    good = (GOOD, written(pa.table({"a": [1, 2]})), 2)
    Forged(tables=(table("main", "good"), table("main", "t", columns)), files=(good, (T, data, rows))).write(store)
    run = duck.run(store)
    refusal = r"(unpacks to|is packed into) \d+ bytes; at most|a page of 2 values that asks for the lengths of"
    with pytest.raises(RestoreFailedError, match=rf"data/0/main\.t-.* ({refusal})"):
        list(run.restore())
    assert {name: found.num_rows for name, found in duck.tables().items()} == {"good": 2, "t": 0}
    assert pool.max_memory() < MOST_MEMORY


def test_the_forged_files_are_such_as_arrow_reads() -> None:
    """So what refuses them is their size."""
    page = Page(zeros(800), 800, 100)
    assert pq.read_table(io.BytesIO(parquet({"a": [page] * 3, "b": [page] * 3}, 300)))["b"].to_pylist() == [0] * 300
    lying = parquet({"a": [page]}, 100, size=1)
    assert pq.read_metadata(io.BytesIO(lying)).row_group(0).column(0).total_uncompressed_size == 1
    assert pq.read_table(io.BytesIO(lying)).num_rows == 100


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["zstd", "none"])
@pytest.mark.parametrize("nested", [False, True])
def test_texts_without_dictionaries_are_read_behind_levels_of_every_kind(
    version: str, codec: str, nested: bool, store: ObjectStore
) -> None:
    texts = [f"text {number}" * (number % 5) if number % 3 else None for number in range(5000)]
    rows = pa.table({"a": [[text, None] if text else None for text in texts] if nested else texts})
    out = io.BytesIO()
    encoding = {"a.list.element" if nested else "a": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(
        rows, out, use_dictionary=False, column_encoding=encoding, data_page_version=version, compression=codec
    )
    Forged(tables=(table("main", "t"),), files=((T, out.getvalue(), 5000),)).write(store)
    [state] = Catalog.open(store).require_snapshot().files.chunk(0).values()
    assert pa.Table.from_batches(data_files.read_batches(store, state.file, rows.schema)).equals(rows)


def ints(*values: int) -> bytes:
    return written(pa.table({"a": pa.array(values, pa.int32())}))


def flipped(data: bytes) -> bytes:
    """Damage the first page header of a file."""
    return data[:4] + b"\xff" * 12 + data[16:]


def fixed_lists() -> bytes:
    """Lists that have a fixed length in Arrow's schema in the footer."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([[1], [2]], pa.list_(pa.int32(), 1))}), out)
    return out.getvalue()


BROKEN: dict[str, tuple[bytes, int, str]] = {
    "no Parquet": (b"PAR1 of nothing PAR1", 1, "cannot be read as Parquet"),
    "nothing": (b"", 1, "cannot be read as Parquet"),
    "a broken page header": (flipped(ints(1, 2)), 2, "broken page header"),
    "more rows": (ints(1, 2, 3), 2, "has 3 rows; the log records 2"),
    "fewer rows": (ints(1), 2, "has 1 row; the log records 2"),
    "fewer values than rows": (
        parquet({"a": [Page(zeros(8), 8, 1)]}, 2),
        2,
        "has 1 row; its footer records 2",
    ),
    "a page shorter than its header": (
        parquet({"a": [Page(zeros(8), 16, 2)]}, 2),
        2,
        "cannot be read as Parquet",
    ),
    "a page longer than its header": (
        parquet({"a": [Page(zeros(1 << 20), 16, 2)]}, 2),
        2,
        "cannot be read as Parquet",
    ),
    "text that is no number": (written(pa.table({"a": ["x", "y"]})), 2, "is string in .* cannot be read as int32"),
    "numbers that do not fit": (written(pa.table({"a": [1, 1 << 40]})), 2, "is int64 in .* cannot be read as int32"),
    "lists": (written(pa.table({"a": [[1], [2]]})), 2, "is list<.* cannot be read as int32"),
    "the same column twice": (
        written(pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])),
        2,
        "several columns 'a'",
    ),
    "an encoding that is not written": (
        written(pa.table({"a": ["1", "2"]}), use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"}),
        2,
        "encoding 7",
    ),
    "an unknown encoding": (parquet({"a": [Page(zeros(16), 16, 2, 99)]}, 2), 2, "encoding 99"),
    "a list of fixed size": (fixed_lists(), 2, "Data files cannot hold Arrow type"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_not_what_the_log_says_leaves_no_row(what: str, store: ObjectStore, duck: Into) -> None:
    leaves_no_row(what, store, duck)


@pytest.mark.parametrize("what", ["a broken page header", "fewer values than rows", "numbers that do not fit"])
def test_nor_does_one_that_is_found_out_in_the_middle_of_a_copy(
    what: str, store: ObjectStore, postgresql_database: str
) -> None:
    leaves_no_row(what, store, Into(postgresql_database))


def leaves_no_row(what: str, store: ObjectStore, into: Into) -> None:
    data, rows, message = BROKEN[what]
    good = (GOOD, ints(1, 2), 2)
    Forged(tables=(table("main", "good"), table("main", "t")), files=(good, (T, data, rows))).write(store)
    with pytest.raises(RestoreFailedError, match=message) as error:
        list(into.run(store).restore())
    assert "data/0/main.t-" in str(error.value)
    assert {name: found.num_rows for name, found in into.tables().items()} == {"good": 2, "t": 0}


def test_columns_that_the_log_does_not_know_are_not_read_and_missing_ones_are_null(
    store: ObjectStore, duck: Into
) -> None:
    data = written(pa.table({"z": ["x"], "b": pa.array([7], pa.int64())}))
    columns = [column(), column("b", "bigint", "int64")]
    Forged(tables=(table("main", "t", columns),), files=((T, data, 1),)).write(store)
    assert duck.restore(store).finished
    assert duck.tables()["t"].to_pylist() == [{"a": None, "b": 7}]


def test_statistics_that_lie_hide_no_row_of_a_restore(store: ObjectStore, duck: Into) -> None:
    lies = (ColumnStatistics("a", 2, 100, 1),)
    Forged(tables=(table("main", "t"),), files=((T, ints(5, 6), 2),), facts={"columns": lies}).write(store)
    assert duck.restore(store).finished
    assert duck.tables()["t"]["a"].to_pylist() == [5, 6]


def test_a_missing_column_of_endless_width_is_refused(store: ObjectStore, duck: Into) -> None:
    columns = [column(), column("wide", "blob", "fixed_size_binary[999999999]")]
    Forged(tables=(table("main", "t", columns),), files=((T, ints(1, 2), 2),)).write(store)
    with pytest.raises(RestoreFailedError, match=r"column 'wide'.* which data/0/main\.t-.* lacks"):
        list(duck.run(store).restore())
    assert duck.tables()["t"].num_rows == 0


def test_a_row_that_is_larger_than_a_row_group_may_be_is_read_if_it_is_alone(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"a": ["x" * 5000, "y" * 5000]})
    schema = rows.schema
    target = FileTarget(0, "main", "t", 1, "0" * 8, 0, "data/0/main.t-00000000")
    [alone] = write_files(store, target, schema, rows.slice(0, 1).to_batches(), max_file_size=1 << 20)
    monkeypatch.setattr(reader, "MAX_ROW_GROUP_BYTES", 4000)
    assert pa.Table.from_batches(data_files.read_batches(store, alone, schema)).equals(rows.slice(0, 1))
    target = replace(target, stem="data/0/main.t-00000001")
    [both] = write_files(store, target, schema, rows.to_batches(), max_file_size=1 << 20)
    with pytest.raises(LimitExceededError, match="unpacks to"):
        list(data_files.read_batches(store, both, schema))


def test_every_kind_of_column_comes_out_of_dictionaries_as_it_went_in(store: ObjectStore) -> None:
    rows = pa.table(
        {
            "text": pa.array(["a", None, "bb", "a"] * 500),
            "large": pa.array(["a", None, "bb", "a"] * 500, pa.large_string()),
            "bytes": pa.array([b"a", None, b"bb", b"\0"] * 500),
            "list": pa.array([["a", "b"], None, [], ["a", None]] * 500),
            "deep": pa.array([[[["a"]]], None, [], [[[None]], []]] * 500),
            "struct": pa.array(
                [{"x": "q", "n": 1, "y": [{"z": "k"}]}, None, {"x": None, "n": None, "y": None}, {"x": "r"}] * 500,
                pa.struct({"x": pa.string(), "n": pa.int8(), "y": pa.list_(pa.struct({"z": pa.large_string()}))}),
            ),
            "map": pa.array(
                [[("k", "v")], None, [], [("k", None), ("l", "v")]] * 500, pa.map_(pa.string(), pa.string())
            ),
            "a.b": pa.array(["a", "b", "c", None] * 500),
            "number": pa.array([1, 2, 3, None] * 500, pa.int16()),
            "decimal": pa.array([Decimal("1.5"), Decimal(2), None, None] * 500, pa.decimal128(20, 3)),
        }
    )
    target = FileTarget(0, "main", "t", 1, "0" * 8, 0, "data/0/main.t-00000000")
    [file] = write_files(store, target, rows.schema, rows.to_batches(), max_file_size=1 << 30)
    assert pa.Table.from_batches(data_files.read_batches(store, file, rows.schema)).equals(rows)
    some = pa.schema([rows.schema.field("map"), rows.schema.field("text")])
    assert pa.Table.from_batches(data_files.read_batches(store, file, some)).equals(rows.select(["map", "text"]))
