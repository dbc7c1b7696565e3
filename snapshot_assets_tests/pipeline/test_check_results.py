"""Results of checks that runs record of what they hash anyway, so that no check is grey after an export."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from snapshot_assets.pipeline.dagster import dagster_internals
from snapshot_assets.pipeline.dagster.dagster_internals import CheckResult, check_events
from snapshot_assets_tests.pipeline.project import Project, flip, run_job

EXPORTED = ("schema", "chunks", "untimed_tables", "manifest")
VERIFY = "demo_verify_location"
OF_MANIFEST = ("snapshot_checksum", "files_intact", "coverage")


def current(project: Project, asset: str, check: str = "file_checksums") -> dict[str | None, bool]:
    """Return what the UI shows for each partition: the newest result, if it is about the newest materialization."""
    infos = project.instance.event_log_storage.get_asset_check_partition_info(
        [dg.AssetCheckKey(project.key(asset), check)]
    )
    passed = {"SUCCEEDED": True, "FAILED": False}
    return {
        info.partition_key: passed[info.latest_execution_status.value]
        for info in infos
        if info.is_current and info.latest_execution_status.value in passed
    }


def green(project: Project, but: int | None = None) -> dict[str | None, bool]:
    return {key: number != but for number, key in enumerate(project.keys, 1)}


def verify(project: Project, depth: str = "full") -> bool:
    return run_job(project, "demo_verify", {VERIFY: {"config": {"depth": depth}}}, raise_on_error=False).success


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of checks that were stored one by one."""
    stored: list[Any] = []
    store = SqlEventLogStorage.store_asset_check_event

    def counted(storage: Any, event: Any, event_id: Any) -> None:
        if event.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            stored.append(event.get_dagster_event().asset_check_evaluation_data)
        store(storage, event, event_id)

    monkeypatch.setattr(SqlEventLogStorage, "store_asset_check_event", counted)
    return stored


def test_an_export_leaves_no_check_grey(project: Project, results: list[Any]) -> None:
    assert run_job(project, "demo_export", {}).success
    assert current(project, "chunks") == green(project)
    assert current(project, "untimed_tables") == {None: True}
    assert all(current(project, "manifest", name) == {None: True} for name in OF_MANIFEST)
    assert len(results) == len(project.keys) + 1 + len(OF_MANIFEST)  # each once
    shown = project.check_metadata("chunks", "file_checksums", project.keys[0])
    assert shown["hashed_bytes"] == next(project.state().live_files(1)).file.bytes


@pytest.mark.parametrize("with_checks", [False, True])
def test_assets_leave_no_check_grey_and_each_result_is_stored_once(
    project: Project, results: list[Any], with_checks: bool
) -> None:
    """The command runs them without checks."""
    assert project.run(*EXPORTED, keys=project.keys, with_checks=with_checks).success
    assert current(project, "chunks") == green(project)
    assert all(current(project, "manifest", name) == {None: True} for name in OF_MANIFEST)
    assert len(results) == len(project.keys) + 1 + len(OF_MANIFEST)


def test_checks_of_many_partitions_look_their_materializations_up_at_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    calls: list[Any] = []
    fetch = dg.DagsterInstance.fetch_materializations

    def counted(instance: dg.DagsterInstance, *args: Any, **options: Any) -> Any:
        calls.append(args)
        return fetch(instance, *args, **options)

    monkeypatch.setattr(dg.DagsterInstance, "fetch_materializations", counted)
    assert project.run_checks("chunks", keys=project.keys).success
    assert len(calls) == 2  # one for each check


def test_the_materializations_of_more_partitions_than_dagster_fetches_at_once_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dagster_internals, "_FETCHED", 2)
    key, names = dg.AssetKey("chunks"), [str(number) for number in range(5)]
    with dg.DagsterInstance.ephemeral() as instance:
        for name in names:
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=name))
        passed = [CheckResult(name, True, {}, None) for name in names]
        events = check_events(instance, dg.AssetCheckKey(key, "file_checksums"), passed)
    ids = [event.target_materialization_data.storage_id for event in events if event.target_materialization_data]
    assert len(set(ids)) == 5


@pytest.mark.parametrize("found_by", ["check", "seal"])
def test_damage_turns_a_partition_red_and_its_repair_turns_it_green(project: Project, found_by: str) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    flip(project.data_file(5))
    if found_by == "check":
        assert project.run_checks("chunks", keys=project.keys[4:5]).success
    else:
        assert not project.run("manifest", config={"manifest": {"verify": "full"}}, with_checks=False).success
        assert current(project, "manifest", "files_intact") == {None: False}
    assert current(project, "chunks") == green(project, but=5)
    assert project.run("chunks", "manifest", keys=project.keys[4:5], with_checks=False).success
    assert current(project, "chunks") == green(project)
    assert current(project, "manifest", "files_intact") == {None: True}


def test_damage_that_is_gone_by_itself_turns_green_by_the_next_seal(project: Project) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    flip(project.data_file(5))
    assert project.run_checks("chunks", keys=project.keys[4:5]).success
    flip(project.data_file(5))  # back again, as a store's own repair does
    assert project.run("manifest", with_checks=False).success
    assert current(project, "chunks") == green(project)


def test_a_verification_stores_only_results_that_show_something_new(project: Project, results: list[Any]) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    for partition in project.keys[:2]:  # as another program reports that it has read these
        project.instance.report_runless_asset_event(dg.AssetMaterialization(project.key("chunks"), partition=partition))
    assert sorted(current(project, "chunks"), key=str) == project.keys[2:]
    results.clear()
    assert verify(project, "quick")
    assert [each.asset_key for each in results] == [project.key("manifest")] * len(OF_MANIFEST)  # nothing was read
    results.clear()
    assert verify(project)
    assert current(project, "chunks") == green(project)
    assert sorted(each.partition for each in results if each.partition) == project.keys[:2]


def test_a_skipped_partition_that_was_hashed_stays_green(project: Project) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    assert project.run("chunks", keys=project.keys[:2], with_checks=False).success
    assert [each["status"] for each in project.materialized().values()].count("present") == 2
    assert current(project, "chunks") == green(project)


def test_damage_that_could_not_be_repaired_turns_its_partition_red(project: Project) -> None:
    assert project.run(*EXPORTED, keys=project.keys, with_checks=False).success
    (folder := project.location / "data" / "5").rename(folder.with_name("5-away"))
    folder.write_text("in the way")
    assert not project.run("chunks", keys=project.keys[4:5], with_checks=False).success
    assert current(project, "chunks") == green(project, but=5)
