"""The code location: every plan of `snapshots.yaml`, as Dagster definitions. Only wiring."""

import dagster as dg

from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.pipeline.dagster.resources import SPARK
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.read_configuration import load_configuration

# A run of a plan is one process, so that its steps share one Spark session and one state of the source.
defs: dg.Definitions = build_definitions(
    load_configuration(), executor=dg.in_process_executor, resources={SPARK: spark_resource()}
)
