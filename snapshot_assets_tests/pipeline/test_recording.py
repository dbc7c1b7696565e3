"""Runs that a command records in Dagster."""

import tomllib
from typing import NoReturn

import dagster as dg
import pytest

from snapshot_assets.errors import ExportFailedError
from snapshot_assets.pipeline.recording import CODE_LOCATION, open_instance, run_recorded
from snapshot_assets_tests.pipeline.project import ROOT


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with open_instance(tmp_path / "new") as opened:
        yield opened


def test_the_error_of_the_work_comes_back_as_it_was_raised(instance):
    raised = ExportFailedError("1 of 2 chunks failed.", chunks={1: "no"}, causes=["TaskLostError"], transient=True)

    def work(_: dg.OpExecutionContext) -> NoReturn:
        raise raised

    with pytest.raises(ExportFailedError) as failed:
        run_recorded(instance, "shop_export", "b0a2e68a-98c2-4a95-ac2c-b5ebd4e1bd1c", work)
    assert failed.value is raised
    [run] = instance.get_runs()
    assert (run.job_name, run.status) == ("shop_export", dg.DagsterRunStatus.FAILURE)
    [event] = [each.dagster_event for each in instance.all_logs(run.run_id, dg.DagsterEventType.STEP_FAILURE)]
    assert {"remedy", "failed_chunks"} <= event.step_failure_data.user_failure_data.metadata.keys()


@pytest.mark.parametrize("error", [dg.DagsterExecutionInterruptedError, KeyboardInterrupt])
def test_an_interruption_is_that_of_the_command(instance, error):
    def work(_: dg.OpExecutionContext) -> NoReturn:
        raise error

    with pytest.raises(KeyboardInterrupt):
        run_recorded(instance, "shop_export", "b0a2e68a-98c2-4a95-ac2c-b5ebd4e1bd1c", work)


@pytest.mark.parametrize(("named", "location"), [(None, CODE_LOCATION), ("", CODE_LOCATION), ("shop", "shop")])
def test_a_run_belongs_to_the_code_location_while_it_runs(instance, named, location, monkeypatch):
    monkeypatch.delenv("SNAPSHOTS_CODE_LOCATION", raising=False)
    if named is not None:
        monkeypatch.setenv("SNAPSHOTS_CODE_LOCATION", named)

    def work(context: dg.OpExecutionContext) -> dg.DagsterRun | None:
        return context.instance.get_run_by_id(context.run.run_id)

    during = run_recorded(instance, "shop_export", "b0a2e68a-98c2-4a95-ac2c-b5ebd4e1bd1c", work)
    [found] = instance.get_runs(dg.RunsFilter(tags={".dagster/repository": f"__repository__@{location}"}))
    assert found.tags["dagster/max_retries"] == "0"  # the daemon does not repeat it
    for run, status in ((during, dg.DagsterRunStatus.STARTED), (found, dg.DagsterRunStatus.SUCCESS)):
        assert run.remote_job_origin.repository_origin.code_location_origin.location_name == location
        assert (run.run_id, run.status) == ("b0a2e68a-98c2-4a95-ac2c-b5ebd4e1bd1c", status)


def test_dg_names_the_code_location_as_the_command_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert project["code_location_name"] == CODE_LOCATION
