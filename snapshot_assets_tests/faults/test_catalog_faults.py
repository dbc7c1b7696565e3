"""Every operation of the catalog, struck at storage calls of every kind by every kind of fault: one of `EVERY` cases.

After each fault the location opens, is in the state before or after the operation, and verifies without damage. Then
the operation is repeated, as by the next process, and gives the state after.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from snapshot_assets.catalog.log import store as log
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import SnapshotError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.faults.conftest import CHANGES, by_kind, spread
from snapshot_assets_tests.faults.operations import DAMAGED, OPERATIONS, Operation, facts, place, prepare
from snapshot_assets_tests.faults.store import Dropped, Fault, FaultyStore

pytestmark = pytest.mark.slow

KINDS = ("drop-before", "drop-after", "fail-before", "fail-after", "exists-after", "throttle")


@pytest.fixture(scope="module")
def prepared(scratch) -> dict[str, Path]:
    return prepare(scratch / "catalog faults")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(log, "_SETTLE_WAIT", 0)


class Struck:
    """An operation, its start, the state after it, and its calls without a fault."""

    def __init__(self, operation: Operation, prepared: dict[str, Path], folder: Path) -> None:
        self.operation, self.start, self.folder = operation, prepared[operation.start], folder
        store = FaultyStore(place(self.start, folder))
        self.before = facts(store.inner)
        operation.run(store)
        self.after, self.trace = facts(store.inner), store.trace
        self._check_done(store.inner, "undisturbed")

    def strike(self, kind: str, at: int) -> None:
        what = f"{kind} call {at} of {len(self.trace)}, {self.trace[at - 1]}"
        store = FaultyStore(place(self.start, self.folder), Fault(kind, at))
        ended = self._run(store)
        assert len(store.trace) >= at, f"{what}: the fault was never met"
        assert store.dropped == kind.startswith("drop"), what
        assert ended or kind != "exists-after", f"{what}: the client's retry met its own object, which is no failure"
        found = facts(store.inner)
        allowed = (self.after,) if ended else (self.before, self.after, *self.operation.between)
        assert found in allowed, f"{what}: {found}"
        if ended or not self.operation.between:
            self._check_whole(store.inner, found, what)
        self.operation.run(store.inner)
        self._check_done(store.inner, what)

    def _run(self, store: FaultyStore) -> bool:
        """Run the operation and return whether it finished."""
        try:
            self.operation.run(store)
        except (SnapshotError, Dropped):
            return False
        return not store.dropped

    def _check_done(self, store: ObjectStore, what: str) -> None:
        found = facts(store)
        assert found == self.after, f"{what}, repeated: {found}"
        assert self.operation.done(store), f"{what}: repeated, and not done"
        self._check_whole(store, found, what)

    @staticmethod
    def _check_whole(store: ObjectStore, found: object, what: str) -> None:
        if found not in (None, DAMAGED):
            damage = [fault for fault in verify(store).faults if fault.is_damage]
            assert not damage, f"{what}: {damage}"

    def cases(self) -> list[tuple[str, int]]:
        """The first and the last call of each kind, with every kind of fault that differs there.

        A read can only fail, and only a create can exist. What is lost after a change is lost before the next one.
        """
        ends = sorted({at for numbers in by_kind(self.trace).values() for at in (numbers[0], numbers[-1])})
        changes = [at for at, call in enumerate(self.trace, 1) if call.startswith(CHANGES)]
        also_before = {at for at, after in pairwise(changes) if after in ends}
        cases = [(kind, at) for at in ends for kind in KINDS if at in changes or kind == "fail-before"]
        return [
            (kind, at)
            for kind, at in cases
            if (kind != "exists-after" or self.trace[at - 1].startswith("create"))
            and (kind != "drop-after" or at not in also_before)
        ]


@pytest.fixture(params=OPERATIONS)
def operation(request) -> Iterator[Operation]:
    operation = OPERATIONS[request.param]
    with operation.code():
        yield operation


def test_an_operation_that_is_struck_is_done_or_not_and_can_be_repeated(prepared, scratch, operation):
    struck = Struck(operation, prepared, scratch / "struck operation")
    for case in spread(struck.cases(), list(OPERATIONS.values()).index(operation)):
        struck.strike(*case)
