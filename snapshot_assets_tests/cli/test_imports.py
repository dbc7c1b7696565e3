"""What commands load: those that move no data answer without Dagster, Spark and DuckDB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import RANGE

_HEAVY = ("dagster", "pyspark", "duckdb", "adbc_driver_manager", "rich")
_PROBE = """
import json, sys
from snapshot_assets.cli import main
names, *calls = json.loads(sys.argv[1])
for call in calls:
    try:
        status = main(call)
    except SystemExit as ended:
        status = ended.code
    print(status, *[name for name in names if name in sys.modules], file=sys.stderr)
"""


def loaded(names: tuple[str, ...], *calls: list[str]) -> list[list[str]]:
    """Make calls in one fresh process, and return after each its status and the modules that are loaded."""
    probe = [sys.executable, "-c", _PROBE, json.dumps([names, *calls])]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stderr.splitlines() if line[:1].isdigit()]


def test_help_loads_nothing_of_weight() -> None:
    heavy = (*_HEAVY, "pydantic", "pyarrow", "obstore", "google.protobuf", "yaml")
    commands = ("", "export list", "export create", "catalog", "catalog gc", "tag create", "savepoint create")
    calls = [[*command.split(), "--help"] for command in commands]
    assert loaded(heavy, *calls, ["--version"]) == [["0"]] * (len(calls) + 1)


def test_commands_load_only_what_they_need(exported: Path, source: str, tmp_path: Path) -> None:
    copy = shutil.copytree(exported, tmp_path / "copy")
    commands = (
        *(f"catalog {name}" for name in ("log", "checkpoint", "gc", "prune")),
        *("tag create x", "export verify", "status", "tag delete x --yes"),
    )
    tables = ("catalog show", "tag list", "savepoint list", "export list", "export delete --yes")
    calls = [[*command.split(), "--snapshot", copy.as_uri()] for command in (*commands, *tables)]
    savepoint = ["savepoint", "create", "--snapshot", exported.as_uri()]
    refused = ["export", "create", "--source", source, "--to", exported.as_uri(), "--start-time", "2024-01-01"]
    *done, saved, created = loaded(_HEAVY, *calls, savepoint, refused)
    named = dict(zip((*commands, *tables), done, strict=True))
    assert {command: each for command, each in named.items() if each != ["0"] and command in commands} == {}
    assert {command: each for command, each in named.items() if each != ["0", "rich"] and command in tables} == {}
    assert (saved[0], created[0]) == ("0", "2")  # there is nothing to compact, and the range differs
    assert not {"dagster", "pyspark"} & {*saved, *created}


def test_an_export_needs_dagster_only_where_an_instance_is_configured(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    export = ["export", "create", "--source", source, "--to", (tmp_path / "to").as_uri(), *RANGE]
    restore = ["import", "--from", (tmp_path / "to").as_uri(), "--target", f"duckdb://{tmp_path}/restored.duckdb"]
    assert loaded(("dagster",), export, restore) == [["0"], ["0"]]
    assert not (tmp_path / "state").exists()
