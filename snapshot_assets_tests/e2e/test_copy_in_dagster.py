"""The asset of a copy in Dagster's real web server and daemon: launched as the UI does it, and by its schedule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets_tests.databases.postgresql.helpers import queries_that_run
from snapshot_assets_tests.e2e.graphql import Graphql, backfill, end_of, launch, materialise, terminate
from snapshot_assets_tests.servers.dagster import ROOT, start_dagster
from snapshot_assets_tests.waiting import until

EXAMPLES = ROOT / "examples"
DAYS = [f"2025-01-0{day}T00:00" for day in (1, 2, 3)]
DEFINITIONS = """
import dagster as dg
from hourly_copy import carriers, every_hour
from snapshot_assets import Configuration, Plan, build_definitions, spark_resource

days = Plan(
    name="days",
    kind="query",
    source="duckdb://{folder}/source.duckdb",
    to="file://{folder}/days",
    query="SELECT carrier FROM flights WHERE moment >= :start AND moment < :end",
    start_time="2025-01-01T00:00:00Z",
    end_time="2025-01-04T00:00:00Z",
    format="json",
)
sooner = dg.ScheduleDefinition(
    name=every_hour.name,
    job_name=every_hour.job_name,
    cron_schedule="* * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
defs = dg.Definitions.merge(
    build_definitions(
        Configuration(plans=(carriers, days)),
        executor=dg.in_process_executor,
        resources={{"pyspark": spark_resource()}},
    ),
    dg.Definitions(schedules=[sooner]),
)
"""
ENDLESS = """
import dagster as dg
from snapshot_assets import Configuration, Plan, build_definitions, spark_resource

endless = Plan(
    name="endless",
    kind="query",
    source="{source}",
    to="file://{folder}/endless",
    query="SELECT count(*) AS n FROM generate_series(1, 100000000000) AS g(n)",
)
defs = build_definitions(
    Configuration(plans=(endless,)),
    executor=dg.in_process_executor,
    resources={{"pyspark": spark_resource()}},
)
"""
MATERIALIZATIONS = """
query Materializations($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetMaterializations {
        partition
        metadataEntries {
          label
          ... on IntMetadataEntry { intValue }
          ... on TextMetadataEntry { text }
          ... on BoolMetadataEntry { boolValue }
          ... on MarkdownMetadataEntry { mdStr }
          ... on TableMetadataEntry { table { records } }
        }
      }
    }
  }
}
"""
RUNS = """
{ runsOrError(filter: {tags: [{key: "dagster/schedule_name", value: "hourly_carriers"}]}) {
    ... on Runs { results { status } } } }
"""


def events(graphql: Graphql, *key: str) -> list[dict[str, Any]]:
    """Return the partition and metadata of each materialization of an asset."""
    node = graphql(MATERIALIZATIONS, key={"path": key})["assetNodeOrError"]
    return [
        {"partition": event["partition"]}
        | {
            entry.pop("label"): next((value for value in entry.values() if value is not None), None)
            for entry in event["metadataEntries"]
        }
        for event in node["assetMaterializations"]
    ]


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which the example copies from, and to, a folder."""
    return {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(EXAMPLES))),
        "COPY_SOURCE": f"duckdb://{folder}/source.duckdb",
        "COPY_TO": f"file://{folder}/copies",
    }


@pytest.mark.slow
def test_dagster_loads_the_example(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).parent / "dagster"),
        "definitions",
        "validate",
        "-f",
        str(EXAMPLES / "hourly_copy.py"),
    ]
    variables = os.environ | {"DAGSTER_HOME": str(tmp_path)} | environment(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_copies_are_launched_from_the_ui_and_by_their_schedule_and_show_their_rows(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE flights AS SELECT 'UA' AS carrier, TIMESTAMP '2025-01-01' + to_days((i // 3)::INT) AS moment"
            " FROM range(5) AS r(i)"
        )
    (tmp_path / "definitions.py").write_text(DEFINITIONS.format(folder=tmp_path))
    with start_dagster(tmp_path, ["-f", "definitions.py"], environment(tmp_path)) as servers:
        graphql = servers.graphql
        materialise(graphql, ["carriers", "copy"], "definitions.py")
        backfill(graphql, ["days", "copy"], DAYS)
        until(lambda: graphql(RUNS)["runsOrError"]["results"], lambda runs: {"status": "SUCCESS"} in runs)
        carriers, days = events(graphql, "carriers", "copy"), events(graphql, "days", "copy")
    assert len(carriers) >= 2
    for event in carriers:
        assert (event["dagster/row_count"], event["file_count"], event["format"]) == (1, "1", "csv?header=true")
        assert "SELECT carrier, count(*) AS flights" in event["query"]
        manifest = Path(event["location"].removeprefix("file://")) / "manifest.json"
        assert json.loads(manifest.read_text())["sealed"] is event["sealed"] is True
        [file] = [json.loads(record) for record in event["files"]["records"]]
        assert (manifest.parent / file["path"]).stat().st_size == file["bytes"] == event["bytes"]
    assert len({event["location"] for event in carriers}) == len(carriers)
    assert {day["partition"]: day["dagster/partition_row_count"] for day in days} == dict(
        zip(DAYS, (3, 2, 0), strict=True)
    )
    assert {day["partition"] for day in days if "files" in day} == set(DAYS[:2])
    assert {day["partition"]: day["file_count"] for day in days} == dict(zip(DAYS, ("1", "1", "0"), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_is_terminated_in_the_ui_ends_its_query(postgresql_database: str, tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text(ENDLESS.format(folder=tmp_path, source=postgresql_database))
    with start_dagster(tmp_path, ["-f", "definitions.py"]) as servers:
        graphql = servers.graphql
        run = launch(graphql, ["endless", "copy"], "definitions.py")
        until(lambda: queries_that_run(postgresql_database))
        terminate(graphql, run)
        assert end_of(graphql, run) == "CANCELED"
    assert queries_that_run(postgresql_database) == 0
    assert not list(tmp_path.glob("endless/data/**/*.parquet"))
