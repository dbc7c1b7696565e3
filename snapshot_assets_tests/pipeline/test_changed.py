"""Plans with `late_windows: changed`: what runs in Dagster find in the source, export again and report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from snapshot_assets_tests.pipeline.project import DAY, ROWS, START, Make, Project, flip, run_job
from snapshot_assets_tests.pipeline.test_check_results import current
from snapshot_assets_tests.pipeline.test_copies import COPY
from snapshot_assets_tests.pipeline.test_exports import CONTINUOUS, closed, export, requested, tick

SENSOR = "UPDATE sensors SET name = 'attic' WHERE id = 1"


@pytest.fixture
def follows(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose plan follows its source, with four windows, which are exported."""
    project = make_project(durable=True, late_windows="changed", **CONTINUOUS)
    with closed(monkeypatch, 4):
        assert requested(project).success
        yield project


def change(project: Project, *statements: str) -> None:
    with duckdb.connect(str(project.database)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in statements:
            connection.execute(statement)


def add_row(project: Project, *days: int) -> None:
    change(
        project,
        *(f"INSERT INTO readings VALUES ('{START + day * DAY + timedelta(hours=3)}', 1, -1)" for day in days),
    )


def files(project: Project) -> set[Path]:
    return {path for path in (project.location / "data").rglob("*.parquet") if path.is_file()}


def rows(project: Project) -> dict[str | None, Any]:
    return {key: facts["dagster/partition_row_count"] for key, facts in project.materialized().items()}


def events(project: Project) -> list[str | None]:
    """Return the partitions of all materializations of `chunks`, oldest first."""
    records = project.instance.fetch_materializations(project.key("chunks"), limit=100, ascending=True).records
    return [record.partition_key for record in records]


def is_current(project: Project) -> list[bool]:
    """Return what the UI shows of the four windows, and of the untimed tables."""
    windows = current(project, "chunks", "current")
    return [windows[key] for key in project.keys[:4]] + list(current(project, "untimed_tables", "current").values())


def test_a_scheduled_run_exports_the_windows_whose_rows_changed(follows: Project) -> None:
    before, facts, known = files(follows), follows.materialized(), len(events(follows))
    add_row(follows, 1, 2)
    assert requested(follows).success
    now, again = follows.materialized(), follows.keys[1:3]
    assert sorted(str(key) for key in events(follows)[known:]) == again  # and none of those that were only compared
    assert rows(follows) == dict(zip(follows.keys[:4], (ROWS[0], ROWS[1] + 1, 1, ROWS[3]), strict=True))
    assert [now[key]["status"] for key in again] == ["replaced", "replaced"]
    assert now[again[0]]["bytes"] != facts[again[0]]["bytes"]
    assert len(files(follows) - before) == 2
    assert follows.state().sealed
    assert is_current(follows) == [True] * 5
    assert set(current(follows, "chunks")) == set(follows.keys[:4])
    seen = follows.observed("chunks")
    kept = sum(facts[key]["bytes"] for key in (follows.keys[0], follows.keys[3]))
    assert [seen[name] for name in ("looked_at", "changed", "exported", "bytes_not_copied")] == ["4", "2", "2", kept]
    assert [record.data["window"] for record in seen["changes"].records] == again
    assert any("2 of 2 chunks" in line for line in follows.log())


def test_a_scheduled_run_after_which_nothing_changed_writes_no_file(follows: Project) -> None:
    for written in (False, True):
        if written:  # the file of the database is another, so values are compared
            change(follows, "CREATE TABLE meanwhile (x INTEGER)", "DROP TABLE meanwhile")
        before, revision, known = files(follows), follows.state().revision, events(follows)
        assert requested(follows).success
        assert (files(follows), events(follows)) == (before, known)
        assert follows.state().sealed
        assert (follows.state().revision == revision) is not written
        assert is_current(follows) == [True] * 5
        assert follows.observed("chunks")["changed"] == "0"
        [untimed] = follows.materialized("untimed_tables").values()
        assert (untimed["status"], untimed["dagster/row_count"]) == ("present", 2)
    results = follows.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(follows.key("chunks"), "current"), limit=100
    )
    assert len(results) == 4  # the second run shows nothing new


def test_a_scheduled_run_exports_new_windows_and_untimed_tables_that_changed(
    follows: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(follows, SENSOR)
    known = len(events(follows))
    with closed(monkeypatch, 6):
        assert requested(follows).success
    assert sorted(str(key) for key in events(follows)[known:]) == follows.keys[4:6]
    assert follows.materialized("untimed_tables")[None]["status"] == "replaced"
    assert follows.state().sealed
    assert len(follows.state().windows()) == 6
    assert is_current(follows) == [True] * 5


def test_the_check_only_looks_and_warns_of_windows_that_changed(follows: Project) -> None:
    add_row(follows, 1)
    change(follows, SENSOR)
    before, revision = files(follows), follows.state().revision
    assert follows.run_checks("chunks", keys=follows.keys[:4]).success
    assert follows.run_checks("untimed_tables", keys=()).success
    assert (files(follows), follows.state().revision) == (before, revision)
    assert is_current(follows) == [True, False, True, True, False]
    assert follows.check("untimed_tables", "current").severity is dg.AssetCheckSeverity.WARN
    [record] = follows.check_metadata("chunks", "current", follows.keys[1])["changes"].records
    assert record.data == {
        "window": follows.keys[1],
        "table": "main.readings",
        "reason": "other values",
        "exported_rows": 24,
        "rows_now": "25",
    }
    assert requested(follows).success
    assert is_current(follows) == [True] * 5
    assert follows.run_checks("chunks", keys=()).success
    assert is_current(follows) == [True] * 5


def test_a_partition_is_exported_as_before_and_its_checks_pass(follows: Project) -> None:
    add_row(follows, 0, 1)
    [key] = follows.keys[1:2]
    assert follows.run("chunks", keys=[key]).success
    assert follows.materialized()[key]["status"] == "present"
    assert not follows.checks("chunks", "current")[key]
    assert follows.run("chunks", keys=[key], config={"chunks": {"replace": True}}).success
    assert rows(follows)[key] == ROWS[1] + 1
    assert rows(follows)[follows.keys[0]] == ROWS[0]
    assert follows.checks("chunks", "current")[key]


def test_windows_that_ended_before_refresh_for_stay(follows: Project) -> None:
    follows.plan = follows.plan.changed(refresh_for="2d")
    add_row(follows, 0, 1, 3)
    assert requested(follows).success
    assert list(rows(follows).values()).count(ROWS[0] + 1) == 2  # those that ended one and two days ago
    assert rows(follows)[follows.keys[0]] == ROWS[0]
    assert follows.observed("chunks")["looked_at"] == "3"


def test_run_config_looks_for_changes_in_a_plan_that_does_not_by_itself(project: Project) -> None:
    assert export(project).success
    add_row(project, 1)
    assert export(project).success
    assert rows(project)[project.keys[1]] == ROWS[1]
    assert export(project, changed=True).success
    assert rows(project)[project.keys[1]] == ROWS[1] + 1
    assert project.state().sealed
    assert not current(project, "chunks", "current")


def test_a_damaged_file_is_exported_again_with_the_tables_that_changed(make_project: Make) -> None:
    project = make_project()
    change(project, "CREATE TABLE others AS FROM readings")
    assert export(project).success
    others = next(each.file for each in project.state().live_files(2) if each.file.table == "others")
    flip(project.location / others.path)
    assert project.run_checks("chunks", keys=project.keys[:2]).success
    change(project, "UPDATE readings SET value = value + 1")
    assert export(project, changed=True).success
    assert [facts["status"] for facts in project.materialized().values()].count("replaced") == len(ROWS) - 1
    assert others.path not in {each.file.path for each in project.state().live_files(2)}
    assert current(project, "chunks") == dict.fromkeys(project.keys, True)


def test_a_schedule_looks_each_time(follows: Project) -> None:
    request = tick(follows)
    assert isinstance(request, dg.RunRequest)
    assert request.run_config["ops"]["demo__chunks"]["config"]["changed"] is True


def test_a_copy_refuses_to_look_for_changes(make_project: Make) -> None:
    project = make_project(durable=True, **COPY)
    copied = run_job(project, "demo_copy", {"demo__copy": {"config": {"changed": True}}}, raise_on_error=False)
    assert "changed: true has no effect on a copy" in str(project.failure(copied).description)
