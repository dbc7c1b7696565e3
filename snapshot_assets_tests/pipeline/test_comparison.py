"""The job `<plan>_compare` and the check `equals_source`: what is equal passes, changes warn, and damage fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import duckdb
import pytest

from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, current_comparisons, record_comparison
from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.automation import comparison
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.export.test_compare import Bytes, Shop, with_value
from snapshot_assets_tests.pipeline.project import QUIET, Make, Project, job, run_job
from snapshot_assets_tests.pipeline.test_automation import DAGSTER, MINUTE, NOON, asked, materialized
from snapshot_assets_tests.pipeline.test_check_results import current
from snapshot_assets_tests.pipeline.test_exports import CONTINUOUS, closed, export, tick

OP = "demo_compare_rows"
STATEMENTS = (
    "CREATE TABLE readings (id int PRIMARY KEY, moment timestamptz NOT NULL, value float8, owner text)",
    "INSERT INTO readings SELECT n, timestamptz '2013-01-01T00:00:00Z' + n * interval '6 hours', n, 'kestrel'"
    " FROM generate_series(0, 11) AS n",
    "CREATE TABLE sensors (id int PRIMARY KEY, name text)",
    "INSERT INTO sensors VALUES (1, 'roof'), (2, 'cellar')",
)
UPDATE = "UPDATE readings SET value = -1 WHERE id = 5"
"""Changes a row of the second window."""
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


@pytest.fixture
def shop(make_project: Make, postgresql_database: str) -> Project:
    """A project with three windows of a PostgreSQL database, and an untimed table, which are exported."""
    execute(postgresql_database, *STATEMENTS)
    fields = {"end_time": "2013-01-04T00:00:00Z", "mask": {"public.readings.owner": "upper(owner)"}}
    project = make_project(source="shop", **fields)
    project.sources["shop"] = postgresql_database
    assert export(project).success
    return project


def change(project: Project, *statements: str) -> None:
    execute(project.sources["shop"], *statements)


def forge(project: Project, table: str, chunk: int, new: Bytes) -> None:
    """Replace a data file by another whole one; log and hashes are right."""
    Shop(project.sources["shop"], project.location).forge(table, chunk, new)


def compare(project: Project, **config: str) -> dg.ExecuteInProcessResult:
    return run_job(project, "demo_compare", {OP: {"config": config}}, raise_on_error=False)


def only_compare(project: Project, asset: str, key: str | None = None) -> dg.ExecuteInProcessResult:
    """Run the check `equals_source` of an asset by itself, as the UI does; without a key, of all partitions."""
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(project.key(asset), "equals_source"))
    jobs = dg.Definitions(jobs=[dg.define_asset_job("only", selection)])
    only = dg.Definitions.merge(project.definitions(), jobs).resolve_job_def("only")
    tags = {"dagster/partition": key} if key else {}
    return only.execute_in_process(instance=project.instance, tags=tags, run_config=QUIET)


def shown(project: Project) -> list[bool | None]:
    """Return what the UI shows of the three windows and of the untimed tables; None for nothing."""
    windows = current(project, "chunks", "equals_source")
    return [*map(windows.get, project.keys), current(project, "untimed_tables", "equals_source").get(None)]


def evaluations(project: Project) -> dict[str | None, dg.AssetCheckEvaluation]:
    return project._evaluations("chunks", "equals_source")


def recorded(project: Project) -> list[ComparisonRecord]:
    """Return the comparisons that the location has on record."""
    store = store_of(project.location)
    return current_comparisons(store, project.state(), store.list())


def data(project: Project) -> tuple[int, set[str]]:
    """Return the revision, and all objects beside records."""
    names = {str(path) for path in project.location.rglob("*") if path.is_file()}
    return project.state().revision, {name for name in names if "/comparison/" not in name}


def test_an_equal_snapshot_passes_and_nothing_is_written_to_it(shop: Project) -> None:
    before = data(shop)
    assert shown(shop) == [None] * 4
    found = job(shop, "demo_compare", OP)
    counts = {name: found[name] for name in ("compared", "equal", "changed", "different", "unknown")}
    assert counts == {"compared": "5", "equal": "5", "changed": "0", "different": "0", "unknown": "0"}
    assert shown(shop) == [True] * 4
    assert data(shop) == before
    assert [(each.scope, each.parts, each.equal) for each in recorded(shop)] == [("all", 5, 5)]
    assert shop.observed("manifest")["equal"] == "5"
    assert any("5 tables in 4 chunks compared by value: 5 equal." in line for line in shop.log())


def test_a_second_comparison_stores_only_what_is_new(shop: Project) -> None:
    for _ in range(2):
        assert compare(shop).success
    key = dg.AssetCheckKey(shop.key("chunks"), "equals_source")
    assert len(shop.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)) == 3


def test_rows_that_changed_in_the_source_only_warn_until_they_are_exported_again(shop: Project) -> None:
    change(shop, UPDATE, "UPDATE sensors SET name = 'attic' WHERE id = 1")
    assert compare(shop).success
    assert shown(shop) == [True, False, True, False]
    [found] = [each for each in evaluations(shop).values() if not each.passed]
    assert (found.partition, found.severity) == (shop.keys[1], WARN)
    assert found.description == "The rows changed in the source since they were exported."
    [record] = shop.check_metadata("chunks", "equals_source", shop.keys[1])["unequal"].records
    assert record.data == {
        "window": shop.keys[1],
        "table": "public.readings",
        "comparison": "changed since",
        "reason": "rows newer",
        "exported_rows": 4,
        "rows_now": "4",
    }
    assert export(shop, changed=True).success
    assert compare(shop).success
    assert shown(shop) == [True, True, True, False]  # a plan without `late_windows` keeps its untimed tables


def test_a_forged_file_fails_the_run_and_its_check_and_the_rows_are_named(shop: Project) -> None:
    change(shop, UPDATE)
    forge(shop, "readings", 1, with_value("value", 3, -7.0))
    forge(shop, "readings", 3, lambda file: with_value("value", 0, -8.0)(with_value("owner", 0, "MERLIN")(file)))
    failure = shop.failure(compare(shop))
    assert failure.description is not None
    assert (
        "which did not change: 5 tables in 4 chunks compared by value: 2 equal, 1 changed since, 2 different"
        in failure.description
    )
    assert "replace: true" in str(failure.metadata["remedy"].value)
    assert shown(shop) == [False, False, False, True]
    assert [evaluations(shop)[key].severity for key in shop.keys] == [ERROR, WARN, ERROR]
    for key, place, value in ((shop.keys[0], 3, -7), (shop.keys[2], 8, -8)):
        [record] = shop.check_metadata("chunks", "equals_source", key)["rows_that_differ"].records
        assert record.data["key"] == f"id {place}"
        assert (record.data["in_snapshot"], record.data["in_source"]) == (f"value {value}", f"value {place}")
    assert record.data["columns"] == "value, owner"
    assert "MERLIN" not in str(shop.log()) + str(evaluations(shop)) + str(shop.observed("manifest"))

    assert shop.run("chunks", keys=shop.keys, config={"chunks": {"replace": True}}, with_checks=False).success
    assert compare(shop).success
    assert shown(shop) == [True] * 4


def test_the_check_by_itself_compares_only_its_partition(shop: Project) -> None:
    change(shop, UPDATE)
    forge(shop, "readings", 1, with_value("value", 3, -7.0))
    before = data(shop)
    assert only_compare(shop, "chunks", shop.keys[1]).success
    assert shown(shop) == [None, False, None, None]
    assert any("1 table in 1 chunk compared by value" in line for line in shop.log())
    assert [(each.scope, each.chosen) for each in recorded(shop)] == [("part", "1 chunk from 2 on")]
    assert only_compare(shop, "chunks", shop.keys[0]).success
    assert only_compare(shop, "untimed_tables").success
    assert shown(shop) == [False, False, None, True]
    assert evaluations(shop)[shop.keys[0]].severity is ERROR
    assert data(shop) == before


def test_checks_of_a_range_and_of_all_partitions_are_one_result_each(shop: Project) -> None:
    change(shop, UPDATE)
    assert shop.run_checks("chunks", keys=shop.keys[1:]).success
    assert shown(shop) == [None, False, True, None]
    assert only_compare(shop, "chunks").success
    assert shown(shop) == [True, False, True, None]
    key = dg.AssetCheckKey(shop.key("chunks"), "equals_source")
    [newest] = shop.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert newest.partition == shop.keys[1]  # the overview shows the worst


def test_a_window_that_is_not_exported_warns(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(durable=True, **CONTINUOUS)
    with closed(monkeypatch, 2):
        assert export(project).success
    with closed(monkeypatch, 3):
        assert project.run_checks("chunks", keys=project.keys[1:3]).success
    assert project.checks("chunks", "equals_source") == {project.keys[1]: True, project.keys[2]: False}
    assert evaluations(project)[project.keys[2]].severity is WARN


def test_a_run_that_exports_compares_nothing(shop: Project) -> None:
    assert shop.run("chunks", "untimed_tables", keys=shop.keys, config={"chunks": {"replace": True}}).success
    assert shown(shop) == [None] * 4
    assert current(shop, "chunks") == dict.fromkeys(shop.keys, True)
    assert any("so it compares none" in line for line in shop.log())


def test_a_sample_proves_no_chunk_of_which_it_left_tables_out(make_project: Make, postgresql_database: str) -> None:
    execute(postgresql_database, *STATEMENTS, "CREATE TABLE others AS TABLE sensors")
    project = make_project(source="shop", end_time="2013-01-04T00:00:00Z")
    project.sources["shop"] = postgresql_database
    assert export(project).success
    found = job(project, "demo_compare", OP, sample="1%")  # of five tables of windows mostly one a day
    assert 1 <= int(found["compared"]) < 5
    assert found["sample_days"] == "199"
    compared = [each for each in shown(project) if each is not None]
    assert len(compared) <= int(found["compared"])
    assert all(compared)
    result = compare(project, sample="a lot")
    assert "'a lot' is not a share" in str(project.failure(result).description)


def test_what_a_database_without_row_versions_cannot_tell_warns(project: Project) -> None:
    assert export(project).success
    with duckdb.connect(str(project.database)) as connection:
        connection.execute("UPDATE sensors SET name = 'attic' WHERE id = 1")
    assert compare(project).success
    [found] = project._evaluations("untimed_tables", "equals_source").values()
    assert (found.passed, found.severity) == (False, WARN)
    assert "cannot tell whether they changed there" in str(found.description)


def test_the_plan_chooses_when_and_by_default_never(project: Project) -> None:
    repository = project.definitions().get_repository_def()
    assert "demo_compare" in {each.name for each in repository.get_all_jobs()}
    assert not repository.has_schedule_def("demo_compare_schedule")
    project.plan = project.plan.changed(dagster={"compare_cron": "0 5 * * 0"})
    schedule = project.definitions().get_repository_def().get_schedule_def("demo_compare_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 5 * * 0", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_a_tick_requests_a_comparison_of_everything(make_project: Make) -> None:
    request = tick(make_project(durable=True, dagster={"compare_cron": "0 5 * * 0"}), "demo_compare_schedule")
    assert isinstance(request, dg.RunRequest)
    assert not request.run_config


def test_comparisons_take_a_place_in_the_pool_of_the_plan(make_project: Make) -> None:
    definitions = make_project(dagster={"pool": "shop"}).definitions()
    assert definitions.resolve_job_def("demo_compare").all_node_defs[0].pool == "shop"
    graph = definitions.get_repository_def().asset_graph
    pools = {
        key.to_user_string(): graph.assets_def_for_key(key).op.pool
        for key in graph.asset_check_keys
        if key.name == "equals_source"
    }
    assert pools == {"demo/chunks:equals_source": "shop", "demo/untimed_tables:equals_source": "shop"}


@pytest.mark.parametrize("fields", [{"schema_only": True}, {"source": "lake"}])
def test_a_plan_whose_rows_cannot_be_compared_has_no_job_and_no_check(
    make_project: Make, fields: dict[str, Any]
) -> None:
    if "schema_only" in fields:
        fields = fields | {"start_time": None, "end_time": None, "chunk_time_window": None, "parallelism": None}
    project = make_project(**fields)
    project.sources["lake"] = "spark:lake"
    repository = project.definitions().get_repository_def()
    assert "demo_compare" not in {each.name for each in repository.get_all_jobs()}
    assert "equals_source" not in {key.name for key in repository.asset_graph.asset_check_keys}


def test_a_cron_for_a_spark_catalog_is_refused_when_definitions_load(make_project: Make) -> None:
    project = make_project(source="lake", dagster={"compare_cron": "0 5 * * 0"})
    project.sources["lake"] = "spark:lake"
    with pytest.raises(PlanError, match="lake is a Spark catalog, which cannot be compared; remove compare_cron"):
        project.definitions()


@pytest.mark.parametrize(("check", "requested"), [("equals_source", {"manifest": 1}), ("file_checksums", {})])
def test_a_difference_from_the_source_holds_no_seal_back(
    make_project: Make, check: str, requested: dict[str, object]
) -> None:
    project = make_project(dagster=DAGSTER)
    for asset in ("schema", "untimed_tables"):
        materialized(project, asset, None)
    _, cursor = asked(project, at=NOON)
    materialized(project, "chunks", *project.keys)
    failed = dg.AssetCheckEvaluation(passed=False, asset_key=project.key("untimed_tables"), check_name=check)
    project.instance.report_runless_asset_event(failed)
    assert asked(project, cursor, at=NOON + MINUTE)[0] == requested


def test_a_comparison_that_is_overdue_warns(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.plan = project.plan.changed(dagster={"compare_cron": "0 * * * *"})
    assert export(project).success
    assert project.checks("manifest", "compared_in_time") == {None: True}  # it was not due yet
    now = datetime.now(UTC)
    later = type("later", (datetime,), {"now": classmethod(lambda cls, tz=UTC: now + timedelta(days=3))})
    monkeypatch.setattr(comparison, "datetime", later)
    assert run_job(project, "demo_verify", {}).success
    found = project.check("manifest", "compared_in_time")
    assert (found.passed, found.severity, found.metadata["compared"].value) == (False, WARN, "never")
    assert "Run demo_compare." in str(found.description)
    store = store_of(project.location)
    for scope, passed in (("part", False), ("all", True)):
        started = now + timedelta(days=2.5)
        record_comparison(store, project.state(), ComparisonRecord(started, started, scope))
        assert project.run_checks("manifest", keys=()).success
        assert project.checks("manifest", "compared_in_time") == {None: passed}


def test_a_plan_without_a_time_for_comparisons_has_no_check_of_it(project: Project) -> None:
    checks = project.definitions().get_repository_def().asset_graph.asset_check_keys
    assert "compared_in_time" not in {key.name for key in checks}
