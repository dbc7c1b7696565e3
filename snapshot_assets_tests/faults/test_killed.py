"""Killed at any moment: the next run finishes the snapshot, reads no finished chunk again, and all rows are there."""

import json
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets_tests.faults.conftest import CHANGES
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.faults.source import CHUNKS


def finished_chunks(folder: Path) -> set[int]:
    """Return the chunks that need no read: completed in the log, or with a receipt all of whose files are there."""
    state = read_state(store_at(folder))
    finished = {chunk for chunk in CHUNKS if state.completed(chunk)}
    for path in folder.glob("data/*/chunk-*.json"):
        receipt = json.loads(path.read_text())
        if all((folder / file["path"]).stat().st_size == file["bytes"] for file in receipt["files"]):
            finished.add(receipt["chunk"])
    return finished


def strike(driver, scenario, folder: Path, kind: str, at: int) -> None:
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


def test_killed_at_every_other_kind_of_change_the_next_run_finishes(driver, fresh, scratch):
    for number, at in enumerate(fresh.sample()[::2]):
        strike(driver, fresh, scratch / "struck", "kill-after" if number % 2 else "kill-before", at)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill-before", "kill-after"])
@pytest.mark.parametrize("name", ["fresh", "resumed", "replaced"])
def test_killed_at_a_change_of_every_kind_the_next_run_finishes(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in scenario.sample():
        strike(driver, scenario, scratch / "struck", kind, at)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_between_any_two_changes_the_next_run_finishes(driver, fresh, scratch):
    """Writes are left out: they change an invisible temporary file only, and one of them is struck above."""
    for at, call in enumerate(fresh.trace, 1):
        if call.startswith(CHANGES) and call != "write file":
            strike(driver, fresh, scratch / "struck", "kill-before", at)
