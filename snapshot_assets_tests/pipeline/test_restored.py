"""The asset `restored` and its check: a plan's snapshot in the plan's target, window by window."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets.pipeline.assets.restored import RestoreConfig
from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.plan.retention import RetentionFields
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.cli import helpers
from snapshot_assets_tests.pipeline.project import ROWS, START, Make, Project, maintain


def test_code_is_restored_if_plan_or_run_config_asks_for_it_and_never_without_expressions() -> None:
    plain, coded = RestoreSettings(), RestoreSettings(Filters(code=True))
    assert RestoreConfig(with_code=True).over(plain).filters == Filters(code=True)
    assert RestoreConfig().over(coded).filters == Filters(code=True)
    assert (RestoreConfig(into_nonempty=True).over(plain).into_nonempty, plain.into_nonempty) == (True, False)
    assert RestoreConfig(expressions=False).over(coded).filters == Filters(expressions=False)
    with pytest.raises(PlanError, match="cannot be restored without expressions"):
        RestoreConfig(expressions=False, with_code=True).over(plain)


def differing(project: Project) -> dict[str, int]:
    """Return, by table, how many rows source and target do not have equally often; only tables that differ."""
    found = helpers.differing(project.database, project.target, "main.readings", "main.sensors")
    return {name.removeprefix("main."): rows for name, rows in found.items()}


def delete_from_day(project: Project, day: int, count: int) -> None:
    """Delete the first rows of a day (0 for the first) from the target, as another user would."""
    with duckdb.connect(str(project.target)) as connection:
        connection.execute(
            f"SET TimeZone = 'UTC'; DELETE FROM readings WHERE moment >= TIMESTAMPTZ '{START}' + to_days({day})"
            f" AND moment < TIMESTAMPTZ '{START}' + to_days({day}) + to_hours({count})"
        )


def test_a_range_in_one_run_restores_every_window_with_its_own_numbers(restoring: Project) -> None:
    result = restoring.run("restored", keys=restoring.keys)
    assert result.success
    assert differing(restoring) == {}
    found = restoring.materialized("restored")
    assert sorted(found) == list(restoring.keys)
    state = restoring.state()
    for chunk, key in enumerate(restoring.keys, 1):
        metadata = found[key]
        rows = ROWS[chunk - 1]
        assert metadata["chunk"] == str(chunk)
        assert metadata["dagster/partition_row_count"] == metadata["rows_loaded"] == rows
        assert metadata["bytes"] == sum(known.file.bytes for known in state.live_files(chunk))
        assert metadata["status"] == ("loaded" if rows else "empty")
        if rows:
            assert metadata["rows_per_second"] == pytest.approx(rows / metadata["seconds"], rel=0.1)
        assert metadata["snapshot_id"] == state.snapshot_id
        assert metadata["revision"] == str(state.seals[-1].revision)
    assert len({metadata["import"] for metadata in found.values()}) == 1
    assert restoring.checks("restored", "row_counts") == dict.fromkeys(restoring.keys, True)
    assert restoring.state().tags == {}  # unpinned


@pytest.mark.slow
def test_some_windows_leave_the_import_unfinished_and_the_others_finish_it(restoring: Project) -> None:
    keys = restoring.keys
    assert restoring.run("restored", single=keys[1]).success
    assert sorted(restoring.materialized("restored")) == [keys[1]]
    assert restoring.checks("restored", "row_counts") == {keys[1]: True}
    [tag] = restoring.state().tags
    assert tag.startswith("import-")
    assert differing(restoring) == {"readings": sum(ROWS) - 24}  # chunk 0 is loaded with any window
    assert not has_key(restoring)

    assert restoring.run("restored", keys=keys[2:4]).success
    assert list(restoring.state().tags) == [tag]
    assert restoring.run("restored", keys=keys).success
    assert restoring.state().tags == {}
    assert has_key(restoring)
    assert differing(restoring) == {}
    found = restoring.materialized("restored")
    assert [found[key]["status"] for key in keys] == [
        "loaded",
        *["present" if rows else "empty" for rows in ROWS[1:4]],
        "loaded",
        "loaded",
    ]
    assert [found[key]["dagster/partition_row_count"] for key in keys] == list(ROWS)
    assert [found[key]["rows_loaded"] for key in keys] == [24, 0, 0, 0, 24, 24]
    assert restoring.checks("restored", "row_counts") == dict.fromkeys(keys, True)


def has_key(project: Project) -> bool:
    """Return whether the target's table of sensors has its primary key, which is created last."""
    with duckdb.connect(str(project.target), read_only=True) as connection:
        query = (
            "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY' AND table_name = 'sensors'"
        )
        return connection.sql(query).fetchall() == [(1,)]


@pytest.mark.slow
def test_deleted_rows_fail_the_check_of_their_window_and_replace_loads_them_again(restoring: Project) -> None:
    keys = restoring.keys
    assert restoring.run("restored", keys=keys).success
    delete_from_day(restoring, 1, 5)
    delete_from_day(restoring, 4, 24)
    assert restoring.checks("restored", "untimed_row_counts") == {None: True}
    with duckdb.connect(str(restoring.target)) as connection:
        connection.execute("INSERT INTO sensors VALUES (3, 'theirs')")
    restoring.run_checks("restored", keys=keys)
    assert restoring.checks("restored", "untimed_row_counts") == {None: False}
    with duckdb.connect(str(restoring.target)) as connection:
        connection.execute("DELETE FROM sensors WHERE id = 3")
    passed = dict.fromkeys(keys, True)
    assert restoring.checks("restored", "row_counts") == passed | {keys[1]: False, keys[4]: False}
    for key, there in ((keys[1], 19), (keys[4], 0)):
        [record] = restoring.check_metadata("restored", "row_counts", key)["differences"].records
        assert record.data == {"table": "main.readings", "expected": 24, "found": there}

    refused = restoring.run("restored", single=keys[1])  # the ledger lists all files, so nothing would be loaded
    assert not refused.success
    failure = restoring.failure(refused)
    assert "main.readings: 24 were loaded, 19 are there (other rows than loaded in chunk 2)" in failure.description
    assert "`replace: true`" in failure.description
    assert "Materialise the partitions of `restored`" in failure.metadata["remedy"].value
    assert "Once the cause is gone" not in failure.metadata["remedy"].value
    assert restoring.run("restored", single=keys[2]).success
    assert restoring.materialized("restored")[keys[2]]["status"] == ("present" if ROWS[2] else "empty")
    assert restoring.checks("restored", "row_counts")[keys[1]] is False
    for key in (keys[1], keys[4]):
        assert restoring.run("restored", single=key, config={"restored": {"replace": True}}).success
        assert restoring.materialized("restored")[key]["status"] == "replaced"
    assert restoring.checks("restored", "row_counts") == passed
    assert differing(restoring) == {}


@pytest.mark.slow
def test_a_flipped_byte_fails_the_run_naming_the_chunk_and_the_others_are_loaded(restoring: Project) -> None:
    keys = restoring.keys
    damaged = next(restoring.state().live_files(4)).file.path
    path = restoring.location / damaged
    good = path.read_bytes()
    path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    result = restoring.run("restored", keys=keys)
    assert not result.success
    failure = restoring.failure(result)
    assert damaged in failure.description
    assert [each["chunks"] for each in failure.metadata["failed_chunks"].value] == [[4]]
    assert sorted(restoring.materialized("restored")) == [key for key in keys if key != keys[3]]
    assert differing(restoring) == {"readings": 24}
    restoring.run_checks("restored", keys=keys)
    assert restoring.checks("restored", "row_counts") == {key: key != keys[3] for key in keys}
    [record] = restoring.check_metadata("restored", "row_counts", keys[3])["differences"].records
    assert record.data == {"table": "main.readings", "expected": 24, "found": 0}

    path.write_bytes(good)
    assert restoring.run("restored", keys=keys).success
    assert restoring.materialized("restored")[keys[3]]["status"] == "loaded"
    assert differing(restoring) == {}


@pytest.mark.slow
def test_an_earlier_version_is_restored_when_configured(restoring: Project) -> None:
    first = restoring.state().seals[-1].revision
    with duckdb.connect(str(restoring.database)) as connection:
        connection.execute(f"INSERT INTO readings VALUES (TIMESTAMPTZ '{START}' + INTERVAL 1 MINUTE, 1, -1)")
    keys = restoring.keys
    assert restoring.run("chunks", "manifest", keys=keys[:1], config={"chunks": {"replace": True}}).success
    assert restoring.state().seals[-1].revision > first
    config = {"restored": {"version": f"rev:{first}"}}
    assert restoring.run("restored", keys=keys, config=config).success
    assert restoring.materialized("restored")[keys[0]]["revision"] == str(first)
    assert differing(restoring) == {"readings": 1}
    restoring.run_checks("restored", keys=keys)  # a check in its own process has only the ledger
    assert restoring.checks("restored", "row_counts") == dict.fromkeys(keys, True)

    result = restoring.run("restored", keys=keys)  # the newest seal: its first window has other files
    assert not result.success
    assert "Chunk 1 was loaded from other files" in restoring.failure(result).description
    assert restoring.run("restored", keys=keys[:1], config={"restored": {"replace": True}}).success
    assert differing(restoring) == {}
    assert restoring.checks("restored", "row_counts") == dict.fromkeys(keys, True)


def test_a_schema_only_plan_restores_tables_without_rows(make_project: Make) -> None:
    project = make_project(
        target="copy", schema_only=True, start_time=None, end_time=None, chunk_time_window=None, parallelism=None
    )
    assert project.run("schema", "manifest").success
    assert project.run("restored").success
    with duckdb.connect(str(project.target), read_only=True) as connection:
        query = "SELECT table_name, estimated_size FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY 1"
        assert connection.sql(query).fetchall() == [("readings", 0), ("sensors", 0)]
    assert has_key(project)
    assert project.state().tags == {}


def test_without_a_snapshot_the_run_fails_and_touches_no_target(make_project: Make) -> None:
    project = make_project(target="copy")
    result = project.run("restored", keys=project.keys[:1])
    assert not result.success
    assert "There is no snapshot" in project.failure(result).description
    assert not project.target.exists()


def test_a_configuration_with_a_target_loads_without_connecting_to_it(tmp_path: Path) -> None:
    file = tmp_path / "snapshots.yaml"
    plan = "{source: here, to: 'file:///nowhere/x', target: %s, start_time: 2025-01-01T00:00:00Z, kind: continuous}"
    file.write_text(
        "sources: {here: 'duckdb:///nowhere/a.duckdb', there: 'postgresql://u:hunter2@127.0.0.1:1/db'}\n"
        f"plans:\n  into: {plan % 'there'}\n  only: {{source: here, to: 'file:///nowhere/y', schema_only: true,"
        " target: there}\n  never: {source: here, to: 'file:///nowhere/z', start_time: 2025-01-01T00:00:00Z,"
        " end_time: 2025-01-03T00:00:00Z}\n"
    )
    definitions = build_definitions(load_configuration(file), resources={"pyspark": spark_resource()})
    graph = definitions.resolve_asset_graph()
    restored = {key.to_user_string() for key in graph.get_all_asset_keys() if key.path[-1] == "restored"}
    assert restored == {"into/restored", "only/restored"}
    checks = {check.to_user_string() for check in graph.asset_check_keys if check.name == "row_counts"}
    assert checks == {"into/restored:row_counts"}


def test_an_automatic_savepoint_pins_the_compacted_state(copied: Make) -> None:
    project = copied(retention=RetentionFields(savepoint={}))
    catalog = Catalog.open_for_writing(open_store(parse_location(project.plan.to)))
    delete_rows(catalog, TableName("main", "readings"), "value < 5 OR value = 100")  # of the first two days
    seal(catalog)
    assert pending_tombstones(catalog.state)

    made = maintain(project, "savepoint")
    state = project.state()
    # The two chunks that lose rows, then the other three, so that the deletion is pending for no file.
    assert (made["chunks_compacted"], made["savepoint"]) == ("5", "1")
    assert state.sealed
    assert state.newest_seal is not None
    assert int(made["revision"]) == state.pins.savepoints[1].pin.revision == state.newest_seal.revision
    assert not pending_tombstones(state)
    rows = [sum(known.file.rows for known in state.live_files(day) if known.file.table == "readings") for day in (1, 2)]
    assert rows == [ROWS[0] - 5, ROWS[1] - 1]


@pytest.mark.slow
def test_steps_that_fail_are_in_the_metadata_and_rows_are_loaded(make_project: Make) -> None:
    project = make_project(target="copy")
    with duckdb.connect(str(project.database)) as connection:
        connection.execute("CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n")
        connection.execute("CREATE VIEW v AS SELECT n FROM twice(21)")
    assert project.run("schema", "chunks", "untimed_tables", "manifest", keys=project.keys).success
    result = project.run("restored", keys=project.keys)
    assert not result.success
    failure = project.failure(result)
    assert "All rows are loaded; 1 schema step failed: view main.v could not be made: " in failure.description
    [row] = failure.metadata["failed_steps"].records
    assert row.data["object"] == "view main.v"
    assert row.data["statements"] == 'CREATE VIEW "main"."v" ("n") AS SELECT n FROM twice(21)'
    assert differing(project) == {}
    assert sorted(project.materialized("restored")) == list(project.keys)
    for asset, events in (("restored", "fetch_observations"), ("target", "fetch_materializations")):
        [record] = getattr(project.instance, events)(project.key(asset), limit=10).records
        metadata = (record.asset_observation or record.asset_materialization).metadata
        assert (metadata["steps_failed"].value, metadata["made"].value) == ("1", "2 tables, 1 primary key")
        assert metadata["failed_steps"].records[0].data["object"] == "view main.v"

    with duckdb.connect(str(project.target)) as connection:
        connection.execute("CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n")
    assert project.run("restored", keys=project.keys).success
    with duckdb.connect(str(project.target)) as connection:
        assert connection.execute("SELECT n FROM v").fetchall() == [(42,)]
    assert differing(project) == {}
