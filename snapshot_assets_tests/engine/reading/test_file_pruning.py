"""Pruning by statistics of real Parquet files, compared with what a look at every row gives."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.catalog.state.bounds import Bounds, schema_of
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import COLUMNS, FileColumns
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.files.batches import true_rows
from snapshot_assets.engine.files.parquet.statistics import file_columns, row_groups
from snapshot_assets.format.actions import ColumnStatistics, DataFile, Header
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.literal_values import scalar_of
from snapshot_assets.format.predicates import (
    And,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    check_predicate,
    columns_of,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START

TABLE = TableName("main", "m")
WRITTEN = {1: pa.schema([("c", pa.int64())])}
PREFIX = "x" * 64
_DECIMAL_76 = pa.decimal256(76, 3)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-3, 3),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    pa.uint16(): st.sampled_from([0, 1, 2**15, 2**16 - 1]),
    pa.uint32(): st.sampled_from([0, 1, 2**31, 2**32 - 1]),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.float32(): st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan"), float("inf")]),
    pa.float64(): st.sampled_from([-0.1, -0.0, 0.0, 0.1, float("nan"), float("-inf")]),
    pa.string(): st.sampled_from(["", "a", "Z", "é", PREFIX, PREFIX + "a", PREFIX + "b", "x" * 63 + "y"]),
    pa.large_binary(): st.sampled_from([b"", b"\x00", b"\xff" * 64, b"\xff" * 65, b"\x80"]),
    pa.binary(2): st.sampled_from([b"\x00\x01", b"\x80\x00", b"\xff\xff"]),
    pa.date32(): st.sampled_from([-1, 0, 1, 20_000]),
    pa.time32("s"): st.sampled_from([0, 1, 86_399]),
    pa.time64("ns"): st.sampled_from([0, 1, 10**12]),
    pa.duration("s"): st.sampled_from([-1, 0, 5]),
    pa.timestamp("s"): st.sampled_from([-1, 0, 1, 10**9]),
    pa.timestamp("us", "UTC"): st.sampled_from([-1, 0, 1, 10**15]),
    pa.timestamp("ns"): st.sampled_from([-1, 0, 1, 10**18]),
    pa.decimal128(9, 2): st.sampled_from(["-0.01", "0.00", "1.00", "9999999.99"]),
    pa.decimal128(18, 2): st.sampled_from(["-9999999999999999.99", "-0.01", "0.00", "9999999999999999.99"]),
    pa.decimal128(38, 4): st.sampled_from(["-1000000000000000000000.0000", "-0.0001", "0.0000", "12.5000"]),
    _DECIMAL_76: st.sampled_from([f"-{10**70}.000", "0.001", f"{10**70}.000"]),
}
WIDER = {pa.int8(): pa.int64(), pa.uint16(): pa.int64(), pa.uint32(): pa.uint64(), pa.float32(): pa.float64()}


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    text = arrow_type_text(kind)
    scalars = [pa.scalar(None, kind) if value is None else scalar_of(Literal(text, value)) for value in values]
    return pa.array(scalars, kind)


def data_file(rows: pa.Table, number: int, schema_id: int, rows_per_group: int = 2) -> DataFile:
    """Return a file as the writer would describe it: the statistics are those of Parquet.

    Every other file has short decimals as bytes, as all had in earlier versions.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=rows_per_group, store_decimal_as_integer=number % 2 == 0)
    groups = row_groups(pq.read_metadata(pa.BufferReader(sink.getvalue())), rows.schema)
    path = f"data/1/main.m-{number:08x}-0000.parquet"
    columns = file_columns(groups, rows.schema)
    return DataFile(path, *TABLE, 1, f"{number:08x}", rows.num_rows, 1, "0" * 64, schema_id, 0, columns, groups)


def state_of(files: list[DataFile], checkpointed: int) -> State:
    """Return a state of which the first files came from a checkpoint."""
    found = FileSet()
    for file in files[:checkpointed]:
        found.add(file, 1)
    if checkpointed:
        found = FileSet(found.merged())
    for file in files[checkpointed:]:
        found.add(file, 2)
    return State(files=found)


@st.composite
def predicates(draw: st.DrawFn, kind: pa.DataType) -> Predicate:
    literal = VALUES[kind].map(lambda value: Literal(arrow_type_text(kind), value))
    leaf = st.one_of(
        st.builds(Comparison, st.just("c"), st.sampled_from(Operator), literal),
        st.builds(IsIn, st.just("c"), st.lists(literal, min_size=1, max_size=3).map(tuple)),
        st.builds(lambda value: IsIn("c", (value,) * 17), literal),
        st.builds(IsNull, st.just("c")),
    )
    tree = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, max_size=2).map(tuple)),
            st.builds(Or, st.lists(inner, max_size=2).map(tuple)),
        ),
        max_leaves=4,
    )
    return check_predicate(draw(tree))


def rows_that_match(table: pa.Table, predicate: Predicate) -> list[bool]:
    columns = {}
    for name, kind in columns_of(predicate).items():
        if name in table.column_names:
            column = table[name].combine_chunks()
            columns[name] = column if kind is None else column.cast(kind)
        else:
            columns[name] = pa.nulls(table.num_rows, kind or pa.null())
    return true_rows(predicate, columns, table.num_rows).to_pylist()


@settings(max_examples=60)
@given(st.data(), st.sampled_from(list(VALUES)))
def test_what_is_passed_over_has_no_matching_row_and_what_is_certain_has_no_other(
    data: st.DataObject, kind: pa.DataType
) -> None:
    written = {1: pa.schema([("c", kind)]), 2: pa.schema([("other", pa.int8())])}
    asked = kind
    if kind in WIDER and data.draw(st.booleans()):
        asked = WIDER[kind]
    tables = []
    for _ in range(data.draw(st.integers(1, 4))):
        values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=5))
        if data.draw(st.integers(0, 5)):
            tables.append((1, pa.table({"c": array(values, kind)})))
        else:
            tables.append((2, pa.table({"other": pa.nulls(len(values), pa.int8())})))
    files = [data_file(table, number, schema_id) for number, (schema_id, table) in enumerate(tables)]
    state = state_of(files, data.draw(st.integers(0, len(files))))
    predicate = data.draw(predicates(asked))
    found = {match.file.path: match.certain for match in match_files(state, TABLE, predicate, written)}
    for file, (_, table) in zip(files, tables, strict=True):
        answers = rows_that_match(table, predicate)
        if any(answers):
            assert file.path in found
        if found.get(file.path):
            assert all(answers)


SPREAD: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-3, 0, 3],
    pa.uint32(): [1, 2**31, 2**32 - 1],
    pa.uint64(): [1, 2**63, 2**64 - 1],
    pa.string(): ["", "a", PREFIX + "a", "é"],
    pa.large_binary(): [b"", b"\x7f", b"\x80"],
    pa.binary(2): [b"\x00\x01", b"\x80\x00"],
    pa.date32(): [-1, 0, 1],
    pa.time32("s"): [0, 1, 86_399],
    pa.duration("s"): [-1, 0, 5],
    pa.timestamp("s"): [-1, 0, 10**9],
    pa.timestamp("us", "UTC"): [-1, 0, 10**15],
    pa.timestamp("ns"): [-1, 0, 10**18],
    pa.decimal128(9, 2): ["-0.01", "0.00", "9999999.99"],
    pa.decimal128(18, 2): ["-9999999999999999.99", "-0.01", "0.00", "9999999999999999.99"],
    _DECIMAL_76: [f"-{10**70}.000", "0.001", f"{10**70}.000"],
}


COMPARE = {Operator.EQUAL: operator.eq, Operator.LESS: operator.lt, Operator.GREATER: operator.gt}


@pytest.mark.parametrize("kind", SPREAD, ids=str)
@pytest.mark.parametrize("checkpointed", [0, 9])
def test_files_whose_bounds_exclude_a_value_are_passed_over(kind: pa.DataType, checkpointed: int) -> None:
    """A file for each value: exactly the one that holds it is left, and where the bounds are exact it is certain."""
    values = SPREAD[kind]
    files = [data_file(pa.table({"c": array([value], kind)}), number, 1) for number, value in enumerate(values)]
    state = state_of(files, min(checkpointed, len(files)))
    text = arrow_type_text(kind)
    for number, value in enumerate(values):
        for how, compare in COMPARE.items():
            predicate = Comparison("c", how, Literal(text, value))
            matches = match_files(state, TABLE, predicate, {1: pa.schema([("c", kind)])})
            found = {match.file.path: match.certain for match in matches}
            wanted = [path.path for place, path in enumerate(files) if compare(place, number)]
            if PREFIX in str(value):  # bounds are cut, and a greater maximum may be that of a greater value
                assert set(wanted) <= set(found)
            else:
                assert list(found) == wanted
                assert how is not Operator.EQUAL or all(found.values())


def test_a_file_of_a_type_that_is_converted_before_it_is_compared_is_not_passed_over() -> None:
    """The text '9' is greater than '10', and the number 9 is not."""
    numbers = data_file(pa.table({"c": pa.array([9])}), 0, 1)
    texts = data_file(pa.table({"c": pa.array(["10"])}), 1, 2)
    written = {1: pa.schema([("c", pa.int64())]), 2: pa.schema([("c", pa.string())])}
    state = state_of([numbers, texts], 1)
    found = list(match_files(state, TABLE, Comparison("c", Operator.GREATER, Literal("string", "5")), written))
    assert [(match.file.path, match.certain) for match in found] == [(numbers.path, False)]


def path_of(chunk: int, stem: str) -> str:
    return f"data/{chunk}/{stem}-{chunk:08x}-0000.parquet"


def header(days: int) -> Header:
    return replace(HEADER, start=START, end=START + days * DAY, chunk_time_window=86_400_000_000)


def test_files_of_other_tables_and_times_are_passed_over() -> None:
    one = data_file(pa.table({"c": [0]}), 0, 1)
    files = [
        replace(
            one,
            chunk=chunk,
            table=table,
            path=path_of(chunk, f"main.{table}"),
            columns=(ColumnStatistics("c", 0, chunk, chunk),),
        )
        for chunk in range(5)
        for table in ("m", "other")
    ]
    for checkpointed in (0, 5, len(files)):
        state = state_of(files, checkpointed)
        state.header = replace(header(4), end=START + 3.5 * DAY)

        def found(start: float | None, end: float | None, state: State = state) -> dict[int, bool]:
            moments = [None if day is None else START + day * DAY for day in (start, end)]
            matches = match_files(state, TABLE, start=moments[0], end=moments[1])
            return {match.file.chunk: match.certain for match in matches}

        assert found(None, None) == dict.fromkeys(range(5), True)
        assert found(1, 2) == {2: True}
        assert found(0.5, 2) == {1: False, 2: True}
        assert found(2.5, None) == {3: False, 4: True}
        assert found(3, 3.5) == {4: True}
        assert found(None, 0.1) == {1: False}
        assert found(3.5, None) == {}
        assert found(None, 0) == {}
        assert [match.file.path for match in match_files(state)] == [file.path for file in files]
        assert match_files(state, TABLE).totals() == (5, 5, 5)
        later = match_files(state, TABLE, Comparison("c", Operator.GREATER, Literal("int64", 2)), WRITTEN)
        assert (later.totals(), later.totals(certain=True)) == ((2, 2, 2), (2, 2, 2))
        one = [match for match in later if match.file.chunk == 4]
        assert later.statistics("c", one) == [ColumnStatistics("c", 0, 4, 4)]
        assert later.statistics("lacking", one) == [None]


def test_a_file_that_was_removed_and_one_that_came_back_are_matched_as_they_are_now() -> None:
    files = [data_file(pa.table({"c": [number]}), number, 1) for number in range(3)]
    state = state_of(files, 3)
    state.files.remove(1, files[0].path, 5, START)
    state.files.remove(1, files[1].path, 5, START)
    state.files.add(replace(files[1], tombstones_through=4), 5)
    found = list(match_files(state, TABLE, Comparison("c", Operator.LESS, Literal("int64", 9)), WRITTEN))
    assert [match.file.path for match in found] == [files[1].path, files[2].path]
    assert [match.file.tombstones_through for match in found] == [4, 0]
    assert [m.file.path for m in match_files(state, TABLE, older_than=4)] == [files[2].path]


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls of Python and native functions in the context."""
    calls = [0]

    def count(*event: Any) -> None:
        calls[0] += event[1] in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_a_million_files_are_looked_through_without_a_call_for_each() -> None:
    count = 1_000_000
    state = State(header=replace(header(1), end=None), files=FileSet(million(count)))
    with counted_calls() as calls:
        found = match_files(state, TABLE, Comparison("c", Operator.LESS, Literal("int64", 500)), WRITTEN)
        assert found.totals()[0] == 500
    assert calls[0] < count // 100
    with counted_calls() as calls:
        assert len(list(match_files(state, TABLE, start=START + 3 * DAY, end=START + 4 * DAY))) == 10
    assert calls[0] < count // 100


def million(count: int) -> FileColumns:
    """Return files, ten in each window, whose column `c` holds the file's number and the next four."""
    numbers = np.arange(count)
    columns = {name: np.zeros(count, dtype=np.int64) for name in COLUMNS.names} | {
        "path": pa.array([path_of(number // 10 + 1, "main.m") for number in range(count)]),
        "rows": np.ones(count, dtype=np.int64),
        "schema": pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [TABLE.schema]),
        "table": pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [TABLE.table]),
        "chunk": numbers // 10 + 1,
        "attempt": pa.repeat(pa.scalar(b"abcd", pa.binary(4)), count),
        "sha256": pa.repeat(pa.scalar(b"a" * 32, pa.binary(32)), count),
        "schema_id": np.ones(count, dtype=np.int32),
        "removed_at": pa.nulls(count, pa.timestamp("us", "UTC")),
    }
    bounds = pa.table([numbers, np.zeros(count, dtype=np.int64), numbers, numbers + 4], schema=schema_of("integer"))
    return FileColumns(pa.table(columns).cast(COLUMNS), Bounds(lambda: ["c"], lambda _: {"integer": bounds}))
