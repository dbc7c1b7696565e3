"""The job `<plan>_verify`, checks without partitions, and what a seal makes of damage that they found."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import dagster as dg
import pytest

from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.units import human_bytes, human_seconds
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.dagster_fields import DagsterFields
from snapshot_assets_tests.pipeline.project import Project, flip, job, run_job

OP = "demo_verify_location"


@pytest.fixture
def sealed(exported: Project, project: Project) -> Project:
    exported.copy_location(project)
    assert project.run("schema", "chunks", "untimed_tables", "manifest", keys=project.keys, with_checks=False).success
    return project


def recorded(project: Project) -> set[str]:
    return {path.name for path in (project.location / "verification").glob("*")}


@pytest.mark.parametrize("depth", ["quick", "sample", "full"])
def test_a_whole_location_passes_and_that_is_recorded(sealed: Project, depth: str) -> None:
    before = recorded(sealed)
    found = job(sealed, "demo_verify", OP, depth=depth)
    size = sum(known.file.bytes for known in sealed.state().live_files())
    assert found["hashed_bytes"] == (0 if depth == "quick" else size)
    for name in ("files_intact", "snapshot_checksum", "coverage"):
        assert sealed.checks("manifest", name) == {None: True}
    assert sealed.checks("chunks", "file_checksums") == dict.fromkeys(sealed.keys, True)
    [record] = recorded(sealed) - before
    assert f"-{depth}-{'all' if depth == 'full' else 'newest'}-" in record


@pytest.mark.parametrize("depth", ["sample", "full"])
def test_damage_fails_the_run_and_the_checks_of_what_has_it(sealed: Project, depth: str) -> None:
    flip(sealed.data_file(5))
    flip(sealed.data_file(0))
    result = run_job(sealed, "demo_verify", {OP: {"config": {"depth": depth}}}, raise_on_error=False)
    failure = sealed.failure(result)
    assert "is damaged: data/0/" in failure.description
    assert failure.metadata["faults"].value == "2"
    assert f"Materialise again what is damaged: untimed_tables, {sealed.keys[4]}." in failure.metadata["remedy"].value
    assert sealed.checks("chunks", "file_checksums") == {key: key != sealed.keys[4] for key in sealed.keys}
    assert sealed.checks("untimed_tables", "file_checksums") == {None: False}
    assert sealed.checks("manifest", "files_intact") == {None: False}
    assert sealed.checks("manifest", "snapshot_checksum") == {None: True}

    assert sealed.run("chunks", "untimed_tables", keys=sealed.keys[4:5], with_checks=False).success
    result = run_job(sealed, "demo_verify", {OP: {"config": {"depth": depth}}}, raise_on_error=False)
    assert result.success is (depth == "sample")
    if depth == "full":  # the seal before the repair needs the damaged files
        assert "needs it." in sealed.failure(result).description
        assert "- `snapshots catalog expire" in sealed.failure(result).metadata["remedy"].value
    assert sealed.checks("manifest", "files_intact") == {None: True}
    assert sealed.checks("chunks", "file_checksums") == dict.fromkeys(sealed.keys, True)
    assert sealed.checks("untimed_tables", "file_checksums") == {None: True}


def test_the_plan_chooses_depth_and_time(sealed: Project) -> None:
    sealed.plan = sealed.plan.changed(dagster={"verify_depth": "quick", "verify_cron": "0 5 * * 0"})
    assert job(sealed, "demo_verify", OP)["hashed_bytes"] == 0
    assert job(sealed, "demo_verify", OP, depth="sample")["hashed_bytes"] > 0
    schedule = sealed.definitions().get_repository_def().get_schedule_def("demo_verify_schedule")
    assert schedule.cron_schedule == "0 5 * * 0"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"depth": "deep"}, "depth 'deep' is invalid; write one of quick, sample, full."),
        ({"sample": "a lot"}, "'a lot' is not a share"),
        ({"depth": "full", "sample": "5%"}, "sample '5%' has no effect with depth full"),
    ],
)
def test_an_invalid_depth_is_refused(sealed: Project, config: dict[str, str], message: str) -> None:
    result = run_job(sealed, "demo_verify", {OP: {"config": config}}, raise_on_error=False)
    assert message in sealed.failure(result).description


@pytest.mark.slow
@pytest.mark.parametrize("by_plan", [False, True])
def test_a_share_of_all_data_is_hashed_with_what_checks_found(sealed: Project, by_plan: bool) -> None:
    share = "1%"  # of a few files: one each day, or now and then more, by the random parts of their names
    if by_plan:
        sealed.plan = sealed.plan.model_copy(update={"dagster": DagsterFields(verify_sample=share)})
    config = {} if by_plan else {"sample": share}
    before = recorded(sealed)
    found = job(sealed, "demo_verify", OP, **config)
    assert 0 < found["hashed_bytes"] < sum(known.file.bytes for known in sealed.state().live_files())
    [record] = recorded(sealed) - before
    assert "-sample-all-" in record  # older readable revisions, too

    flip(sealed.data_file(5))
    assert sealed.run_checks("chunks", keys=sealed.keys[4:5]).success
    result = run_job(sealed, "demo_verify", {OP: {"config": config}}, raise_on_error=False)
    assert "is damaged: data/5/" in sealed.failure(result).description
    assert sealed.checks("chunks", "file_checksums") == {key: key != sealed.keys[4] for key in sealed.keys}


def test_a_verification_shows_the_age_of_the_seal_and_what_no_seal_has(sealed: Project) -> None:
    assert run_job(sealed, "demo_verify", {}).success
    seen = sealed.observed("manifest")
    state = sealed.state()
    assert state.newest_seal is not None
    age = (datetime.now(UTC) - state.newest_seal.committed_at).total_seconds()
    assert seen["seal_age_seconds"] == pytest.approx(age, abs=60)
    assert seen["seal_age"] == human_seconds(seen["seal_age_seconds"])
    assert (seen["sealed"], seen["missing_windows"], seen["unsealed_files"], seen["unsealed_bytes"]) == (
        True,
        "0",
        "0",
        0,
    )
    assert sealed.run("chunks", keys=sealed.keys[1:2], config={"chunks": {"replace": True}}, with_checks=False).success
    assert run_job(sealed, "demo_verify", {}).success
    seen, [new] = sealed.observed("manifest"), sealed.state().live_files(2)
    assert (seen["sealed"], seen["unsealed_files"], seen["unsealed_bytes"]) == (False, "1", new.file.bytes)
    assert seen["unsealed_size"] == human_bytes(new.file.bytes)


def test_a_seal_with_a_depth_that_there_is_not_is_refused(sealed: Project) -> None:
    result = sealed.run("manifest", config={"manifest": {"verify": "deep"}}, with_checks=False)
    assert "verify 'deep' is invalid; write new or full" in sealed.failure(result).description


def test_checks_of_the_manifest_count_as_verifications(sealed: Project) -> None:
    before = recorded(sealed)
    assert sealed.run_checks("manifest", keys=()).success
    [record] = recorded(sealed) - before
    assert "-sample-newest-" in record


def test_all_checks_of_an_asset_run_without_a_partition(sealed: Project) -> None:
    flip(sealed.data_file(2))
    assert sealed.run_checks("chunks", keys=()).success
    assert sealed.checks("chunks", "file_checksums") == {key: key != sealed.keys[1] for key in sealed.keys}
    assert sealed.run_checks("untimed_tables", keys=()).success
    assert sealed.checks("untimed_tables", "file_checksums") == {None: True}
    key = dg.AssetCheckKey(sealed.key("chunks"), "file_checksums")
    shown = next(
        record.event.dagster_event.asset_check_evaluation_data.description
        for record in sealed.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
        if record.partition == sealed.keys[1]
        and record.event.dagster_event.event_specific_data.__class__.__name__ == "AssetCheckEvaluation"
    )
    assert "Materialise this partition again" in shown


@pytest.mark.slow
@pytest.mark.parametrize("found_by", ["check", "elsewhere"])
def test_damage_that_was_found_is_not_sealed_over(sealed: Project, found_by: str) -> None:
    """A seal of new files hashes those, and of the others what checks and verifications found damaged."""
    flip(sealed.data_file(5))
    if found_by == "check":
        assert sealed.run_checks("chunks", keys=sealed.keys[4:5]).success
    else:  # as `snapshots export verify` does: its record is all that the project's instance gets
        store = Configuration().store(sealed.plan)
        record_verification(store, verify(store), datetime.now(UTC))
    replaced = {"chunks": {"replace": True}}
    result = sealed.run("chunks", "manifest", keys=sealed.keys[1:2], config=replaced, with_checks=False)
    assert not result.success
    assert "The snapshot is damaged and was not sealed: data/5/" in sealed.failure(result).description
    assert not sealed.state().sealed
    assert sealed.run("chunks", "manifest", keys=sealed.keys[4:5]).success
    assert sealed.state().sealed
    assert sealed.checks("chunks", "file_checksums")[sealed.keys[4]]


def test_damage_that_a_check_found_and_could_not_record_is_not_sealed_over(sealed: Project) -> None:
    flip(sealed.data_file(5))
    assert sealed.run_checks("manifest", keys=()).success
    assert sealed.checks("manifest", "files_intact") == {None: False}
    shutil.rmtree(sealed.location / "verification")  # as if the store had refused it
    result = sealed.run(
        "chunks", "manifest", keys=sealed.keys[1:2], config={"chunks": {"replace": True}}, with_checks=False
    )
    assert "The snapshot is damaged and was not sealed: data/5/" in sealed.failure(result).description


@pytest.mark.slow
def test_a_verification_of_an_unsealed_head_finds_no_damage_and_lets_the_next_seal_read_what_is_new(
    sealed: Project,
) -> None:
    replaced = {"chunks": {"replace": True}}
    assert sealed.run("chunks", keys=sealed.keys[1:2], config=replaced, with_checks=False).success
    assert not sealed.state().sealed
    job(sealed, "demo_verify", OP, depth="quick")
    assert sealed.run_checks("manifest", keys=()).success
    assert sealed.checks("manifest", "snapshot_checksum") == {None: True}
    shown = dg.AssetCheckKey(sealed.key("manifest"), "snapshot_checksum")
    records = sealed.instance.event_log_storage.get_asset_check_execution_history(shown, limit=10)
    texts = [record.event.dagster_event.asset_check_evaluation_data.description for record in records if record.event]
    assert all("is not sealed yet" in text for text in texts[:2])
    assert sealed.run("manifest", with_checks=False).success
    new = sum(known.file.bytes for known in sealed.state().live_files(2))
    assert sealed.materialized("manifest")[None]["verified_bytes"] == new
