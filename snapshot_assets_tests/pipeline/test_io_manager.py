# Dagster reads the annotations of assets, so they must not be postponed here.
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from snapshot_assets.pipeline.dagster_internals import accepting_unstable_parts
from snapshot_assets.pipeline.io_manager import ChunkConfig, SnapshotIOManager
from snapshot_assets.pipeline.partitions import partitions_of, window_of
from snapshot_assets_tests.pipeline.project import DAY, START, Project


@accepting_unstable_parts()
def add_asset(
    project: Project,
    answer: Callable[[list[str]], Any],
    io_manager_key: str = "snapshot_io_manager",
    metadata: dict[str, str] | None = None,
) -> None:
    """Give the project a user's own asset `demo/delays`, which returns `answer` of its keys."""

    @dg.asset(
        key=["demo", "delays"],
        partitions_def=partitions_of(project.plan),
        io_manager_key=io_manager_key,
        metadata={"snapshots/plan": "demo"} if metadata is None else metadata,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def delays(context: dg.AssetExecutionContext, config: ChunkConfig):  # type: ignore[no-untyped-def]
        return answer(list(context.partition_keys))

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
    add_asset(project, lambda keys: hours(keys[0], 3))
    assert project.run("delays", single=key).success
    assert project.materialized("delays")[key]["status"] == "skipped"
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


def test_loading_a_chunk_that_is_not_exported_says_which(project):
    add_reader(project, chunks=project.key("chunks"))
    assert project.run("chunks", single=project.keys[0], with_checks=False).success
    result = project.run("seen", single=project.keys[1])
    assert "Chunks [2]" in project.failure(result).description
    assert "materialise them" in project.failure(result).description


def test_a_users_own_io_manager_names_the_plan_itself(project, hours):
    key = project.keys[1]
    project.resources["of_demo"] = SnapshotIOManager(plan="demo")
    add_asset(project, lambda keys: hours(keys[0], 5), "of_demo", {})
    found = add_reader(project, delays=project.key("delays"))
    assert project.run("delays", "seen", single=key).success
    assert found["delays"] == expected(key, 5)


def test_an_asset_that_names_no_plan_is_refused_before_anything_is_written(project, hours):
    add_asset(project, lambda keys: hours(keys[0], 5), metadata={})
    result = project.run("delays", single=project.keys[1])
    assert project.failure(result).description == (
        "demo/delays names no plan; give it metadata={'snapshots/plan': …} with the name of its plan."
    )
    assert not project.location.exists()
