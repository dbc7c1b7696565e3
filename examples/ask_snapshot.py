"""Asks a snapshot which airlines are late, in DuckDB and in Polars, without Spark: `python examples/ask_snapshot.py`.

The snapshot is the demo's (`make demo`), or the location in the environment variable SNAPSHOTS. It needs the extra
`polars`. Only the columns and the weeks that a question needs are read, and each file is hashed before.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl

import snapshot_assets

DEMO = Path(__file__).resolve().parent.parent / "demo"

snapshot = snapshot_assets.open(os.environ.get("SNAPSHOTS", f"file://{DEMO}/snapshots/flights"))
print(snapshot)

# The variables are tables for DuckDB. A scan is a stream, for one query.
airlines = snapshot.table("main.airlines")
flights = snapshot.table("main.flights").scan(["carrier", "arr_delay"], start=datetime(2013, 12, 1, tzinfo=UTC))
print(
    duckdb.sql(
        "SELECT name, round(avg(arr_delay), 1) AS minutes_late, count(*) AS flights"
        " FROM flights JOIN airlines USING (carrier) GROUP BY name ORDER BY minutes_late DESC LIMIT 3"
    )
)

# A lazy frame reads the columns that the query uses.
late = (
    snapshot.table("main.flights")
    .to_polars()
    .group_by("carrier")
    .agg(pl.col("arr_delay").mean().round(1).alias("minutes_late"), pl.len().alias("flights"))
    .join(snapshot.table("main.airlines").to_polars(), on="carrier")
    .sort("minutes_late", descending=True)
)
print(late.select("name", "minutes_late", "flights").head(3).collect())
