"""`snapshots export create` whole: on Spark, in this process and its one session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from snapshot_assets.format.units import time_text
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, make_source, store_of

pytestmark = pytest.mark.usefixtures("spark")


def test_create_fixes_open_ends_once_and_resumes_by_itself(snapshots: Snapshots, source: str, location: Path) -> None:
    call = ("export", "create", "--source", source, "--to", location.as_uri(), "--chunk-time-window", "365d", "--json")
    first = snapshots(*call)
    assert first.status == 0, first.err
    assert first.json["rows"] == 74
    assert first.json["outcomes"] == {"exported": first.json["chunks"]}
    assert "Runs are recorded in" in first.err
    assert "━" not in first.err  # no progress bar where there is no terminal
    unsealed = store_of(location).get("manifest.json", limit=1 << 20)
    again = snapshots(*call)
    assert (again.status, again.json["run_id"], again.json["outcomes"]) == (0, None, {})
    assert store_of(location).get("manifest.json", limit=1 << 20) == unsealed
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0


def test_the_call_may_name_the_instance_that_records_the_run(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    call = ("export", "create", "--source", source, "--to", location.as_uri(), *RANGE, "--dagster-home")
    done = snapshots(*call, str(tmp_path / "other"), "--json")
    assert done.status == 0, done.err
    assert f"Runs are recorded in {tmp_path / 'other'}" in done.err
    with dg.DagsterInstance.from_config(str(tmp_path / "other")) as instance:
        assert instance.get_run_by_id(done.json["run_id"]).is_success


def test_create_writes_hints_and_schema_documents_again(snapshots: Snapshots, source: str, exported: Path) -> None:
    call = ("export", "create", "--source", source, "--to", exported.as_uri(), *RANGE, "--json")
    verify = ("export", "verify", "--snapshot", exported.as_uri(), "--json")
    [document] = exported.glob("schema/*/tables.json")
    document.write_bytes(document.read_bytes()[:-1])
    (exported / "manifest.json").write_text("{}")
    (exported / "SHA256SUMS").unlink()
    faults = {fault["object"]: fault["message"] for fault in snapshots(*verify).json["faults"]}
    assert faults.keys() == {str(document.relative_to(exported)), "manifest.json", "SHA256SUMS"}
    described = faults.pop(str(document.relative_to(exported)))
    assert "`snapshots export create`" in described
    assert all("`snapshots catalog repair`" in message for message in faults.values())
    again = snapshots(*call)
    assert (again.status, again.json["rows"]) == (0, 74), again.err
    assert "SHA256SUMS is missing" in again.err
    assert snapshots(*verify).json["faults"] == []
    assert snapshots(*call).json["run_id"] is None


def test_replace_exports_late_rows_and_force_starts_a_new_snapshot(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path
) -> None:
    call = ("export", "create", "--source", source, "--to", exported.as_uri(), *RANGE, "--json")
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("INSERT INTO readings VALUES ('2025-01-02T12:30:00Z', 99)")
    assert snapshots(*call).json["rows"] == 74
    replaced = snapshots(*call, "--replace", "2025-01-02T00:00:00Z/2025-01-03T00:00:00Z")
    assert replaced.status == 0, replaced.err
    assert (replaced.json["outcomes"], replaced.json["rows"]) == ({"replaced": 1}, 75)
    forced = snapshots(*call, "--force", "--chunk-time-window", "3d")
    assert forced.status == 0, forced.err
    assert (forced.json["outcomes"], forced.json["rows"]) == ({"exported": 2}, 75)
    assert forced.json["snapshot_id"] != replaced.json["snapshot_id"]
    assert forced.json["revision"] > replaced.json["revision"]
    assert snapshots("export", "verify", "--snapshot", exported.as_uri()).status == 0


@pytest.mark.slow
def test_a_damaged_window_is_replaced_while_the_snapshot_is_not_sealed(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    at, rows = ("--snapshot", exported.as_uri()), ("--table", "main.readings", "--where", "value = 1")
    assert snapshots("catalog", "tombstone", *at, *rows, "--yes").status == 0
    lost = next(exported.glob("data/2/*"))
    lost.unlink()
    call = ("export", "create", "--source", source, "--to", exported.as_uri(), *RANGE, "--json")
    refused = snapshots(*call)
    assert (refused.status, f"{lost.relative_to(exported)} is missing" in refused.err) == (3, True)
    window = refused.err.partition("snapshots export create --replace ")[2].partition(" ")[0]
    assert window == "2025-01-02T00:00:00Z/2025-01-03T00:00:00Z"
    replaced = snapshots(*call, "--replace", window)
    assert (replaced.status, replaced.json["outcomes"].get("replaced")) == (0, 1), replaced.err
    assert snapshots("export", "verify", *at, "--at", f"rev:{replaced.json['revision']}").status == 0


@pytest.mark.slow
def test_what_closed_windows_lack_because_it_was_added_later_is_named_until_they_are_replaced(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start = now - timedelta(hours=3, minutes=30)  # no window closes while the test runs
    rows = [
        f"INSERT INTO readings VALUES ('{time_text(start + timedelta(hours=n, minutes=1))}', {n})" for n in range(3)
    ]
    source = make_source(tmp_path / "live.duckdb", "DELETE FROM readings", *rows)
    (tmp_path / "snapshots.yaml").write_text(
        f"sources: {{live: '{source}'}}\nplans:\n  live:\n    source: live\n    to: {tmp_path.as_uri()}/live\n"
        f"    kind: continuous\n    start_time: {time_text(start)}\n    chunk_time_window: 1h\n    lag: ${{LAG:-2h}}\n"
    )

    def create(*more: str) -> tuple[dict[str, int], list[str]]:
        # Both options of `how` go with a plan of the configuration.
        how = ("--parallelism", "2", "--max-file-size", "32MB")
        config = ("--config", str(tmp_path / "snapshots.yaml"))
        call = (*config, "export", "create", "--plan", "live", *how, "--json", *more)
        result = snapshots(*call)
        assert result.status == 0, result.err
        return result.json["outcomes"], [each for each in result.json["warnings"] if "exported with" in each]

    assert create() == ({"exported": 2}, [])
    with duckdb.connect(str(tmp_path / "live.duckdb")) as connection:
        connection.execute("CREATE TABLE late AS SELECT * FROM readings")
        connection.execute("ALTER TABLE readings ADD COLUMN note VARCHAR DEFAULT 'x'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAG", "0s")
        windows = f"{time_text(start)}/{time_text(start + timedelta(hours=1))}"
        expected = [
            f"{what} was not exported with 1 window from {time_text(start)} to {time_text(start + timedelta(hours=1))},"
            " which was exported before it was there: what it holds for it is not in the snapshot. `snapshots export"
            f" create --replace {windows}` exports it again."
            for what in ("Column main.readings.note", "Table main.late")
        ]
        assert create() == ({"exported": 2, "replaced": 1}, expected)
        assert create() == ({}, expected)
        assert create("--replace", windows) == ({"replaced": 1}, [])
        with duckdb.connect(str(tmp_path / "live.duckdb")) as connection:
            connection.execute("ALTER TABLE readings RENAME COLUMN note TO notes")
            connection.execute("DROP TABLE late")
        later = f"2 windows from {time_text(start + timedelta(hours=1))} to {time_text(start + timedelta(hours=3))}"
        gone = [
            f"{what} was exported with {later}, and is not in the newest schema: restores and reads of this version"
            f" leave out what it holds{unless}. Versions from before it went have it."
            for what, unless in (
                ("Column main.readings.note", ""),
                ("Table main.late", ", except imports that name it under --tables"),
            )
        ]
        _, warnings = create("--replace", windows)
        assert [each for each in warnings if "was exported with" in each] == gone
        assert [each.partition(" was")[0] for each in warnings if each not in gone] == ["Column main.readings.notes"]
    call = ("import", "--from", f"{tmp_path.as_uri()}/live", "--target", f"duckdb:///{tmp_path}/copy.duckdb", "--json")
    restored = snapshots(*call)
    assert restored.status == 0, restored.err
    late, *others = restored.json["warnings"]
    assert late.startswith("Table main.late is not in the newest schema, so its rows are left out.")
    assert others == gone[:1]


def test_a_failed_chunk_fails_the_command_and_the_next_one_exports_it(
    snapshots: Snapshots, location: Path, tmp_path: Path
) -> None:
    source = make_source(
        tmp_path / "bad.duckdb",
        "CREATE TABLE texts AS SELECT moment, CASE value WHEN 30 THEN 'thirty' ELSE '1' END AS text FROM readings",
        "CREATE VIEW risky AS SELECT moment, text::BIGINT AS number FROM texts",
    )
    call = ("export", "create", "--source", source, "--to", location.as_uri(), "--tables", "main.readings,main.risky")
    failed = snapshots(*call, *RANGE, "--json")
    assert failed.status == 1
    assert failed.json["error"]["kind"] == "ExportFailedError"
    assert "chunk 2" in failed.err
    assert "main.risky" in failed.err
    [found] = snapshots("export", "list", "--location", location.as_uri(), "--json").json
    assert (found["status"], found["chunks_done"], found["chunks"]) == ("incomplete", 2, 3)
    kept = sorted(location.glob("data/1/*.parquet"))

    with duckdb.connect(str(tmp_path / "bad.duckdb")) as connection:
        connection.execute("UPDATE texts SET text = '1'")
    resumed = snapshots(*call, *RANGE, "--json")
    assert resumed.status == 0, resumed.err
    assert (resumed.json["outcomes"], resumed.json["rows"]) == ({"exported": 1, "present": 2}, 144)
    assert sorted(location.glob("data/1/*.parquet")) == kept
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0


def test_create_reports_what_it_leaves_out(snapshots: Snapshots, source: str, location: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshots.yaml").write_text(
        f"plans: {{short: {{source: '{source}', to: '{location.as_uri()}', untimed_tables: skip, null_time: fail,"
        " start_time: 2025-01-02T00:00:00Z, end_time: 2025-01-03T00:00:00Z}}\n"
    )
    call = ("--config", str(tmp_path / "snapshots.yaml"), "export", "create", "--plan", "short")
    first = snapshots(*call)
    assert first.status == 0, first.err
    outside = "  48 rows outside 2025-01-02T00:00:00Z … 2025-01-03T00:00:00Z were not exported (main.readings 48)\n"
    assert outside in first.out
    assert "  not exported, without a time index (untimed_tables: skip): main.sensors\n" in first.out
    again = snapshots(*call)
    assert "complete already" in again.out
    assert outside in again.out
