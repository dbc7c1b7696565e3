"""Temporary files that killed writers left on the local disk: counted, collected, and deleted with the snapshot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import is_temporary, tag_path, transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import NOW, wait_for_clock

GRACE = timedelta(microseconds=HEADER.grace)
WRITTEN = (
    "SHA256SUMS",
    "comparison/20261124T024454Z-unfinished-01234567.json",
    "data/0/chunk-01234567.json",
    "data/12/main.m-01234567-0000.parquet",
    "savepoint/savepoint-1-01234567",
    "schema/0123456789ab/tables.json",
    tag_path("x", "01234567"),
    transaction_path(99),
    "verification/20261124T024454Z-full-all-01234567.json",
)


@pytest.fixture
def left(sealed: Writer) -> dict[str, Path]:
    """What killed writers left in every folder that the driver writes to."""
    root = parse_location(sealed.store.uri).local_path
    found = {f"{os.path.dirname(path)}/.tmp-0123456789abcdef".lstrip("/"): root for path in WRITTEN}
    for path in found:
        found[path] = root / path
        found[path].parent.mkdir(parents=True, exist_ok=True)
        found[path].write_bytes(b"1234")
    assert {info.path for info in sealed.store.temporaries()} == found.keys()
    return found


def age(path: Path) -> None:
    then = time.time() - 2 * GRACE.total_seconds()
    os.utime(path, (then, then))


def test_temporary_files_are_counted_and_are_no_damage(sealed: Writer, left: dict[str, Path]) -> None:
    for depth in ("quick", "full"):
        report = verify(sealed.store, depth=depth)
        assert (report.faults, report.temporary_files, report.temporary_bytes) == ([], len(left), 4 * len(left))


def test_temporary_files_are_collected_once_they_are_older_than_the_grace_period(
    sealed: Writer, left: dict[str, Path]
) -> None:
    *old, young = left
    for path in old:
        age(left[path])
    with sealed.store.open_writer("data/1/main.m-89abcdef-0000.parquet") as writer:
        writer.write(b"alive")
        found = plan_collection(sealed.catalog)
        assert {each.path: each.reason for each in found.deleted} == dict.fromkeys(old, "temporary")
        assert young in {each.path for each in found.waiting if each.reason == "temporary"}
        assert all(path.exists() for path in left.values())
        assert collect_garbage(sealed.catalog).deleted == found.deleted
        assert [path for path in left if left[path].exists()] == [young]
    assert sealed.store.get("data/1/main.m-89abcdef-0000.parquet") == b"alive"
    wait_for_clock(sealed.store, sealed.catalog.state.committed_at)
    assert collect_garbage(sealed.catalog, grace=NOW, unsafe=True).deleted
    assert list(sealed.store.temporaries()) == []
    assert verify(sealed.store).faults == []


def test_a_deletion_takes_temporary_files_of_any_age_with_it(sealed: Writer, left: dict[str, Path]) -> None:
    assert delete_snapshot(sealed.store).temporary == len(left)
    assert list(parse_location(sealed.store.uri).local_path.rglob("*")) == []


def test_temporary_files_in_other_folders_are_not_touched(sealed: Writer) -> None:
    """They may be those of a location below this one."""
    root = parse_location(sealed.store.uri).local_path
    others = ["nested/transactions/.tmp-0123456789abcdef", "data/x/.tmp-0123456789abcdef", "data/.tmp-0123456789abcdef"]
    for path in others:
        assert not is_temporary(path)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"theirs")
        age(root / path)
    assert verify(sealed.store).temporary_files == 0
    assert collect_garbage(sealed.catalog, grace=NOW, unsafe=True).deleted == ()
    assert delete_snapshot(sealed.store).temporary == 0
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) == sorted(others)


_WRITING = """
import sys
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
with open_store(parse_location(sys.argv[1])).open_writer(sys.argv[2]) as writer:
    writer.write(b"some rows")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_what_a_writer_leaves_that_is_killed_in_a_file_is_counted_collected_and_deleted(sealed: Writer) -> None:
    path = "data/2/day=1/main.m-89abcdef-0000.parquet"
    command = [sys.executable, "-c", _WRITING, sealed.store.uri, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"written\n"
        killed.kill()
    assert killed.returncode == -signal.SIGKILL
    [left] = [info.path for info in sealed.store.temporaries()]
    assert left.startswith(f"{os.path.dirname(path)}/.tmp-")
    assert verify(sealed.store).temporary_files == 1
    assert [each.path for each in plan_collection(sealed.catalog).waiting] == [left]
    wait_for_clock(sealed.store, sealed.catalog.state.committed_at)
    assert [each.path for each in collect_garbage(sealed.catalog, grace=NOW, unsafe=True).deleted] == [left]
    assert verify(sealed.store).temporary_files == 0
    (parse_location(sealed.store.uri).local_path / left).parent.mkdir(parents=True, exist_ok=True)
    (parse_location(sealed.store.uri).local_path / left).write_bytes(b"another")
    assert delete_snapshot(sealed.store).temporary == 1
    assert list(sealed.store.temporaries()) == []
