"""Tags as partitions, and the jobs that apply a plan's `retention`, as Dagster runs them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, replace_tag
from snapshot_assets.catalog.receipts import write_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.layout import new_attempt
from snapshot_assets.format.units import human_bytes, time_text
from snapshot_assets.pipeline.automation import jobs
from snapshot_assets.plan.retention import RetentionFields
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import expire
from snapshot_assets_tests.catalog.tags import reseal, save
from snapshot_assets_tests.pipeline.project import Project, job, maintain, open_project, run_job

TICK = datetime.now(UTC) - timedelta(hours=12)  # the next one does not come while the tests run
RULES = RetentionFields(
    keep_last=1,
    tag={"name": "auto-{date}", "create_time": f"{TICK:%H:%M}", "num_retained_max": 2, "default_time_retained": "7d"},
)
TODAY = f"auto-{TICK:%Y-%m-%d}"
TOMORROW = time_text(TICK.replace(second=0, microsecond=0) + timedelta(days=1))


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project with rules; its parameter is whether it is durable."""
    with open_project(tmp_path, durable=getattr(request, "param", False)) as project:
        yield replace(project, plan=project.plan.model_copy(update={"retention": RULES}))


@pytest.fixture
def writer(project: Project) -> Writer:
    """A location that was sealed twice, yesterday."""
    store = open_store(parse_location(project.plan.to))
    writer = Writer(store)
    writer.catalog = Catalog(store, writer.catalog.state, clock=lambda: datetime.now(UTC) - timedelta(days=1))
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    reseal(writer)
    return writer


def with_rules(project: Project, **rules: Any) -> Project:
    return replace(project, plan=project.plan.model_copy(update={"retention": RetentionFields(**rules)}))


def state(writer: Writer) -> State:
    return read_state(writer.store)


def tag(project: Project, name: str, **config: Any) -> dg.ExecuteInProcessResult:
    project.instance.add_dynamic_partitions("demo_tags", [name])
    return project.run("tag", single=name, config={"tag": config} if config else None)


def partitions(project: Project) -> set[str]:
    return set(project.instance.get_dynamic_partitions("demo_tags"))


def test_materialising_a_partition_pins_the_newest_seal_under_its_name(project: Project, writer: Writer) -> None:
    newest = state(writer).seals[-1]
    result = tag(project, "before-migration")
    assert result.success
    known = state(writer).tags["before-migration"].pin
    assert (known.revision, known.ttl, known.automatic) == (newest.revision, None, False)
    [event] = result.get_asset_materialization_events()
    metadata = {key: value.value for key, value in event.materialization.metadata.items()}
    assert event.materialization.partition == "before-migration"
    assert (metadata["tagged_revision"], metadata["snapshot_id"]) == (str(newest.revision), newest.snapshot_id)
    assert metadata["manifest"] == f"{writer.store.uri}/{known.object.path}"
    assert metadata["sealed_by"] == project.key("manifest")
    assert metadata["record_count"] == 4


def test_run_config_names_a_version_and_a_time_to_live(project: Project, writer: Writer) -> None:
    first = state(writer).seals[0].revision
    assert tag(project, "old", at=f"rev:{first}", time_retained="90d").success
    known = state(writer).tags["old"].pin
    assert (known.revision, known.ttl) == (first, timedelta(days=90))
    assert tag(project, "old", at=f"rev:{first}", time_retained="90d").success  # an equal one is adopted


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("late", {"at": "rev:1"}, "Revision 1 is not sealed"),
        ("late", {"time_retained": "soon"}, "soon"),
        ("1", {}, "cannot name a tag"),
    ],
)
def test_what_cannot_be_tagged_fails_with_its_words(
    project: Project, writer: Writer, name: str, config: dict[str, Any], message: str
) -> None:
    result = tag(project, name, **config)
    assert message in project.failure(result).description
    assert not state(writer).tags


def test_the_retention_job_makes_the_tag_that_is_due_and_expires_what_no_rule_keeps(
    project: Project, writer: Writer
) -> None:
    """Seals: the first expired before and is pinned, the second and third expire now, of which one is pinned."""
    first, second = (known.revision for known in state(writer).seals)
    create_tag(writer.catalog, "outlived", first, timedelta(hours=1))
    expire(writer.catalog, keep_last=1)
    receipts = [state(writer).at(each).chunks[1].chunk.receipts[0] for each in (first, second)]
    third, newest = reseal(writer, b"rows of the third"), reseal(writer, b"rows of the newest")
    create_tag(writer.catalog, "kept", third)
    unneeded = len(b"rows") + len(b"late rows") + sum(each.bytes for each in receipts)
    expected = {
        "tag_created": TODAY,
        "tags_deleted": ["outlived"],
        "revisions_expired": [second, third],
        "revisions_kept_by_pins": "1",
        "bytes_unneeded": unneeded,
        "size_unneeded": human_bytes(unneeded),
    }
    assert maintain(project, "retention", dry_run=True) == expected | {"dry_run": True}
    assert set(state(writer).tags) == {"outlived", "kept"}
    assert maintain(project, "retention") == expected | {"dry_run": False}
    found = state(writer)
    assert (found.tags[TODAY].pin.revision, found.tags[TODAY].pin.ttl) == (newest, timedelta(days=7))
    assert found.tags[TODAY].pin.automatic
    assert [seal.revision for seal in found.readable()] == [third, newest]  # the tag keeps the third
    assert partitions(project) == set(found.tags) == {"kept", TODAY}
    assert project.instance.get_materialized_partitions(project.key("tag")) == partitions(project)
    assert maintain(project, "retention") == {
        "dry_run": False,
        "tag_created": "none",
        "tags_deleted": [],
        "revisions_expired": [],
        "revisions_kept_by_pins": "0",
        "bytes_unneeded": 0,
        "size_unneeded": human_bytes(0),
    }


def test_a_tag_that_is_renewed_while_the_retention_job_is_at_work_stays(
    project: Project, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = state(writer).seals[-1].revision
    create_tag(writer.catalog, "outlived", newest, timedelta(hours=1))

    def create_late(catalog: Catalog, *arguments: Any, **options: Any) -> Any:
        replace_tag(Catalog.open_for_writing(writer.store), "outlived", newest, timedelta(hours=1))
        return create_tag(catalog, *arguments, **options)

    monkeypatch.setattr(jobs, "create_tag", create_late)
    assert maintain(project, "retention")["tags_deleted"] == []
    assert set(state(writer).tags) == {"outlived", TODAY}


def test_tags_that_are_changed_without_dagster_are_shown_as_they_are(project: Project, writer: Writer) -> None:
    first, newest = (known.revision for known in state(writer).seals)
    project.instance.add_dynamic_partitions("demo_tags", ["asked-for"])  # and not made yet
    create_tag(writer.catalog, "kept", first)
    create_tag(writer.catalog, "gone", newest)
    job(project, "demo_verify", "demo_verify_location", depth="quick")
    assert partitions(project) == {"asked-for", "kept", "gone"}
    assert project.materialized("tag")["kept"]["tagged_revision"] == str(first)

    replace_tag(writer.catalog, "kept", newest)
    delete_tag(writer.catalog, "gone")
    for _ in range(2):
        job(project, "demo_verify", "demo_verify_location", depth="quick")
    assert partitions(project) == {"asked-for", "kept"}
    assert project.materialized("tag")["kept"]["tagged_revision"] == str(newest)
    made = dg.AssetRecordsFilter(asset_key=project.key("tag"), asset_partitions=["kept"])
    assert len(project.instance.fetch_materializations(made, limit=9).records) == 2  # once for each change


def test_a_savepoint_that_is_due_is_made_once_and_the_oldest_automatic_ones_go(
    project: Project, writer: Writer
) -> None:
    project = with_rules(project, savepoint={"num_retained_max": 1})
    save(writer.catalog)
    save(writer.catalog, automatic=True)
    expected = maintain(project, "savepoint", dry_run=True)
    assert expected == {"dry_run": True, "due": True, "savepoints_deleted": [2]}
    assert set(state(writer).pins.savepoints) == {1, 2}
    made = maintain(project, "savepoint")
    assert (made["due"], made["chunks_compacted"], made["savepoint"]) == (True, "0", "3")
    assert made["savepoints_deleted"] == [2]
    assert {number: each.pin.automatic for number, each in state(writer).pins.savepoints.items()} == {1: False, 3: True}
    again = maintain(project, "savepoint")
    assert again == {"dry_run": False, "due": False, "savepoints_deleted": []}


def test_no_savepoint_is_made_or_deleted_while_an_export_is_at_work(project: Project, writer: Writer) -> None:
    project = with_rules(project, savepoint={"num_retained_max": 1})
    for _ in range(2):
        save(writer.catalog, automatic=True)
    writer.complete(1, writer.file(1, b"later rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    with pytest.raises(dg.Failure, match="is not sealed"):
        maintain(project, "savepoint")
    assert set(state(writer).pins.savepoints) == {1, 2}


@pytest.mark.parametrize("project", [True], indirect=True)
def test_the_sensor_asks_for_the_tag_of_what_the_manifest_sealed(project: Project, writer: Writer) -> None:
    definitions = project.definitions()
    [sensor] = definitions.get_repository_def().sensor_defs
    assert (sensor.name, sensor.default_status) == ("demo_tag_sealed", dg.DefaultSensorStatus.STOPPED)
    assert not _asked(sensor, definitions, project.instance).run_requests  # nothing was materialised yet

    old = state(writer).seals[-1].revision
    keys, asked = set(), None
    for _ in range(2):  # the first run does not start, or fails: the next seal requests it again
        writer.catalog = Catalog.open_for_writing(writer.store)
        sealed = reseal(writer, b"rows of today")
        project.instance.report_runless_asset_event(dg.AssetMaterialization(project.key("manifest")))
        asked = _asked(sensor, definitions, project.instance)
        [request] = asked.run_requests
        config = request.run_config["ops"]["demo__tag"]["config"]
        assert (request.partition_key, config["at"], config["automatic"]) == (TODAY, f"rev:{sealed}", True)
        assert [each.partition_keys for each in asked.dynamic_partitions_requests] == [[TODAY]]
        keys.add(request.run_key)
    assert len(keys) == 2
    assert tag(project, TODAY, **config).success
    assert (state(writer).tags[TODAY].pin.revision, state(writer).tags[TODAY].pin.automatic) == (sealed, True)

    assert tag(project, TODAY, **config | {"at": f"rev:{old}"}).success  # one that was asked for earlier runs late
    assert state(writer).tags[TODAY].pin.revision == sealed
    skipped = _asked(sensor, definitions, project.instance)
    assert (skipped.run_requests, skipped.skip_message) == (
        [],
        f"No tag is due: there is a tag '{TODAY}'. The first seal from {TOMORROW} on is tagged. To tag one now, run"
        " `snapshots tag create`.",
    )


def _asked(sensor: dg.SensorDefinition, definitions: dg.Definitions, instance: dg.DagsterInstance) -> Any:
    everything = definitions.get_repository_def().get_top_level_resources()
    resources = {name: everything[name] for name in ("snapshots",)}
    reference = instance.get_ref()  # with which the daemon, too, finds the partitions
    with dg.build_sensor_context(instance_ref=reference, definitions=definitions, resources=resources) as built:
        return sensor.evaluate_tick(built)


@pytest.mark.parametrize(
    ("rules", "ticks"),
    [
        ({}, {"02:15": "compact checkpoint gc"}),
        ({"keep_last": 3}, {"02:15": "retention compact checkpoint gc"}),
        (
            {"tag": {"create_time": "06:00"}, "savepoint": {"create_time": "23:05"}},
            {"02:15": "compact checkpoint gc", "06:00": "retention", "23:05": "savepoint"},
        ),
        (
            {"tag": {"create_time": "02:15"}, "savepoint": {"create_time": "02:15"}},
            {"02:15": "retention compact savepoint checkpoint gc"},
        ),
    ],
)
def test_each_operation_is_requested_at_its_time_and_those_of_one_time_by_one_run(
    project: Project, rules: dict[str, Any], ticks: dict[str, str]
) -> None:
    project = with_rules(project, **rules)
    schedule = project.definitions().get_repository_def().get_schedule_def("demo_maintenance_schedule")
    assert schedule.cron_schedule == [f"{int(at[3:])} {int(at[:2])} * * *" for at in ticks]
    for at, operations in ticks.items():
        assert _requested(schedule, f"2025-06-01T{at}+00:00") == operations.split()  # a Sunday
        others = [each for each in operations.split() if each != "compact"]
        assert _requested(schedule, f"2025-06-02T{at}+00:00") == others


def _requested(schedule: dg.ScheduleDefinition, tick: str) -> list[str]:
    """Return the operations of the run that a tick requests."""
    with dg.build_schedule_context(scheduled_execution_time=datetime.fromisoformat(tick)) as context:
        [request] = schedule.evaluate_tick(context).run_requests or []
    operations = request.run_config["ops"]["demo_maintain"]["config"]["operations"]
    assert isinstance(operations, list)
    return operations


def write_old_foreign_receipt(writer: Writer) -> None:
    """Write a receipt of another location, from years ago: writers read only those since the head."""
    receipt, _ = writer.receipt(2)
    ref = write_receipt(writer.store, replace(receipt, location_id="ab" * 16, attempt=new_attempt()))
    before = time.time() - 10 * 365 * 86_400
    os.utime(Path(urlsplit(writer.store.uri).path) / ref.path, (before, before))


def test_an_operation_that_fails_does_not_keep_the_others_from_running(project: Project, writer: Writer) -> None:
    write_old_foreign_receipt(writer)
    result = run_job(project, "demo_maintenance", {}, raise_on_error=False)
    made = [event.step_output_data.output_name for event in result.all_events if event.is_successful_output]
    assert made == ["compact", "checkpoint"]
    failure = project.failure(result)
    lines = (failure.description or "").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["retention", "gc"]
    assert all("belongs to location" in line for line in lines)
    assert failure.metadata["error"].value == "ForeignLocationError"
    assert "snapshots catalog rebuild" in str(failure.metadata["remedy"].value)
    assert TODAY in state(writer).tags  # nothing expires, but nothing stays unpinned
    assert state(writer).checkpointed == state(writer).revision
