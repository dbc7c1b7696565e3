"""Exit statuses, by real processes, and the table that gives them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets import errors
from snapshot_assets.cli.exit_status import MEANINGS, ExitStatus, exit_status
from snapshot_assets.cli.options.parser import build_parser
from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots, in_own_process, make_source

DEAD = "127.0.0.1:1"


def flip_a_byte(location: Path) -> None:
    """Damage a data file, which keeps its size."""
    victim = max(location.glob("data/3/*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")


def unreachable(folder: Path) -> str:
    """Write a configuration whose S3 does not answer, and return its path."""
    file = folder / "snapshots.yaml"
    s3 = f"{{endpoint: 'http://{DEAD}', allow_http: true, retry_timeout: 1s, region: r, access_key_id: a,"
    file.write_text(f"storage: {{s3: {s3} secret_access_key: b}}}}\n")
    return str(file)


def ended(kind: str, *arguments: str) -> tuple[int, Result]:
    """Call a command in a process of its own; its JSON names the kind of error and the status that it ended with."""
    result = in_own_process(*arguments, "--json")
    error = result.json["error"]
    assert (error["kind"], error["exit_status"]) == (kind, result.status), result.err
    return result.status, result


def test_done_and_a_finding_that_is_no_error(exported: Path) -> None:
    call = ("--snapshot", exported.as_uri(), "--json")
    assert in_own_process("export", "verify", *call).status == 0
    flip_a_byte(exported)
    damaged = in_own_process("export", "verify", *call)
    assert (damaged.status, damaged.json["damaged"]) == (3, True)
    missing = in_own_process("tag", "exists", "friday", *call)
    assert (missing.status, missing.json["exists"]) == (5, False)


def test_errors_that_every_command_may_meet(exported: Path, tmp_path: Path) -> None:
    assert ended("UsageError", "catalog", "show", "--snapshot")[0] == 2
    assert ended("NoSnapshotError", "catalog", "show", "--snapshot", f"{exported.as_uri()}x")[0] == 5
    away = ("--config", unreachable(tmp_path), "--snapshot", "s3://bucket/prefix")
    assert ended("StoreUnavailableError", "catalog", "show", *away)[0] == 4


def test_an_interrupted_command(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = Path(unreachable(tmp_path))
        config.write_text(config.read_text().replace(DEAD, f"127.0.0.1:{server.getsockname()[1]}"))
        command = [sys.executable, "-m", "snapshot_assets", "catalog", "show", "--snapshot", "s3://bucket/prefix"]
        command += ["--config", str(config), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = server.accept()  # the command waits for an answer that never comes
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["exit_status"] == 130


@pytest.mark.slow
def test_databases_and_tags_that_are_not_there(exported: Path, source: str, location: Path, tmp_path: Path) -> None:
    here, dead = exported.as_uri(), f"postgresql://me@{DEAD}/db"
    new = ("--to", (tmp_path / "new").as_uri(), *RANGE)
    assert ended("DatabaseUnavailableError", "export", "create", "--source", dead, *new)[0] == 4
    assert ended("DatabaseUnavailableError", "copy", "SELECT 1", "--source", dead, *new[:2])[0] == 4
    assert ended("DatabaseUnavailableError", "import", "--from", here, "--target", dead)[0] == 4
    away = ("--config", unreachable(tmp_path), "--source", source, "--to", "s3://bucket/prefix", *RANGE)
    assert ended("StoreUnavailableError", "export", "create", *away)[0] == 4
    assert ended("VersionNotFoundError", "tag", "delete", "friday", "--snapshot", here)[0] == 5
    assert ended("PlanError", "catalog", "show", "--snapshot", here, "--at", "rev:x")[0] == 2
    assert ended("PlanError", "catalog", "show", "--snapshot", here, "--at", "ts:2025-02-30")[0] == 2


@pytest.mark.slow
def test_damage_that_commands_find(exported: Path, source: str, tmp_path: Path) -> None:
    flip_a_byte(exported)
    target = f"duckdb://{tmp_path / 'target.duckdb'}"
    load = ("import", "--from", exported.as_uri(), "--target", target)
    assert ended("DamageError", *load, "--verify-first")[0] == 3
    status, result = ended("RestoreFailedError", *load)  # by a chunk's task, through Spark and Dagster
    assert (status, "SHA-256" in result.err) == (3, True)
    [log] = exported.glob("transactions/*1.txn")
    log.write_bytes(b"?")
    assert in_own_process("catalog", "log", "--snapshot", exported.as_uri()).status == 3
    assert in_own_process("export", "list", "--location", exported.as_uri()).status == 3
    assert ended("TornObjectError", "catalog", "show", "--snapshot", exported.as_uri())[0] == 3


@pytest.mark.parametrize(
    ("lost", "command"),
    [
        ("data/*/main.readings*", ("sql", "FROM readings")),
        ("data/*/main.readings*", ("sql", "--no-verify", "--format", "csv", "FROM readings")),
        ("schema/*/tables.json", ("sql", "FROM readings")),
        ("schema/*/tables.json", ("catalog", "compact")),
        ("schema/*/tables.json", ("iceberg",)),
    ],
)
def test_a_lost_object_is_damage_and_the_message_names_what_finds_all(
    snapshots: Snapshots, exported: Path, lost: str, command: tuple[str, ...]
) -> None:
    for file in exported.glob(lost):
        file.unlink()
    done = snapshots(*command, "--snapshot", exported.as_uri())
    assert (done.status, done.out) == (3, "")
    assert "There is no object file:" in done.err
    assert f"`snapshots export verify --snapshot {exported.as_uri()}` names all that is damaged." in done.err


@pytest.mark.slow
def test_work_that_fails_or_is_not_confirmed(exported: Path, location: Path, tmp_path: Path) -> None:
    bad = make_source(tmp_path / "bad.duckdb", "CREATE VIEW risky AS SELECT moment, 'x'::BIGINT AS n FROM readings")
    call = ("--source", bad, "--to", (tmp_path / "new").as_uri(), "--tables", "main.risky", *RANGE)
    assert ended("ExportFailedError", "export", "create", *call)[0] == 1
    verified = in_own_process("export", "verify", "--snapshot", (tmp_path / "new").as_uri(), "--json")
    assert (verified.status, verified.json["sealed"]) == (3, False)
    command = [sys.executable, "-m", "snapshot_assets", "export", "delete"]
    environment = os.environ | {"SNAPSHOTS_LOCATION": exported.as_uri()}
    for answer in ("no\n", ""):
        asked = subprocess.run(command, env=environment, input=answer, capture_output=True, text=True, check=False)
        assert (asked.returncode, "Nothing was deleted" in asked.stderr) == (1, True)
        assert ("There was no answer; --yes gives it beforehand." in asked.stderr) == (answer == "")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.SnapshotError("x"), 1),
        (errors.StoreDeniedError("x"), 4),
        (errors.StoreFullError("x"), 4),
        (errors.LocationUnusableError("x"), 4),
        (errors.LocationIsFileError("x"), 2),
        (errors.PinnedError("x"), 2),
        (errors.RefusedImportError("x"), 2),
        (errors.VersionNotFoundError("x"), 5),
        (errors.LostLogError("x"), 3),
        (errors.NotAFileError("x"), 3),
        (errors.ReplicaConflictError("x"), 1),
        (errors.ReplicaLossError("x"), 3),
        (errors.InterruptedRunError("x"), 130),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 1),
        (errors.ExportFailedError("x", causes=["DatabaseUnavailableError", "StoreUnavailableError"]), 4),
        (errors.ExportFailedError("x", causes=["DatabaseUnavailableError", "CarrierError"]), 1),
        (errors.RestoreFailedError("x", causes=["OfAnotherModule"]), 1),
    ],
    ids=repr,
)
def test_an_error_has_the_status_of_its_nearest_class(error: BaseException, status: int) -> None:
    assert exit_status(error) == status


def test_help_and_readme_name_every_status() -> None:
    documents = build_parser().format_help(), Path(__file__).parents[2].joinpath("README.md").read_text()
    shown = [" ".join(text.split()) for text in documents]
    assert MEANINGS.keys() == set(ExitStatus)
    assert [meaning for meaning in MEANINGS.values() for text in shown if meaning not in text] == []
