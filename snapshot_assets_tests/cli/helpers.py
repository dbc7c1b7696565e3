"""Sources, locations and fixtures for tests that see the package as its users do: through `snapshots`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from snapshot_assets.cli import main
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

START = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DAYS = 3
RANGE = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-04T00:00:00Z")


class Result(NamedTuple):
    """What a call of `snapshots` did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


Snapshots = Callable[..., Result]


def in_own_process(*arguments: str) -> Result:
    """Run `snapshots` where no test has started a Spark session."""
    command = [sys.executable, "-m", "snapshot_assets", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return Result(ended.returncode, ended.stdout, ended.stderr)


def make_source(path: Path, *statements: str) -> str:
    """Make a DuckDB file with 24 readings on each of three days, and two sensors; returns its URI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE sensors (id INTEGER PRIMARY KEY, name VARCHAR)")
        connection.execute("INSERT INTO sensors VALUES (1, 'roof'), (2, 'cellar')")
        connection.execute("CREATE TABLE readings (moment TIMESTAMPTZ NOT NULL, value DOUBLE)")
        connection.execute(
            "INSERT INTO readings SELECT $start + to_hours(n::INT), n FROM range($hours) r(n)",
            {"start": START, "hours": 24 * DAYS},
        )
        for statement in statements:
            connection.execute(statement)
    return path.as_uri().replace("file:", "duckdb:")


def differing(one: Path, other: Path, *tables: str) -> dict[str, int]:
    """Return, by table, how many rows two DuckDB files do not have equally often; only tables that differ."""
    found = {}
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{one}' AS a (READ_ONLY); ATTACH '{other}' AS b (READ_ONLY)")
        for table in tables:
            left, right = f"FROM a.{table}", f"FROM b.{table}"
            query = f"(({left}) EXCEPT ALL ({right})) UNION ALL (({right}) EXCEPT ALL ({left}))"
            if rows := len(connection.sql(query).fetchall()):
                found[table] = rows
    return found


def make_plan(source: str, to: str, **fields: Any) -> Plan:
    """Return the plan that a call with `--source`, `--to` and `RANGE` makes."""
    given = {"name": "location", "source": source, "to": to, "start_time": START, "end_time": START + DAYS * DAY}
    return Plan(**given | fields)


def store_of(location: str | Path) -> ObjectStore:
    """Return the objects of a location on disk."""
    return open_store(parse_location(location.as_uri() if isinstance(location, Path) else location))


def catalog(snapshots: Snapshots, command: str, location: Path, *arguments: str) -> Result:
    """Call `snapshots catalog` on a location."""
    return snapshots("catalog", command, "--snapshot", location.as_uri(), *arguments)


def contents(location: Path) -> dict[str, bytes]:
    """Return all files below a folder, by path."""
    return {str(path): path.read_bytes() for path in location.rglob("*") if path.is_file()}


def export(
    plan: Plan, store: ObjectStore, *, chunks: Iterable[int] | None = None, replace: bool = False
) -> list[Outcome]:
    """Export a plan in this process, without Spark and Dagster.

    Args:
        plan: The plan, its source a URI.
        store: Its location.
        chunks: Stop after these, unsealed; all, and a seal, by default.
        replace: Export them again and seal.
    """
    address = Configuration().source(plan.source)
    with ExportRun(plan, address, store, InlineRunner(), "test").open() as opened:
        wanted = opened.catalog.state.expected_chunks() if chunks is None else list(chunks)
        outcomes = list(opened.export(wanted, replace_completed=replace))
        if chunks is None or replace:
            opened.seal()
        return outcomes


@pytest.fixture
def snapshots(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Snapshots:
    """Call `snapshots` with arguments, in an empty folder, and return status and output as the descriptors got it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("SNAPSHOTS_CONFIG", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # The process of the tests has its own session, and outlives the folder in which Spark's JVM would start.
    monkeypatch.setattr("snapshot_assets.engine.session_start.start_early", lambda *_, **__: None)

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        try:
            status = main(arguments)
        except SystemExit as ended:  # argparse's own
            status = int(str(ended.code))
        out, err = capfd.readouterr()
        return Result(status, out, err)

    return call


@pytest.fixture(scope="session")
def exported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small DuckDB file, `source.duckdb`, and a sealed snapshot of it, `location`."""
    folder = tmp_path_factory.mktemp("exported")
    source, location = make_source(folder / "source.duckdb"), folder / "location"
    export(make_plan(source, location.as_uri()), store_of(location))
    return folder


@pytest.fixture
def source(exported_once: Path, tmp_path: Path) -> str:
    """URI of a small DuckDB file."""
    return Path(shutil.copy(exported_once / "source.duckdb", tmp_path)).as_uri().replace("file:", "duckdb:")


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "location"


@pytest.fixture
def exported(source: str, exported_once: Path, location: Path) -> Path:
    """A location that holds a sealed snapshot of `source`."""
    return shutil.copytree(exported_once / "location", location)
