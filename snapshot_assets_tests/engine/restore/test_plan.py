"""The plan of a restore: storage is read for it once, and everything later shares it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.open import open_target
from snapshot_assets.errors import TargetNotEmptyError
from snapshot_assets.format.layout import SCHEMA_FILES
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.faults.store import FaultyStore


def test_a_restore_reads_the_log_once_and_documents_twice(
    exported: Place, duck: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pin", "unpin"):  # a tag's manifest is made from the log
        monkeypatch.setattr(f"snapshot_assets.engine.restore.run.{name}", lambda *_: None)
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


@pytest.mark.slow
def test_a_ledger_that_is_dropped_after_the_plan_was_made_makes_the_rows_those_of_others(
    imported: Place, duck: Into
) -> None:
    """A person may confirm a plan long after it was made."""
    forget(duck)
    for table in duck.tables():  # which existed before a restore that is cut off
        execute(duck, f"DELETE FROM main.{table}")
    duck.restore(imported.store, [1], finish=False)
    run = duck.run(imported.store)
    run.prepare()
    before = duck.tables()
    forget(duck)
    with pytest.raises(TargetNotEmptyError, match="readings"):
        run.begin()
    assert (duck.imports(), duck.tables()) == ([], before)


def forget(duck: Into) -> None:
    with closing(open_target(duck.address)) as target:
        target.forget()


def test_a_restore_that_created_the_tables_after_the_plan_was_made_is_resumed(exported: Place, duck: Into) -> None:
    run = duck.run(exported.store)
    run.prepare()
    others = duck.restore(exported.store, [1], finish=False)
    assert run.begin().record.id == others.plan.record.id
    assert 1 not in {each.chunk for each in run.restore() if each.rows}
    assert run.finish()
