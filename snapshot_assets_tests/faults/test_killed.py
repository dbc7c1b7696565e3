"""Killed at any moment: the next run finishes the snapshot, reads no finished chunk again, and all rows are there."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets_tests.faults.conftest import CHANGES, finish, spread
from snapshot_assets_tests.faults.operations import store_at

pytestmark = pytest.mark.slow


def changes_of(trace: list[str]) -> list[int]:
    return [at for at, call in enumerate(trace, 1) if call.startswith(CHANGES)]


def finished_chunks(folder: Path, chunks: Sequence[int]) -> set[int]:
    """Return the chunks that need no read: completed in the log, or with a receipt all of whose files are there."""
    state = read_state(store_at(folder))
    finished = {chunk for chunk in chunks if state.completed(chunk)}
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
    finished = finished_chunks(folder, scenario.chunks)
    after = finish(driver, scenario, uri, what)
    if not {"replace", "changed"} & scenario.settings.keys():
        assert sorted([*after["read"], *finished]) == list(scenario.chunks), what


@pytest.mark.parametrize("name", ["fresh", "resumed", "replaced", "followed"])
def test_killed_at_a_change_of_every_kind_the_next_run_finishes(driver, request, scratch, name):
    """A kill after a change is one before the next change."""
    scenario = request.getfixturevalue(name)
    sample = scenario.sample()
    following = {at: after for at, after in pairwise(changes_of(scenario.trace)) if after in sample}
    for at in sample:
        strike(driver, scenario, scratch / "struck", "kill-before", at)
        if at not in following:
            strike(driver, scenario, scratch / "struck", "kill-after", at)


@pytest.mark.timeout(1800)
def test_text_and_copies_are_finished_by_the_next_run(driver, other, scratch):
    """In the end the manifest is that of the seal, wherever the run was killed."""
    for number, at in enumerate(other.sample()):
        strike(driver, other, scratch / "struck", "kill-after" if number % 2 else "kill-before", at)
        assert b'"checksum": "' in (scratch / "struck/manifest.json").read_bytes()


@pytest.mark.timeout(1800)
def test_killed_between_two_changes_the_next_run_finishes(driver, fresh, scratch):
    """Writes are left out: they change an invisible temporary file only, and one of them is struck above."""
    struck = fresh.sample()
    changes = [at for at in changes_of(fresh.trace) if fresh.trace[at - 1] != "write file" and at not in struck]
    for at in spread(changes, 0):
        strike(driver, fresh, scratch / "struck", "kill-before", at)
