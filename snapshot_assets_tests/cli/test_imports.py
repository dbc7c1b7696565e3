"""What commands load: `--help`, `list`, `verify` and `delete` answer without Dagster, Spark and DuckDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_HEAVY = ("dagster", "pyspark", "duckdb", "adbc_driver_manager", "rich")
_PROBE = """
import sys
from snapshot_assets.cli import main
try:
    status = main(sys.argv[2:])
except SystemExit as ended:
    status = ended.code
print(status, *[name for name in sys.argv[1].split(",") if name in sys.modules], file=sys.stderr)
"""


def loaded(names: tuple[str, ...], *arguments: str) -> list[str]:
    """Return the status of a call in a fresh process, and which of the modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, ",".join(names), *arguments], capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["export", "list", "--help"],
        ["export", "create", "--help"],
        ["catalog", "--help"],
        ["catalog", "gc", "--help"],
        ["tag", "create", "--help"],
        ["savepoint", "create", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_help_loads_nothing_of_weight(arguments: list[str]) -> None:
    assert loaded((*_HEAVY, "pydantic", "pyarrow", "obstore", "google.protobuf", "yaml"), *arguments) == ["0"]


def test_list_verify_and_delete_load_no_engine(exported: Path) -> None:
    for command in (["list", "--location"], ["verify", "--snapshot"], ["delete", "--yes", "--snapshot"]):
        assert loaded(_HEAVY, "export", *command, exported.as_uri()) == ["0"]


@pytest.mark.parametrize("command", ["log", "show", "checkpoint", "gc", "prune"])
def test_commands_of_the_catalog_load_no_engine(exported: Path, command: str) -> None:
    assert loaded(_HEAVY, "catalog", command, "--snapshot", exported.as_uri()) == ["0"]


@pytest.mark.parametrize("command", [["tag", "create", "x"], ["tag", "list"], ["savepoint", "list"]], ids=" ".join)
def test_commands_of_tags_and_savepoints_load_no_engine(exported: Path, command: list[str]) -> None:
    assert loaded(_HEAVY, *command, "--snapshot", exported.as_uri()) == ["0"]


def test_a_savepoint_of_what_needs_no_compaction_starts_neither_dagster_nor_spark(exported: Path) -> None:
    done = loaded(_HEAVY, "savepoint", "create", "--snapshot", exported.as_uri())
    assert done[0] == "0"
    assert not {"dagster", "pyspark", "rich"} & set(done)


def test_a_refused_create_loads_no_engine(exported: Path, source: str) -> None:
    refused = loaded(_HEAVY, "export", "create", "--source", source, "--to", exported.as_uri())
    assert refused[0] == "2"
    assert not {"dagster", "pyspark", "rich"} & set(refused)
