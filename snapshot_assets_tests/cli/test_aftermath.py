"""What commands say of a location after a kill, a loss or damage: where, which object, and what repairs it."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, contents, export, make_plan, make_source, store_of

_SHA256 = 32
_REBUILD = "`snapshots catalog rebuild"
_READERS = (
    "export verify",
    "export list",
    "export delete --yes",
    "export diff --from rev:1 --to rev:4",
    "catalog log",
    "catalog show",
    "catalog table files",
    "catalog gc --yes",
    "catalog expire --keep-last 1 --yes",
    "catalog checkpoint",
    "catalog prune --yes",
    "catalog rollback rev:4 --yes",
    "catalog tombstone --table main.sensors --where id=1 --yes",
    "tag list",
    "tag create nightly",
    "savepoint list",
    "status",
    "replicate --to {other}",
    "import --target duckdb:///{folder}/target.duckdb --dry-run",
)
_KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from snapshot_assets.catalog import catalog
from snapshot_assets.format import actions as act
from snapshot_assets_tests.cli.helpers import export, make_plan, store_of
append = catalog.append
def kill(store, transaction, **options):
    if any(isinstance(action, act.AddFile) for action in transaction.actions):
        os.kill(os.getpid(), signal.SIGKILL)
    return append(store, transaction, **options)
catalog.append = kill
location = Path(sys.argv[2])
export(make_plan(sys.argv[1], location.as_uri()), store_of(location))
"""


def _flip(data: bytes) -> bytes:
    return bytes((data[0] ^ 1, *data[1:]))


@pytest.fixture
def damaged(exported: Path, request: pytest.FixtureRequest) -> Path:
    """A location whose third transaction has other bytes."""
    change: Callable[[bytes], bytes] = getattr(request, "param", _flip)
    path = exported / transaction_path(3)
    path.write_bytes(change(path.read_bytes()))
    return exported


@pytest.mark.parametrize("command", _READERS)
def test_each_command_names_the_location_the_damaged_transaction_and_the_rebuild(
    snapshots: Snapshots, damaged: Path, tmp_path: Path, command: str
) -> None:
    before = contents(damaged)
    words = command.format(other=(tmp_path / "other").as_uri(), folder=tmp_path).split()
    shown = snapshots(*words, "--snapshot", damaged.as_uri())
    text = shown.out + shown.err
    assert shown.status == ExitStatus.DAMAGED, text
    assert damaged.as_uri() in text
    assert transaction_path(3) in text
    assert text.count(_REBUILD) == 1
    changed = {path for path, data in contents(damaged).items() if before.get(path) != data}
    assert all("/verification/" in path for path in changed)


@pytest.mark.parametrize(
    "damaged",
    [_flip, lambda data: data[:-1], lambda _: b"", lambda _: b"PK\x03\x04 of another program" * 9],
    ids=["flipped", "cut", "empty", "foreign"],
    indirect=True,
)
def test_every_kind_of_damage_to_a_transaction_is_named(snapshots: Snapshots, damaged: Path) -> None:
    shown = snapshots("status", "--snapshot", damaged.as_uri())
    assert shown.status == ExitStatus.DAMAGED
    assert all(each in shown.err for each in (damaged.as_uri(), transaction_path(3), _REBUILD))


def test_replication_writes_a_torn_transaction_of_a_replica_again(
    snapshots: Snapshots, exported: Path, tmp_path: Path
) -> None:
    replica = tmp_path / "replica"
    replicate = ("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    assert snapshots(*replicate).status == ExitStatus.DONE
    (replica / transaction_path(3)).write_bytes(b"")
    refused = snapshots("status", "--snapshot", replica.as_uri())
    assert "`snapshots replicate` writes it again" in refused.err
    assert snapshots(*replicate).status == ExitStatus.DONE
    assert snapshots("export", "verify", "--snapshot", replica.as_uri()).status == ExitStatus.DONE


def test_the_remedy_for_a_gap_in_the_log_of_a_replica_repairs_it(
    snapshots: Snapshots, exported: Path, tmp_path: Path
) -> None:
    replica = tmp_path / "replica"
    replicate = ("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    assert snapshots(*replicate).status == ExitStatus.DONE
    (replica / transaction_path(3)).unlink()
    for command in (("status", "--snapshot", replica.as_uri()), replicate):
        refused = snapshots(*command)
        assert "Move the replica's `transactions/` away, then run `snapshots replicate` again" in refused.err
        assert _REBUILD not in refused.err
    (replica / "transactions").rename(tmp_path / "away")
    assert snapshots(*replicate).status == ExitStatus.DONE
    assert snapshots("export", "verify", "--snapshot", replica.as_uri()).status == ExitStatus.DONE


def test_a_location_whose_log_is_lost_is_listed_and_not_deleted(snapshots: Snapshots, exported: Path) -> None:
    shutil.copytree(exported, exported.parent / "whole")
    shutil.rmtree(exported / "transactions")
    for uri in (exported.as_uri(), exported.parent.as_uri()):
        listed = snapshots("export", "list", "--snapshot", uri, "--json")
        assert listed.status == ExitStatus.DAMAGED
        [lost] = [each for each in listed.json if each["status"] == "unreadable"]
        assert lost["uri"] == exported.as_uri()
        assert f"the log was lost. Bring it back from a copy, or else rebuild the log with {_REBUILD}" in lost["error"]
    before = contents(exported)
    refused = snapshots("export", "delete", "--snapshot", exported.as_uri(), "--yes")
    assert refused.status == ExitStatus.DAMAGED
    assert f"the log was lost. Bring it back from a copy, or else rebuild the log with {_REBUILD}" in refused.err
    assert contents(exported) == before


def test_folders_of_other_programs_are_no_lost_locations(snapshots: Snapshots, tmp_path: Path) -> None:
    for path in ("app/manifest.json", "lake/data/1/part-0.parquet", "bank/transactions/2024.csv"):
        (tmp_path / "root" / path).parent.mkdir(parents=True)
        (tmp_path / "root" / path).write_text("{}")
    listed = snapshots("export", "list", "--snapshot", (tmp_path / "root").as_uri())
    assert (listed.status, listed.out) == (ExitStatus.DONE, "")
    for name in ("app", "lake", "bank"):
        deleted = snapshots("export", "delete", "--snapshot", (tmp_path / "root" / name).as_uri(), "--yes")
        assert deleted.status == ExitStatus.NOT_FOUND


def test_a_location_that_is_a_file_is_named_as_one(snapshots: Snapshots, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    shown = snapshots("export", "verify", "--snapshot", (tmp_path / "file").as_uri())
    assert shown.status == ExitStatus.WRONG_CALL
    assert "is a file, or below one, and a location is a folder" in shown.err


@pytest.mark.parametrize("folder", ["file", "file/below", "link/below"])
def test_a_location_whose_folder_cannot_be_created_is_named(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "link").symlink_to("/proc/nothing")  # `/proc` takes no folders
    to = tmp_path / folder
    reason, status = "is a file, or below one", ExitStatus.WRONG_CALL
    if "link" in folder:
        reason, status = "cannot be created: No such file", ExitStatus.UNREACHABLE
    for call in (
        ("replicate", "--snapshot", exported.as_uri(), "--to", to.as_uri()),
        ("export", "create", "--source", source, "--to", to.as_uri(), *RANGE),
    ):
        found = snapshots(*call)
        assert (found.status, found.out) == (status, "")
        assert f"{to} {reason}" in found.err


def test_an_import_of_an_unfinished_export_names_the_command_that_finishes_it(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    export(make_plan(source, location.as_uri()), store_of(location), chunks=[1, 2])
    refused = snapshots("import", "--from", location.as_uri(), "--target", f"duckdb:///{tmp_path}/target.duckdb")
    assert refused.status == ExitStatus.DAMAGED
    assert "2 of 4 chunks are not exported" in refused.err
    assert f"`snapshots export create --snapshot {location.as_uri()}`" in refused.err


def test_an_import_counts_no_chunk_without_rows(snapshots: Snapshots, tmp_path: Path, location: Path) -> None:
    source = make_source(tmp_path / "timed.duckdb", "DROP TABLE sensors")
    export(make_plan(source, location.as_uri()), store_of(location), chunks=[0, 1, 2])
    refused = snapshots("import", "--from", location.as_uri(), "--target", f"duckdb:///{tmp_path}/target.duckdb")
    assert "1 of 3 chunks is not exported" in refused.err


def _newer(exported: Path) -> None:
    manifest = exported / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))


def test_a_newer_manifest_beside_a_whole_log_gets_one_advice_which_helps(snapshots: Snapshots, exported: Path) -> None:
    _newer(exported)
    shown = snapshots("export", "verify", "--snapshot", exported.as_uri())
    assert shown.status == ExitStatus.DAMAGED
    assert "Use a newer" not in shown.out
    assert (
        "manifest.json has format version 2; the log, which decides, has 1. `snapshots catalog repair --snap"
        in shown.out
    )
    assert snapshots("catalog", "repair", "--snapshot", exported.as_uri()).status == ExitStatus.DONE
    assert snapshots("export", "verify", "--snapshot", exported.as_uri()).status == ExitStatus.DONE


@pytest.mark.parametrize("left", [("data", "schema"), ()])
@pytest.mark.parametrize("command", ["export verify", "export list", "catalog rebuild --accept-undeleted"])
def test_a_newer_manifest_without_its_log_needs_a_newer_program_alone(
    snapshots: Snapshots, exported: Path, left: tuple[str, ...], command: str
) -> None:
    _newer(exported)
    for name in {"data", "schema", "transactions"}.difference(left):
        shutil.rmtree(exported / name)
    before = contents(exported)
    shown = snapshots(*command.split(), "--snapshot", exported.as_uri())
    assert shown.status in (ExitStatus.FAILED, ExitStatus.DAMAGED)
    assert "Use a newer snapshot_assets." in shown.err
    assert "rebuild" not in shown.err
    assert contents(exported) == before


def test_a_newer_log_is_named_with_its_location_and_gets_no_rebuild(snapshots: Snapshots, exported: Path) -> None:
    path = exported / transaction_path(4)
    message = pb.Transaction.FromString(path.read_bytes()[:-_SHA256])
    message.version = 2
    body = message.SerializeToString(deterministic=True)
    path.write_bytes(body + hashlib.sha256(body).digest())
    shown = snapshots("status", "--snapshot", exported.as_uri())
    assert exported.as_uri() in shown.err
    assert "Use a newer snapshot_assets." in shown.err
    assert "rebuild" not in shown.err


def test_verify_says_that_the_next_run_adopts_what_a_killed_one_finished(
    snapshots: Snapshots, source: str, location: Path
) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, source, str(location)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    shown = snapshots("export", "verify", "--snapshot", location.as_uri(), "--json")
    assert shown.status == ExitStatus.DAMAGED
    assert [fault["kind"] for fault in shown.json["faults"]] == ["uncommitted"] * 4
    assert all(
        "The next run of `snapshots export create` adopts it" in each["message"] for each in shown.json["faults"]
    )
    collected = snapshots("catalog", "gc", "--snapshot", location.as_uri(), "--grace", "0s", "--unsafe", "--yes")
    assert "0 objects" in collected.out
    outcomes = export(make_plan(source, location.as_uri()), store_of(location))
    assert {outcome.status for outcome in outcomes} == {"adopted"}


def test_verify_tells_what_the_next_run_adopts_from_what_is_garbage(
    snapshots: Snapshots, source: str, location: Path
) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, source, str(location)], env=os.environ, check=False)
    [receipt] = (location / "data" / "1").glob("chunk-*.json")
    receipt.unlink()
    faults = snapshots("export", "verify", "--snapshot", location.as_uri(), "--json").json["faults"]
    messages = {fault["chunk"]: fault["message"] for fault in faults if fault["kind"] == "uncommitted"}
    assert messages.keys() == {0, 2, 3}
    [orphan] = [fault["message"] for fault in faults if fault["kind"] == "orphan"]
    assert "data/1/main.readings-" in orphan
    assert "garbage collection removes it once it is older than the grace period of 1d" in orphan
    outcomes = {each.chunk: each.status for each in export(make_plan(source, location.as_uri()), store_of(location))}
    assert outcomes == {0: "adopted", 1: "exported", 2: "adopted", 3: "adopted"}
