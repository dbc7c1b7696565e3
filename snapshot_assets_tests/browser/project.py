"""The project that the browser sees: a month in DuckDB, a month that is slow to read, and a plan that continues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from snapshot_assets.format.units import time_text

DAYS = 31
ROWS_A_DAY = 24

_PLANS = """
sources:
  readings: duckdb://${{CONFIG_DIR}}/source.duckdb
  copy: duckdb://${{CONFIG_DIR}}/copy.duckdb
  slow: {slow}
plans:
  month:
    source: readings
    to: file://${{CONFIG_DIR}}/month
    target: copy
    start_time: 2013-01-01T00:00:00Z
    end_time: 2013-02-01T00:00:00Z
    chunk_time_window: 1d
    parallelism: 2
  slow:
    source: slow
    to: file://${{CONFIG_DIR}}/slow
    start_time: 2013-01-01T00:00:00Z
    end_time: 2013-02-01T00:00:00Z
    chunk_time_window: 1d
    parallelism: 1
  live:
    kind: continuous
    source: readings
    to: file://${{CONFIG_DIR}}/live
    start_time: {minutes_ago}
    chunk_time_window: 1m
    parallelism: 1
"""

SLOW_SOURCE = """
SET TimeZone = 'UTC';
CREATE TABLE readings (
    moment timestamptz NOT NULL, work integer, digest text GENERATED ALWAYS AS (md5(repeat('x', work))) VIRTUAL
);
INSERT INTO readings SELECT moment, CASE WHEN moment < '2013-01-09' THEN 1 ELSE 400000000 END
    FROM generate_series('2013-01-01'::timestamptz, '2013-01-31', '1 day') AS moment;
"""
"""A run of the month commits its first eight days at once, and takes more than a second for each of the others."""


def write_project(folder: Path, slow: str) -> None:
    """Write `snapshots.yaml` and the DuckDB source.

    Args:
        folder: Where they go.
        slow: URI of a PostgreSQL database that has run the script `SLOW_SOURCE`.
    """
    minutes_ago = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=3)
    (folder / "snapshots.yaml").write_text(_PLANS.format(slow=slow, minutes_ago=time_text(minutes_ago)))
    with duckdb.connect(str(folder / "source.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE sensors (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL)")
        connection.execute("INSERT INTO sensors VALUES (1, 'roof'), (2, 'cellar')")
        connection.execute("CREATE TABLE readings (moment TIMESTAMPTZ NOT NULL, sensor INTEGER, value DOUBLE)")
        connection.execute(
            "INSERT INTO readings SELECT TIMESTAMPTZ '2013-01-01' + to_hours(n::INT), n % 2 + 1, n"
            " FROM range($rows) AS r(n)",
            {"rows": DAYS * ROWS_A_DAY},
        )


def rows_of(folder: Path, database: str) -> list[tuple[object, ...]]:
    """Return the rows of both tables in one of the DuckDB files: `source` or `copy`."""
    with duckdb.connect(str(folder / f"{database}.duckdb"), read_only=True) as connection:
        tables = ("SELECT * FROM sensors ORDER BY id", "SELECT * FROM readings ORDER BY moment")
        return [row for table in tables for row in connection.execute(table).fetchall()]


def flip_a_byte(folder: Path, chunk: int) -> None:
    """Damage the file of a chunk of `month`."""
    [file] = (folder / "month" / "data" / str(chunk)).glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
