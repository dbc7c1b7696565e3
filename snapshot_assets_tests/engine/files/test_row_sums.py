"""Sums of rows are equal exactly for the same rows: bit for bit, in any order, however Arrow holds them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.engine.files.row_sums import hashing, row_sums
from snapshot_assets.errors import DocumentError, StorageError
from snapshot_assets.format.arrow_types import _SIMPLE

DAY = 86_400 * 10**9
NAN = float("nan")


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns], [f"{number}" for number in range(len(columns))])


def hashes(array: pa.Array) -> list[int]:
    with hashing(batch_of(array).schema) as hash_rows:
        return hash_rows([batch_of(array)]).tolist()


FLOATS = (None, 0.0, -0.0, 1.0, -1.0, NAN, float("inf"), 5e-8)
DECIMALS = (None, *(Decimal(text) for text in ("0.00", "0.01", "1.00", "-1.00")))
DIFFERENT = {
    pa.float16(): FLOATS[:-1],
    pa.float32(): FLOATS,
    pa.float64(): FLOATS,
    pa.uint64(): (None, 0, 1, 2**63, 2**64 - 1),
    pa.int64(): (None, 0, -1, 2**63 - 1, -(2**63)),
    pa.decimal32(5, 2): DECIMALS,
    pa.decimal128(38, 2): DECIMALS,
    pa.decimal256(76, 2): DECIMALS,
    pa.month_day_nano_interval(): (None, (0, 0, 0), (0, 1, 0), (0, 0, DAY), (1, 0, 0), (0, 30, 0), (0, 31, -DAY)),
    pa.string(): (None, "", "\x00", "\x00\x00", "a", "a ", "é", "e\u0301", "1.0", "1.00", "x" * 100_000),
    pa.string_view(): (None, "", "\x00", "x" * 100_000),
    pa.binary(): (None, b"", b"\x00", b"\xff", b"\xff\xfe"),
    pa.binary(2): (None, b"\x00\x00", b"\x00\x01"),
    pa.binary(0): (None, b""),
    pa.timestamp("ns"): (None, 0, 1, 1000, 2**63 - 1),
    pa.timestamp("us"): (None, 0, 1, 253_402_300_800_000_000),  # the last is in the year 10000
    pa.date32(): (None, 0, 1, 2_145_042_541),
    pa.date64(): (None, 0, 86_400_000),
    pa.duration("s"): (None, 0, 86_400, 2**62),
    pa.list_(pa.int32()): (None, [], [None], [None, None], [0], [0, 0], [0, 0, 0], [1, 2], [2, 1]),
    pa.list_(pa.list_(pa.int32())): (
        *(None, [], [None], [None, None], [[]], [[], []], [[None]], [[], [1]], [[1], []]),
        *([[1, 2]], [[1], [2]], [[1, 2], [3, 4]], [[1, 3], [2, 4]], [[1, 2, 3, 4]]),
    ),
    pa.list_(pa.float64()): (None, [0.0], [-0.0], [NAN], [0.0, -0.0], [-0.0, 0.0]),
    pa.list_(pa.month_day_nano_interval()): (None, [(0, 1, 0)], [(0, 0, DAY)]),
    pa.list_(pa.struct({"a": pa.float32()}), 2): (None, [None, None], [{"a": 0.0}, None], [{"a": -0.0}, None]),
    pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.float32()})}): (
        *(None, {"a": None, "b": None}, {"a": None, "b": {"c": None}}),
        *({"a": None, "b": {"c": 0.0}}, {"a": None, "b": {"c": -0.0}}, {"a": 0, "b": None}),
    ),
    pa.struct([]): (None, {}),
    pa.map_(pa.string(), pa.float64()): (
        *(None, [], [("a", None)], [("a", 0.0)], [("a", -0.0)]),
        *([("a", 0.0), ("b", 0.0)], [("b", 0.0), ("a", 0.0)], [("a", 0.0), ("a", 0.0)]),  # a source may repeat keys
    ),
}


@pytest.mark.parametrize("kind", DIFFERENT, ids=str)
def test_values_that_differ_have_different_hashes_and_equal_ones_the_same(kind: pa.DataType) -> None:
    values = DIFFERENT[kind]
    once = hashes(pa.array(values, kind))
    assert len(set(once)) == len(values)
    assert hashes(pa.array([*values[::-1], *values], kind)) == [*once[::-1], *once]


@pytest.mark.parametrize("kind", [*_SIMPLE.values(), pa.decimal128(38, -5)], ids=str)
def test_every_type_of_data_files_has_hashes_alone_and_within_others(kind: pa.DataType) -> None:
    for outer in (kind, pa.list_(kind), pa.map_(pa.string(), kind), pa.struct([("", kind)])):
        assert len(hashes(pa.nulls(3, outer))) == 3


def test_all_nans_are_one_value() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001]
    nans = pa.array(np.array(bits, np.uint64).view(np.float64))
    assert len(set(hashes(nans))) == 1
    assert len(set(hashes(pa.ListArray.from_arrays([0, 1, 2, 3, 4], nans)))) == 1


def test_times_with_a_zone_are_instants() -> None:
    there = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    kinds = (pa.timestamp("us", "UTC"), pa.timestamp("us", "+05:00"))
    here, elsewhere = (hashes(pa.array([there.astimezone(UTC)], kind)) for kind in kinds)
    assert here == elsewhere


def test_how_arrow_stores_values_has_no_influence() -> None:
    texts = pa.array(["a", None, "b", "a"])
    views = (texts.dictionary_encode(), pc.run_end_encode(texts), texts.cast(pa.large_string()))
    for other in (*views, texts.cast(pa.string_view())):
        assert hashes(other) == hashes(texts)
    lists = pa.ListArray.from_arrays([0, 1, 4], texts.dictionary_encode())
    assert hashes(lists) == hashes(pa.array([["a"], [None, "b", "a"]]))
    assert hashes(pa.array([UUID(int=1)], pa.uuid())) == hashes(pa.array([UUID(int=1).bytes], pa.binary(16)))


def test_what_arrow_keeps_beneath_null_has_no_influence() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["a"], mask=pa.array([False, True, False]))
    mask = pa.array([True, False, False])
    inner = pa.ListArray.from_arrays(pa.array([0, 2, 3, 3], pa.int32()), struct, mask=mask)
    for array in (struct, inner, pa.ListArray.from_arrays([0, 1, 3], inner)):
        assert hashes(array) == hashes(pa.array(array.to_pylist(), array.type))
        assert hashes(array.slice(1)) == hashes(array)[1:]


def test_columns_are_told_apart_by_place_and_may_have_any_name() -> None:
    arrays = [pa.array([1, 0]), pa.array([0, 1])]
    one, other = (hashing(pa.schema([(name, pa.int64()) for name in names])) for names in (("given", "c0"), ('"', '"')))
    with one as hash_rows, other as hash_others:
        [first, second] = hash_rows([pa.RecordBatch.from_arrays(arrays, ["given", "c0"])]).tolist()
        assert first != second
        assert hash_others([pa.RecordBatch.from_arrays(arrays, ['"', '"'])]).tolist() == [first, second]


def test_rows_without_columns_are_counted() -> None:
    rows = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    assert row_sums(pa.schema([]), [rows, rows]) == (10, 0)


def test_no_rows_have_no_sum() -> None:
    batch = batch_of(pa.array([[1]]))
    assert row_sums(batch.schema, []) == row_sums(batch.schema, [batch.slice(0, 0)]) == (0, 0)


def test_repeated_rows_count() -> None:
    batch = batch_of(pa.array(["a", "b"]))
    sums = {row_sums(batch.schema, [batch] * times) for times in range(5)}
    assert [each.rows for each in sorted(sums)] == [0, 2, 4, 6, 8]
    assert len({each.total for each in sums}) == 5


def test_other_types_and_values_without_bits_are_refused() -> None:
    batch = batch_of(pa.array([1]))
    with pytest.raises(DocumentError, match="expected"):
        row_sums(pa.schema([("0", pa.float64())]), [batch])
    with pytest.raises(DocumentError, match="list_view<item: int32> cannot be compared"):
        row_sums(pa.schema([("0", pa.list_view(pa.int32()))]), [])


def test_an_error_of_the_reader_keeps_its_type() -> None:
    batch = batch_of(pa.array([1]))

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        raise StorageError("lost")

    with pytest.raises(StorageError, match="lost"):
        row_sums(batch.schema, batches())


def test_rows_are_read_as_a_stream() -> None:
    """No batch is kept: Arrow's memory holds a few of them at a time."""
    before, peak = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for number in range(64):
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield batch_of(pa.array(np.arange(number, number + (1 << 17)) / 2, pa.float64()))  # 1 MiB

    assert row_sums(pa.schema([("0", pa.float64())]), batches()).rows == 64 << 17
    assert peak < 8 << 20


LEAVES = {
    pa.bool_(): (False, True),
    pa.int8(): (0, 1, -1),
    pa.uint64(): (0, 2**64 - 1),
    pa.float32(): (0.0, -0.0, NAN),
    pa.float64(): (0.0, -0.0, NAN, 1.5),
    pa.string(): ("", "\x00", "0"),
    pa.binary(1): (b"0", b"1"),
    pa.decimal128(9, 1): (Decimal("0.0"), Decimal("1.5")),
    pa.month_day_nano_interval(): ((0, 0, 0), (0, 1, 0), (0, 0, DAY)),
    pa.null(): (None,),
}
"""Few values, so that random rows are often equal, or differ in a single value."""


def kinds() -> st.SearchStrategy[pa.DataType]:
    return st.recursive(
        st.sampled_from(list(LEAVES)),
        lambda inner: (
            inner.map(pa.list_)
            | inner.map(lambda kind: pa.map_(pa.string(), kind))
            | st.lists(inner, max_size=3).map(lambda members: pa.struct([(f"{n}", m) for n, m in enumerate(members)]))
        ),
        max_leaves=4,
    )


def values_of(kind: pa.DataType) -> st.SearchStrategy[object]:
    """Return values as Arrow takes them; equal ones have the same text, different ones do not."""
    values: st.SearchStrategy[object]
    if pa.types.is_map(kind):
        values = st.lists(st.tuples(st.sampled_from(("", "k")), values_of(kind.item_type)), max_size=2)
    elif pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        values = st.fixed_dictionaries({member.name: values_of(member.type) for member in kind})
    else:
        values = st.sampled_from(LEAVES[kind])
    return st.none() | values


Row = tuple[object, ...]


def batches_of(schema: pa.Schema, rows: Sequence[Row], cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """Return rows as slices of one batch, which end at the cuts."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return [batch.slice(start, end - start) for start, end in pairwise([0, *sorted(cuts), len(rows)])]


@settings(max_examples=30)
@given(st.data())
def test_sums_are_equal_exactly_for_the_same_rows(data: st.DataObject) -> None:
    schema = pa.schema([(f"{n}", kind) for n, kind in enumerate(data.draw(st.lists(kinds(), min_size=1, max_size=3)))])
    rows_of = st.tuples(*(values_of(kind) for kind in schema.types))
    rows = data.draw(st.lists(rows_of, max_size=6))
    cuts = st.lists(st.integers(0, len(rows)), max_size=3)
    sums = row_sums(schema, batches_of(schema, rows, data.draw(cuts)))
    assert row_sums(schema, batches_of(schema, data.draw(st.permutations(rows)), data.draw(cuts))) == sums
    others = [data.draw(rows_of) if data.draw(st.integers(0, 3)) == 0 else row for row in rows]
    same = sorted(map(repr, rows)) == sorted(map(repr, others))
    assert (row_sums(schema, batches_of(schema, others, [])) == sums) == same


def test_rows_that_exchange_values_have_another_sum() -> None:
    """The sums of two rows before and after look random to each other: an eighth has equal lowest three bits."""
    drawn = np.random.default_rng(1)
    one, other = (pa.array(drawn.integers(0, 100_000, 20_000)) for _ in range(2))
    exchanged = pa.array(np.asarray(other).reshape(-1, 2)[:, ::-1].reshape(-1))
    with hashing(batch_of(one, other).schema) as hash_rows:
        before, after = (hash_rows([batch_of(one, column)]).reshape(-1, 2).sum(axis=1) for column in (other, exchanged))
    equal = np.count_nonzero((before ^ after) & np.uint64(0b111) == 0)
    assert 1100 < equal < 1400  # of 10,000; without the outer hash, 5,553 were


IN_A_FOLDER_THAT_IS_GONE = """
import os, sys
import pyarrow as pa
from snapshot_assets.engine.files.row_sums import row_sums
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
print(row_sums(batch.schema, [batch]).rows)
"""


def test_rows_are_summed_where_the_working_folder_is_gone(tmp_path: Path) -> None:
    """Spark's workers have the folder in which the session was started, which may be a temporary one."""
    folder = tmp_path / "gone"
    folder.mkdir()
    call = [sys.executable, "-c", IN_A_FOLDER_THAT_IS_GONE, str(folder)]
    assert subprocess.run(call, check=True, capture_output=True, text=True).stdout == "3\n"


def test_long_lists_need_no_memory_for_many_of_them_at_once() -> None:
    """DuckDB converts 2,048 rows at a time, and copies lists."""
    offsets = pa.array(np.arange(0, 2001) * 100_000, pa.int32())
    batch = batch_of(pa.ListArray.from_arrays(offsets, np.zeros(200_000_000, np.int8)))
    once = row_sums(batch.schema, [batch.slice(0, 1)])
    assert row_sums(batch.schema, [batch]) == (2000, once.total * 2000 % 2**64)
