"""What `snapshots export create` reports of a finished snapshot; nothing here starts Dagster or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.verify import objects
from snapshot_assets.cli.export import create_request
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.catalog.tags import flip
from snapshot_assets_tests.cli.helpers import DAY, RANGE, START, Snapshots, export, make_plan, store_of

SHORT = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-03T00:00:00Z")
OUTSIDE = "  24 rows outside 2025-01-01T00:00:00Z … 2025-01-03T00:00:00Z were not exported (main.readings 24)\n"


def create(source: str, location: Path, *options: str) -> tuple[str, ...]:
    return ("export", "create", "--source", source, "--to", location.as_uri(), *(options or RANGE))


def test_rows_outside_the_range_are_reported(snapshots: Snapshots, source: str, location: Path) -> None:
    plan = make_plan(source, location.as_uri(), end_time="2025-01-03T00:00:00Z")
    export(plan, store_of(location))
    found = snapshots(*create(source, location, *SHORT))
    assert found.status == 0, found.err
    assert OUTSIDE in found.out
    assert snapshots(*create(source, location, *SHORT, "--json")).json["rows_outside"] == [
        {"schema": "main", "table": "readings", "rows": 24}
    ]


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ((), "consistency run: all chunks read one state of the source"),
        ((0, 2), "consistency chunk: chunks read several states of the source, of as many runs"),
    ],
)
def test_the_consistency_is_reported_with_its_reason(
    snapshots: Snapshots, source: str, location: Path, first: Sequence[int], text: str
) -> None:
    plan = make_plan(source, location.as_uri())
    export(plan, store_of(location), chunks=first)
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("UPDATE sensors SET name = 'attic' WHERE id = 1")
    export(plan, store_of(location))
    assert f"  {text}\n" in snapshots(*create(source, location)).out


def test_a_whole_snapshot_is_reported_with_what_was_read_of_it(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    size = sum(path.stat().st_size for path in exported.glob("data/*/*.parquet"))
    found = snapshots(*create(source, exported), "--json").json
    assert (found["hashed_bytes"], found["run_id"], found["rows_outside"]) == (size, None, [])
    text = snapshots(*create(source, exported)).out
    assert "complete already; nothing was exported" in text
    assert "all files are there with their size" in text
    assert "outside" not in text


def test_windows_that_have_not_closed_are_warned_of(snapshots: Snapshots, source: str, location: Path) -> None:
    fields = {"end_time": "2100-01-01T00:00:00Z", "chunk_time_window": "10000d"}
    export(make_plan(source, location.as_uri(), **fields), store_of(location))
    window = ("--chunk-time-window", "10000d")
    given = ("--start-time", RANGE[1], "--end-time", fields["end_time"], *window)
    [warning] = snapshots(*create(source, location, *given), "--json").json["warnings"]
    assert warning.startswith("Not closed yet: 3 windows, 2025-01-01T00:00:00Z to 2100-01-01T00:00:00Z. Rows that come")
    assert f"  warning: {warning}\n" in snapshots(*create(source, location, *given)).out


@pytest.mark.parametrize(("start", "closed"), [("2025-01-01", 1), ("2100-01-01", 0)])
def test_a_continuous_plan_is_complete_up_to_a_time(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path, start: str, closed: int
) -> None:
    """Its source, which may have more rows by then, is not asked."""
    start_time = datetime.fromisoformat(f"{start}T00:00:00Z")
    length = (datetime.now(UTC) - START) * 2 // 3 // DAY * DAY  # the second window has not closed
    fields = {"kind": "continuous", "start_time": start_time, "chunk_time_window": length, "lag": DAY}
    export(make_plan(source, location.as_uri(), name="plan", end_time=None, **fields), store_of(location))
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        f"sources: {{source: '{source}'}}\nplans: {{plan: {{source: source, to: '{location.as_uri()}', "
        f"kind: continuous, start_time: {time_text(start_time)}, chunk_time_window: {length.days}d, lag: 1d}}}}\n"
    )
    Path(source.removeprefix("duckdb://")).unlink()
    call = ("--config", str(file), "export", "create", "--plan", "plan")
    found = snapshots(*call)
    assert found.status == 0, found.err
    until = time_text(start_time + length) if closed else None
    complete = f"complete up to {until}" if closed else "no window has closed yet"
    assert f": {complete}; nothing was exported, and the source was not read\n" in found.out
    at = time_text(start_time + (closed + 1) * length + DAY)
    assert f"  the next window can be exported from {at} on\n" in found.out
    report = snapshots(*call, "--json").json
    assert (report["exported_until"], report["next_window_at"]) == (until, at)


def test_a_window_that_closed_during_the_run_can_be_exported_now(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = (datetime.now(UTC) - START) // 2 // DAY * DAY  # two windows have closed, and with the lag one
    fields = {"kind": "continuous", "chunk_time_window": length, "lag": length}
    export(make_plan(source, location.as_uri(), name="plan", end_time=None, **fields), store_of(location))
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        f"sources: {{source: '{source}'}}\nplans: {{plan: {{source: source, to: '{location.as_uri()}', "
        f"kind: continuous, start_time: {time_text(START)}, chunk_time_window: {length.days}d}}}}\n"
    )
    monkeypatch.setattr(create_request, "nothing_to_do", lambda *_: True)  # as before the second one closed
    call = ("--config", str(file), "export", "create", "--plan", "plan")
    found = snapshots(*call)
    assert found.status == 0, found.err
    assert "  the next window can be exported now\n" in found.out
    report = snapshots(*call, "--json").json
    until, following = time_text(START + length), time_text(START + 2 * length)
    assert (report["exported_until"], report["next_window_at"]) == (until, following)


def test_an_export_needs_no_variable_of_the_plans_other_databases(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    file = tmp_path / "snapshots.yaml"
    others = "target: '${SNAPSHOTS_TEST_UNSET}', scratch: '${SNAPSHOTS_TEST_UNSET}'"
    plan = f"{{source: '{source}', {others}, to: '{location.as_uri()}', schema_only: true}}"
    file.write_text(f"sources: {{gone: '${{SNAPSHOTS_TEST_UNSET}}'}}\nplans: {{plan: {plan}}}\n")
    call = ("--config", str(file), "export", "create", "--plan", "plan")
    done = snapshots(*call)
    assert done.status == 0, done.err
    refused = snapshots("--config", str(file), "import", "--plan", "plan")
    assert refused.status == 2
    assert "plans.plan.target: refers to the environment variable SNAPSHOTS_TEST_UNSET" in refused.err


@pytest.mark.parametrize("rule", ["export", "skip"])
def test_tables_that_were_skipped_are_not_reported_as_none(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path, rule: str
) -> None:
    """A snapshot does not record which tables it leaves out, and a finished one is checked without its source."""
    plan = make_plan(source, location.as_uri(), name="plan", untimed_tables=rule)
    export(plan, store_of(location))
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        f"sources: {{source: '{source}'}}\nplans: {{plan: {{source: source, to: '{location.as_uri()}', "
        f"start_time: {RANGE[1]}, end_time: {RANGE[3]}, untimed_tables: {rule}}}}}\n"
    )
    found = snapshots("--config", str(file), "export", "create", "--plan", "plan", "--json")
    assert found.status == 0, found.err
    assert found.json["run_id"] is None
    assert found.json.get("tables_skipped") == ([] if rule == "export" else None)
    assert ("tables_skipped" in found.json) == (rule == "export")


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("data/2/*.parquet", "export create --replace 2025-01-02T00:00:00Z/2025-01-03T00:00:00Z"),
        ("data/2/chunk-*.json", "catalog repair"),
    ],
)
def test_damage_is_not_called_complete(
    snapshots: Snapshots, source: str, exported: Path, pattern: str, remedy: str
) -> None:
    [path] = (str(found.relative_to(exported)) for found in exported.glob(pattern))
    flip(store_of(exported), path, 40)
    found = snapshots(*create(source, exported))
    assert (found.status, found.out) == (3, "")
    assert f"is sealed, but it is damaged: {path} " in found.err
    assert f"`snapshots {remedy} --snapshot {exported.as_uri()}`" in found.err


def test_damage_that_a_verification_found_is_not_called_complete(
    snapshots: Snapshots, source: str, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a snapshot above the budget, only a part is hashed, and what is on record as damaged."""
    [path] = (str(found.relative_to(exported)) for found in exported.glob("data/2/*.parquet"))
    flip(store_of(exported), path, 40)
    assert snapshots("export", "verify", "--snapshot", exported.as_uri()).status == 3
    monkeypatch.setattr(objects, "HASHED_AGAIN", 0)
    found = snapshots(*create(source, exported))
    assert found.status == 3
    assert f"is sealed, but it is damaged: {path} " in found.err


def test_damage_to_chunk_0_names_the_asset_that_exports_it_again(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    [path] = exported.glob("data/0/*.parquet")
    path.unlink()
    found = snapshots(*create(source, exported))
    assert found.status == 3
    assert "chunk 0 by materialising the asset `untimed_tables` with `replace: true`" in found.err
