"""Comparisons of times in a query leave files out, where Spark passes them to the data source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThan, LessThanOrEqual, Not

import snapshot_assets
from snapshot_assets.engine.reading.source import PUSHDOWN, pushed_range
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import RANGE, read, rows

NOON = datetime(2025, 1, 2, 12, tzinfo=UTC)
WITHIN = "t >= '2025-01-02T01:00:00Z' AND t < '2025-01-03T05:00:00Z'"


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, while it passes filters to Python data sources."""
    spark.conf.set(PUSHDOWN, "true")
    snapshot_assets.register(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    snapshot_assets.register(spark)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("t",), NOON)], (NOON, None)),
        ([LessThan(("t",), NOON)], (None, NOON.replace(microsecond=1))),
        ([GreaterThan(("t",), NOON.replace(hour=3)), GreaterThan(("t",), NOON)], (NOON, None)),
        ([EqualTo(("t",), NOON)], (NOON, NOON.replace(microsecond=1))),
        ([LessThanOrEqual(("t",), NOON), GreaterThan(("x",), 1)], (None, NOON.replace(microsecond=1))),
        ([EqualTo(("t",), NOON.replace(tzinfo=None))], (NOON.replace(hour=11), NOON.replace(hour=11, microsecond=1))),
        ([GreaterThan(("t",), datetime(2025, 3, 30, 12))], (datetime(2025, 3, 30, 9, tzinfo=UTC), None)),
        ([GreaterThan(("t",), date(2025, 1, 2))], (datetime(2025, 1, 1, 23, tzinfo=UTC), None)),
        ([LessThan(("x",), NOON), LessThan(("t", "t"), NOON)], (None, None)),
        ([In(("t",), (NOON,)), Not(EqualTo(("t",), NOON)), GreaterThan(("t",), None)], (None, None)),
        ([GreaterThan(("t",), datetime.max), LessThan(("t",), date.min)], (None, None)),
    ],
)
def test_comparisons_of_the_time_index_are_a_range(filters: list[Filter], expected: tuple[Any, Any]) -> None:
    assert pushed_range(filters, "t", "Europe/Berlin") == expected


@pytest.mark.slow
def test_a_query_opens_only_the_files_that_its_times_allow(exported: Place, pushing: SparkSession) -> None:
    uri = exported.store.uri
    expected = rows(read(uri, "main.readings", **RANGE))
    for file in (exported.folder / "data").rglob("*.parquet"):
        if file.parent.name not in ("2", "3") or "readings" not in file.name:
            file.unlink()
    frame = pushing.read.format("snapshot").option("table", "main.readings").load(uri)
    assert rows(frame.where(WITHIN)) == expected
    assert frame.where(f"{WITHIN} AND t < '2025-01-02'").count() == 0
    assert rows(frame.where(f"{WITHIN} AND sensor = 's0'").select("t")) == [
        (row[0],) for row in sorted(expected, key=repr) if "s0" in row
    ]
    partly = pushing.read.format("snapshot").options(table="main.readings", start=RANGE["start"]).load(uri)
    assert rows(partly.where("t < '2025-01-03T05:00:00Z'")) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        WITHIN,
        "t > '2025-01-02T22:00:00Z'",
        "t = '2025-01-02T03:00:00Z'",
        "t IS NULL",
        "NOT t > '2025-01-02'",
        "t < '2020-01-01'",
    ],
)
def test_the_rows_are_those_of_a_query_without_it(exported_place: Place, pushing: SparkSession, condition: str) -> None:
    uri = exported_place.store.uri
    pushed = pushing.read.format("snapshot").option("table", "main.readings").load(uri)
    assert rows(pushed.where(condition)) == rows(snapshot_assets.read(pushing, uri, "main.readings").where(condition))
