"""Rows outside the range: one line in every report, an error on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.totals import outside_text, rows_outside
from snapshot_assets.errors import RowsOutsideError
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan, make_source, store_of

SHORT = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-03T00:00:00Z")
LINE = "24 rows outside 2025-01-01T00:00:00Z … 2025-01-03T00:00:00Z were not exported"
FLAG = "--fail-on-rows-outside"


def create(source: str, location: Path, *options: str) -> tuple[str, ...]:
    return ("export", "create", "--source", source, "--to", location.as_uri(), *SHORT, *options)


def test_the_line_is_in_json_too(snapshots: Snapshots, source: str, location: Path) -> None:
    export(make_plan(source, location.as_uri(), end_time="2025-01-03T00:00:00Z"), store_of(location))
    assert snapshots(*create(source, location, "--json")).json["not_exported"] == LINE


def test_rows_outside_fail_before_anything_is_written(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    found = snapshots(*create(source, location, FLAG))
    assert (found.status, found.out) == (1, "")
    assert LINE in found.err
    assert "main.readings 24" in found.err
    assert not location.exists()
    assert not (tmp_path / "dagster").exists()


def test_rows_outside_fail_a_finished_snapshot_too(snapshots: Snapshots, source: str, location: Path) -> None:
    export(make_plan(source, location.as_uri(), end_time="2025-01-03T00:00:00Z"), store_of(location))
    found = snapshots(*create(source, location, FLAG, "--json"))
    assert found.status == 1
    assert LINE in found.json["error"]["message"]
    assert snapshots(*create(source, location)).status == 0  # the field is none that a snapshot keeps


def test_rows_outside_fail_a_seal(source: str, location: Path) -> None:
    plan = make_plan(source, location.as_uri(), end_time="2025-01-03T00:00:00Z", fail_on_rows_outside=True)
    with pytest.raises(RowsOutsideError, match=LINE):
        export(plan, store_of(location))
    state = Catalog.open(store_of(location)).state
    assert (state.missing(), state.sealed) == ([], False)
    export(plan.changed(fail_on_rows_outside=False), store_of(location))
    assert outside_text(Catalog.open(store_of(location)).state) == LINE


@pytest.mark.parametrize(("start", "rows"), [("2025-01-01T00:00:00Z", 0), ("2025-01-02T00:00:00Z", 24)])
def test_rows_after_the_last_closed_window_of_a_continuous_plan_are_not_outside(
    tmp_path: Path, location: Path, start: str, rows: int
) -> None:
    source = make_source(tmp_path / "s.duckdb", "INSERT INTO readings VALUES (TIMESTAMPTZ '9000-01-01 00:00:00Z', 1)")
    fields: dict[str, Any] = {"kind": "continuous", "start_time": start, "end_time": None, "chunk_time_window": "60d"}
    export(make_plan(source, location.as_uri(), **fields), store_of(location))
    state = Catalog.open(store_of(location)).state
    assert sum(each.rows for each in rows_outside(state)) == rows
    assert outside_text(state) == (f"24 rows before {start} were not exported" if rows else "")
