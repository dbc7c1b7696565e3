# Dagster reads the annotations of assets, so they must not be postponed here.
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import dagster as dg
import duckdb
import pytest
from pyspark.sql import DataFrame, functions

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.assets.io_manager import ChunkConfig
from snapshot_assets.pipeline.dagster.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.dagster.partitions import partitions_of, window_of
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.documents.blocks import blocks
from snapshot_assets_tests.pipeline.project import DAY, START, Project


@accepting_unstable_parts()
def add_asset(project: Project, answer: Callable[[list[str]], Any], **settings: Any) -> None:
    """Give the project a user's own asset `demo/delays`, the plan's source, which returns `answer` of its keys."""
    project.plan = project.plan.changed(source="asset:demo/delays")

    @dg.asset(
        **{
            "key": ["demo", "delays"],
            "partitions_def": partitions_of(project.plan),
            "io_manager_key": "snapshot_io_manager",
            "backfill_policy": dg.BackfillPolicy.single_run(),
        }
        | settings
    )
    def delays(context: dg.AssetExecutionContext, config: ChunkConfig):  # type: ignore[no-untyped-def]
        return answer(list(context.partition_keys) if settings.get("partitions_def", True) else [])

    project.user_assets[:] = [delays]


@accepting_unstable_parts()
def add_reader(project: Project, **upstream: dg.AssetKey) -> dict[str, Any]:
    """Give the project an asset `demo/seen` that collects what its inputs load; returns where it puts the rows."""
    found: dict[str, Any] = {}

    @dg.asset(
        key=["demo", "seen"],
        partitions_def=partitions_of(project.plan),
        ins={name: dg.AssetIn(key) for name, key in upstream.items()},
        io_manager_key="nothing",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def seen(**inputs: Any) -> None:
        for name, loaded in inputs.items():
            found[name] = (
                rows(loaded) if isinstance(loaded, DataFrame) else {table: rows(f) for table, f in loaded.items()}
            )

    project.user_assets.append(seen)
    project.resources["nothing"] = dg.mem_io_manager
    return found


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    table = frame.toArrow()
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def hours(project, spark):
    """Return a DataFrame of a partition's first hours."""

    def make(key: str, count: int) -> DataFrame:
        start = window_of(project.plan, key).start
        values = [(start + timedelta(hours=n), n, f"{key} {n}", n / 3) for n in range(count)]
        return spark.createDataFrame(values, "hour timestamp, delay bigint, label string, share double")

    return make


def expected(key: str, count: int) -> list[tuple[Any, ...]]:
    start = START.fromisoformat(key).replace(tzinfo=UTC)
    return [(start + timedelta(hours=n), n, f"{key} {n}", n / 3) for n in range(count)]


def test_a_users_dataframe_becomes_a_chunk_and_loads_back_as_it_was(project, hours):
    key = project.keys[1]
    add_asset(project, lambda keys: hours(keys[0], 5))
    found = add_reader(project, delays=project.key("delays"))
    assert project.run("delays", "seen", single=key).success
    assert found["delays"] == expected(key, 5)
    files = [known.file for known in project.state().live_files()]
    assert {(file.schema, file.table) for file in files} == {("demo", "delays")}
    assert sum(file.rows for file in files) == 5
    metadata = project.materialized("delays")[key]
    assert metadata["dagster/partition_row_count"] == 5
    assert metadata["chunk_checksum"] == project.state().chunks[2].chunk.checksum


def test_a_range_takes_a_dict_by_key_and_loads_all_its_rows(project, hours):
    keys = project.keys[:3]
    counts = dict(zip(keys, (3, 0, 4), strict=True))
    add_asset(project, lambda keys: {key: hours(key, counts[key]) for key in keys})
    found = add_reader(project, delays=project.key("delays"))
    assert project.run("delays", "seen", keys=keys).success
    assert found["delays"] == expected(keys[0], 3) + expected(keys[2], 4)
    metadata = project.materialized("delays")
    assert [metadata[key]["dagster/partition_row_count"] for key in keys] == [3, 0, 4]
    assert project.run("delays", single=keys[0], config={"delays": {"replace": True}}).success  # of one partition, too
    assert {known.file.table for known in project.state().live_files()} == {"delays"}


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "demo/delays runs for 2 partitions at once; return a dict with one entry per partition key, or give the"),
        (1, "demo/delays returned list for 'delays'; the snapshot IO manager takes a Spark DataFrame or a dict of"),
    ],
)
def test_what_is_no_dataframe_of_each_partition_is_refused_before_anything_is_written(project, count, message):
    add_asset(project, lambda _: {"delays": [1, 2]})
    result = project.run("delays", keys=project.keys[:count])
    assert project.failure(result).description.startswith(message)
    assert not project.location.exists()


def test_a_dict_of_dataframes_becomes_tables_of_one_chunk(project, hours, spark):
    key = project.keys[0]
    labels = spark.createDataFrame([(1, "late")], "id int, label string")
    add_asset(project, lambda keys: {"delays": hours(keys[0], 2), "lookup.labels": labels})
    found = add_reader(project, delays=project.key("delays"))
    assert project.run("delays", "seen", single=key).success
    assert found["delays"] == {"demo.delays": expected(key, 2), "lookup.labels": [(1, "late")]}


def test_a_completed_chunk_is_written_again_only_on_request(project, hours):
    key = project.keys[0]
    add_asset(project, lambda keys: hours(keys[0], 2))
    assert project.run("delays", single=key).success
    before = project.state()
    add_asset(project, lambda keys: hours(keys[0], 2).withColumn("extra", functions.lit(1)))
    assert project.run("delays", single=key).success
    after = project.state()  # what is not written leaves no trace
    assert (after.revision, after.schema_id) == (before.revision, before.schema_id)
    add_asset(project, lambda keys: hours(keys[0], 3))
    assert project.run("delays", single=key).success
    assert project.materialized("delays")[key]["status"] == "present"
    assert project.materialized("delays")[key]["dagster/partition_row_count"] == 2
    assert project.run("delays", single=key, config={"delays": {"replace": True}}).success
    assert project.materialized("delays")[key]["status"] == "replaced"
    assert project.materialized("delays")[key]["dagster/partition_row_count"] == 3


def test_exported_chunks_load_as_dataframes_even_where_a_window_is_empty(project):
    found = add_reader(project, chunks=project.key("chunks"))
    assert project.run("chunks", "seen", keys=project.keys[1:3], with_checks=False).success
    day = START + DAY
    assert found["chunks"] == [(day + timedelta(hours=n), n % 2 + 1, 100.0 + n) for n in range(24)]
    assert project.run("seen", single=project.keys[2]).success
    assert found["chunks"] == []
    missing = project.failure(project.run("seen", single=project.keys[0])).description
    assert "Chunks [1]" in missing
    assert "materialise them" in missing


def test_a_manifest_seals_the_chunks_of_a_users_asset_without_another_source(project, hours):
    add_asset(project, lambda keys: {key: hours(key, 2) for key in keys})
    nothing = project.failure(project.run("manifest")).description
    assert "no partition of the Dagster asset 'demo/delays' was materialised, or the code location does not" in nothing
    assert not project.location.exists()
    assert project.run("delays", keys=project.keys[:-1]).success
    result = project.run("manifest")
    assert project.failure(result).description == (
        "1 of 6 chunks is not exported: window 6 [2013-01-06T00:00:00Z, 2013-01-07T00:00:00Z). Materialise these"
        " partitions of the Dagster asset `demo/delays`, then seal again."
    )
    assert project.run("delays", "manifest", keys=project.keys).success
    state = project.state()
    assert (state.sealed, state.missing(), state.header.source) == (True, [], "asset:demo/delays")
    assert {chunk for chunk in state.chunks if state.completed(chunk)} == {1, 2, 3, 4, 5, 6}
    [sealed] = project.materialized("manifest").values()
    assert sealed["dagster/row_count"] == 2 * len(project.keys)
    damaged = next(iter(state.files.chunk(2)))
    (project.location / damaged).write_bytes(b"")
    assert project.run_checks("delays", project.keys).success
    assert [passed for _, passed in sorted(project.checks("delays", "file_checksums").items())].index(False) == 1
    assert project.run("delays", "manifest", keys=project.keys).success
    assert all(project.checks("delays", "file_checksums").values())


def test_tables_of_a_users_asset_have_columns_and_a_restore_of_it_counts_windows_only(project, hours):
    project.plan = project.plan.changed(target="copy", dagster={"table_assets": ["demo.delays"]})
    add_asset(project, lambda keys: {key: hours(key, 2) for key in keys})
    key = dg.AssetKey(["demo", "demo", "delays"])
    for _ in range(2):  # the second run writes nothing
        assert project.run("delays", keys=project.keys[:2], with_checks=False).success
        for record in project.instance.fetch_materializations(key, limit=2).records:
            metadata = record.asset_materialization.metadata
            columns = {column.name: column.type for column in metadata["dagster/column_schema"].value.columns}
            assert columns == {"hour": "timestamp", "delay": "bigint", "label": "string", "share": "double"}
            assert metadata["dagster/partition_row_count"].value == 2
    checks = project.definitions().resolve_asset_graph().asset_check_keys
    assert {check.name for check in checks if check.asset_key == project.key("restored")} == {
        "row_counts",
        "equals_snapshot",
    }


@pytest.mark.parametrize("first", [0, 1])
def test_dataframes_of_a_run_that_differ_in_columns_are_refused_before_anything_is_written(project, hours, first):
    keys = project.keys[:2]
    more = {keys[first]: lambda frame: frame.withColumn("extra", functions.lit("x"))}
    add_asset(project, lambda keys: {key: more.get(key, lambda frame: frame)(hours(key, 2)) for key in keys})
    assert project.failure(project.run("delays", keys=keys)).description == (
        "The DataFrames of this run's partitions differ in the columns of demo.delays: extra string. Return the same"
        " columns for all, or run these partitions apart."
    )
    assert not project.location.exists()


def test_what_spark_infers_of_one_dataframe_is_no_constraint(project, hours):
    null = functions.when(functions.col("delay") > 0, functions.col("delay"))
    add_asset(project, lambda keys: hours(keys[0], 2).withColumn("flag", null))
    assert project.run("delays", single=project.keys[0]).success
    add_asset(project, lambda keys: hours(keys[0], 2).withColumn("flag", functions.lit(7).cast("bigint")))
    assert project.run("delays", single=project.keys[1]).success
    state = project.state()
    [table] = read_schema(open_store(parse_location(project.plan.to)), state.schemas[state.schema_id]).tables
    assert [column.nullable for column in table.columns] == [True] * 5


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ("demo.delays.lable", "which the DataFrame has not. Did you mean 'label'?"),
        ("demo.delay.label", "and no DataFrame is that table. Did you mean 'demo.delays'?"),
    ],
)
def test_a_hidden_column_that_is_not_there_is_refused_before_anything_is_written(project, hours, hidden, message):
    add_asset(project, lambda keys: hours(keys[0], 2))
    for fields in ({"exclude_columns": [hidden]}, {"mask": {hidden: "'x'"}}):
        whole = project.plan
        project.plan = project.plan.changed(**fields)
        failure = project.failure(project.run("delays", single=project.keys[0])).description
        assert failure == f"exclude_columns or mask names {hidden}, {message}"
        project.plan = whole
    assert not project.location.exists()


def test_a_table_asset_that_no_dataframe_is_is_refused_before_anything_is_written(project, hours):
    add_asset(project, lambda keys: hours(keys[0], 2))
    project.plan = project.plan.changed(dagster={"table_assets": ["demo.delay"]})
    failure = project.failure(project.run("delays", single=project.keys[0])).description
    assert failure.startswith("plan 'demo': table_assets has demo.delay, of which no rows are exported.")
    assert not project.location.exists()


def test_a_plan_of_a_users_asset_has_no_assets_that_read_a_database(project, hours):
    add_asset(project, lambda keys: hours(keys[0], 2))
    resolved = project.definitions().resolve_asset_graph()
    names = {key.path[-1] for key in resolved.get_all_asset_keys()}
    assert {"delays", "manifest", "tag"} <= names
    assert not names & {"source", "schema", "chunks", "untimed_tables"}
    assert resolved.get(project.key("manifest")).parent_keys == {project.key("delays")}
    assert {job.name for job in project.definitions().jobs} >= {"demo_verify", "demo_maintenance"}
    assert "demo_export" not in {job.name for job in project.definitions().jobs}


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (
            "readings",
            {"metadata": {"snapshots/plan": "demo"}},
            "demo/delays returned DataFrames for plan 'demo', whose source is readings. A snapshot has one source: "
            "give the asset a plan of its own, with `source: asset:demo/delays`.",
        ),
        (
            "asset:elsewhere",
            {},
            "demo/delays is the source of no plan; give it a plan of its own, with `source: asset:demo/delays`.",
        ),
        (
            "asset:demo/delays",
            {"partitions_def": None, "backfill_policy": None},
            "demo/delays has no partitions, and each chunk of plan 'demo' is one. Give it "
            "partitions_def=partitions_of(plan).",
        ),
    ],
)
def test_dataframes_that_are_not_a_plans_source_are_refused_before_anything_is_written(
    project, hours, source, settings, message
):
    add_asset(project, lambda _: hours(project.keys[0], 2), **settings)
    project.plan = project.plan.changed(source=source)
    single = None if "partitions_def" in settings else project.keys[1]
    assert project.failure(project.run("delays", single=single)).description == message
    assert not project.location.exists()


def test_an_asset_of_the_plan_itself_is_not_its_source(project):
    project.plan = project.plan.changed(source="asset:demo/tag")
    with pytest.raises(PlanError, match="'demo': asset:demo/tag is an asset of the plan itself; name the asset of you"):
        project.definitions()


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_asset_of_the_page_is_exported_and_sealed(tmp_path, monkeypatch):
    plans, module = (
        block.text for block in blocks("docs/how-to/dagster-project.md") if block.heading == "Your own assets"
    )
    flights = tmp_path / "flights.parquet"
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.sql(
        "SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + n * INTERVAL 1 hour AS departure, n::INT AS delay"
        " FROM range(72) AS r(n)"
    ).write_parquet(str(flights))
    monkeypatch.chdir(tmp_path)
    written = plans.replace("s3://backups/delays", f"{tmp_path.as_uri()}/delays").replace("2025-07-01", "2025-01-03")
    (tmp_path / "snapshots.yaml").write_text(written)
    values: dict[str, Any] = {}
    exec(module.replace("s3a://lake/flights", str(flights)), values)
    asset, manifest = dg.AssetKey(["reports", "delays"]), dg.AssetKey(["delays", "manifest"])
    jobs = [dg.define_asset_job(f"run_{key.path[-1]}", dg.AssetSelection.assets(key)) for key in (asset, manifest)]
    defs = dg.Definitions.merge(values["defs"], dg.Definitions(jobs=jobs))
    with dg.DagsterInstance.ephemeral() as instance:
        for partition in partitions_of(values["plan"]).get_partition_keys():
            run = defs.resolve_job_def("run_delays").execute_in_process(instance=instance, partition_key=partition)
            assert run.success
        assert defs.resolve_job_def("run_manifest").execute_in_process(instance=instance).success
    state = Catalog.open(open_store(parse_location(f"{tmp_path.as_uri()}/delays"))).state
    assert state.sealed
    assert [known.file.rows for known in state.live_files()] == [24, 24]
