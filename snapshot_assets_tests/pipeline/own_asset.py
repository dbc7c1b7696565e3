"""A project whose own asset is the first to start Spark.

Run as `python -m snapshot_assets_tests.pipeline.own_asset FOLDER`; its last line is JSON: the interpreters
of the workers, and how many rows were restored.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame

from snapshot_assets.pipeline.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.partitions import partitions_of
from snapshot_assets_tests.pipeline.project import Project, open_project


def interpreters(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the interpreter of a worker; it finds this package and its dependencies."""
    import snapshot_assets.engine.export.tasks

    yield pa.RecordBatch.from_pydict(
        {"python": [sys.executable], "module": [snapshot_assets.engine.export.tasks.__name__]}
    )


@accepting_unstable_parts()
def add_asset(project: Project) -> None:
    @dg.asset(
        key=["demo", "pythons"],
        partitions_def=partitions_of(project.plan),
        io_manager_key="demo_io_manager",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def pythons(pyspark: LazyPySparkResource) -> DataFrame:
        return pyspark.spark_session.range(1).mapInArrow(interpreters, "python string, module string")

    @dg.asset(
        key=["demo", "seen"],
        partitions_def=partitions_of(project.plan),
        ins={"pythons": dg.AssetIn(["demo", "pythons"])},
        io_manager_key="nothing",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def seen(context: dg.AssetExecutionContext, pythons: DataFrame) -> None:
        context.add_output_metadata({"pythons": sorted({row.python for row in pythons.collect()})})

    project.user_assets[:] = [pythons, seen]
    project.resources["nothing"] = dg.mem_io_manager


def main(folder: Path) -> dict[str, Any]:
    """Run the project's own assets, then export and restore another one."""
    (folder / "own").mkdir()
    with open_project(folder / "own") as project:
        add_asset(project)
        assert project.run("pythons", "seen", single=project.keys[0], with_checks=False).success
        pythons = project.materialized("seen")[project.keys[0]]["pythons"]
    (folder / "plan").mkdir()
    with open_project(folder / "plan", target="copy") as project:
        exports = ("schema", "chunks", "untimed_tables", "manifest")
        assert project.run(*exports, keys=project.keys, with_checks=False).success
        assert project.run("restored", keys=project.keys, with_checks=False).success
        rows = [metadata["rows_loaded"] for metadata in project.materialized("restored").values()]
    return {"pythons": pythons, "restored": sum(rows)}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(main(Path(sys.argv[1])))}\n")
