"""`snapshots copy` whole, and the example of an hourly copy: on Spark."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import yaml

from snapshot_assets_tests.cli.helpers import Snapshots

pytestmark = pytest.mark.usefixtures("spark")

EXAMPLE = Path(__file__).parents[2] / "examples/hourly_copy.py"


def test_copy_prints_the_number_of_rows_and_reads_back(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    call = ("copy", "SELECT value, moment FROM readings WHERE value < 10", "--source", source)
    for name, options, reader in (
        ("parquet", (), "read_parquet('{}/data/0/*.parquet')"),
        ("csv", ("--header", "--compression", "gzip"), "read_csv('{}/data/0/*.csv.gz')"),
        ("json", (), "read_json('{}/data/0/*.jsonl')"),
    ):
        location = tmp_path / name
        done = snapshots(*call, "--to", location.as_uri(), "--format", name, *options)
        assert (done.status, done.out) == (0, "COPY 10\n"), done.err
        assert "sealed at revision" in done.err
        rows = duckdb.sql(f"SELECT sum(value), count(DISTINCT moment) FROM {reader.format(location)}").fetchall()
        assert rows == [(45, 10)]
        assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0
    [file] = location.glob("data/0/*.jsonl")
    file.write_bytes(b"damaged")
    (location / "SHA256SUMS").unlink()
    shown = snapshots("export", "verify", "--snapshot", location.as_uri()).out
    assert "or export its chunk again with `snapshots copy --overwrite` of the same query." in shown
    assert f"`snapshots catalog repair --snapshot {location.as_uri()}` writes it again from the log." in shown
    again = snapshots(*call, "--to", location.as_uri(), "--format", "json")
    assert (again.status, again.out) == (2, "")
    assert "is not empty: it has" in again.err
    assert snapshots(*call, "--to", location.as_uri(), "--format", "json", "--overwrite", "--json").json["rows"] == 10
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0


@pytest.mark.slow
def test_copy_divides_files_among_folders(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    query = "SELECT CAST(value AS int) % 2 AS odd, 'x' AS \"a,b\", value FROM readings"
    to = ("--source", source, "--to", (tmp_path / "to").as_uri())
    done = snapshots("copy", query, *to, "--partition-by", 'odd,"a,b"')
    assert done.status == 0, done.err
    assert {str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("to/data/0/*/*/*.parquet")} == {
        "to/data/0/odd=0/a,b=x",
        "to/data/0/odd=1/a,b=x",
    }


def test_copy_prints_the_path_of_a_single_file(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    to = ("--source", source, "--to", (tmp_path / "to").as_uri())
    done = snapshots(
        "copy", "SELECT value FROM readings", *to, "--single-file", "--format", "csv", "--manifest", "snowflake"
    )
    assert done.status == 0, done.err
    [file] = tmp_path.glob("to/data/0/*.csv")
    assert done.out.splitlines()[1:] == [file.as_uri()]
    assert f"'data/0/{file.name}'" in (tmp_path / "to/snowflake.sql").read_text()


@pytest.mark.slow
def test_a_copy_is_imported_like_any_snapshot(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    to = (tmp_path / "sensors").as_uri()
    options = ("--format", "json", "--split-by", "id")
    assert snapshots("copy", "main.sensors", "--source", source, "--to", to, *options).out == "COPY 2\n"
    target = tmp_path / "target.duckdb"
    done = snapshots("import", "--from", to, "--target", f"duckdb://{target}")
    assert done.status == 0, done.err
    with duckdb.connect(str(target)) as connection:
        assert connection.sql("FROM sensors ORDER BY id").fetchall() == [(1, "roof"), (2, "cellar")]


@pytest.mark.slow
def test_a_copy_by_windows_reports_the_rows_and_files_of_all_windows(
    snapshots: Snapshots, source: str, tmp_path: Path
) -> None:
    plan = {
        "kind": "query",
        "source": source,
        "to": (tmp_path / "days").as_uri(),
        "query": "SELECT value FROM readings WHERE moment >= :start AND moment < :end",
        "start_time": "2025-01-01T12:00:00Z",
        "end_time": "2025-01-04T12:00:00Z",
        "format": "json",
    }
    (tmp_path / "snapshots.yaml").write_text(yaml.safe_dump({"plans": {"days": plan}}))
    done = snapshots("--config", str(tmp_path / "snapshots.yaml"), "copy", "--plan", "days", "--json")
    assert done.status == 0, done.err
    files = list(tmp_path.glob("days/data/*/*.jsonl"))
    assert (done.json["rows"], done.json["files"], done.json["sealed"]) == (60, len(files), True)
    assert len(files) == 3
    assert done.json["bytes"] == sum(file.stat().st_size for file in files)


def test_a_wrong_call_is_refused_before_anything_is_written(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    to = ("--source", source, "--to", (tmp_path / "to").as_uri())
    for call, problem in (
        (("copy", "SELECT 1 ORDER BY 1", *to), "ORDER BY at its top"),
        (("copy", *to), "QUERY missing"),
        (("copy", "SELECT 1 AS n", "--source", source, "--to", f"file://{tmp_path}/{{hour}}"), "{hour} is unknown"),
        (("copy", "SELECT 1 AS n", *to, "--header"), "only csv has header"),
        (("copy", "SELECT 1 AS n", *to, "--split-by", "m"), "has no column 'm'"),
        (("copy", "SELECT 1 AS n", *to, "--partition-by", "m"), "Its columns are: n"),
    ):
        done = snapshots(*call)
        assert (done.status, done.out) == (2, ""), done.err
        assert problem in done.err
    assert not (tmp_path / "to").exists()


def test_the_example_copies_to_a_new_folder_each_time(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("CREATE TABLE flights AS SELECT 'UA' AS carrier FROM range(3)")
    monkeypatch.setenv("COPY_SOURCE", source)
    monkeypatch.setenv("COPY_TO", (tmp_path / "copies").as_uri())
    spec = importlib.util.spec_from_file_location("hourly_copy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    [schedule] = module.defs.schedules
    assert (schedule.cron_schedule, schedule.job_name) == ("0 * * * *", "carriers_copy")
    with dg.DagsterInstance.ephemeral() as instance:
        done = module.defs.resolve_job_def("carriers_copy").execute_in_process(instance=instance)
        [event] = done.asset_materializations_for_node("carriers__copy")
    assert event.metadata["dagster/row_count"].value == 1
    [manifest] = tmp_path.glob("copies/carriers/*/manifest.json")
    assert json.loads(manifest.read_text())["sealed"] is True
    [file] = manifest.parent.glob("data/0/*.csv")
    assert file.read_text() == "carrier,flights\nUA,3\n"
