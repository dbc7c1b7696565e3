"""What Dagster shows as unsynced: what was made from something that has another version by now, and nothing else."""

from collections.abc import Sequence

import dagster as dg
import duckdb
import pyspark.sql
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from snapshot_assets_tests.pipeline.project import Make, Project, run_job


def unsynced(project: Project, *assets: str) -> list[tuple[str, str | None]]:
    """Return the partitions of assets, given as a/b, that Dagster shows as unsynced."""
    graph = project.definitions().get_repository_def().asset_graph
    resolver = CachingStaleStatusResolver(project.instance, graph, LoadingContextForTest(project.instance))
    found: list[tuple[str, str | None]] = []
    for asset in assets:
        key = dg.AssetKey(asset.split("/"))
        keys: Sequence[str | None] = project.keys if graph.get(key).is_partitioned else [None]
        if asset == "demo/tag":
            keys = project.instance.get_dynamic_partitions("demo_tags")
        found += [(asset, each) for each in keys if resolver.get_status(key, each) is StaleStatus.STALE]
    return found


@pytest.mark.slow
def test_a_fresh_export_and_restore_are_in_sync_until_the_source_changes(make_project: Make) -> None:
    project = make_project(target="copy", tables=["main.readings", "main.sensors"], time_columns={"main.sensors": None})
    everything = (
        "demo/manifest",
        "demo/schema",
        "demo/chunks",
        "demo/untimed_tables",
        "demo/restored",
        "demo/main/readings",
    )
    assert project.run("chunks", keys=project.keys).success  # it begins the snapshot
    assert project.run("schema", "untimed_tables", "manifest").success
    assert project.run("restored", keys=project.keys).success
    assert unsynced(project, *everything, "demo/main/sensors") == []

    with duckdb.connect(str(project.database)) as connection:
        connection.execute("INSERT INTO readings VALUES (TIMESTAMPTZ '2013-01-02 05:00:00Z', 1, 0.5)")
    assert project.run("chunks", single=project.keys[1], config={"chunks": {"replace": True}}).success
    assert project.run("manifest").success
    assert unsynced(project, *everything) == [("demo/restored", key) for key in project.keys]


def own_asset(version: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=["demo", "own"],
        partitions_def=dg.StaticPartitionsDefinition([f"2013-01-0{day}T00:00" for day in range(1, 7)]),
        deps=[dg.AssetKey(["demo", "main", "readings"])],
        io_manager_key="snapshot_io_manager",
        required_resource_keys={"pyspark"},
        metadata={"snapshots/plan": "other"},
        code_version=version,
    )
    def own(context: dg.AssetExecutionContext) -> pyspark.sql.DataFrame:
        return context.resources.pyspark.spark_session.createDataFrame([(1,)], "n int")

    return own


@pytest.mark.slow
def test_an_asset_of_the_user_is_unsynced_by_its_code_or_by_the_table_that_it_reads(make_project: Make) -> None:
    project = make_project(tables=["main.readings"])
    other = project.plan.changed(name="other", to=f"{project.plan.to}-other", tables=(), source="asset:demo/own")
    project.more_plans.append(other)
    project.user_assets.append(own_asset("7"))
    assert project.run("chunks", keys=project.keys, with_checks=False).success
    for key in project.keys[:2]:
        assert project.run("own", single=key).success
    assert unsynced(project, "demo/own") == []

    assert project.run("chunks", single=project.keys[1], config={"chunks": {"replace": True}}).success
    assert unsynced(project, "demo/own") == [("demo/own", project.keys[1])]
    project.user_assets[:] = [own_asset("8")]
    assert unsynced(project, "demo/own") == [("demo/own", key) for key in project.keys[:2]]


@pytest.mark.slow
def test_what_is_restored_from_a_seal_of_another_deployment_is_in_sync(copied: Make) -> None:
    project = copied(target="copy")
    assert project.run("restored", keys=project.keys).success
    assert unsynced(project, "demo/restored") == []


def test_what_the_user_made_from_a_table_is_unsynced_once_the_table_has_other_files(make_project: Make) -> None:
    project = make_project(tables=["main.readings", "main.sensors"], time_columns={"main.sensors": None})

    @dg.asset(key=["demo", "names"], deps=[dg.AssetKey(["demo", "main", "sensors"])])
    def names() -> None: ...

    project.user_assets.append(names)
    assert project.run("schema", "untimed_tables").success
    assert project.run("names").success
    assert project.run("untimed_tables").success  # its chunk is present
    assert unsynced(project, "demo/names") == []
    assert project.run("untimed_tables", config={"untimed_tables": {"replace": True}}).success
    assert unsynced(project, "demo/names") == [("demo/names", None)]


def test_a_tag_that_a_rule_creates_is_in_sync(make_project: Make) -> None:
    project = make_project(retention={"tag": {}})
    assert run_job(project, "demo_export", {"demo__manifest": {"config": {"create_due_tag": True}}}).success
    assert len(project.instance.get_dynamic_partitions("demo_tags")) == 1
    assert unsynced(project, "demo/tag", "demo/manifest") == []
