"""`catalog recover` and `catalog gc --versions`: what they print and ask, and how they end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.catalog.attacks import second_later, snapshot_at
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.servers.locked import LockedBucket
from snapshot_assets_tests.servers.s3 import variables_of


@pytest.fixture
def attacked(lockable: LockedBucket, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """A location in a bucket that keeps versions, with a hidden transaction."""
    for name, value in variables_of(lockable.options).items():
        monkeypatch.setenv(name, value)
    writer = snapshot_at(lockable.store())
    second_later()
    writer.store.delete(transaction_path(3))
    return writer


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_a_location_is_recovered_by_what_verify_prints(
    snapshots: Snapshots, lockable: LockedBucket, attacked: Writer, tmp_path: Path
) -> None:
    uri = lockable.uri
    found = snapshots("export", "verify", "--snapshot", uri, "--depth", "quick")
    assert found.status == 3
    line = next(line for line in found.out.splitlines() if "altered" in line)
    assert f"--snapshot {uri}` brings all back" in line
    command = [*line.partition("`snapshots ")[2].partition("`")[0].split()]
    dry = snapshots(*command, "--dry-run")
    assert (dry.status, dry.out.splitlines()[1].split(",")[0]) == (0, "  hidden: 1 object")
    assert ", would be written here" in snapshots(*command, "--dry-run", "--to", f"file://{tmp_path}/clean/shop").out
    within = snapshots(*command, "--dry-run", "--to", f"{uri}/clean")
    assert (within.status, f"{uri}/clean overlaps {uri}" in within.err) == (2, True)
    refused = snapshots(*command)
    assert (refused.status, "Nobody else may write meanwhile" in refused.err) == (1, True)
    copied = snapshots(*command, "--to", f"file://{tmp_path}/clean/shop", "--yes", "--json")
    assert (copied.json["recovered"], copied.json["damage"], copied.json["sealed"]) == (True, [], True)
    assert (tmp_path / "clean/shop" / transaction_path(3)).is_file()
    again = snapshots(*command, "--to", f"file://{tmp_path}/clean/shop", "--yes", "--json")
    assert (again.status, again.json["copied"]["objects"]) == (0, 0)
    done = snapshots(*command, "--yes")
    assert done.status == 0
    assert done.out.splitlines()[-1] == f"OK: {uri} at revision 10, every byte read; the newest seal holds"
    assert snapshots("export", "verify", "--snapshot", uri).status == 0


def test_a_recovery_that_leaves_damage_has_exit_status_3(
    snapshots: Snapshots, lockable: LockedBucket, attacked: Writer
) -> None:
    path = next(known.file.path for known in attacked.catalog.state.live_files(1))
    for each in lockable.versions():
        if each.path == path:
            lockable.bucket().delete_version(path, each.version)
    done = snapshots("catalog", "recover", "--snapshot", lockable.uri, "--before", now(), "--yes")
    assert done.status == 3
    assert f"  no version: {path}" in done.out


def test_old_versions_are_collected_after_a_confirmation(
    snapshots: Snapshots, lockable: LockedBucket, attacked: Writer
) -> None:
    where = ("--snapshot", lockable.uri)
    assert snapshots("catalog", "recover", *where, "--before", now(), "--yes").status == 0
    second_later()
    call = ("catalog", "gc", "--versions", *where, "--grace", "0s", "--unsafe")
    dry = snapshots(*call, "--dry-run", "--json").json
    assert (dry["deleted"], dry["retained"], dry["objects"] > 2) == (False, [], True)
    assert snapshots(*call).status == 1
    done = snapshots(*call, "--yes")
    assert (done.status, done.out.startswith("old version: ")) == (0, True)


def test_a_location_that_is_hidden_is_altered_and_a_deleted_one_is_not(
    snapshots: Snapshots, lockable: LockedBucket, attacked: Writer
) -> None:
    for info in attacked.store.list():
        attacked.store.delete(info.path)
    where = ("--snapshot", lockable.uri)
    found = snapshots("export", "verify", *where)
    assert (found.status, "altered: transactions/" in found.out) == (3, True)
    assert snapshots("catalog", "recover", *where, "--before", now(), "--yes").status == 0
    assert snapshots("export", "delete", *where, "--with-tags", "--yes").status == 0
    assert snapshots("export", "verify", *where).status == 5
