"""Rows that differ between a snapshot and its source are named, each once, whatever the order of rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.engine.files import row_differences
from snapshot_assets.engine.files.row_differences import ReadRows, RowDifference, differing_rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
FIRST, SECOND, THIRD = (1, "a", 0.0), (2, "b", 1.5), (3, None, float("nan"))


def reading(rows: Sequence[tuple], schema: pa.Schema = SCHEMA) -> ReadRows:
    """Read rows in batches of two."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return lambda: (batch.slice(start, 2) for start in range(0, len(rows), 2))


def compared(snapshot: Sequence[tuple], source: Sequence[tuple], **options: Any) -> tuple[RowDifference, ...]:
    found = differing_rows(SCHEMA, reading(snapshot), reading(source), **options)
    assert not found.more
    return found.rows


def test_equal_rows_do_not_differ_in_whatever_order() -> None:
    assert compared([FIRST, SECOND, THIRD], [THIRD, FIRST, SECOND], key=["id"]) == ()
    assert compared([], []) == ()


def test_equal_sides_are_read_once_and_others_twice() -> None:
    reads: list[str] = []

    def read(name: str) -> Iterator[pa.RecordBatch]:
        reads.append(name)
        return iter(reading([FIRST])())

    differing_rows(SCHEMA, lambda: read("snapshot"), lambda: read("source"))
    assert reads == ["snapshot", "source"]
    differing_rows(SCHEMA, lambda: read("snapshot"), reading([]))
    assert reads[2:] == ["snapshot", "snapshot"]


def test_a_changed_row_has_both_values_of_the_columns_that_differ() -> None:
    source = [THIRD, (2, "b", 2.5), (1, "a", -0.0)]
    assert compared([FIRST, SECOND, THIRD], source, key=["id"]) == (
        RowDifference({"id": "1"}, ("value",), {"value": "0"}, {"value": "-0"}),
        RowDifference({"id": "2"}, ("value",), {"value": "1.5"}, {"value": "2.5"}),
    )


def test_a_row_of_one_side_has_all_its_values() -> None:
    [left, right] = compared([FIRST, SECOND], [FIRST, THIRD], key=["id"])
    assert left == RowDifference({"id": "2"}, snapshot={"id": "2", "name": '"b"', "value": "1.5"})
    assert right == RowDifference({"id": "3"}, source={"id": "3", "name": "null", "value": '"NaN"'})


def test_without_a_key_no_row_has_two_versions_and_repeated_rows_count() -> None:
    once, upper, lower = (
        {"id": number, "name": name, "value": value}
        for number, name, value in (("1", '"a"', "0"), ("2", '"B"', "1.5"), ("2", '"b"', "1.5"))
    )
    assert compared([FIRST, FIRST, SECOND, FIRST], [FIRST, (2, "B", 1.5)]) == (
        RowDifference(once, snapshot=once, times=2),
        RowDifference(lower, snapshot=lower),
        RowDifference(upper, source=upper),
    )


def test_rows_that_share_a_key_are_not_paired() -> None:
    rows = compared([FIRST, (1, "x", 0.0)], [(1, "y", 0.0)], key=["id"])
    assert [(row.snapshot is None, row.source is None) for row in rows] == [(False, True), (False, True), (True, False)]


def test_no_value_of_a_masked_column_is_shown() -> None:
    snapshot, source = [(1, "secret", 0.0), (2, "hidden", 0.0)], [(1, "SECRET", 1.0), (3, "HIDDEN", 0.0)]
    assert compared(snapshot, source, key=["id"], masked=["name"]) == (
        RowDifference({"id": "1"}, ("name", "value"), {"value": "0"}, {"value": "1"}),
        RowDifference({"id": "2"}, snapshot={"id": "2", "value": "0"}),
        RowDifference({"id": "3"}, source={"id": "3", "value": "0"}),
    )
    [one, *_] = compared(snapshot, source, key=["name"], masked=["name"])
    assert one == RowDifference({}, snapshot={"id": "1", "value": "0"})


def test_a_key_may_have_several_columns_of_any_type_and_name() -> None:
    schema = pa.schema([("c0", pa.list_(pa.float64())), ("given", pa.struct([("", pa.binary())])), ('"', pa.int8())])
    snapshot = [([0.0], {"": b"x"}, 1), ([-0.0], {"": b"x"}, 1)]
    found = differing_rows(
        schema, reading(snapshot, schema), reading([(*snapshot[0][:2], 2), snapshot[1]], schema), key=["given", "c0"]
    )
    assert found.rows == (RowDifference({"given": '{"":"\\\\x78"}', "c0": "[0]"}, ('"',), {'"': "1"}, {'"': "2"}),)


def test_rows_without_columns_are_counted() -> None:
    three = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    found = differing_rows(pa.schema([]), lambda: [three, three], lambda: [three.slice(1)])
    assert found.rows == (RowDifference({}, snapshot={}, times=4),)


def test_long_values_are_cut() -> None:
    [row] = compared([(1, "x" * 1000, 0.0)], [(1, "x" * 1000 + "y", 0.0)], key=["id"])
    assert row.columns == ("name",)
    assert row.snapshot == row.source == {"name": '"' + "x" * 199 + "…"}


def test_some_of_many_rows_are_named_and_that_there_are_more() -> None:
    many = [(number, "n", number / 7) for number in range(3000)]
    changed = [(number, "n", -value) for number, _, value in many]
    found = differing_rows(SCHEMA, reading(many), reading(changed), key=["id"])
    assert found.more
    assert len(found.rows) == 20
    assert all(row.columns == ("value",) for row in found.rows)
    assert len({row.key["id"] for row in found.rows}) == 20
    exactly = differing_rows(SCHEMA, reading(many[:5]), reading(changed[:5]), key=["id"], limit=5)
    assert (len(exactly.rows), exactly.more) == (5, False)


def test_rows_that_are_too_large_to_keep_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_differences, "_KEPT_BYTES", 20_000)
    small, large = [(1, "a", 0.0), (2, "b", 0.0)], [(3, "x" * 30_000, 0.0)]
    found = differing_rows(SCHEMA, reading([*small, *large]), reading([]), key=["id"])
    assert (sorted(row.key["id"] for row in found.rows), found.more) == (["1", "2"], True)
    found = differing_rows(SCHEMA, reading(large), reading([]), key=["id"])
    assert (found.rows, found.more) == ((), True)


def test_memory_stays_bounded_where_every_row_differs() -> None:
    before, peak = pa.total_allocated_bytes(), 0

    def read(of: float) -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(0, 1 << 19, 1 << 14):
            peak = max(peak, pa.total_allocated_bytes() - before)
            numbers = np.arange(start, start + (1 << 14))
            texts = pa.array(["some text"] * len(numbers))
            yield pa.RecordBatch.from_arrays([pa.array(numbers), texts, pa.array(numbers * of)], schema=SCHEMA)

    found = differing_rows(SCHEMA, lambda: read(0.5), lambda: read(1.5), key=["id"])
    assert (len(found.rows), found.more) == (20, True)
    assert peak < 12 << 20


def test_a_row_that_is_there_very_often_is_kept_once() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([7] * 100_000)], ["n"])
    found = differing_rows(batch.schema, lambda: [batch] * 20, lambda: [batch] * 19)
    assert found.rows == (RowDifference({"n": "7"}, snapshot={"n": "7"}, times=100_000),)


def expected_differences(snapshot: list[tuple], source: list[tuple], key: Sequence[str]) -> list[RowDifference]:
    """Find differences row by row, in no order."""

    def shown(row: tuple) -> dict[str, str]:
        number, name, value = row
        return {"id": f"{number}", "name": json.dumps(name), "value": f"{value:g}"}

    sides = [Counter(repr(shown(row)) for row in rows) for rows in (snapshot, source)]
    by_key: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for row in {repr(shown(row)): shown(row) for row in (*snapshot, *source)}.values():
        if surplus := sides[0][repr(row)] - sides[1][repr(row)]:
            by_key.setdefault(repr([row[name] for name in key or SCHEMA.names]), []).append((surplus, row))
    found = []
    for versions in by_key.values():
        keys = {name: versions[0][1][name] for name in key or SCHEMA.names}
        if sorted(surplus for surplus, _ in versions) == [-1, 1]:
            old, new = (row for _, row in sorted(versions, key=lambda version: -version[0]))
            columns = tuple(name for name in SCHEMA.names if old[name] != new[name])
            values = ({name: row[name] for name in columns} for row in (old, new))
            found.append(RowDifference(keys, columns, *values))
            continue
        for surplus, row in versions:
            values = (row, None) if surplus > 0 else (None, row)
            found.append(RowDifference(keys, (), *values, times=abs(surplus)))
    return found


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from((None, "", "a")), st.sampled_from((0.0, -0.0))), max_size=6
)


@settings(max_examples=40)
@given(ROWS, ROWS, st.sampled_from(((), ("id",), ("id", "name"))))
def test_every_difference_is_named_and_nothing_else(snapshot: list[tuple], source: list[tuple], key: tuple) -> None:
    found = compared(snapshot, source, key=key)
    assert sorted(map(repr, found)) == sorted(map(repr, expected_differences(snapshot, source, key)))
