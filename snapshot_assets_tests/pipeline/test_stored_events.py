"""Events of a commit, which are stored as a batch: Dagster finds the same as when it stores event by event."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from snapshot_assets.pipeline.dagster.dagster_internals import NO_EVENTS_AT_THE_END, store_events

KEYS = [str(number) for number in range(30)]


@dg.asset
def stored(context: dg.AssetExecutionContext) -> Any:
    for kind in (dg.AssetObservation, dg.AssetMaterialization):
        made: Any = [
            kind("stored", partition=key, metadata={"rows": int(key)}, tags={DATA_VERSION_TAG: key}) for key in KEYS
        ]
        store_events(context, made)
    return dg.MaterializeResult(metadata=NO_EVENTS_AT_THE_END)


def facts(record: dg.EventLogRecord) -> tuple[Any, ...]:
    event = record.asset_materialization or record.asset_event
    assert event is not None
    return record.storage_id, event.partition, event.metadata, event.tags


def found(folder: Path) -> list[Any]:
    """Run the asset in an instance of its own; returns what Dagster finds of it in the same files afterwards."""
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        run = dg.materialize([stored], instance=instance).run_id
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        of_asset = dg.AssetRecordsFilter(asset_key=stored.key)
        [entry] = instance.get_asset_records([stored.key])
        newest = entry.asset_entry.last_materialization_record
        assert newest is not None
        events = [each.get_dagster_event() for each in instance.all_logs(run) if each.is_dagster_event]
        return [
            [facts(each) for each in instance.fetch_materializations(of_asset, limit=100).records],
            [facts(each) for each in instance.fetch_observations(of_asset, limit=100).records],
            facts(newest),
            [(each.event_type_value, each.partition) for each in events],
            instance.get_materialized_partitions(stored.key),
            instance.event_log_storage.get_latest_tags_by_partition(
                stored.key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
            ),
        ]


@pytest.mark.parametrize("size", ["10", None])
def test_a_batch_is_found_as_single_events_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str | None
) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "0")
    singly = found(tmp_path / "singly")
    assert [len(each) for each in singly[:2]] == [len(KEYS), len(KEYS)]
    if size is None:
        monkeypatch.delenv("DAGSTER_EVENT_BATCH_SIZE")
    else:
        monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", size)
    assert found(tmp_path / "batch") == singly
