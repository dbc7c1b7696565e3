"""The check `current` of an asset that is a plan's source: which partitions were made from other versions."""

# Dagster reads the annotations of assets, so they must not be postponed here.
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.dagster.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.dagster.partitions import partitions_of
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.pipeline.project import Project
from snapshot_assets_tests.pipeline.test_io_manager import add_asset

RAW, SEEN = dg.AssetKey("raw"), dg.AssetKey("seen")


@accepting_unstable_parts()
def add_upstream(project: Project, version: dict[str, str]) -> None:
    @dg.asset(key=RAW, partitions_def=partitions_of(project.plan), backfill_policy=dg.BackfillPolicy.single_run())
    def raw(context: dg.AssetExecutionContext) -> Any:
        return dg.MaterializeResult(data_version=dg.DataVersion(version["raw"]))

    project.user_assets.append(raw)


def run(project: Project, *assets: dg.AssetKey, keys: list[str], config: dict[str, Any] | None = None) -> None:
    assert project._execute(dg.AssetSelection.assets(*assets).without_checks(), keys, None, config or {}).success


@pytest.fixture
def made(project: Project, spark: SparkSession) -> tuple[Project, dict[str, str]]:
    """A project with two exported partitions of `demo/delays`, each made from one of `raw`."""
    versions = {"raw": "1"}
    frame = spark.createDataFrame([(1,)], "n int")
    add_asset(project, lambda keys: dict.fromkeys(keys, frame), deps=[RAW])
    add_upstream(project, versions)
    run(project, RAW, keys=project.keys[:2])
    run(project, project.key("delays"), keys=project.keys[:2])
    return project, versions


def judged(project: Project, keys: list[str]) -> dict[str | None, str]:
    assert project.run_checks("delays", keys=keys).success
    found = project._evaluations("delays", "current")
    return {key: str(found[key].description).partition(".")[0] for key in project.keys[:3] if key in found}


CURRENT = "What each partition was made from has the same versions in Dagster as when it was exported"
OTHERS, UNKNOWN = "It was made from other versions", "Dagster has no record of what the exported rows were made from"


def test_partitions_are_current_until_what_they_were_made_from_has_another_version(
    made: tuple[Project, dict[str, str]],
) -> None:
    project, versions = made
    first, second, third = project.keys[:3]
    run(project, RAW, keys=[first])  # again, with the same version
    assert judged(project, [first, second]) == {first: CURRENT, second: CURRENT}
    versions["raw"] = "2"
    run(project, RAW, keys=[second])
    assert judged(project, []) == {first: CURRENT, second: OTHERS}
    assert project.check_metadata("delays", "current", second) == {
        "changed": ["raw"],
        "unknown": [],
    }
    run(project, project.key("delays"), keys=[second], config={"delays": {"replace": True}})
    assert judged(project, [first, second, third]) == {first: CURRENT, second: CURRENT, third: "It is not exported"}


def test_what_dagster_has_no_versions_of_is_unknown(project: Project, spark: SparkSession) -> None:
    frame, [key] = spark.createDataFrame([(1,)], "n int"), project.keys[:1]
    add_asset(project, lambda keys: dict.fromkeys(keys, frame), deps=[SEEN])
    run(project, project.key("delays"), keys=[key])
    assert judged(project, [key]) == {key: UNKNOWN}
    assert project.check_metadata("delays", "current", key)["unknown"] == ["seen"]


def test_an_asset_without_upstream_assets_has_no_result(project: Project, spark: SparkSession) -> None:
    frame, [key] = spark.createDataFrame([(1,)], "n int"), project.keys[:1]
    add_asset(project, lambda keys: dict.fromkeys(keys, frame))
    run(project, project.key("delays"), keys=[key])
    assert judged(project, [key]) == {}


@pytest.mark.parametrize("event", [dg.AssetMaterialization, dg.AssetObservation])
@pytest.mark.parametrize("partitioned", [True, False])
@accepting_unstable_parts()
def test_versions_of_assets_that_are_made_elsewhere_are_compared(
    project: Project, spark: SparkSession, event: Any, partitioned: bool
) -> None:
    frame, [key] = spark.createDataFrame([(1,)], "n int"), project.keys[:1]

    def report(version: str) -> None:
        tags = {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}
        project.instance.report_runless_asset_event(event(SEEN, partition=key if partitioned else None, tags=tags))

    add_asset(project, lambda keys: dict.fromkeys(keys, frame), deps=[SEEN])
    spec = dg.AssetSpec(SEEN, partitions_def=partitions_of(project.plan) if partitioned else None)
    project.user_assets.append(spec)
    report("1")
    run(project, project.key("delays"), keys=[key])
    assert judged(project, [key]) == {key: CURRENT}
    report("2")
    assert judged(project, [key]) == {key: OTHERS}


def test_a_chunk_that_another_deployment_exported_is_unknown(
    made: tuple[Project, dict[str, str]], spark: SparkSession
) -> None:
    project, _ = made
    first, second = project.keys[:2]
    address, store = (
        DatabaseAddress("asset:demo/delays", "asset:demo/delays"),
        open_store(parse_location(project.plan.to)),
    )
    frames = {1: {TableName("demo", "delays"): spark.createDataFrame([(2,)], "n int")}}
    started = ExportRun(project.plan, address, store, SparkRunner(lambda: spark), "elsewhere").open_frames(frames)
    assert [len(outcomes) for outcomes in started.commits([1], replace_completed=True)] == [1]
    assert judged(project, [first, second]) == {first: UNKNOWN, second: CURRENT}
