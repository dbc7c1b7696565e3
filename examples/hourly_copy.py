"""Copies a query every hour to a new folder: `dagster dev -f examples/hourly_copy.py`.

The source is the demo's database (`make demo`), or the one in the environment variable COPY_SOURCE; COPY_TO is a folder
on object storage. A copy is complete once its `manifest.json` says `"sealed": true`.
"""

import os
from pathlib import Path

import dagster as dg

from snapshot_assets import Configuration, Plan, build_definitions, spark_resource

DEMO = Path(__file__).resolve().parent.parent / "demo"

carriers = Plan(
    name="carriers",
    kind="query",
    source=os.environ.get("COPY_SOURCE", f"duckdb://{DEMO}/nycflights13.duckdb"),
    to=os.environ.get("COPY_TO", f"file://{DEMO}/copies") + "/carriers/{now:%Y%m%dT%H%M%SZ}",
    query="SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier",
    format="csv",
    format_options={"header": True},
)
every_hour = dg.ScheduleDefinition(name="hourly_carriers", job_name="carriers_copy", cron_schedule="0 * * * *")
defs = dg.Definitions.merge(  # a module has one Definitions object
    build_definitions(
        Configuration(plans=(carriers,)),
        executor=dg.in_process_executor,
        resources={"pyspark": spark_resource()},
    ),
    dg.Definitions(schedules=[every_hour]),
)
