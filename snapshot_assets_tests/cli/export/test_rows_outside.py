"""Rows outside the range: one line in every report, an error on demand."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.totals import outside_text, refuse_outside, rows_outside, rows_text
from snapshot_assets.errors import RowsOutsideError
from snapshot_assets.format.actions import RowsOutside
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan, make_source, store_of

SHORT = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-03T00:00:00Z")
LINE = "24 rows outside 2025-01-01T00:00:00Z … 2025-01-03T00:00:00Z were not exported (main.readings 24)"
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
    assert found.err.count("main.readings 24") == 1
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
    with pytest.raises(RowsOutsideError, match=re.escape(LINE)):
        export(plan, store_of(location))
    state = Catalog.open(store_of(location)).state
    assert (state.missing(), state.sealed) == ([], False)
    export(plan.changed(fail_on_rows_outside=False), store_of(location))
    assert outside_text(Catalog.open(store_of(location)).state) == LINE


def test_the_three_tables_with_most_rows_are_named() -> None:
    counts = {"none": 0, "few": 7, "some": 800, "many": 12_000, "so.me": 800, "one": 1}
    outside = [RowsOutside("main", table, rows) for table, rows in counts.items()]
    text = rows_text(outside, datetime(2025, 1, 1, tzinfo=UTC), None)
    tables = 'main.many 12,000, main.some 800, main."so.me" 800 and 2 more'
    assert text == f"13,608 rows before 2025-01-01T00:00:00Z were not exported ({tables})"
    with pytest.raises(RowsOutsideError, match=re.escape(f"{text}, and fail_on_rows_outside allows none.")) as refused:
        refuse_outside(outside, datetime(2025, 1, 1, tzinfo=UTC), None)
    assert refused.value.attributes["tables"] == {f"main.{table}": rows for table, rows in counts.items()}


@pytest.mark.parametrize(("start", "rows"), [("2025-01-01T00:00:00Z", 0), ("2025-01-02T00:00:00Z", 24)])
def test_rows_after_the_last_closed_window_of_a_continuous_plan_are_not_outside(
    tmp_path: Path, location: Path, start: str, rows: int
) -> None:
    source = make_source(tmp_path / "s.duckdb", "INSERT INTO readings VALUES (TIMESTAMPTZ '9000-01-01 00:00:00Z', 1)")
    fields: dict[str, Any] = {"kind": "continuous", "start_time": start, "end_time": None, "chunk_time_window": "60d"}
    export(make_plan(source, location.as_uri(), **fields), store_of(location))
    state = Catalog.open(store_of(location)).state
    assert sum(each.rows for each in rows_outside(state)) == rows
    assert outside_text(state) == (f"24 rows before {start} were not exported (main.readings 24)" if rows else "")
