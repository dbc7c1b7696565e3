"""Rows that the benchmarks of the writer write: readings of sensors, and wide rows."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

READINGS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("device", pa.string()),
        ("temperature", pa.float64()),
        ("humidity", pa.float64()),
        ("voltage", pa.float64()),
        ("load", pa.float64()),
        ("status", pa.int32()),
        ("note", pa.string()),
    ]
)
WIDE = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
_NOTES = pa.array(["ok", "ok", "ok", "degraded", "battery low", None])
_DEVICES = pa.array([f"device-{number:04d}" for number in range(1000)])


def readings(rows: int, batch_rows: int = 100_000) -> Iterator[pa.RecordBatch]:
    """Yield readings of a thousand devices: measures of few decimals, one of all, codes and short texts."""
    random = np.random.default_rng(7)
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        numbers = np.arange(start, start + count)
        columns = [
            pa.array(1_704_067_200_000_000 + numbers * 1000, READINGS.field("ts").type),
            _DEVICES.take(pa.array(numbers % 1000)),
            pa.array(np.round(20 + 5 * np.sin(numbers / 1e5) + 2 * random.random(count), 2)),
            pa.array(np.round(50 + 20 * random.random(count), 1)),
            pa.array(np.round(3.3 + random.random(count) / 2, 3)),
            pa.array(100 * random.random(count)),
            pa.array(np.where(random.random(count) < 0.95, 200, random.integers(0, 500, count)), pa.int32()),
            _NOTES.take(pa.array(random.integers(0, len(_NOTES), count))),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=READINGS)


def wide(rows: int, width: int, batch_rows: int = 2000) -> Iterator[pa.RecordBatch]:
    """Yield rows of `width` random bytes, which no encoding makes smaller; batches repeat one another."""
    payload = pa.array([os.urandom(width) for _ in range(batch_rows)], pa.binary())
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        yield pa.record_batch([pa.array(range(start, start + count), pa.int64()), payload[:count]], schema=WIDE)
