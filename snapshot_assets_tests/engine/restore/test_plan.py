"""The plan of a restore: storage is read for it once, and everything later shares it."""

from __future__ import annotations

from collections import Counter

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.engine.restore import pin as restore_pins
from snapshot_assets.format.layout import SCHEMA_FILES
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.faults.store import FaultyStore


def test_a_restore_reads_the_log_once_and_documents_twice(
    exported: Place, duck: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_pins, "pin", lambda *_: None)  # a tag's manifest is made from the log
    monkeypatch.setattr(restore_pins, "unpin", lambda *_: None)
    store = FaultyStore(exported.store)
    done = duck.restore(store)
    assert done.finished
    done.run.check_counts()
    reads = Counter(store.trace)
    assert reads["get transactions/revision.txn"] == read_state(exported.store).revision
    assert reads["get schema"] == 2 * len(SCHEMA_FILES)  # verification hashes them, then they are parsed


def test_the_plan_follows_the_ledger_without_reading_the_location(exported: Place, duck: Into) -> None:
    run = duck.run(exported.store)
    planned = run.prepare()
    assert (planned.resumed, planned.finished, bool(planned.loads)) == (False, False, True)
    duck.restore(exported.store, [1, 2])
    run.store = FaultyStore(exported.store)
    current = run.current()
    assert (current.resumed, current.finished) == (True, False)
    assert {entry.chunk for entry in current.ledger.loaded} == {1, 2}
    assert run.store.trace == []
    assert not planned.ledger.loaded  # a plan does not change
