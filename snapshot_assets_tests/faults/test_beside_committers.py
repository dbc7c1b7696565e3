"""Verification of a large log on a local disk while other processes commit to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer

REVISIONS = 600
COMMITS = 500  # of each process: the log that is read stays bounded on every disk
OPENINGS = 30
NEVER = 1_000_000
COMMITTER = f"""
import sys
from snapshot_assets.catalog import catalog, rules
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

catalog.CHECKPOINT_INTERVAL = {NEVER}
opened = catalog.Catalog.open_for_writing(open_store(parse_location(sys.argv[1])))
token = opened.token()
print("ready", flush=True)
for _ in range({COMMITS}):
    opened.commit(rules.in_progress(token, [1], "run"))
"""


@contextmanager
def committers(count: int, uri: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Let processes commit; yield them when all have begun."""
    command = [sys.executable, "-c", COMMITTER, uri]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        assert all(process.stdout.readline() == "ready\n" for process in running)
        yield running
    finally:
        statuses = [(process.communicate(), process.returncode)[1] for process in running]
    assert statuses == [0] * count


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_healthy_log_is_whole_for_all_who_read_it_while_others_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint before the others' commits lets the log be opened often; verification reads all of it."""
    monkeypatch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", NEVER)
    writer = Writer(open_store(parse_location(f"file://{tmp_path}/location")))
    writer.begin()
    for _ in range(REVISIONS):
        writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    write_checkpoint(writer.store, writer.catalog.state)
    newest = read_state(writer.store).revision
    with committers(2, writer.store.uri) as running:
        while any(process.poll() is None for process in running):
            for _ in range(OPENINGS):
                before, newest = newest, read_state(writer.store).revision
                assert newest >= before
            assert [fault.message for fault in verify(writer.store, depth="quick").faults if fault.is_damage] == []
    assert read_state(writer.store).revision >= REVISIONS + 2 * COMMITS
