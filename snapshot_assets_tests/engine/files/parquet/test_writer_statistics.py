"""Statistics of a file bound every value in it, in the order of the values' type."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.engine.files.parquet.statistics import BOUND_BYTES, file_columns, row_groups
from snapshot_assets.format.actions import ColumnStatistics, RowGroup

_DECIMAL = pa.decimal128(38, 4)
_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=100),
    pa.large_binary(): st.binary(max_size=100) | st.integers(60, 70).map(lambda size: b"\xff" * size),
    pa.binary(70): st.binary(min_size=70, max_size=70),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.decimal128(9, 2): st.decimals(-9_999_999, 9_999_999, places=2),
    pa.decimal128(18, 2): st.decimals(-(10**15), 10**15, places=2),
    _DECIMAL: st.decimals(-(10**30), 10**30, places=4),
}


def statistics(table: pa.Table, rows_per_group: int = 1 << 20) -> tuple[tuple[ColumnStatistics, ...], list[RowGroup]]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows_per_group, store_decimal_as_integer=True)
    groups = row_groups(pq.read_metadata(pa.BufferReader(sink.getvalue())), table.schema)
    return file_columns(groups, table.schema), list(groups)


def one_column(values: list[Any], arrow_type: pa.DataType, rows_per_group: int = 1 << 20) -> ColumnStatistics:
    (column,), _ = statistics(pa.table({"c": pa.array(values, arrow_type)}), rows_per_group)
    return column


def value_of(physical: Any, arrow_type: pa.DataType) -> Any:
    """Return a physical value as the type's own, as any reader of the statistics would."""
    if pa.types.is_unsigned_integer(arrow_type):
        return physical % 2**arrow_type.bit_width
    if pa.types.is_date(arrow_type):
        return datetime.fromordinal(datetime(1970, 1, 1).toordinal() + physical).date()
    if pa.types.is_timestamp(arrow_type):
        return pa.scalar(physical, arrow_type).as_py()
    if pa.types.is_decimal(arrow_type):
        digits = int.from_bytes(physical, "big", signed=True) if isinstance(physical, bytes) else physical
        return Decimal(digits).scaleb(-arrow_type.scale, Context(prec=80))  # not rounded to 28 digits
    return physical


def comparable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@given(st.data(), st.sampled_from(list(_VALUES)), st.integers(1, 5))
def test_bounds_hold_for_every_value(data: st.DataObject, arrow_type: pa.DataType, rows_per_group: int) -> None:
    values = data.draw(st.lists(st.none() | _VALUES[arrow_type], min_size=1, max_size=12))
    present = [comparable(value) for value in values if value is not None]
    column = one_column(values, arrow_type, rows_per_group)
    assert column.column == "c"
    assert column.null_count == len(values) - len(present)
    if not present:
        assert (column.minimum, column.maximum) == (None, None)
        return
    assert column.minimum is not None
    assert value_of(column.minimum, arrow_type) <= min(present)
    if column.maximum is None:
        assert isinstance(max(present), bytes)
        assert max(present).startswith(b"\xff" * BOUND_BYTES)
    else:
        assert value_of(column.maximum, arrow_type) >= max(present)
    if not isinstance(present[0], bytes):
        assert value_of(column.minimum, arrow_type) == min(present)
        assert value_of(column.maximum, arrow_type) == max(present)


@pytest.mark.parametrize(
    ("value", "minimum", "maximum"),
    [
        (b"short", b"short", b"short"),
        (b"a" * 64, b"a" * 64, b"a" * 64),
        (b"a" * 65, b"a" * 64, b"a" * 63 + b"b"),
        (b"a" + b"\xff" * 64, b"a" + b"\xff" * 63, b"b"),
        (b"\xff" * 65, b"\xff" * 64, None),
    ],
)
def test_long_bounds_are_cut(value: bytes, minimum: bytes, maximum: bytes | None) -> None:
    assert one_column([value], pa.binary()) == ColumnStatistics("c", 0, minimum, maximum)


def test_values_so_long_that_parquet_keeps_no_bound_have_none() -> None:
    assert one_column(["x" * 10_000], pa.string()) == ColumnStatistics("c", 0, None, None)


def test_a_bound_missing_from_one_row_group_is_missing_from_the_file() -> None:
    assert one_column(["a", "x" * 10_000], pa.string(), 1) == ColumnStatistics("c", 0, None, None)


def test_a_row_group_of_nulls_does_not_hide_the_others_bounds() -> None:
    assert one_column([None, 3, None, 5], pa.int32(), 1) == ColumnStatistics("c", 2, 3, 5)


def test_nan_lies_outside_the_bounds_and_alone_has_none() -> None:
    assert one_column([1.0, math.nan, 2.0], pa.float64()) == ColumnStatistics("c", 0, 1.0, 2.0)
    assert one_column([math.nan], pa.float64()) == ColumnStatistics("c", 0, None, None)


def test_both_zeros_lie_within_the_bounds_of_one() -> None:
    column = one_column([0.0], pa.float64())
    assert isinstance(column.minimum, float)
    assert math.copysign(1, column.minimum) == -1


def test_nested_columns_are_left_out_and_shift_nothing() -> None:
    pairs = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])
    table = pa.table(
        {
            "before": pa.array([1, 2]),
            "pair": pa.array([{"x": 7, "y": [8]}, None], pairs),
            "map": pa.array([[("k", 9)], []], pa.map_(pa.string(), pa.int64())),
            "pair.x": pa.array([3, 4]),
        }
    )
    columns, _ = statistics(table)
    assert columns == (ColumnStatistics("before", 0, 1, 2), ColumnStatistics("pair.x", 0, 3, 4))


def test_row_groups_are_described_one_by_one() -> None:
    _, groups = statistics(pa.table({"c": pa.array([1, 2, 3, None, 5])}), 2)
    assert [(group.rows, group.columns) for group in groups] == [
        (2, (ColumnStatistics("c", 0, 1, 2),)),
        (2, (ColumnStatistics("c", 1, 3, 3),)),
        (1, (ColumnStatistics("c", 0, 5, 5),)),
    ]
    assert all(group.bytes > 0 for group in groups)
