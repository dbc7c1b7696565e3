"""Errors of failed runs on the command line."""

import tomllib

import dagster as dg
import pytest

from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.pipeline.execute import CODE_LOCATION, _execute, _failure
from snapshot_assets_tests.pipeline.project import ROOT


def failed(error: BaseException, cause: BaseException | None = None) -> SnapshotError:
    """Return the error of a run whose only step raises one."""

    @dg.asset
    def broken() -> None:
        raise error from cause

    return error_of(broken)


def error_of(asset: dg.AssetsDefinition, **resources: object) -> SnapshotError:
    """Return the error of a failed run of one asset."""
    definitions = dg.Definitions([asset], resources=resources)
    with dg.DagsterInstance.ephemeral() as instance:
        return _failure(
            definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        )


def test_an_error_of_this_package_keeps_its_class_and_message() -> None:
    error = failed(PlanError("the plan is wrong"), ValueError("of the driver"))
    assert type(error) is PlanError
    assert str(error) == "broken failed: the plan is wrong"


def test_another_error_keeps_its_message() -> None:
    error = failed(ValueError("of the driver"), KeyError("below"))
    assert type(error) is SnapshotError
    assert str(error) == "broken failed: ValueError: of the driver"


def test_the_error_of_an_interrupted_run_asks_to_repeat_it() -> None:
    error = failed(dg.DagsterExecutionInterruptedError())
    assert str(error).startswith("The run was interrupted. Committed chunks stay;")


def test_a_failure_outside_all_steps_is_reported() -> None:
    @dg.asset(io_manager_key="_refused")
    def unnamed() -> None:
        """Never runs."""

    error = error_of(unnamed, _refused=dg.mem_io_manager)
    assert str(error) == "The run failed: ValueError: Field names cannot start with an underscore: '_refused'"


@pytest.mark.parametrize(("named", "location"), [(None, CODE_LOCATION), ("", CODE_LOCATION), ("shop", "shop")])
def test_a_run_belongs_to_the_code_location_while_it_runs(
    named: str | None, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SNAPSHOTS_CODE_LOCATION", raising=False)
    if named is not None:
        monkeypatch.setenv("SNAPSHOTS_CODE_LOCATION", named)
    seen: list[dg.DagsterRun | None] = []

    @dg.asset
    def looking(context: dg.AssetExecutionContext) -> None:
        seen.append(context.instance.get_run_by_id(context.run.run_id))

    job = dg.Definitions([looking]).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        result = _execute(job, instance, {})
        [found] = instance.get_runs(dg.RunsFilter(tags={".dagster/repository": f"__repository__@{location}"}))
    [during] = seen
    assert during is not None
    for run, status in ((during, dg.DagsterRunStatus.STARTED), (found, dg.DagsterRunStatus.SUCCESS)):
        assert run.remote_job_origin is not None
        assert run.remote_job_origin.repository_origin.code_location_origin.location_name == location
        assert (run.run_id, run.status) == (result.run_id, status)


def test_dg_names_the_code_location_as_the_command_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert project["code_location_name"] == CODE_LOCATION


def test_the_daemon_does_not_repeat_a_run_of_the_command() -> None:
    @dg.asset
    def fine() -> None: ...

    job = dg.Definitions([fine]).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        _execute(job, instance, {})
        [run] = instance.get_runs()
    assert run.tags["dagster/max_retries"] == "0"
