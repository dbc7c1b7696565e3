"""Killed at any moment: the next run finishes the snapshot, reads no finished chunk again, and all rows are there."""

import json
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.faults.source import CHUNKS, location


def finished_chunks(folder: Path) -> set[int]:
    """Return the chunks that need no read: completed in the log, or with a receipt all of whose files are there."""
    state = read_state(open_store(parse_location(location(folder))))
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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fresh", "kill-before"),
        pytest.param("resumed", "kill-after", marks=pytest.mark.slow),
        pytest.param("replaced", "kill-after", marks=pytest.mark.slow),
    ],
)
def test_killed_at_a_change_of_every_kind_the_next_run_finishes(driver, request, scratch, name, kind):
    scenario = request.getfixturevalue(name)
    for at in scenario.sample():
        strike(driver, scenario, scratch / "struck", kind, at)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "step"), [("fresh", 1), ("resumed", 3), ("replaced", 3)])
def test_killed_between_any_two_calls_the_next_run_finishes(driver, request, scratch, name, step):
    """Before every call of a fresh run, which is after every call but the last; before every third of the others."""
    scenario = request.getfixturevalue(name)
    for at in range(1, len(scenario.trace) + 1, step):
        strike(driver, scenario, scratch / "struck", "kill-before", at)
