"""The range of time that a query's own comparisons leave, where Spark passes these to the data source.

Spark evaluates all its filters itself, so a range may be too wide: rows never depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from snapshot_assets.engine.time_range import in_zone

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting without which Spark fails a read whose reader takes filters."""

_LOWER, _UPPER = (EqualTo, GreaterThan, GreaterThanOrEqual), (EqualTo, LessThan, LessThanOrEqual)
_AFTER = timedelta(microseconds=1)
"""From a time that belongs to a range to its end: Spark's times have microseconds."""


def pushed_range(filters: Iterable[Filter], column: str, zone: str) -> tuple[datetime | None, datetime | None]:
    """Return the start and the end of the times that filters leave; None for an end that they leave open.

    Args:
        filters: Filters of which all are true for every row.
        column: The time index.
        zone: IANA zone of times without one.
    """
    starts, ends = [], []
    for each in filters:
        if isinstance(each, (*_LOWER, *_UPPER)) and each.attribute == (column,):
            for time in _instants(each.value, zone):
                starts += [time] if isinstance(each, _LOWER) else []
                ends += [time + _AFTER] if isinstance(each, _UPPER) else []
    return max(starts, default=None), min(ends, default=None)


def _instants(value: Any, zone: str) -> Iterator[datetime]:
    """Yield a value as an instant, unless it is no time, or lies at an end of the calendar."""
    if not isinstance(value, date) or not 1 < value.year < 9999:
        return
    if isinstance(value, datetime) and value.tzinfo is not None:
        yield value.astimezone(UTC)
    else:
        local = pa.array([value], pa.timestamp("us") if isinstance(value, datetime) else pa.date32())
        yield in_zone(local.cast(pa.timestamp("us")), zone).cast(pa.timestamp("us", "UTC"))[0].as_py()
