"""Spark's workers in an environment that is not activated: `python3` on the path is another interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.cli.helpers import RANGE, make_source

_COMMANDS = """
import json, sys
from snapshot_assets.cli import main
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 0, arguments
"""


@pytest.fixture
def unactivated(bare_python: Path, tmp_path: Path) -> dict[str, str]:
    """The process environment of a service that calls an environment's interpreter by its path."""
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    path = os.pathsep.join(map(str, (bare_python.parent, java, "/usr/bin", "/bin")))
    dropped = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PATH": path, "DAGSTER_HOME": str(tmp_path / "dagster"), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workers_run_this_interpreter_where_the_command_line_starts_spark(
    unactivated: dict[str, str], tmp_path: Path
) -> None:
    source, location = make_source(tmp_path / "source.duckdb"), (tmp_path / "location").as_uri()
    copy = tmp_path / "copy.duckdb"
    commands = [
        ["export", "create", "--source", source, "--to", location, *RANGE],
        ["import", "--from", location, "--target", f"duckdb://{copy}"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(commands)],
        cwd=tmp_path,
        env=unactivated,
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM readings").fetchall() == [(72,)]
