"""Assets of single tables, and of the plan's databases."""

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from snapshot_assets.pipeline.dagster.partitions import partitions_of
from snapshot_assets_tests.pipeline.project import ROWS, Make


def test_each_listed_table_is_an_asset_that_is_materialised_with_its_chunk(make_project: Make) -> None:
    # DuckDB ignores case: the assets have the plan's spelling, and their rows are those of the catalog's tables.
    tables = ["main.Readings", "main.sensors"]
    project = make_project(tables=tables, time_columns={"MAIN.Sensors": None}, target="copy")

    rows: dict[str, int] = {}

    @dg.asset(
        ins={"readings": dg.AssetIn(dg.AssetKey(["demo", "main", "Readings"]))},
        partitions_def=partitions_of(project.plan),
    )
    def downstream(context: dg.AssetExecutionContext, readings: DataFrame) -> None:
        rows[context.partition_key] = readings.count()

    project.user_assets.append(downstream)
    graph = project.definitions().get_repository_def().asset_graph
    readings = dg.AssetKey(["demo", "main", "Readings"])
    assert graph.get(dg.AssetKey("downstream")).parent_keys == {readings}
    assert graph.get(readings).partitions_def is not None
    assert graph.get(readings).metadata["dagster/storage_kind"] == "parquet"
    assert graph.get(dg.AssetKey(["demo", "source"])).child_keys == {project.key("schema")}
    assert graph.get(dg.AssetKey(["demo", "target"])).parent_keys == {project.key("restored")}
    assert "duckdb" in graph.get(dg.AssetKey(["demo", "source"])).kinds

    assert project.run("schema", "chunks", "untimed_tables", keys=project.keys, with_checks=False).success
    records = project.instance.fetch_materializations(readings, limit=100).records
    found = {record.partition_key: record.asset_materialization for record in records}
    assert [found[key].metadata["dagster/partition_row_count"].value for key in project.keys] == list(ROWS)
    columns = found[project.keys[0]].metadata["dagster/column_schema"].value
    assert [column.name for column in columns.columns] == ["moment", "sensor", "value"]
    lineage = found[project.keys[0]].metadata["dagster/column_lineage"].value
    assert lineage.deps_by_column["value"][0].column_name == "main.readings.value"
    assert project.run("manifest").success
    assert project.run("restored", keys=project.keys, with_checks=False).success
    lineage = project.materialized("target")[None]["dagster/column_lineage"].deps_by_column
    assert lineage["main.readings.value"][0] == dg.TableColumnDep(asset_key=readings, column_name="value")

    wanted = dg.define_asset_job("downstream_job", dg.AssetSelection.assets(downstream))
    defs = dg.Definitions.merge(project.definitions(), dg.Definitions(jobs=[wanted]))
    job = defs.resolve_job_def("downstream_job")
    assert job.execute_in_process(instance=project.instance, partition_key=project.keys[1]).success
    assert rows == {project.keys[1]: ROWS[1]}
    [record] = project.instance.fetch_materializations(dg.AssetKey(["demo", "main", "sensors"]), limit=9).records
    assert (record.partition_key, record.asset_materialization.metadata["dagster/row_count"].value) == (None, 2)


def test_there_are_none_where_the_plan_lists_no_tables_or_wants_none(make_project: Make) -> None:
    project = make_project(tables=["main.readings"], dagster={"table_assets": False})
    keys = project.definitions().get_repository_def().asset_graph.get_all_asset_keys()
    assert {key.path[-1] for key in keys} == {"source", "schema", "chunks", "untimed_tables", "manifest", "tag"}


def test_a_plan_of_all_tables_names_those_that_have_an_asset(make_project: Make) -> None:
    project = make_project(dagster={"table_assets": ["main.readings"]})
    readings = dg.AssetKey(["demo", "main", "readings"])
    graph = project.definitions().get_repository_def().asset_graph
    assert {key for key in graph.get_all_asset_keys() if len(key.path) == 3} == {readings}
    code = graph.get(project.key("chunks")).code_version
    assert graph.get(readings).code_version == code is not None

    for _ in range(2):  # the second run only skips
        assert project.run("chunks", keys=project.keys[:2], with_checks=False).success
    events = [each.asset_materialization for each in project.instance.fetch_materializations(readings, limit=9).records]
    assert len(events) == 4
    for event in events:
        assert event is not None
        columns = event.metadata["dagster/column_schema"].value.columns
        assert [column.name for column in columns] == ["moment", "sensor", "value"]
        assert event.tags["dagster/code_version"] == code


@pytest.mark.parametrize("asset", ["schema", "chunks"])
def test_a_table_asset_without_a_table_is_refused_before_anything_is_written(make_project: Make, asset: str) -> None:
    project = make_project(dagster={"table_assets": ["main.reading"]})
    result = project.run(asset, keys=project.keys[:1] if asset == "chunks" else (), with_checks=False)
    message = "table_assets has main.reading, of which no rows are exported. Did you mean 'main.readings'?"
    assert message in project.failure(result).description
    assert not project.location.exists()


def test_a_listed_table_that_the_plan_skips_is_no_table_asset_that_is_missing(make_project: Make) -> None:
    project = make_project(tables=["main.readings", "main.sensors"], untimed_tables="skip")
    assert project.run("schema", "chunks", keys=project.keys[:1], with_checks=False).success
    assert any("without a time index (untimed_tables: skip): main.sensors" in line for line in project.log())
    assert project.materialized("schema")[None]["tables_skipped"] == ["main.sensors"]


def test_an_asset_of_a_table_in_chunk_0_says_what_the_plan_lacks(make_project: Make) -> None:
    project = make_project(tables=["main.readings", "main.sensors"])

    @dg.asset(
        ins={"sensors": dg.AssetIn(dg.AssetKey(["demo", "main", "sensors"]))},
        partitions_def=partitions_of(project.plan),
    )
    def downstream(sensors: DataFrame) -> None: ...

    project.user_assets.append(downstream)
    assert project.run("chunks", "untimed_tables", keys=project.keys, with_checks=False).success
    advice = "write `time_columns: {main.sensors: null}` in the plan"
    assert sum(advice in line for line in project.log()) == 1
    wanted = dg.define_asset_job("downstream_job", dg.AssetSelection.assets(downstream))
    defs = dg.Definitions.merge(project.definitions(), dg.Definitions(jobs=[wanted]))
    job = defs.resolve_job_def("downstream_job")
    result = job.execute_in_process(instance=project.instance, partition_key=project.keys[1], raise_on_error=False)
    assert advice in project.failure(result).description


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
@pytest.mark.parametrize("waits", [False, True])
def test_a_table_is_read_in_the_run_that_exports_it_only_by_a_step_that_waits(make_project: Make, waits: bool) -> None:
    """Dagster orders no steps by a table's asset: it might read what an earlier run exported."""
    project = make_project(tables=["main.readings"])
    chunks, read = dg.AssetKey(["demo", "chunks"]), []

    @dg.asset(
        ins={"readings": dg.AssetIn(dg.AssetKey(["demo", "main", "readings"]))},
        deps=[chunks] if waits else [],
        partitions_def=partitions_of(project.plan),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def downstream(readings: DataFrame) -> None:
        read.append(readings.count())

    project.user_assets.append(downstream)
    wanted = dg.define_asset_job("both", dg.AssetSelection.assets(chunks, downstream).without_checks())
    defs = dg.Definitions.merge(project.definitions(), dg.Definitions(jobs=[wanted]))
    job = defs.resolve_job_def("both")
    result = job.execute_in_process(instance=project.instance, partition_key=project.keys[0], raise_on_error=False)
    assert (result.success, read) == (waits, [24] if waits else [])
    if not waits:
        failures = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
        assert any("Add deps=[['demo', 'chunks']] to the asset that reads it" in each.description for each in failures)
