"""The example of `snapshots copy` in docs/how-to/copy-a-query.md, run as it stands on the demo's data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import pytest

from snapshot_assets import demo
from snapshot_assets_tests.documents.blocks import blocks
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, binaries

QUERY = "SELECT carrier, name, count(*) AS flights FROM flights JOIN airlines USING (carrier) GROUP BY ALL ORDER BY ALL"


def console() -> str:
    """Return the lines of the page's consoles."""
    return "".join(block.text for block in blocks("docs/how-to/copy-a-query.md") if block.language == "console")


def environment(uri: str) -> dict[str, str]:
    """Return an environment without an instance of Dagster, in which `psql` finds a database."""
    parts = urlsplit(uri)
    kept = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "SNAPSHOTS_CONFIG")}
    return kept | {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), str(binaries()), os.environ["PATH"])),
        "PGHOST": str(parts.hostname),
        "PGPORT": str(parts.port),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": parts.path.removeprefix("/"),
    }


@pytest.mark.slow
def test_the_example_copies_the_demos_data_and_other_programs_read_it(
    tmp_path: Path, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    shutil.copy(demo.ROOT / "snapshots.yaml", tmp_path)
    demo._make_database(tmp_path / "demo/nycflights13.duckdb")
    lines = console().splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert sum(command.startswith("snapshots copy ") for command in commands) == 3
    done = subprocess.run(
        ["bash", "-euc", "\n".join(commands)],
        cwd=tmp_path,
        env=environment(postgresql_database),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line for line in lines if not line.startswith("$ ")]
    with duckdb.connect(str(tmp_path / "demo/nycflights13.duckdb"), read_only=True) as connection:
        expected = connection.sql(QUERY).fetchall()
        assert len(expected) == 16
        for name in ("parquet", "csv", "json"):
            files = f"{tmp_path}/demo/copies/{name}/data/0/main.*"
            read = {"json": "read_json", "csv": "read_csv", "parquet": "read_parquet"}[name]
            assert connection.sql(f"FROM {read}('{files}') ORDER BY ALL").fetchall() == expected, name
    rows = postgresql_server.psql(postgresql_database, 'TABLE carriers ORDER BY carrier COLLATE "C"').splitlines()
    assert [tuple(row.split("|")) for row in rows] == [tuple(map(str, row)) for row in expected]
