"""`create` on a location that has a snapshot: what the call does not give comes from there, what differs is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.engine.export import run as engine_run
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.cli.helpers import DAY, Snapshots, contents, export, make_plan, make_source, store_of

FIELDS = {
    "chunk_time_window": "12h",
    "format": "csv",
    "format_options": {"header": True, "compression": "gzip"},
    "tables": ["main.readings", "main.sensors", "main.marks"],
    "time_columns": {"main.marks": None},
    "mask": {"main.sensors.name": "'x'"},
    "time_zone": "Europe/Paris",
}


@pytest.fixture
def begun(location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A location with two of seven chunks, from a source of the configuration."""
    marks = "CREATE TABLE marks AS SELECT moment FROM readings"
    source = make_source(tmp_path / "source.duckdb", marks)
    plan = make_plan(source, location.as_uri(), **FIELDS)
    export(plan, store_of(location), chunks=(0, 2))
    (tmp_path / "snapshots.yaml").write_text(f"sources: {{source: '{source}'}}")
    monkeypatch.setenv("SNAPSHOTS_CONFIG", str(tmp_path / "snapshots.yaml"))
    return location


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_location_alone_resumes_an_export(snapshots: Snapshots, begun: Path) -> None:
    resumed = snapshots("export", "create", "--to", begun.as_uri(), "--json")
    assert resumed.status == 0, resumed.err
    assert (resumed.json["chunks"], resumed.json["outcomes"]) == (7, {"exported": 5, "present": 2})
    assert snapshots("export", "create", "--to", begun.as_uri()).status == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--chunk-time-window", "6h"], ["--chunk-time-window is 12h there and 6h here"]),
        (["--start-time", "2025-01-02"], ["--start-time is 2025-01-01T00:00:00Z there and 2025-01-02T00:00:00Z here"]),
        (["--delimiter", ";"], ["header=true there", "delimiter=%3B&header=true here"]),
        (["--format", "parquet"], ["--format is csv?compression=gzip&header=true there and parquet here"]),
        (["--tables", "main.sensors"], ["--tables is main.marks,main.readings,main.sensors there and main.sensors"]),
        (["--carrier", "main.readings.value=text"], ["main.readings.value travels as native", "as text here"]),
        (["--time-column", "main.marks=moment"], ["time column of main.marks is null", "it is moment here"]),
        (["--schema-only"], ["has data, and --schema-only is given"]),
        (["--source", "duckdb:///elsewhere.duckdb"], ["--source is source there and elsewhere here"]),
    ],
)
def test_what_differs_from_the_snapshot_is_refused_with_both_values(
    snapshots: Snapshots, begun: Path, arguments: list[str], messages: list[str]
) -> None:
    before = contents(begun)
    refused = snapshots("export", "create", "--to", begun.as_uri(), *arguments)
    assert refused.status != 0
    assert [text for text in messages if text not in refused.err] == [], refused.err
    assert contents(begun) == before


def test_a_source_that_the_configuration_lacks_is_asked_for(snapshots: Snapshots, exported: Path) -> None:
    refused = snapshots("export", "create", "--to", exported.as_uri())
    assert refused.status == 2
    assert "--source missing" in refused.err
    assert "was begun from 'source'" in refused.err


def test_options_are_named_as_a_command_has_them(snapshots: Snapshots, source: str, location: Path) -> None:
    call = ("export", "create", "--source", source, "--to", location.as_uri(), "--schema-only")
    refused = snapshots(*call, "--start-time", "2025-01-01", "--format", "csv", "--header", "--time-column", "a.b=c")
    assert refused.status == 2
    for name in ("--start-time", "--format", "--header", "--time-column"):
        assert f"  {name}: has no effect with --schema-only" in refused.err, refused.err


def test_options_without_effect_are_named_though_they_are_the_defaults(
    snapshots: Snapshots, source: str, location: Path
) -> None:
    call = ("export", "create", "--source", source, "--to", location.as_uri(), "--schema-only")
    defaults = {"--format": "parquet", "--parallelism": "1", "--chunk-time-window": "1d", "--max-file-size": "256MiB"}
    refused = snapshots(*call, *(word for pair in defaults.items() for word in pair))
    assert (refused.status, "the call has 4 mistakes:" in refused.err) == (2, True), refused.err
    for name in defaults:
        assert f"  {name}: has no effect with --schema-only" in refused.err
    refused = snapshots(*call, "--header", "--name", "a-b", "--format", "parquet", "--replace", "2025-01-01/2025-01-02")
    assert [line.split(": ")[0].strip() for line in refused.err.splitlines()[1:]] == [
        *("--name", "--header", "--format", "--replace"),
    ]
    assert snapshots(*call).status == 0  # a plan without data
    refused = snapshots(*call[:-1], "--parallelism", "1")
    assert (refused.status, "  --parallelism: has no effect with --schema-only" in refused.err) == (2, True)


def test_options_beside_a_plan_are_checked_under_their_own_names(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    (tmp_path / "snapshots.yaml").write_text(
        f"plans:\n  shop: {{source: '{source}', to: '{location.as_uri()}'}}\n"
        f"  bare: {{source: '{source}', to: '{location.as_uri()}', schema_only: true}}\n"
    )
    call = ("--config", str(tmp_path / "snapshots.yaml"), "export", "create", "--plan")
    refused = snapshots(*call, "shop", "--parallelism", "0", "--max-file-size", "1kB")
    assert (refused.status, "the call beside plan 'shop' has 2 mistakes:" in refused.err) == (2, True), refused.err
    assert "\n  --parallelism: should be greater" in refused.err
    assert "\n  --max-file-size: file size 1KiB" in refused.err
    refused = snapshots(*call, "bare", "--parallelism", "1")
    assert "\n  --parallelism: has no effect with schema_only: true" in refused.err


def test_options_in_another_spelling_are_those_of_the_same_export(
    snapshots: Snapshots, source: str, location: Path
) -> None:
    export(make_plan(source, location.as_uri(), tables=["main.readings"]), store_of(location))
    before = contents(location)
    create = ("export", "create", "--to", location.as_uri(), "--source", source)
    again = snapshots(*create, "--tables", "MAIN.Readings", "--time-column", "main.READINGS=MOMENT")
    assert (again.status, "nothing was exported" in again.out) == (0, True), again.err
    assert contents(location) == before
    refused = snapshots(*create, "--tables", "MAIN.Readings", "--time-column", "main.READINGS=null")
    assert "time column of main.readings is moment, and it is null here" in " ".join(refused.err.split())


@pytest.mark.usefixtures("spark")
def test_a_window_that_closes_before_the_seal_belongs_to_the_next_run(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 10 * DAY  # one window has closed
    file = tmp_path / "snapshots.yaml"
    file.write_text(
        f"sources: {{source: '{source}'}}\nplans: {{plan: {{source: source, to: '{location.as_uri()}', "
        f"kind: continuous, start_time: {time_text(start)}, chunk_time_window: 7d}}}}\n"
    )
    later = datetime.now(UTC) + 7 * DAY
    clock = type("clock", (datetime,), {"now": classmethod(lambda cls, tz=UTC: later)})
    monkeypatch.setattr(engine_run, "datetime", clock)  # as if the second one closed once the windows are chosen
    found = snapshots("--config", str(file), "export", "create", "--plan", "plan", "--json")
    assert found.status == 0, found.err
    assert found.json["exported_until"] == time_text(start + 7 * DAY)
    assert found.json["sealed_at"]


def test_a_continuous_snapshot_is_resumed_by_its_plan(snapshots: Snapshots, source: str, location: Path) -> None:
    plan = make_plan(source, location.as_uri(), kind="continuous", end_time=None, lag="300d")
    export(plan, store_of(location), chunks=(0,))
    before = contents(location)
    refused = snapshots("export", "create", "--source", source, "--to", location.as_uri())
    assert (refused.status, contents(location)) == (2, before)
    assert "only its plan has the lag" in refused.err


@pytest.mark.usefixtures("spark")
def test_columns_that_travel_as_text_do_so_in_the_rest(snapshots: Snapshots, source: str, location: Path) -> None:
    plan = make_plan(source, location.as_uri(), carriers={"main.readings.value": "text"})
    export(plan, store_of(location), chunks=(0, 1))
    resumed = snapshots("export", "create", "--source", source, "--to", location.as_uri())
    assert resumed.status == 0, resumed.err
    kinds = {pq.read_schema(file).field("value").type for file in location.glob("data/*/main.readings-*.parquet")}
    assert kinds == {pa.string()}
