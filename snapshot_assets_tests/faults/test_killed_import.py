"""Killed at any moment of an import: the next run ends with every row there exactly once, keys or no keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.faults.conftest import by_kind, spread
from snapshot_assets_tests.faults.source import location

pytestmark = pytest.mark.slow

CHANGES = ("create", "delete", "execute", "insert", "rows recording")
"""Calls that change what lies at the location or in the target."""
STORAGE = ("get", "list", "head", "put", "create", "delete t", "open_reader")
"""Calls to the location."""


@dataclass
class Restoring:
    """A sealed snapshot and a target that is emptied before every strike."""

    driver: Any
    source: str
    snapshot: str
    target: str
    trace: list[str]

    @property
    def number(self) -> int:
        """Each kind of target is struck in other cases."""
        return 0 if self.target.startswith("duckdb:") else 1

    def checkpoint(self) -> None:
        """Write a checkpoint, so that every run reads the same amount of log."""
        store = open_store(parse_location(self.snapshot))
        write_checkpoint(store, read_state(store))

    def clear(self) -> None:
        if self.target.startswith("duckdb:"):
            for path in Path(self.target.removeprefix("duckdb://")).parent.glob("target.duckdb*"):
                path.unlink()
            return
        with client(self.target) as run:
            run("DROP SCHEMA IF EXISTS main CASCADE")
            run("DROP SCHEMA IF EXISTS snapshot_assets_ledger CASCADE")

    def restore(self, **settings: Any) -> dict[str, Any]:
        [result] = self.driver.run({"job": "restore", "location": self.snapshot, "target": self.target, **settings})
        return result

    def compared(self) -> dict[str, Any]:
        """Compare the target with the source, and return what imports left at the location."""
        job = {"job": "compare", "source": self.source, "location": self.snapshot, "target": self.target}
        [found] = self.driver.run(job)
        return found

    def assert_whole(self, what: str) -> None:
        """Check that no row is missing or doubled, and that the import left one record and no tag."""
        found = self.compared()
        assert found == {"signal": 0, "differences": {}, "tags": [], "imports": 1}, f"{what}: {found}"

    def strike(self, kind: str, at: int) -> None:
        """Kill an import at one call, and hold the next run to its promises."""
        self.clear()
        what = f"{kind} call {at}, {self.trace[at - 1]}"
        killed = self.restore(fault={"kind": kind, "at": at})
        assert killed["signal"] == 9, f"{what}: {killed}"
        after = self.restore()
        assert after.get("finished"), f"{what}: {after.get('message')} {after.get('crash')}"
        self.assert_whole(what)


@pytest.fixture(scope="module", params=["duckdb", "postgresql"])
def restoring(request, driver, source, scratch, postgresql_module_database) -> Restoring:
    snapshot = location(scratch / f"snapshot to {request.param}")
    assert "sealed" in driver.export(source, snapshot)
    target = f"duckdb://{scratch}/target.duckdb" if request.param == "duckdb" else postgresql_module_database
    found = Restoring(driver, source, snapshot, target, [])
    found.clear()
    result = found.restore()
    assert result.get("finished"), result
    found.assert_whole("without a strike")
    found.trace = result["trace"]
    return found


def kind_of(call: str) -> str:
    """Return a call without its file or table."""
    return " ".join(call.split()[:2])


@pytest.mark.timeout(1800)
def test_killed_before_the_first_and_after_the_last_change_of_every_kind_the_next_run_finishes(restoring):
    cases = [
        case
        for numbers in by_kind([kind_of(call) for call in restoring.trace], CHANGES).values()
        for case in (("kill-before", numbers[0]), ("kill-after", numbers[-1]))
    ]
    for kind, at in spread(cases, restoring.number):
        restoring.strike(kind, at)


@pytest.mark.timeout(1800)
def test_a_storage_call_of_every_kind_that_fails_leaves_an_import_that_the_next_run_finishes(restoring):
    """The last one of each kind; calls to the target are struck by a kill only."""
    cases = [
        (kind, call, calls[-1])
        for call, calls in by_kind(restoring.trace, STORAGE).items()
        for kind in (("fail-before", "fail-after") if call.startswith(CHANGES) else ("fail-before",))
    ]
    assert len(cases) > 5
    for kind, call, at in spread(cases, restoring.number):
        restoring.clear()
        what = f"{kind} call {at}, {call}"
        result = restoring.restore(fault={"kind": kind, "at": at})
        assert result["signal"] == 0, what
        assert result.get("finished") or "SnapshotError" in result["error"], f"{what}: {result}"
        assert restoring.restore().get("finished"), what
        restoring.assert_whole(what)


def test_killed_while_a_window_is_replaced_the_window_is_the_old_or_the_new_one(restoring):
    restoring.clear()
    assert restoring.restore()["finished"]
    restoring.checkpoint()
    trace = restoring.restore(chunks=[2], again=True)["trace"]
    first = next(at for at, call in enumerate(trace, 1) if "deleting the rows" in call)
    kills = 0
    for at in range(first, len(trace) + 1, 7):
        restoring.checkpoint()
        killed = restoring.restore(chunks=[2], again=True, fault={"kind": "kill-before", "at": at})
        if not killed["signal"]:
            break  # this one was over: runs differ by a few calls
        kills += 1
        what = f"killed before call {at}, {trace[at - 1]}"
        assert restoring.compared()["differences"] == {}, what
        assert restoring.restore().get("finished"), what  # whose revision the killed run had pinned
        restoring.assert_whole(what)
    assert kills >= (len(trace) - first) // 7 - 1


def test_two_imports_at_once_double_no_row(restoring, scratch):
    restoring.clear()
    at = next(at for at, call in enumerate(restoring.trace, 1) if call.startswith("rows recording"))
    if restoring.target.startswith("duckdb:"):
        pytest.skip("a DuckDB file has one writer; the second import is refused")
    here, there = str(scratch / "one importer"), str(scratch / "another importer")
    job = {"job": "restore", "location": restoring.snapshot, "target": restoring.target}
    result = restoring.driver.run(
        job | {"fault": {"kind": "pause-before", "at": at, "reached": here, "go": there}},
        job | {"start_after": here, "signal_to": there},
    )
    assert [each.get("finished") for each in result] == [True, True], result
    restoring.assert_whole("two at once")
