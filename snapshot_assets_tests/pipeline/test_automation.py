"""Declarative automation: what it requests, and what it holds back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorType

from snapshot_assets.pipeline.dagster.dagster_internals import accepting_unstable_parts
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.pipeline.project import DAY, START, Make, Project, flip
from snapshot_assets_tests.pipeline.test_exports import tick

DAGSTER = {"automation": True, "fresh_for": "2d", "owners": ["team:data"], "tags": {"tier": "gold"}, "group": "vault"}
MINUTE = timedelta(minutes=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def asked(project: Project, cursor: Any = None, at: datetime | None = None) -> tuple[dict[str, object], Any]:
    """Evaluate all conditions; returns what they request, by asset."""
    with accepting_unstable_parts():
        result = dg.evaluate_automation_conditions(
            project.definitions(), project.instance, cursor=cursor, evaluation_time=at
        )
    found: dict[str, object] = {}
    for each in result.results:
        name = each.key.path[-1] if isinstance(each.key, dg.AssetKey) else str(each.key)
        if each.true_subset.size:
            found[name] = each.true_subset.size
    return found, result.cursor


@pytest.mark.slow
def test_what_is_missing_is_exported_and_sealed_once_it_is_whole(make_project: Make) -> None:
    project = make_project(durable=True, dagster=DAGSTER)
    found, cursor = asked(project)
    assert found == {"schema": 1, "chunks": 6, "untimed_tables": 1}
    assert project.run("schema", "untimed_tables", with_checks=False).success
    assert project.run("chunks", keys=project.keys[:5]).success
    found, cursor = asked(project, cursor)
    assert found == {"chunks": 1}
    assert project.run("chunks", keys=project.keys[5:]).success
    flip(project.data_file(2))
    assert project.run_checks("chunks", keys=project.keys[1:2]).success
    found, cursor = asked(project, cursor)
    assert found == {}  # a check of one partition failed
    assert project.run("chunks", keys=project.keys[1:2]).success
    found, cursor = asked(project, cursor)
    assert found == {"manifest": 1}
    assert project.run("manifest").success
    assert asked(project, cursor)[0] == {}


def test_the_sensor_says_what_holds_a_seal_and_a_replica_back(make_project: Make) -> None:
    project = make_project(dagster=DAGSTER, replicate_to="file:///nowhere/at/all")
    sensor = project.definitions().get_repository_def().get_sensor_def("demo_automation_sensor")
    assert sensor.description == (
        "Exports windows of demo that are missing. Seals the snapshot once all are there, unless a check of chunks or"
        " untimed_tables failed when it last ran; comparisons with the source do not count. Replicates each seal,"
        " unless a check of manifest failed when it last ran. What failed runs again each hour."
    )


def materialized(project: Project, asset: str, *keys: str | None) -> None:
    """Record that an asset was materialized, without a run."""
    for key in keys:
        project.instance.report_runless_asset_event(dg.AssetMaterialization(project.key(asset), partition=key))


def test_what_failed_is_exported_again_when_an_hour_begins(make_project: Make) -> None:
    project = make_project(dagster=DAGSTER)
    materialized(project, "schema", None)
    materialized(project, "untimed_tables", None)
    found, cursor = asked(project, at=NOON)
    assert found == {"chunks": 6}
    project.database.rename(project.folder / "away")
    assert not project.run("chunks", keys=project.keys[1:2], with_checks=False).success
    materialized(project, "chunks", project.keys[0], *project.keys[2:])
    for minutes, again in ((10, {}), (59, {}), (61, {"chunks": 1}), (62, {})):
        found, cursor = asked(project, cursor, at=NOON + minutes * MINUTE)
        assert found == again
    materialized(project, "chunks", project.keys[1])
    assert asked(project, cursor, at=NOON + 70 * MINUTE)[0] == {"manifest": 1}


def test_a_seal_that_failed_is_tried_again_when_an_hour_begins(make_project: Make) -> None:
    project = make_project(dagster=DAGSTER)
    for asset in ("schema", "untimed_tables"):
        materialized(project, asset, None)
    _, cursor = asked(project, at=NOON)
    materialized(project, "chunks", *project.keys)
    found, cursor = asked(project, cursor, at=NOON + MINUTE)
    assert found == {"manifest": 1}
    assert not project.run("manifest", with_checks=False).success  # nothing is there
    for minutes, again in ((10, {}), (61, {"manifest": 1}), (62, {})):
        found, cursor = asked(project, cursor, at=NOON + minutes * MINUTE)
        assert found == again


def test_chunk_0_is_exported_again_with_new_windows_and_before_their_seal(make_project: Make) -> None:
    project = make_project(kind="continuous", end_time=None, dagster=DAGSTER)
    first, second, third = project.keys[:3]
    found, cursor = asked(project, at=START + 2 * DAY)
    assert found == {"schema": 1, "chunks": 2, "untimed_tables": 1}
    materialized(project, "schema", None)
    materialized(project, "untimed_tables", None)
    materialized(project, "chunks", first, second)
    found, cursor = asked(project, cursor, at=START + 2 * DAY + MINUTE)
    assert found == {"manifest": 1}  # chunk 0 was requested with the windows
    materialized(project, "manifest", None)
    found, cursor = asked(project, cursor, at=START + 2.5 * DAY)
    assert found == {}
    found, cursor = asked(project, cursor, at=START + 3 * DAY)
    assert found == {"chunks": 1}
    materialized(project, "chunks", third)
    found, cursor = asked(project, cursor, at=START + 3 * DAY + MINUTE)
    assert found == {"untimed_tables": 1, "manifest": 1}  # one run, in this order
    materialized(project, "untimed_tables", None)
    materialized(project, "manifest", None)
    assert asked(project, cursor, at=START + 3 * DAY + 2 * MINUTE)[0] == {}


def test_a_window_is_requested_once_its_lag_is_over(make_project: Make) -> None:
    project = make_project(kind="continuous", end_time=None, lag="15m", dagster=DAGSTER)
    _, cursor = asked(project, at=START + 0.5 * DAY)
    requests = []
    for minutes in (1, 14, 16):
        found, cursor = asked(project, cursor, at=START + DAY + minutes * MINUTE)
        requests.append(found.get("chunks"))
    assert requests == [None, None, 1]


def test_assets_have_what_the_plan_says(make_project: Make) -> None:
    project = make_project(dagster=DAGSTER | {"key_prefix": ["a", "b"]})
    graph = project.definitions().get_repository_def().asset_graph
    keys = {key.path[-1]: key for key in graph.materializable_asset_keys}
    assert {tuple(key.path[:-1]) for key in keys.values()} == {("a", "b", "demo")}
    for key in keys.values():
        node = graph.get(key)
        assert (node.group_name, tuple(node.owners), node.tags["tier"]) == ("vault", ("team:data",), "gold")
    assert graph.get(keys["manifest"]).freshness_policy is not None
    assert graph.get(keys["tag"]).freshness_policy is None  # no rule makes tags
    assert graph.get(keys["chunks"]).freshness_policy is None


def test_without_them_nothing_is_automatic(project: Project) -> None:
    graph = project.definitions().get_repository_def().asset_graph
    for key in graph.materializable_asset_keys:
        assert graph.get(key).automation_condition is None
        assert graph.get(key).freshness_policy is None


def test_tags_of_a_rule_may_be_older_than_seals_by_its_interval(make_project: Make) -> None:
    project = make_project(dagster={"fresh_for": "2d"}, retention={"tag": {"create_interval": "7d"}})
    graph = project.definitions().get_repository_def().asset_graph
    windows = {}
    for name in ("manifest", "tag"):
        policy = graph.get(project.key(name)).freshness_policy
        assert policy is not None
        windows[name] = policy.fail_window.to_timedelta()
    assert windows == {"manifest": timedelta(days=2), "tag": timedelta(days=9)}


@pytest.mark.parametrize("status", ["stopped", "running"])
def test_each_plan_has_a_sensor_of_its_own_for_its_conditions(make_project: Make, status: str) -> None:
    dagster = DAGSTER | {"default_status": status}
    project = make_project(dagster=dagster, replicate_to="s3://second/demo", target="copy")
    project.more_plans = [
        Plan(name="other", source="readings", to="s3://first/other", schema_only=True, dagster=dagster)
    ]
    repository = project.definitions().get_repository_def()
    sensors = {each.name: each for each in repository.sensor_defs if "automation" in each.name}
    assert sorted(sensors) == ["demo_automation_sensor", "other_automation_sensor"]  # and not Dagster's own
    targets = {}
    for name, sensor in sensors.items():
        assert sensor.default_status.value.lower() == status
        assert {"demo": "Seals the snapshot", "other": "and seals it"}[name.split("_")[0]] in (sensor.description or "")
        assert sensor.asset_selection is not None
        targets[name] = {key.to_user_string() for key in sensor.asset_selection.resolve(repository.asset_graph)}
    graph = repository.asset_graph
    conditions = {
        key.to_user_string() for key in graph.materializable_asset_keys if graph.get(key).automation_condition
    }
    assert targets["demo_automation_sensor"] | targets["other_automation_sensor"] == conditions
    assert targets["other_automation_sensor"] == {"other/schema", "other/manifest"}


def turn_sensor(project: Project, status: InstigatorStatus) -> None:
    """Turn the automation sensor on or off, as the UI does."""
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("snapshots"), "__repository__")
    of_sensor = origin.get_instigator_origin("demo_automation_sensor")
    state = InstigatorState(of_sensor, InstigatorType.SENSOR, status)
    if project.instance.all_instigator_state():
        project.instance.update_instigator_state(state)
    else:
        project.instance.add_instigator_state(state)


@pytest.mark.parametrize("status", ["stopped", "running"])
def test_what_is_due_is_requested_by_the_sensor_or_by_the_schedule(make_project: Make, status: str) -> None:
    project = make_project(durable=True, dagster={"automation": True, "default_status": status})
    schedule = project.definitions().get_repository_def().get_schedule_def("demo_export_schedule")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert asked(project)[0]["chunks"] == 6  # by the sensor, if it is on
    by_sensor = "The sensor demo_automation_sensor is on, and requests what is due. Turn one of the two off."
    assert (tick(project) == by_sensor) is (status == "running")
    turn_sensor(project, InstigatorStatus.STOPPED)
    assert isinstance(tick(project), dg.RunRequest)
    turn_sensor(project, InstigatorStatus.RUNNING)
    assert tick(project) == by_sensor


def test_automation_creates_the_tag_that_is_due(make_project: Make) -> None:
    project = make_project(dagster=DAGSTER, retention={"tag": {"create_interval": "1d"}})
    assert project.run("schema", "chunks", "untimed_tables", keys=project.keys, with_checks=False).success
    assert project.run("manifest", with_checks=False).success  # as the sensor launches it, without run config
    [name] = project.state().tags
    assert list(project.materialized("tag")) == [name]
