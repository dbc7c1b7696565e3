"""Each carrier's mean delay by day: reads one table of plan `flights`, and is the source of plan `delays`."""

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame, functions

from snapshot_assets import ChunkConfig, load_configuration, partitions_of

PLAN = load_configuration(Path(__file__).parent / "delays" / "snapshots.yaml").plan("delays")


@dg.asset(
    key=["delays", "mean_delays"],
    partitions_def=partitions_of(PLAN),
    ins={"flights": dg.AssetIn(key=["flights", "main", "flights"])},
    deps=[["flights", "chunks"]],  # a run of both exports the table first
    io_manager_key="snapshot_io_manager",
)
def mean_delays(flights: DataFrame, config: ChunkConfig) -> DataFrame:
    """Each carrier's flights of a day, and their mean delay on arrival."""
    return flights.groupBy("carrier").agg(
        functions.count("*").alias("flights"), functions.avg("arr_delay").alias("mean_delay")
    )
