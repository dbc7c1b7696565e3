"""Killed at any moment: the next run finishes the snapshot, reads no finished chunk again, and all rows are there."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.log import read_state
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.faults.source import CHUNKS, add_rows, location, make_source

CHANGES = ("create", "put", "open", "write", "close", "delete")
"""Calls that change what lies on storage: between two of them, it does not matter where a process dies."""


@dataclass
class Scenario:
    """An export that is struck, and what lay at its location before.

    Attributes:
        before: The location as it is when the run starts; None for an empty one.
        settings: What the struck run, and the next one, are asked to do.
        trace: The calls of the run when nothing strikes it.
    """

    source: str
    before: Path | None
    settings: dict[str, Any] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    def place(self, folder: Path) -> str:
        """Put the location as it was before the run into a folder, and return its URI."""
        shutil.rmtree(folder, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, folder)
        return location(folder)

    def sample(self) -> list[int]:
        """Return the number of one call of each kind that changes something: the one in the middle."""
        numbers: dict[str, list[int]] = {}
        for number, call in enumerate(self.trace, 1):
            if call.startswith(CHANGES):
                numbers.setdefault(call, []).append(number)
        return [each[len(each) // 2] for each in numbers.values()]


def _recorded(driver, scenario: Scenario, folder: Path) -> Scenario:
    told = driver.export(scenario.source, scenario.place(folder), **scenario.settings)
    assert "sealed" in told, told
    scenario.trace = told["trace"]
    return scenario


@pytest.fixture(scope="module")
def fresh(driver, source, scratch) -> Scenario:
    """The first export into an empty location."""
    return _recorded(driver, Scenario(source, None), scratch / "fresh")


@pytest.fixture(scope="module")
def resumed(driver, source, fresh, scratch) -> Scenario:
    """The run after one that was killed with some receipts written and nothing committed."""
    before = scratch / "resumed"
    receipts = [number for number, call in enumerate(fresh.trace, 1) if call == "create receipt"]
    fault = {"kind": "kill-before", "at": receipts[3]}
    assert driver.export(source, location(before), fault=fault)["signal"] == 9
    return _recorded(driver, Scenario(source, before), scratch / "resumed and finished")


@pytest.fixture(scope="module")
def replaced(driver, scratch) -> Scenario:
    """A run that replaces a window and chunk 0 in a sealed snapshot, because rows came late."""
    source = make_source(scratch / "with late rows.duckdb")
    before = scratch / "before a replace"
    assert "sealed" in driver.export(source, location(before))
    add_rows(source)
    return _recorded(driver, Scenario(source, before, {"chunks": [0, 2], "replace": True}), scratch / "replaced")


def finished_chunks(folder: Path) -> set[int]:
    """Return the chunks that need no read: completed in the log, or with a receipt all of whose files are there."""
    state = read_state(open_store(parse_location(location(folder))))
    finished = {chunk for chunk in CHUNKS if state.completed(chunk)}
    for path in folder.glob("data/*/chunk-*.json"):
        receipt = json.loads(path.read_text())
        if all((folder / file["path"]).stat().st_size == file["bytes"] for file in receipt["files"]):
            finished.add(receipt["chunk"])
    return finished


def strike(driver, scenario: Scenario, folder: Path, kind: str, at: int) -> None:
    """Kill a run at one call, and hold the next run to its promises."""
    uri = scenario.place(folder)
    killed = driver.export(scenario.source, uri, fault={"kind": kind, "at": at}, **scenario.settings)
    what = f"{kind} call {at}, {scenario.trace[at - 1]}"
    assert killed["signal"] == 9, f"{what}: {killed}"
    finished = finished_chunks(folder)
    after = driver.export(scenario.source, uri, **scenario.settings)
    assert "sealed" in after, f"{what}: {after.get('message')}"
    if not scenario.settings.get("replace"):
        assert sorted([*after["read"], *finished]) == list(CHUNKS), what
    driver.assert_whole(scenario.source, uri)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fresh", "kill-before"), ("fresh", "kill-after"), ("resumed", "kill-after"), ("replaced", "kill-after")],
)
def test_killed_at_a_change_of_every_kind_the_next_run_finishes(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in scenario.sample():
        strike(driver, scenario, scratch / "struck", kind, at)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["kill-before", "kill-after"])
@pytest.mark.parametrize("name", ["fresh", "resumed", "replaced"])
def test_killed_at_any_call_the_next_run_finishes(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in range(1, len(scenario.trace) + 1):
        strike(driver, scenario, scratch / "struck", kind, at)
