"""Ctrl-C and SIGTERM stop tasks and their queries, abort what is being written, and say how to go on.

Every query here would run for hours, so that a command that ends was interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.databases.postgresql.helpers import client, execute, queries_that_run

ROWS_FOR_HOURS = "SELECT n, pg_sleep(0.001) IS NULL AS late FROM generate_series(1, 10000000) AS g(n)"
NO_ROW_FOR_HOURS = "SELECT count(*) AS n FROM generate_series(1, 100000000000) AS g(n)"
NO_ROW_OF_DUCKDB = "SELECT count(*) AS n FROM range(100000000000) AS a(n), range(1000) AS b(m) WHERE n % 7 = m % 5"


@dataclass
class Command:
    """A command that runs until it is interrupted."""

    process: subprocess.Popen[str]

    def until(self, count: str) -> None:
        """Wait until the progress has a count above zero, such as `chunks_running`."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and json.loads(line)[count]:
                return
        pytest.fail("".join(seen))

    def interrupt(self, sent: signal.Signals) -> str:
        """Send a signal, and return what the command writes to stderr until it ends with status 130.

        A terminal sends Ctrl-C to all processes of a command.
        """
        if sent == signal.SIGINT:
            os.killpg(self.process.pid, sent)
        else:
            self.process.send_signal(sent)
        out, err = self.process.communicate(timeout=120)
        assert (self.process.returncode, out) == (130, ""), err
        assert "Traceback" not in err
        return err


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[Command]:
    process = subprocess.Popen(
        [sys.executable, "-m", "snapshot_assets.cli", *arguments, "--progress", "json"],
        env=os.environ | {"DAGSTER_HOME": str(folder / "dagster")},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Command(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_again(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "snapshot_assets.cli", *arguments],
        env=os.environ | {"DAGSTER_HOME": str(folder / "dagster")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "sent"), [(ROWS_FOR_HOURS, signal.SIGINT), (NO_ROW_FOR_HOURS, signal.SIGTERM)], ids=["rows", "no row"]
)
def test_a_copy_of_postgresql_is_interrupted(
    postgresql_database: str, tmp_path: Path, query: str, sent: signal.Signals
) -> None:
    to = f"file://{tmp_path}/to"
    with started(tmp_path, "copy", query, "--source", postgresql_database, "--to", to, "--format", "csv") as command:
        command.until("chunks_running")
        message = command.interrupt(sent)
        assert "interrupted" in message
        assert "run the same command again" in message
        assert queries_that_run(postgresql_database) == 0
    assert list(tmp_path.glob("to/data/**/*.csv")) == []


@pytest.mark.slow
def test_a_copy_of_duckdb_is_interrupted(tmp_path: Path) -> None:
    duckdb.connect(tmp_path / "source.duckdb").close()
    source, to = f"duckdb:///{tmp_path}/source.duckdb", f"file://{tmp_path}/to"
    with started(tmp_path, "copy", NO_ROW_OF_DUCKDB, "--source", source, "--to", to) as command:
        command.until("chunks_running")
        command.interrupt(signal.SIGINT)
    assert list(tmp_path.glob("to/data/**/*.parquet")) == []


@pytest.mark.slow
def test_an_interrupted_export_resumes(postgresql_database: str, tmp_path: Path) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE kept AS SELECT timestamptz '2024-01-01' + n * interval '1 s' AS ts, n"
        " FROM generate_series(0, 86399) n",
        "CREATE TABLE pace AS SELECT 3600 AS seconds",
        "CREATE FUNCTION late(n int) RETURNS int STABLE LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(seconds) FROM public.pace WHERE n >= 43200; RETURN n; END'",
        "CREATE VIEW readings AS SELECT ts, public.late(n) AS v FROM kept",
    )
    export = ["export", "create", "--to", f"file://{tmp_path}/to", "--source", postgresql_database]
    export += ["--tables", "public.readings", "--time-column", "public.readings=ts"]
    export += ["--start-time", "2024-01-01T00:00:00Z", "--end-time", "2024-01-02T00:00:00Z"]
    export += ["--chunk-time-window", "5m"]
    with started(tmp_path, *export) as command:
        command.until("chunks_done")
        assert "run the same command again" in command.interrupt(signal.SIGTERM)
        assert queries_that_run(postgresql_database) == 0
    execute(postgresql_database, "UPDATE pace SET seconds = 0")
    report = json.loads(run_again(tmp_path, *export, "--json"))
    assert report["rows"] == 86400
    assert report["outcomes"]["present"] > 0


@pytest.mark.slow
def test_an_interrupted_import_resumes(postgresql_database: str, tmp_path: Path) -> None:
    source, to = f"duckdb:///{tmp_path}/source.duckdb", f"file://{tmp_path}/to"
    with duckdb.connect(tmp_path / "source.duckdb") as database:
        database.execute("CREATE TABLE readings AS SELECT range AS n FROM range(100000)")
    run_again(tmp_path, "export", "create", "--to", to, "--source", source)
    execute(
        postgresql_database,
        "CREATE SCHEMA main",
        "CREATE FUNCTION wait() RETURNS bool LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN true; END'",
        "CREATE TABLE main.readings (n int8, CONSTRAINT wait CHECK (public.wait()))",
    )
    restore = ["import", "--from", to, "--target", postgresql_database]
    with started(tmp_path, *restore) as command:
        command.until("chunks_running")
        assert "run the same command again" in command.interrupt(signal.SIGINT)
        assert queries_that_run(postgresql_database) == 0
    execute(postgresql_database, "ALTER TABLE main.readings DROP CONSTRAINT wait")
    run_again(tmp_path, *restore)
    with client(postgresql_database) as run:
        assert run("SELECT count(*), count(DISTINCT n) FROM main.readings") == [(100000, 100000)]
