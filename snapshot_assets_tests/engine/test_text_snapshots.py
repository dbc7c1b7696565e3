"""Snapshots of CSV and JSON lines are read, compacted, verified, rebuilt and restored like those of Parquet."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import SnapshotExistsError
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import read, rows, source_rows
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into

pytestmark = pytest.mark.slow

FORMATS: dict[str, dict[str, Any]] = {
    "csv": {"format": "csv"},
    "csv with options": {
        "format": "csv",
        "format_options": {"header": True, "delimiter": ";", "quote": "'", "null": "NULL", "compression": "gzip"},
    },
    "json": {"format": "json", "format_options": {"compression": "zstd"}},
}
TIMES = ("2025-01-02T01:00:00Z", "2025-01-03T13:00:00Z")


@pytest.fixture(params=FORMATS)
def written(request: pytest.FixtureRequest, place: Place) -> dict[str, Any]:
    """The fields of a plan, which was exported."""
    fields = FORMATS[request.param]
    place.export(**fields)
    return fields


def kept(place: Place, deleted: str = "false") -> list[tuple[Any, ...]]:
    return source_rows(place, f"SELECT * FROM readings WHERE ({IN_RANGE['readings']}) AND ({deleted}) IS NOT TRUE")


def test_rows_are_read_by_time_and_columns(place: Place, written: dict[str, Any]) -> None:
    state = read_state(place.store)
    assert state.header is not None
    assert {known.file.path[known.file.path.index(".", -12) :] for known in state.live_files()} == {
        FileFormat.parse(state.header.format).extension
    }
    assert verify(place.store).faults == []
    assert rows(read(place.store.uri, "main.readings")) == kept(place)
    some = rows(read(place.store.uri, "main.readings", start=TIMES[0], end=TIMES[1], columns="value"))
    where = f"t >= '{TIMES[0]}' AND t < '{TIMES[1]}'"
    assert some == source_rows(place, f"SELECT value FROM readings WHERE {where}")


def test_rows_are_deleted_compacted_and_restored(place: Place, written: dict[str, Any], duck: Into) -> None:
    gone = "sensor = 's0' and value < 5"
    delete_rows(Catalog.open_for_writing(place.store), TableName("main", "readings"), gone)
    assert rows(read(place.store.uri, "main.readings")) == kept(place, gone)
    compact(place.store)
    state = read_state(place.store)
    assert state.tombstones == {} or all(not known.file.path.endswith(".parquet") for known in state.live_files())
    assert rows(read(place.store.uri, "main.readings")) == kept(place, gone)
    assert duck.restore(place.store).finished
    where = {**IN_RANGE, "readings": f"({IN_RANGE['readings']}) AND ({gone}) IS NOT TRUE"}
    assert duck.differences(place.source, where) == {}


def test_a_lost_log_is_rebuilt_with_its_format(place: Place, written: dict[str, Any], duck: Into) -> None:
    for path in place.folder.glob("transactions/*"):
        path.unlink()
    rebuild(place.store)
    assert [fault.kind for fault in verify(place.store).faults] == [FaultKind.LOST]
    assert duck.restore(place.store).finished
    assert duck.differences(place.source, IN_RANGE) == {}


def test_another_format_is_another_plan(place: Place, written: dict[str, Any]) -> None:
    with pytest.raises(SnapshotExistsError, match=r"format is (csv|json).* there and parquet here"):
        place.export()
