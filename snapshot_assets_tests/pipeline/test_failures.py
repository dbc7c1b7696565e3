"""What Dagster shows of a failure: its description, a remedy, and the chunks that failed."""

from __future__ import annotations

import re
import shutil
from typing import Any

import dagster as dg
import pytest

from snapshot_assets.catalog.operations import seal
from snapshot_assets.databases.duckdb.source import DuckDBDatabase
from snapshot_assets.errors import (
    DamageError,
    DatabaseUnavailableError,
    ExportFailedError,
    IncompleteError,
    PlanError,
    SnapshotError,
    StoreUnavailableError,
)
from snapshot_assets.pipeline.dagster.failures import as_failure
from snapshot_assets_tests.pipeline.project import ROOT, Make


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ExportFailedError("no", chunks={3: "why"}), "Correct what the errors in `failed_chunks` name, then run again"),
        (ExportFailedError("no", chunks={3: "why"}, transient=True), "Every cause may pass by itself: run again."),
        (DamageError("no"), "every damaged partition"),
        (IncompleteError("no"), "Materialise the partitions that the message names"),
        (PlanError("no"), "reload the code location"),
        (DatabaseUnavailableError("no"), "run again: what was committed stays"),
    ],
)
def test_every_failure_has_a_remedy_of_its_kind(error: SnapshotError, remedy: str) -> None:
    failure = as_failure(error)
    assert failure.description == "no"
    assert not failure.allow_retries
    assert remedy in str(failure.metadata["remedy"].value)
    assert ("failed_chunks" in failure.metadata) == isinstance(error, ExportFailedError)


def test_a_remedy_says_what_the_commands_of_a_message_lack() -> None:
    lacks = "`--plan NAME`, or `--snapshot LOCATION`"
    named = as_failure(IncompleteError("Export chunk 3 again with `snapshots export create --replace A/B`."))
    assert lacks in str(named.metadata["remedy"].value)
    assert lacks in str(as_failure(DamageError("no")).metadata["remedy"].value)  # whose own remedy names a command
    for complete in ("no", "Run `snapshots export create --snapshot s3://b/a`."):
        assert lacks not in str(as_failure(PlanError(complete)).metadata["remedy"].value)


def test_remedies_name_jobs_that_each_plan_has(make_project: Make) -> None:
    names = {job.name for job in make_project().definitions().resolve_all_job_defs()}
    for error in (DamageError("no"), IncompleteError("no")):
        [job] = re.findall(r"job `<plan>(_\w+)`", str(as_failure(error).metadata["remedy"].value))
        assert any(name.endswith(job) for name in names)


@pytest.mark.slow
def test_a_failed_export_stays_what_is_shown_if_the_hints_fail_too(
    make_project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise StoreUnavailableError("the bucket does not answer")

    project = make_project()
    project.break_chunk(1)
    monkeypatch.setattr(seal, "write_hints", lost)
    failure = project.failure(project.run("chunks", keys=project.keys[:1], with_checks=False))
    assert [each["chunks"] for each in failure.metadata["failed_chunks"].value] == [[1]]
    assert any("were not written after the failure: the bucket does not answer" in line for line in project.log())
    project.mend_chunk(1)
    failure = project.failure(project.run("chunks", keys=project.keys[:1], with_checks=False))
    assert failure.description == "the bucket does not answer"


def test_the_sensor_of_the_documents_reports_a_failed_chunk_and_a_users_own_errors(make_project: Make) -> None:
    [code] = re.findall(
        r"```python\n(@dg\.run_failure_sensor.*?)```", (ROOT / "docs/how-to/dagster-project.md").read_text(), re.DOTALL
    )
    sent: list[str] = []
    given: dict[str, object] = {"dg": dg, "send": sent.append}
    exec(code, given)
    sensor = given["on_failure"]
    assert isinstance(sensor, dg.RunStatusSensorDefinition)

    @dg.asset
    def fails() -> None:
        raise dg.Failure("the user's own")

    @dg.asset
    def crashes() -> None:
        raise ValueError("a bug")

    project = make_project()
    project.break_chunk(2)
    runs = [project.run("chunks", keys=project.keys[:3])]
    runs += [dg.materialize([each], instance=project.instance, raise_on_error=False) for each in (fails, crashes)]
    for result in runs:
        [failed] = [event for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE]
        context = dg.build_run_status_sensor_context(
            sensor_name="on_failure",
            dagster_instance=project.instance,
            dagster_run=result.dagster_run,
            dagster_event=failed,
        ).for_run_failure()
        sensor(context)
    chunk, own, crash = sent
    assert f"chunk 2 ({project.keys[1]}): " in chunk
    assert "chunks that are complete stay as they are" in chunk
    assert "the user's own" in own
    assert "Steps failed: ['crashes']" in crash


def test_the_hook_of_the_documents_reports_a_step_that_failed(make_project: Make) -> None:
    [code] = re.findall(
        r"```python\n(@dg\.failure_hook.*?)```", (ROOT / "docs/how-to/dagster-project.md").read_text(), re.DOTALL
    )
    sent: list[str] = []
    given: dict[str, Any] = {"dg": dg, "send": sent.append}
    exec(code.replace("shop", "demo"), given)
    project = make_project()
    project.database.rename(project.folder / "away")
    definitions = dg.Definitions.merge(project.definitions(), dg.Definitions(jobs=[given["demo_nightly"]]))
    job = definitions.resolve_job_def("demo_nightly")
    assert not job.execute_in_process(instance=project.instance, raise_on_error=False).success
    [text] = sent
    assert text.startswith("demo__schema: ")
    assert "source.duckdb" in text
    assert len(text.splitlines()[-1]) > 20  # the remedy


def test_a_mistake_of_a_plug_in_is_shown_by_its_name_and_starts_no_snapshot(
    make_project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    monkeypatch.setattr(DuckDBDatabase, "fence", lambda _: {"lsn": 5})
    failure = project.failure(project.run("schema", with_checks=False))
    assert str(failure.description).startswith("duckdb: fence() of its plug-in returned {'lsn': 5}; ['lsn'] should be")
    assert "run again" in str(failure.metadata["remedy"].value)
    assert not project.location.exists() or not any(project.location.iterdir())


def test_checks_of_a_snapshot_that_is_gone_fail_with_a_remedy(make_project: Make) -> None:
    project = make_project()
    assert project.run("schema", "chunks", "untimed_tables", "manifest", keys=project.keys, with_checks=False).success
    shutil.rmtree(project.location)
    for asset in ("chunks", "manifest"):
        result = project.run_checks(asset, keys=project.keys if asset == "chunks" else ())
        failures = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
        assert failures
        assert all("remedy" in failure.metadata for failure in failures)
