from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest

from snapshot_assets import demo
from snapshot_assets_tests.cli.helpers import store_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository's configuration with a plan of two weeks."""
    root = tmp_path / "a project"
    root.mkdir()
    shutil.copy(demo.ROOT / "dagster.yaml", root)
    plan = (demo.ROOT / "snapshots.yaml").read_text()
    assert "end_time: 2014-01-07T00:00:00Z" in plan
    (root / "snapshots.yaml").write_text(plan.replace("2014-01-07", "2013-01-15"))
    monkeypatch.setenv("DAGSTER_HOME", str(root / "demo" / "dagster"))
    return root


@pytest.mark.slow
def test_the_demo_runs_twice_and_the_second_time_exports_nothing(
    project: Path, spark: object, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(project) == 0
    first = capfd.readouterr()
    location = project / "demo" / "snapshots" / "flights"
    assert "sealed by run" in first.out
    assert "OK: " in first.out
    assert differing(project) == {}
    before = {info.path: info.modified for info in store_of(location).list()}

    assert demo.main(project) == 0
    second = capfd.readouterr()
    assert "complete already; nothing was exported" in second.out
    assert "was restored before; nothing was done" in second.out
    assert differing(project) == {}
    assert {info.path: info.modified for info in store_of(location).list()} == before

    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=location, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def differing(project: Path) -> dict[str, int]:
    """Return, by table, the number of rows in the plan's range that differ between source and restored file."""
    inside = "WHERE time_hour >= TIMESTAMPTZ '2013-01-01 00:00:00Z' AND time_hour < TIMESTAMPTZ '2013-01-15 00:00:00Z'"
    ranges = {"airlines": "", "airports": "", "planes": "", "weather": inside, "flights": inside}
    found = {}
    with duckdb.connect() as connection:
        for name, file in (("a", "nycflights13.duckdb"), ("b", "restored.duckdb")):
            connection.execute(f"ATTACH '{project}/demo/{file}' AS {name} (READ_ONLY)")
        for table, where in ranges.items():
            [(rows,)] = connection.execute(f"SELECT count(*) FROM b.main.{table}").fetchall()
            assert rows > 0
            ours, theirs = f"FROM a.main.{table} {where}", f"FROM b.main.{table}"
            query = f"(({ours}) EXCEPT ALL ({theirs})) UNION ALL (({theirs}) EXCEPT ALL ({ours}))"
            if different := len(connection.execute(query).fetchall()):
                found[table] = different
    return found


def test_the_database_is_made_once_and_holds_every_flight(tmp_path: Path) -> None:
    path = tmp_path / "nycflights13.duckdb"
    demo.make_database(path)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT count(*) FROM flights").fetchall() == [(336_776,)]
        [[kind]] = connection.execute("SELECT DISTINCT typeof(time_hour) FROM flights").fetchall()
        connection.execute("DROP TABLE weather")
    assert kind == "TIMESTAMP WITH TIME ZONE"
    demo.make_database(path)
    with duckdb.connect(str(path), read_only=True) as connection:
        assert ("weather",) not in connection.execute("SHOW TABLES").fetchall()
