"""What Dagster shows of a failure: its description, a remedy, and the chunks that failed."""

from __future__ import annotations

import re
from collections.abc import Callable

import dagster as dg
import pytest

from snapshot_assets.errors import (
    DamageError,
    DatabaseUnavailableError,
    ExportFailedError,
    IncompleteError,
    PlanError,
    SnapshotError,
)
from snapshot_assets.pipeline.failures import as_failure
from snapshot_assets_tests.pipeline.project import ROOT, Project


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ExportFailedError("no", chunks={3: "why"}), "complete ones are skipped"),
        (DamageError("no"), "every damaged partition"),
        (IncompleteError("no"), "Materialise the missing partitions"),
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


def test_the_sensor_of_the_readme_tells_of_a_failed_chunk(make_project: Callable[..., Project]) -> None:
    [code] = re.findall(r"```python\n(@dg\.run_failure_sensor.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    told: list[str] = []
    given: dict[str, object] = {"dg": dg, "send": told.append}
    exec(code, given)
    tell = given["tell"]
    assert isinstance(tell, dg.RunStatusSensorDefinition)

    project = make_project()
    project.break_chunk(2)
    result = project.run("chunks", keys=project.keys[:3])
    assert not result.success
    [failed] = [event for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE]
    context = dg.build_run_status_sensor_context(
        sensor_name="tell",
        dagster_instance=project.instance,
        dagster_run=result.dagster_run,
        dagster_event=failed,
    ).for_run_failure()
    tell(context)
    [message] = told
    assert "chunk 2: " in message
    assert "complete ones are skipped" in message
