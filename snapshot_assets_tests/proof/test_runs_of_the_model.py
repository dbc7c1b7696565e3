"""The code accepts and refuses what the model does, in random runs of the model's actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.operations.rollback import execute_rollback, plan_rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag
from snapshot_assets.errors import AcceptanceNeededError, ConflictError, VersionNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.predicates import IsNull
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START
from snapshot_assets_tests.faults.actors import GRACE, _commit, _write
from snapshot_assets_tests.faults.interleaving import Clock, Recorded, SeenStore, World
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.proof.models import Scope, missing_tools, simulate
from snapshot_assets_tests.schema_documents import write_schema

ACTORS = Scope("objects", "EXPORTERS=2 DELETER TAGGER EXPIRER REVERTER")
REFUSALS = (ConflictError, VersionNotFoundError, AcceptanceNeededError)
PART = GRACE / 3
"""A unit of the model's time."""


class Location:
    """A location that begins as the model does: two exports of its chunk, sealed at revisions 3 and 5."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.world = World(store_at(folder), Clock(datetime(2025, 2, 1, tzinfo=START.tzinfo)))
        catalog = self.open()
        header = replace(HEADER, end=START + DAY, requested_end="2025-01-02T00:00:00Z")
        catalog.commit(rules.begin(header, write_schema(catalog.store, SCHEMA)))
        for _ in range(2):
            live = tuple(catalog.state.files.chunk(1))
            _commit(catalog, *_write(catalog, 1), live or None)
            seal(catalog)
        assert [known.revision for known in catalog.state.readable()] == [3, 5]
        self.plans: dict[str, Any] = {}

    def open(self) -> Recorded:
        return Recorded.open_for_writing(SeenStore(self.world), clock=self.world.clock)

    def export(self, actor: str, action: str) -> None:
        if action.startswith("plans"):
            catalog = self.open()
            self.plans[actor] = catalog, tuple(catalog.state.files.chunk(1)), None
        elif action.startswith("writes"):
            catalog, live, _ = self.plans[actor]
            self.plans[actor] = catalog, live, _write(catalog, 1)
        elif action.startswith("seals"):
            catalog, _, _ = self.plans[actor]
            seal(catalog)
        else:
            catalog, live, written = self.plans[actor]
            _commit(catalog, *written, live or None)

    def delete(self, actor: str, action: str) -> None:
        if action.startswith("plans"):
            catalog = self.open()
            self.plans[actor] = catalog, catalog.token()
        else:
            catalog, token = self.plans[actor]
            assert catalog.commit(rules.tombstone(token, act.Tombstone("main", "m", IsNull("t"))))

    def tag(self, actor: str, action: str) -> None:
        if "hold" in action:
            hold_tag(self.open(), "t", "case")
        else:
            create_tag(self.open(), "t", 3)

    def expire(self, actor: str, action: str) -> None:
        catalog = self.open()
        if "tag" in action:
            delete_tag(catalog, "t")
        else:
            keep_last = rules.Retention(keep_last=1)
            catalog.commit(rules.expire(keep_last, catalog.now(), catalog.state.format_version, None))

    def revert(self, actor: str, action: str) -> None:
        if action.startswith("plans"):
            try:
                catalog = self.open()
                self.plans[actor] = catalog, plan_rollback(catalog, 3)
            except REFUSALS as error:
                self.plans[actor] = None, error
            return
        catalog, plan = self.plans[actor]
        if catalog is None:
            raise plan
        execute_rollback(catalog, plan)

    def pass_time(self, actor: str, action: str) -> None:
        if action.startswith("it is"):
            self.world.clock.now += PART


DOING: dict[str, Callable[[Location, str, str], None]] = {
    "exporter": Location.export,
    "deleter": Location.delete,
    "tagger": Location.tag,
    "expirer": Location.expire,
    "reverter": Location.revert,
    "clock": Location.pass_time,
}
"""What each actor of the model does in the code."""


def differences(location: Location, lines: list[str]) -> Iterator[str]:
    """Do what a run of the model says, and yield where the code decides otherwise."""
    for line in lines:
        actor, action = line.split(": ", 1)
        refused = None
        try:
            DOING[actor.split()[0]](location, actor, action)
        except REFUSALS as error:
            refused = error
        if (refused is not None) != ("is refused" in action):
            yield f"{line}; the code: {refused or 'accepts'}"


@pytest.mark.skipif(bool(missing_tools()), reason=f"not installed: {', '.join(missing_tools())}")
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_the_code_accepts_and_refuses_what_random_runs_of_the_model_do(tmp_path: Path, first: int) -> None:
    seen = Counter[str]()
    for seed in range(first, first + 10):
        lines = simulate(ACTORS, seed)
        assert list(differences(Location(tmp_path / str(seed)), lines)) == [], lines
        actions = [line.split(": ")[1] for line in lines if not line.startswith("clock")]
        seen.update(action.split()[0] for action in actions)
    assert seen["is"] > 5  # refusals
    assert {"commits", "seals", "deletes", "tags", "holds", "expires", "is"} <= seen.keys()
