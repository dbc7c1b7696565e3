"""Jobs and sensors that restore: the drill in a scratch database, and the restore of each new seal."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from runpy import run_path
from typing import Any

import dagster as dg
import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.engine.restore import drill
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.pipeline.automation import restores
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.cli import helpers
from snapshot_assets_tests.pipeline.project import ROOT, ROWS, Make, Project, job, run_job

pytestmark = pytest.mark.slow

SENSOR = "demo_restore_sensor"


def differing(project: Project) -> dict[str, int]:
    return helpers.differing(project.database, project.target, "main.readings", "main.sensors")


def test_a_drill_restores_the_newest_tag_compares_all_rows_and_leaves_nothing(copied: Make) -> None:
    project = copied(scratch="copy")
    catalog = Catalog.open_for_writing(open_store(parse_location(project.plan.to)))
    sealed = catalog.state.seals[-1].revision
    for name in ("older", "newer"):
        create_tag(catalog, name, sealed)
    facts = job(project, "demo_restore_drill", "demo_drill")
    assert (facts["version"], facts["revision"], facts["compared"]) == ("tag:newer", str(sealed), "values")
    assert facts["rows_compared"] == sum(ROWS) + 2
    assert [row.data for row in facts["tables"].records] == [
        {"table": "main.readings", "rows": sum(ROWS)},
        {"table": "main.sensors", "rows": 2},
    ]
    assert sorted(path.name for path in project.folder.glob("*.duckdb*")) == ["source.duckdb"]
    assert set(project.state().tags) == {"older", "newer"}  # that of the import is gone
    [observation] = project.instance.fetch_observations(project.key("manifest"), limit=10).records
    assert observation.asset_observation is not None
    assert observation.asset_observation.description == "Restore drill passed"


def test_a_drill_that_finds_another_row_fails_and_names_the_table(
    copied: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copied(scratch="copy")

    def finish(run: RestoreRun, *, unpin: bool) -> bool:
        assert finished(run, unpin=unpin)
        [path] = project.folder.glob("snapshots_drill_demo.*/*.duckdb")
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE readings SET value = value + 1 WHERE value = 103")
        return True

    finished = RestoreRun.finish
    monkeypatch.setattr(RestoreRun, "finish", finish)
    result = run_job(project, "demo_restore_drill", {}, raise_on_error=False)
    failure = project.failure(result)
    assert "main.readings in chunk 2: 24 rows in the snapshot, 24 restored" in failure.description
    assert "launch the drill again" in str(failure.metadata["remedy"].value)
    assert not list(project.folder.glob("snapshots_drill*"))
    assert project.state().tags == {}
    [observation] = project.instance.fetch_observations(project.key("manifest"), limit=10).records
    assert observation.asset_observation is not None
    assert observation.asset_observation.description == "Restore drill failed"


def test_a_drill_that_fails_for_any_other_reason_shows_that_too(copied: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the driver is gone")

    project = copied(scratch="copy")
    monkeypatch.setattr(drill, "drill", fail)
    failure = project.failure(run_job(project, "demo_restore_drill", {}, raise_on_error=False))
    assert failure.description == "RuntimeError: the driver is gone"
    assert "launch the drill again" in str(failure.metadata["remedy"].value)
    [observation] = project.instance.fetch_observations(project.key("manifest"), limit=10).records
    assert observation.asset_observation is not None
    assert observation.asset_observation.description == "Restore drill failed"
    assert observation.asset_observation.metadata["error"].value == "RuntimeError: the driver is gone"


def test_only_a_plan_with_a_scratch_database_has_a_drill(exported: Project, make_project: Make) -> None:
    assert not exported.definitions().get_repository_def().has_job("demo_restore_drill")
    drilled = make_project(scratch="copy", dagster={"drill_cron": "30 5 * * 0"}).definitions().get_repository_def()
    assert drilled.get_schedule_def("demo_restore_drill_schedule").cron_schedule == "30 5 * * 0"


def test_the_sensor_restores_each_seal_once_whoever_made_it(copied: Make) -> None:
    project = copied(target="copy", dagster={"restore_on": "sealed"})
    sensor = _sensor(project)
    first, cursor = evaluated(project, sensor)
    assert evaluated(project, sensor, cursor)[0].skip_message == (
        f"Waits for a new seal of {project.plan.to}: a run was requested for the newest, revision"
        f" {project.state().seals[-1].revision}. To restore it again, launch demo_restore."
    )
    assert run_job(project, "demo_restore", first.run_config["ops"]).success
    assert sorted(project.materialized("restored")) == list(project.keys)
    with duckdb.connect(str(project.database)) as connection:
        connection.execute("INSERT INTO readings VALUES (TIMESTAMPTZ '2013-01-02 05:00:00Z', 1, 0.5)")
    config = {"chunks": {"replace": True}}
    assert project.run("chunks", single=project.keys[1], config=config).success
    assert project.run("manifest").success
    second, cursor = evaluated(project, sensor, cursor)
    assert run_job(project, "demo_restore", second.run_config["ops"]).success
    assert differing(project) == {}
    assert project.materialized("restored")[project.keys[1]]["status"] == "replaced"


def test_the_sensor_repeats_a_restore_that_failed_but_not_at_once(
    copied: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copied(target="copy", dagster={"restore_on": "sealed"})
    sensor = _sensor(project)
    asked, cursor = evaluated(project, sensor)
    project.target.mkdir()  # no database can be there
    assert not run_job(project, "demo_restore", asked.run_config["ops"], raise_on_error=False).success
    failed = " The run failed: it is requested again an hour after its end. To restore it again, launch demo_restore."
    assert evaluated(project, sensor, cursor)[0].skip_message.endswith(failed)
    monkeypatch.setattr(restores, "_AGAIN", timedelta(0))
    project.target.rmdir()
    again, _ = evaluated(project, sensor, cursor)
    assert run_job(project, "demo_restore", again.run_config["ops"]).success
    assert "Waits for a new" in evaluated(project, sensor, cursor)[0].skip_message


def test_the_sensor_waits_for_a_seal(make_project: Make) -> None:
    project = make_project(target="copy", dagster={"restore_on": "sealed"})
    assert "has no sealed snapshot" in evaluated(project, _sensor(project))[0].skip_message


def test_a_tick_that_meets_a_damaged_log_names_what_repairs_it(copied: Make) -> None:
    project = copied(target="copy", dagster={"restore_on": "sealed"}, durable=True)
    newest = max((project.location / "transactions").glob("*.txn"))
    newest.write_bytes(newest.read_bytes()[:-10])
    definitions = project.definitions()
    repository = definitions.get_repository_def()
    resources = {"snapshots": definitions.resources["snapshots"]}
    given: dict[str, Any] = {
        "repository_def": repository,
        "resources": resources,
        "instance_ref": project.instance.get_ref(),
    }
    with (
        dg.build_sensor_context(**given) as sensing,
        pytest.raises(dg.Failure, match="export verify` names all faults"),
    ):
        repository.get_sensor_def(SENSOR).evaluate_tick(sensing)
    with dg.build_schedule_context(**given) as scheduled, pytest.raises(dg.DagsterError) as raised:
        repository.get_schedule_def("demo_export_schedule").evaluate_tick(scheduled)
    assert isinstance(raised.value.__cause__, dg.Failure)
    assert "`snapshots export verify` names all faults" in str(raised.value.__cause__)


def test_the_sensor_of_an_asset_restores_when_it_is_materialized(copied: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = copied(target="copy", dagster={"restore_on": "staging/ready"})
    sensor, ready = _sensor(project), dg.AssetKey(["staging", "ready"])
    assert "Waits for asset staging/ready: it was never materialised." in evaluated(project, sensor)[0].skip_message
    project.instance.report_runless_asset_event(dg.AssetMaterialization(ready))
    asked, cursor = evaluated(project, sensor)
    assert asked.run_config["ops"]["demo__restored"]["config"]["replace"] is True
    assert "Waits for a new" in evaluated(project, sensor, cursor)[0].skip_message

    project.instance.report_runless_asset_event(dg.AssetMaterialization(ready))
    monkeypatch.setattr(restores, "why_to_wait", lambda *_: "A run has not ended.")
    waiting, same = evaluated(project, sensor, cursor)
    assert ("has not ended" in waiting.skip_message, same) == (True, cursor)  # and asks when it has ended


def _sensor(project: Project) -> dg.SensorDefinition:
    return project.definitions().get_repository_def().get_sensor_def(SENSOR)


def evaluated(project: Project, sensor: dg.SensorDefinition, cursor: str | None = None) -> tuple[Any, str | None]:
    """Evaluate the sensor as the daemon does; returns what it asks for, or why not, and its cursor."""
    definitions = project.definitions()
    resources = {"snapshots": definitions.resources["snapshots"]}
    with dg.build_sensor_context(
        instance=project.instance, repository_def=definitions.get_repository_def(), resources=resources, cursor=cursor
    ) as context:
        data = sensor.evaluate_tick(context)
    return (data.run_requests[0] if data.run_requests else dg.SkipReason(data.skip_message)), data.cursor


def test_the_example_drills_a_location_that_it_does_not_export(
    exported: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPSHOTS", exported.plan.to)
    monkeypatch.setenv("SCRATCH", f"duckdb://{tmp_path}/any.duckdb")
    defs = run_path(str(ROOT / "examples" / "restore_drill.py"))["defs"]
    repository = defs.get_repository_def()
    schedule = repository.get_schedule_def("flights_restore_drill_schedule")
    assert schedule.cron_schedule == "0 4 * * 0"
    drilled = defs.resolve_job_def("flights_restore_drill").execute_in_process(instance=exported.instance)
    assert drilled.success
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("role", ["target", "scratch"])
def test_a_spark_catalog_as_target_or_scratch_is_refused_when_definitions_load(make_project: Make, role: str) -> None:
    project = make_project(**{role: "lake"})
    project.sources["lake"] = "spark:lake"
    refused = f"plan 'demo': {role} lake is a Spark catalog, into which nothing can be restored.*into-spark.md"
    with pytest.raises(UnknownSourceError, match=refused):
        project.definitions()


def test_a_drill_in_another_kind_of_database_compares_values(copied: Make, postgresql_database: str) -> None:
    facts = job(copied(scratch=postgresql_database), "demo_restore_drill", "demo_drill")
    assert (facts["compared"], facts["tables_compared"], facts["rows_compared"]) == ("values", 2, sum(ROWS) + 2)
    assert "columns_not_compared" not in facts
