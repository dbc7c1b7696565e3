"""Restores a snapshot each week and compares every row: `dagster dev -f examples/restore_drill.py`.

Turn on the schedule `flights_restore_drill_schedule`, or launch its job. The snapshot is the demo's (`make demo`), or
the location in the environment variable SNAPSHOTS, wherever it is exported. SCRATCH is a database beside which the
drill creates its own: on a server, or a file in the same folder.
"""

import os
from pathlib import Path

import dagster as dg

from snapshot_assets import Configuration, Plan, build_definitions, spark_resource

DEMO = Path(__file__).resolve().parent.parent / "demo"

flights = Plan(
    name="flights",
    source="duckdb:///srv/exported/elsewhere.duckdb",  # drills do not open it
    to=os.environ.get("SNAPSHOTS", f"file://{DEMO}/snapshots/flights"),
    scratch=os.environ.get("SCRATCH", f"duckdb://{DEMO}/scratch.duckdb"),
    kind="continuous",
    start_time="2013-01-01T00:00:00Z",
    chunk_time_window="7d",
    dagster={"drill_cron": "0 4 * * 0"},
)
defs = build_definitions(
    Configuration(plans=(flights,)), executor=dg.in_process_executor, resources={"pyspark": spark_resource()}
)
