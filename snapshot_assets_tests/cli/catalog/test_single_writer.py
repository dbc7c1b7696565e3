"""Catalog commands on a store without conditional creates, which only a single writer may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.cli import location as opened
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.cli.helpers import Snapshots, store_of
from snapshot_assets_tests.storage.test_probe import Refusing

NOW = ("--grace", "0s", "--unsafe", "--yes")
COMMANDS = {
    "checkpoint": (),
    "gc": NOW,
    "prune": NOW,
    "tombstone": ("--table", "main.readings", "--where", "value < 3", "--yes"),
    "rebuild": ("--accept-undeleted",),
    "upgrade": (),
}


@pytest.fixture
def refusing(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An exported location whose store takes no conditional creates."""
    open_store = opened.open_store

    def refuse(*given: Any) -> ObjectStore:
        store: Any = Refusing(open_store(*given))
        return store

    monkeypatch.setattr(opened, "open_store", refuse)
    return exported


@pytest.mark.parametrize("command", COMMANDS)
def test_who_promises_to_be_alone_may_write(snapshots: Snapshots, refusing: Path, command: str) -> None:
    if command == "rebuild":
        (refusing / "manifest.json").unlink()
        for path in (refusing / "transactions").iterdir():
            path.unlink()
    call = ("catalog", command, "--snapshot", refusing.as_uri(), *COMMANDS[command])
    refused = snapshots(*call)
    assert refused.status != 0
    assert "501" in refused.err
    done = snapshots(*call, "--single-writer")
    assert (done.status, done.err) == (0, "")
    assert read_state(store_of(refusing)).sealed == (command != "rebuild")


def test_who_promises_to_be_alone_may_delete_the_snapshot(snapshots: Snapshots, refusing: Path) -> None:
    call = ("export", "delete", "--snapshot", refusing.as_uri(), "--yes")
    refused = snapshots(*call)
    assert (refused.status, "501" in refused.err) == (1, True)
    assert snapshots(*call, "--single-writer").status == 0
    assert not list(refusing.rglob("*.parquet"))


def test_a_compaction_needs_the_promise_before_it_starts(snapshots: Snapshots, refusing: Path) -> None:
    refused = snapshots("catalog", "compact", "--snapshot", refusing.as_uri(), "--chunk", "1")
    assert (refused.status, "501" in refused.err) == (1, True)
