"""The checks `equals_snapshot` and `untimed_equals_snapshot`: a target holds the restored revision's rows, by value."""

from __future__ import annotations

from typing import Any

import dagster as dg
import duckdb
import pytest

from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.pipeline.project import QUIET, Make, Project, flip
from snapshot_assets_tests.pipeline.test_check_results import current
from snapshot_assets_tests.pipeline.test_comparison import STATEMENTS
from snapshot_assets_tests.servers.postgresql import MakeDatabase

WINDOWS, UNTIMED = "equals_snapshot", "untimed_equals_snapshot"
ASSETS = ("schema", "chunks", "untimed_tables", "manifest")


def in_target(project: Project, *statements: str) -> None:
    """Change the target as another user would."""
    if project.sources["copy"].startswith("postgresql"):
        execute(project.sources["copy"], *statements)
    else:
        with duckdb.connect(str(project.target)) as connection:
            for statement in ("SET TimeZone = 'UTC'", *statements):
                connection.execute(statement)


@pytest.fixture
def project(make_project: Make, make_postgresql_database: MakeDatabase, request: pytest.FixtureRequest) -> Project:
    """A project with three windows and an untimed table, which are exported and restored between kinds of databases."""
    source, target = request.param
    fields = {"end_time": "2013-01-04T00:00:00Z", "target": "copy", "dagster": {"pool": "shop"}}
    project = make_project(**fields, **({"source": "shop"} if source == "postgresql" else {}))
    if source == "postgresql":
        project.sources["shop"] = make_postgresql_database()
        execute(project.sources["shop"], *STATEMENTS, "ALTER TABLE sensors ADD since date")
    if target == "postgresql":
        project.sources["copy"] = make_postgresql_database()
    assert project.run(*ASSETS, keys=project.keys, with_checks=False).success
    assert project.run("restored", keys=project.keys).success
    return project


def only_compare(project: Project, check: str, key: str | None = None) -> dg.ExecuteInProcessResult:
    """Run a check of `restored` by itself, as the UI does; without a key, of all partitions."""
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(project.key("restored"), check))
    jobs = dg.Definitions(jobs=[dg.define_asset_job("only", selection)])
    only = dg.Definitions.merge(project.definitions(), jobs).resolve_job_def("only")
    tags = {"dagster/partition": key} if key else {}
    return only.execute_in_process(instance=project.instance, tags=tags, run_config=QUIET, raise_on_error=False)


def shown(project: Project) -> list[bool | None]:
    """Return what the UI shows of the windows and of the rows without one; None for nothing."""
    windows = current(project, "restored", WINDOWS)
    return [*map(windows.get, project.keys), current(project, "restored", UNTIMED).get(None)]


def differences(project: Project, check: str, key: str | None) -> list[dict[str, Any]]:
    metadata = project._evaluations("restored", check)[key].metadata
    return [dict(record.data) for record in metadata["differences"].records]


BOTH_WAYS = [("postgresql", "postgresql"), ("postgresql", "duckdb"), ("duckdb", "postgresql")]


@pytest.mark.parametrize("project", BOTH_WAYS, indirect=True, ids="-".join)
def test_equal_rows_pass_and_a_changed_value_fails_its_partition(project: Project) -> None:
    assert shown(project) == [None] * 4  # the run that restored compared nothing
    assert any("so it compares none" in line for line in project.log())
    assert current(project, "restored", "row_counts") == dict.fromkeys(project.keys, True)
    for check in (WINDOWS, UNTIMED):
        assert only_compare(project, check).success
    assert shown(project) == [True] * 4

    day = "moment >= timestamptz '2013-01-02T00:00:00Z' AND moment < timestamptz '2013-01-02T01:00:00Z'"
    schema = "public" if "shop" in project.sources else "main"
    in_target(project, f"UPDATE {schema}.readings SET value = -1 WHERE {day}")
    for check in (WINDOWS, UNTIMED):
        assert only_compare(project, check).success
    assert shown(project) == [True, False, True, True]
    rows = 4 if schema == "public" else 24
    expected = {"table": f"{schema}.readings", "expected": rows, "found": rows, "reason": "other values"}
    assert differences(project, WINDOWS, project.keys[1]) == [expected]
    found = project._evaluations("restored", WINDOWS)[project.keys[1]]
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert "replace: true" in str(found.description)

    in_target(project, f"DELETE FROM {schema}.sensors WHERE id = 2")
    assert only_compare(project, UNTIMED).success
    assert shown(project) == [True, False, True, False]
    gone = {"table": f"{schema}.sensors", "expected": 2, "found": 1, "reason": "other rows"}
    assert differences(project, UNTIMED, None) == [gone]


@pytest.mark.parametrize("project", BOTH_WAYS[:1], indirect=True)
def test_a_single_partition_is_compared_and_no_other_is_read(project: Project) -> None:
    in_target(project, "UPDATE readings SET value = -1")
    flip(project.data_file(1))
    assert only_compare(project, WINDOWS, project.keys[1]).success
    assert shown(project) == [None, False, None, None]
    assert only_compare(project, WINDOWS, project.keys[0]).success
    assert shown(project) == [False, False, None, None]
    [damaged] = differences(project, WINDOWS, project.keys[0])
    assert str(project.data_file(1).relative_to(project.location)) in damaged["reason"]


@pytest.mark.parametrize("project", BOTH_WAYS[:1], indirect=True)
def test_a_value_that_no_file_holds_fails_its_partition_in_the_words_of_a_restore(project: Project) -> None:
    in_target(project, "UPDATE sensors SET since = 'infinity' WHERE id = 1")
    assert only_compare(project, UNTIMED).success
    [found] = differences(project, UNTIMED, None)
    assert found["table"] == "public.sensors"
    assert "Column public.sensors.since (date) of the target holds" in found["reason"]
    assert found["reason"].endswith("which no data file can hold, so the rows differ.")


@pytest.mark.parametrize("project", BOTH_WAYS[:1], indirect=True)
def test_comparisons_take_a_place_in_the_pool_of_the_plan(project: Project) -> None:
    graph = project.definitions().get_repository_def().asset_graph
    pools = {
        key.name: graph.assets_def_for_key(key).op.pool
        for key in graph.asset_check_keys
        if key.asset_key == project.key("restored") and key.name in (WINDOWS, UNTIMED)
    }
    assert pools == {WINDOWS: "shop", UNTIMED: "shop"}
