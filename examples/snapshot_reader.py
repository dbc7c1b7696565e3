"""Assets of another Dagster project read a snapshot's tables: `dagster dev -f examples/snapshot_reader.py`.

`SnapshotReader` is an I/O manager that only loads: a downstream asset takes a table as a lazy Polars frame, or as a
stream for DuckDB, by the annotation of its parameter. Nothing here needs Spark, or the plan that exports the snapshot.
The snapshot is the demo's (`make demo`), or the location in the environment variable SNAPSHOTS.
"""

import os
from pathlib import Path

import dagster as dg
import duckdb
import polars as pl
import pyarrow as pa

import snapshot_assets

DEMO = Path(__file__).resolve().parent.parent / "demo"


class SnapshotReader(dg.ConfigurableIOManager):
    """Loads the asset `<prefix>/<schema>/<table>` from a snapshot.

    Attributes:
        location: The snapshot's location.
        version: A tag, revision or time, as `snapshots --at` takes it; by default, the newest seal.
    """

    location: str
    version: str | None = None

    def load_input(self, context: dg.InputContext) -> pl.LazyFrame | pa.RecordBatchReader:
        """Return the table that is named by the last two parts of the asset's key."""
        snapshot = snapshot_assets.open(self.location, self.version)
        table = snapshot.table(".".join(context.asset_key.path[-2:]))
        context.add_input_metadata({"revision": str(snapshot.revision), "rows": table.count()})
        return table.to_polars() if context.dagster_type.typing_type is pl.LazyFrame else table.scan()

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Refuse to write: a plan's export writes snapshots."""
        raise dg.DagsterInvariantViolationError(f"{context.asset_key} is part of a snapshot, which is read-only.")


def table(name: str) -> dg.AssetSpec:
    """Return the external asset of a table of the snapshot."""
    return dg.AssetSpec(["flights", "main", name]).with_io_manager_key("snapshot")


@dg.asset(ins={"flights": dg.AssetIn(["flights", "main", "flights"])})
def late_airports(flights: pl.LazyFrame) -> dg.MaterializeResult:
    """The airports with the latest arrivals, by Polars."""
    delays = flights.group_by("dest").agg(pl.col("arr_delay").mean()).drop_nulls().sort("arr_delay", descending=True)
    return dg.MaterializeResult(metadata={"airports": dg.MetadataValue.md(str(delays.head(3).collect()))})


@dg.asset(ins={"planes": dg.AssetIn(["flights", "main", "planes"])})
def makers(planes: pa.RecordBatchReader) -> dg.MaterializeResult:
    """The makers with the most planes, by DuckDB: the parameter is a table of that name."""
    rows = duckdb.sql("SELECT manufacturer, count(*) FROM planes GROUP BY ALL ORDER BY 2 DESC LIMIT 3").fetchall()
    return dg.MaterializeResult(metadata={"makers": dict(rows)})


defs = dg.Definitions(
    assets=[table("flights"), table("planes"), late_airports, makers],
    resources={"snapshot": SnapshotReader(location=os.environ.get("SNAPSHOTS", f"file://{DEMO}/snapshots/flights"))},
)
