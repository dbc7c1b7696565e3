"""The asset `replica`, and the export job of a plan that has `replicate_to`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.pipeline.project import Project
from snapshot_assets_tests.pipeline.test_exports import export, tick


def test_the_export_job_replicates_each_seal_and_tries_again(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    folder = tmp_path / "replica"
    project = make_project(durable=True, replicate_to=folder.as_uri())
    foreign = folder / "manifest.json"
    foreign.parent.mkdir()
    foreign.write_text("{}")
    failed = export(project)
    assert not failed.success
    assert project.state().sealed
    assert "is not a replica" in project.failure(failed).description
    assert not isinstance(tick(project), str)  # sealed, and not replicated
    foreign.unlink()
    assert export(project).success
    [facts] = project.materialized("replica").values()
    assert (facts["location"], facts["sealed"]) == (folder.as_uri(), True)
    assert facts["revision"] == str(project.state().revision)
    replica = open_store(parse_location(folder.as_uri()))
    report = verify(replica)
    assert (report.damaged, report.sealed, report.missing) == (False, True, 0)
    assert tick(project) == "Every closed window is exported and sealed."


@pytest.mark.parametrize("delete", [False, True])
def test_the_plan_decides_whether_the_replica_loses_what_the_source_deleted(
    make_project: Callable[..., Project], exported: Project, tmp_path: Path, delete: bool
) -> None:
    folder = tmp_path / "replica"
    project = make_project(replicate_to=folder.as_uri(), replicate_delete=delete)
    exported.copy_location(project)
    assert project.run("replica", with_checks=False).success
    deleted = folder / "data/1/main.readings-00000000-000000.parquet"
    deleted.write_bytes(b"the source had it once")
    assert project.run("replica", with_checks=False).success
    assert deleted.exists() is not delete
    [facts] = project.materialized("replica").values()
    assert facts["deleted_objects"] == delete
