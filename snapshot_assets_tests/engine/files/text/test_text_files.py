"""Text files give back exactly the rows that were written, of every type that a data file can hold."""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.errors import DocumentError, PlanError
from snapshot_assets.format.arrow_types import _SIMPLE
from snapshot_assets.format.header import FileFormat
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.engine.files.text.files import FORMATS, read, same, write

ODD_TEXT = ("", "NULL", "null", "\\.", "\\N", " a ", "a,b;c\td", "\"'\\", "\r\n", "\n")
ODD_TEXT += ("é😀", "\x00\x01\x1f", "true", "1e5")
CSV, JSON = FileFormat("csv"), FileFormat("json")


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    """Return a strategy of values of a type, as Arrow takes them."""
    if pa.types.is_list(kind):
        return st.lists(st.none() | values_of(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        pairs = st.tuples(values_of(kind.key_type), st.none() | values_of(kind.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: st.none() | values_of(field.type) for field in kind})
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_decimal(kind):
        numbers = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1)
        return numbers.map(lambda number: Decimal(f"{number}E-{kind.scale}"))
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return st.binary(max_size=8)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return st.sampled_from(ODD_TEXT) | st.text(st.characters(codec="utf-8"), max_size=8)
    return st.none() if pa.types.is_null(kind) else whole_numbers(kind)


def whole_numbers(kind: pa.DataType) -> st.SearchStrategy:
    """Return a strategy of numbers that Arrow casts to a type of numbers or times."""
    if pa.types.is_unsigned_integer(kind):
        return st.integers(0, 2**kind.bit_width - 1)
    if pa.types.is_time(kind):
        ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return st.integers(0, 86_400 * ticks - 1)
    least = -(2 ** (kind.bit_width - 1))
    if pa.types.is_date32(kind):
        return st.integers(-2_440_588, 2_145_042_541) | st.integers(-1000, 30_000)  # PostgreSQL's first and last
    if pa.types.is_timestamp(kind):
        ends = {"s": 10**12, "ms": 10**15, "us": 9_224_318_015_999_999_999, "ns": 2**63 - 1}[kind.unit]
        return st.integers(max(-ends, least), min(ends, -least - 1)) | st.integers(-(10**6), 10**6)
    return st.integers(least, -least - 1)


def array_of(kind: pa.DataType, values: list) -> pa.Array:
    """Return values as an array; numbers become times."""
    if pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind):
        return pa.array(values, kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(values, kind)


NESTED = (
    pa.list_(pa.int64()),
    pa.list_(pa.list_(pa.string())),
    pa.struct([("a b", pa.float64()), ('"', pa.list_(pa.binary()))]),
    pa.map_(pa.string(), pa.decimal128(20, 5)),
    pa.list_(pa.struct([("x", pa.bool_()), ("y", pa.map_(pa.int32(), pa.string()))])),
)
TYPES = (
    *_SIMPLE.values(),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.decimal256(76, 10),
    pa.binary(16),
    pa.binary(3),
)


@pytest.mark.slow
@pytest.mark.parametrize("written", FORMATS, ids=lambda each: each.text())
@pytest.mark.parametrize("kind", [*TYPES, *NESTED], ids=str)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_type_comes_back(store: ObjectStore, kind: pa.DataType, written: FileFormat, data) -> None:
    values = data.draw(st.lists(st.none() | values_of(kind), min_size=1, max_size=6))
    rows = pa.table({"select": array_of(kind, values), "n": pa.array(range(len(values)))})
    files = write(store, rows, written, max_file_size=data.draw(st.sampled_from([1, 64, 1 << 20])))
    found = read(store, files, rows.schema, written)
    assert same(found, rows), (found, rows)
    alone = pa.schema([rows.schema.field("select")])
    assert same(read(store, files, rows.schema, written, alone), rows.select(["select"]))


@pytest.mark.parametrize("written", FORMATS, ids=lambda each: each.text())
def test_a_column_alone_of_nothing_but_null_and_empty_text(store: ObjectStore, written: FileFormat) -> None:
    rows = pa.table({"only": pa.array([None, "", None, "NULL", "\\."])})
    assert same(read(store, write(store, rows, written), rows.schema, written), rows)


@pytest.mark.slow
@pytest.mark.parametrize("written", FORMATS, ids=lambda each: each.text())
def test_more_columns_than_a_server_has(store: ObjectStore, written: FileFormat) -> None:
    rows = pa.table({f"c {number}": pa.array([number, None]) for number in range(1_600)})
    assert same(read(store, write(store, rows, written), rows.schema, written), rows)


@pytest.mark.parametrize("written", FORMATS, ids=lambda each: each.text())
def test_a_line_longer_than_a_block(store: ObjectStore, written: FileFormat) -> None:
    rows = pa.table({"n": [1, 2, 3, 4], "s": ["a", "xé\n" * 3_000_000, None, "b"]})
    assert same(read(store, write(store, rows, written), rows.schema, written), rows)


@pytest.mark.slow
@pytest.mark.parametrize("written", [CSV, JSON], ids=lambda each: each.text())
def test_a_text_of_300_mb(store: ObjectStore, written: FileFormat) -> None:
    rows = pa.table({"n": [1, 2, 3], "s": ["a", '"x\n' * (100 << 20), "b"]})
    files = write(store, rows, written, max_file_size=1 << 20)
    assert [file.rows for file in files] == [1, 1, 1]
    assert read(store, files, rows.schema, written).equals(rows)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_bounds_of_long_values_are_those_of_parquet(store: ObjectStore, kind: pa.DataType) -> None:
    for values in (["é" * 500, "e" * 500 + "a", "b"], ["\U0010ffff" * 40, "a"], ["a" * 64, "a" * 65, None]):
        rows = pa.table({"s": pa.array([each and each.encode() for each in values], pa.binary()).cast(kind)})
        [text], [parquet] = write(store, rows, CSV), write(store, rows, FileFormat())
        assert text.columns == parquet.columns


@pytest.mark.parametrize("written", [CSV, JSON], ids=lambda each: each.text())
def test_no_file_passes_the_limit_but_one_of_a_single_larger_row(store: ObjectStore, written: FileFormat) -> None:
    texts = ["x" * (number * 37 % 900) for number in range(4_000)]
    texts[100] = "y" * 200_000
    rows = pa.table({"s": texts})
    limit = 64 << 10
    files = write(store, rows, written, max_file_size=limit)
    assert [file.rows for file in files if file.bytes > limit] == [1]
    small = [file.bytes for file in files if file.bytes <= limit]
    assert all(first + second > limit for first, second in pairwise(small[:-1]))
    assert read(store, files, rows.schema, written).equals(rows)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_file_keeps_the_limit_too(store: ObjectStore, compression: str) -> None:
    written = FileFormat("csv", compression=compression)
    rows = pa.table({"s": [f"{number * 2654435761 % 2**32:x}" * 8 for number in range(40_000)]})
    files = write(store, rows, written, max_file_size=64 << 10)
    assert max(file.bytes for file in files) <= 64 << 10
    assert len(files) > 3
    assert read(store, files, rows.schema, written).equals(rows)


@pytest.mark.parametrize("written", [*FORMATS, FileFormat()], ids=lambda each: each.text())
def test_a_result_without_rows_is_one_file_if_it_is_asked_for(store: ObjectStore, written: FileFormat) -> None:
    rows = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.list_(pa.string()))})
    assert write(store, rows, written) == []
    [file] = write(store, rows, written, keep_empty=True)
    assert file.rows == 0
    assert read(store, [file], rows.schema, written).num_rows == 0 if written.is_text else True
    if written.header:
        assert gzip.decompress(store.get(file.path)) == b"a\tb\n"


def test_json_lines_are_what_other_readers_take(store: ObjectStore) -> None:
    rows = pa.table(
        {
            "at": pa.array([datetime(2020, 1, 2, 3, 4, 5, 6)], pa.timestamp("us", "UTC")),
            "day": [date(2020, 1, 2)],
            "price": pa.array([Decimal("12.50")]),
            "tags": [["a", None]],
            "took": pa.array([timedelta(seconds=1)], pa.duration("us")),
            "nothing": pa.array([None], pa.string()),
        }
    )
    [file] = write(store, rows, JSON)
    assert json.loads(store.get(file.path)) == {
        "at": "2020-01-02T03:04:05.000006Z",
        "day": "2020-01-02",
        "price": 12.5,
        "tags": ["a", None],
        "took": 1000000,
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("written", "data", "problem"),
    [
        (CSV, b"1\n2\n", "has 2 or more rows; the log records 1"),
        (CSV, b"", "Empty CSV file"),
        (CSV, b"x\n", "cannot be read as CSV"),
        (CSV, b'"1\n', "cannot be read as CSV"),
        (JSON, b'{"a":1}\n{"a":1}\n', "has 2 or more rows; the log records 1"),
        (JSON, b'{"a":1}', "the last line has no end"),
        (JSON, b'{"a":"x"}\n', "cannot be read as JSON"),
        (JSON, b"[]\n", "cannot be read as JSON"),
        (JSON, b"", "has 0 rows"),
        (FileFormat("csv", compression="zstd"), b"1\n", "cannot be read as CSV"),
        (FileFormat("json", compression="gzip"), b"1\n", "cannot be read as JSON"),
    ],
)
def test_a_file_that_contradicts_the_log_is_refused(
    store: ObjectStore, written: FileFormat, data: bytes, problem: str
) -> None:
    rows = pa.table({"a": [1]})
    [file] = write(store, rows, written)
    store.put(file.path, data)
    from dataclasses import replace
    from hashlib import sha256

    with pytest.raises(DocumentError, match=problem):
        read(store, [replace(file, sha256=sha256(data).hexdigest())], rows.schema, written)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "parquet", "compression": "gzip"}, "option of csv and json"),
        ({"name": "json", "header": True}, "only csv has header"),
        ({"name": "csv", "delimiter": ";;"}, "one ASCII character"),
        ({"name": "csv", "delimiter": "a"}, "one ASCII character"),
        ({"name": "csv", "delimiter": "é"}, "one ASCII character"),
        ({"name": "csv", "quote": "\n"}, "one ASCII character"),
        ({"name": "csv", "delimiter": '"'}, "quote or escape is too"),
        ({"name": "csv", "null": "0"}, "a text that is no value"),
        ({"name": "csv", "null": "NaN"}, "a text that is no value"),
        ({"name": "csv", "null": "a,b"}, "a text that is no value"),
        ({"name": "csv", "compression": "lz4"}, "none, gzip or zstd"),
        ({"name": "orc"}, "parquet, csv or json"),
    ],
)
def test_options_that_would_confuse_values_are_refused(options: dict, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        FileFormat(**options).check()


@pytest.mark.parametrize("written", [*FORMATS, FileFormat()], ids=lambda each: each.text())
def test_the_text_of_a_format_is_read_back(written: FileFormat) -> None:
    assert FileFormat.parse(written.text()) == written.check()


@pytest.mark.parametrize("text", ["", "orc", "csv?header=yes", "csv?escape=%22", "csv?null=&header=true", "csv?x=1"])
def test_another_text_is_no_format(text: str) -> None:
    with pytest.raises(DocumentError, match="is not a format"):
        FileFormat.parse(text)
