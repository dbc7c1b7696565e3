"""The asset `replica`, and the export job of a plan that has `replicate_to`."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.pipeline.project import Make, Project, flip, job, run_job
from snapshot_assets_tests.pipeline.test_exports import export, tick
from snapshot_assets_tests.pipeline.test_verification import OP


@pytest.mark.slow
def test_the_export_job_replicates_each_seal_and_tries_again(make_project: Make, tmp_path: Path) -> None:
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


@pytest.fixture
def replicated(copied: Make, tmp_path: Path) -> Project:
    """A project with a sealed location, which a run has replicated to the folder `replica`."""
    project = copied(replicate_to=(tmp_path / "replica").as_uri())
    assert project.run("replica", with_checks=False).success
    return project


@pytest.mark.slow
@pytest.mark.parametrize("delete", [False, True])
def test_the_plan_decides_whether_the_replica_loses_what_the_source_deleted(
    replicated: Project, tmp_path: Path, delete: bool
) -> None:
    replicated.plan = replicated.plan.changed(replicate_delete=delete)
    deleted = tmp_path / "replica/data/1/main.readings-00000000-000000.parquet"
    deleted.write_bytes(b"the source had it once")
    assert replicated.run("replica", with_checks=False).success
    assert deleted.exists() is not delete
    [facts] = replicated.materialized("replica").values()
    assert facts["deleted_objects"] == str(int(delete))


@pytest.mark.slow
@pytest.mark.parametrize("config", [{}, {"sample": "100%"}])
def test_the_verification_job_finds_damage_of_the_replica(
    replicated: Project, tmp_path: Path, config: dict[str, str]
) -> None:
    folder, project = tmp_path / "replica", replicated
    assert project.checks("replica", "files_intact") == {None: True}
    assert job(project, "demo_verify", OP, **config)["replica_hashed_bytes"] > 0
    assert project.checks("replica", "files_intact") == {None: True}

    damaged = next(folder.glob("data/5/*.parquet"))
    flip(damaged)
    failure = project.failure(run_job(project, "demo_verify", {OP: {"config": config}}, raise_on_error=False))
    assert f"{folder.as_uri()} is damaged: data/5/" in failure.description
    assert "snapshots replicate --plan demo" in failure.metadata["remedy"].value
    assert project.checks("replica", "files_intact") == {None: False}
    assert project.checks("manifest", "files_intact") == {None: True}
    assert not project.run("replica", with_checks=False).success  # it reads again what is on record as damaged
    assert project.checks("replica", "files_intact") == {None: False}

    damaged.unlink()
    assert project.run("replica", with_checks=False).success
    assert project.checks("replica", "files_intact") == {None: True}


def test_a_replica_that_is_not_there_yet_is_a_warning_and_one_that_is_gone_a_failure(
    copied: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "replica"
    project = copied(replicate_to=folder.as_uri())
    text = f"There is no replica at {folder.as_uri()} yet; run demo_export, or snapshots replicate --plan demo."
    assert job(project, "demo_verify", OP)["replica"] == text
    assert project.checks("manifest", "files_intact") == {None: True}
    assert project.run_checks("replica", keys=()).success
    found = project.check("replica", "files_intact")
    assert (found.passed, found.severity, found.description) == (False, dg.AssetCheckSeverity.WARN, text)

    assert project.run("replica", with_checks=False).success
    shutil.rmtree(folder)
    failure = project.failure(run_job(project, "demo_verify", {}, raise_on_error=False))
    assert f"There is no snapshot at {folder.as_uri()}" in failure.description


def test_damage_of_both_is_one_failure(replicated: Project, tmp_path: Path) -> None:
    project = replicated
    flip(next((tmp_path / "replica").glob("data/5/*.parquet")))
    flip(project.data_file(2))
    failure = project.failure(run_job(project, "demo_verify", {}, raise_on_error=False))
    assert [line.partition("data/")[2][0] for line in failure.description.splitlines()] == ["2", "5"]
    assert project.checks("chunks", "file_checksums") == {project.keys[1]: False}
