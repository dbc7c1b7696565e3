"""Tags as partitions, and the jobs that keep what a plan's `retention` says, as Dagster runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins import create_tag, delete_tag, replace_tag
from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.state import State
from snapshot_assets.plan_retention import RetentionFields
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.pipeline.project import Project, open_project

RULES = RetentionFields(keep_last=1, tag={"name": "auto-{date}", "num_retained_max": 2, "default_time_retained": "7d"})
TODAY = f"auto-{datetime.now(UTC):%Y-%m-%d}"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_project(tmp_path) as project:
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
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    seal(writer.catalog)
    return writer


def state(writer: Writer) -> State:
    return read_state(writer.store)


def tag(project: Project, name: str, **config: Any) -> dg.ExecuteInProcessResult:
    project.instance.add_dynamic_partitions("demo_tags", [name])
    return project.run("tag", single=name, config={"tag": config} if config else None)


def job(project: Project, name: str, op: str, **config: Any) -> dict[str, Any]:
    """Run a job and return the metadata of its one op."""
    ops = {op: {"config": config}} if config else {}
    result = (
        project.definitions()
        .resolve_job_def(name)
        .execute_in_process(
            instance=project.instance,
            run_config={"ops": ops, "loggers": {"console": {"config": {"log_level": "ERROR"}}}},
        )
    )
    records = project.instance.get_records_for_run(result.run_id).records
    events = [record.event_log_entry.dagster_event for record in records]
    [output] = [event for event in events if event is not None and event.is_successful_output]
    return {key: value.value for key, value in output.step_output_data.metadata.items()}


def partitions(project: Project) -> set[str]:
    return set(project.instance.get_dynamic_partitions("demo_tags"))


def test_materialising_a_partition_pins_the_newest_seal_under_its_name(project: Project, writer: Writer) -> None:
    newest = state(writer).seals[-1]
    result = tag(project, "before-migration")
    assert result.success
    known = state(writer).tags["before-migration"].tag
    assert (known.revision, known.ttl, known.automatic) == (newest.revision, None, False)
    [event] = result.get_asset_materialization_events()
    metadata = {key: value.value for key, value in event.materialization.metadata.items()}
    assert event.materialization.partition == "before-migration"
    assert (metadata["tagged_snapshot_id"], metadata["snapshot_id"]) == (newest.revision, newest.snapshot_id)
    assert metadata["manifest"] == f"{writer.store.uri}/{known.object.path}"
    assert metadata["record_count"] == 4


def test_run_config_names_a_version_and_a_time_to_live(project: Project, writer: Writer) -> None:
    first = state(writer).seals[0].revision
    assert tag(project, "old", at=f"rev:{first}", time_retained="90d").success
    known = state(writer).tags["old"].tag
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
    first, newest = (known.revision for known in state(writer).seals)
    create_tag(writer.catalog, "outlived", newest, timedelta(hours=1))
    create_tag(writer.catalog, "kept", first)
    told = {
        "tag_created": TODAY,
        "tags_deleted": ["outlived"],
        "revisions_expired": [first],
        "revisions_kept_by_pins": 1,
        "bytes_unneeded": 0,
    }
    assert job(project, "demo_retention", "demo_retain", dry_run=True) == told | {"dry_run": True}
    assert set(state(writer).tags) == {"outlived", "kept"}
    assert job(project, "demo_retention", "demo_retain") == told | {"dry_run": False}
    found = state(writer)
    assert (found.tags[TODAY].tag.revision, found.tags[TODAY].tag.ttl) == (newest, timedelta(days=7))
    assert found.tags[TODAY].tag.automatic
    assert [seal.revision for seal in found.readable()] == [first, newest]  # the tag keeps the first
    assert partitions(project) == set(found.tags) == {"kept", TODAY}
    assert project.instance.get_materialized_partitions(project.key("tag")) == partitions(project)
    again = job(project, "demo_retention", "demo_retain")
    assert (again["tag_created"], again["tags_deleted"], again["revisions_expired"]) == ("none", [], [])


def test_tags_that_are_changed_without_dagster_are_shown_as_they_are(project: Project, writer: Writer) -> None:
    first, newest = (known.revision for known in state(writer).seals)
    project = replace(project, plan=project.plan.model_copy(update={"retention": RetentionFields()}))
    project.instance.add_dynamic_partitions("demo_tags", ["asked-for"])  # and not made yet
    create_tag(writer.catalog, "kept", first)
    create_tag(writer.catalog, "gone", newest)
    job(project, "demo_retention", "demo_retain")
    assert partitions(project) == {"asked-for", "kept", "gone"}
    assert project.materialized("tag")["kept"]["tagged_snapshot_id"] == first

    replace_tag(writer.catalog, "kept", newest)
    delete_tag(writer.catalog, "gone")
    for _ in range(2):
        job(project, "demo_retention", "demo_retain")
    assert partitions(project) == {"asked-for", "kept"}
    assert project.materialized("tag")["kept"]["tagged_snapshot_id"] == newest
    made = dg.AssetRecordsFilter(asset_key=project.key("tag"), asset_partitions=["kept"])
    assert len(project.instance.fetch_materializations(made, limit=9).records) == 2  # once for each change


def test_a_savepoint_that_is_due_is_made_once(project: Project, writer: Writer) -> None:
    rules = RetentionFields(savepoint={"create_interval": "1d"})
    project = replace(project, plan=project.plan.model_copy(update={"retention": rules}))
    made = job(project, "demo_savepoint", "demo_save")
    assert (made["due"], made["chunks_compacted"], made["savepoint"]) == (True, 0, 1)
    assert state(writer).pins.savepoints[1].savepoint.automatic
    assert job(project, "demo_savepoint", "demo_save") == {"dry_run": False, "due": False}


def test_no_savepoint_is_made_while_an_export_is_at_work(project: Project, writer: Writer) -> None:
    rules = RetentionFields(savepoint={"create_interval": "1d"})
    project = replace(project, plan=project.plan.model_copy(update={"retention": rules}))
    writer.complete(1, writer.file(1, b"later rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    with pytest.raises(dg.Failure, match="is not sealed"):
        job(project, "demo_savepoint", "demo_save")
    assert not state(writer).pins.savepoints


def test_the_sensor_asks_for_the_tag_that_is_due_when_the_manifest_sealed(project: Project, writer: Writer) -> None:
    definitions = project.definitions()
    [sensor] = definitions.get_repository_def().sensor_defs
    assert (sensor.name, sensor.default_status) == ("demo_tag_sealed", dg.DefaultSensorStatus.STOPPED)
    assert not _asked(sensor, definitions, project.instance).run_requests  # nothing was materialised yet
    project.instance.report_runless_asset_event(dg.AssetMaterialization(project.key("manifest")))
    asked = _asked(sensor, definitions, project.instance)
    [request] = asked.run_requests
    assert (request.partition_key, request.run_key) == (TODAY, TODAY)
    assert [each.partition_keys for each in asked.dynamic_partitions_requests] == [[TODAY]]
    assert tag(project, TODAY, **request.run_config["ops"]["demo__tag"]["config"]).success
    assert state(writer).tags[TODAY].tag.automatic


def _asked(sensor: dg.SensorDefinition, definitions: dg.Definitions, instance: dg.DagsterInstance) -> Any:
    everything = definitions.get_repository_def().get_top_level_resources()
    resources = {name: everything[name] for name in ("snapshots", "pyspark")}
    reference = instance.get_ref()  # with which the daemon, too, finds the partitions
    with dg.build_sensor_context(instance_ref=reference, definitions=definitions, resources=resources) as built:
        return sensor.evaluate_tick(built)


def test_each_keeping_job_has_a_schedule_at_the_time_of_the_rule(project: Project) -> None:
    at = RetentionFields(tag={"create_time": "02:30"})
    project = replace(project, plan=project.plan.model_copy(update={"retention": at}))
    crons = {each.job_name: each.cron_schedule for each in project.definitions().get_repository_def().schedule_defs}
    assert (crons["demo_retention"], crons["demo_savepoint"]) == ("30 2 * * *", "30 2 * * *")
