"""The process that forks exporters, their source, and the exports that faults strike."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets_tests.faults.source import CHUNKS, add_rows, location, make_source


class Driver:
    """Runs each job in its own process; see `driver.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Run jobs in parallel and return their results."""
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        answers = json.loads(self._process.stdout.readline())
        crashes = [answer["crash"] for answer in answers if "crash" in answer]
        assert not crashes, crashes[0]
        return answers

    def export(self, source: str, location: str, **settings: Any) -> dict[str, Any]:
        [answer] = self.run({"job": "export", "source": source, "location": location, **settings})
        return answer

    def check(self, source: str, location: str, **settings: Any) -> dict[str, Any]:
        [found] = self.run({"job": "check", "source": source, "location": location, **settings})
        return found

    def assert_whole(self, source: str, location: str, **settings: Any) -> None:
        """Verify in full, and compare all rows."""
        found = self.check(source, location, **settings)
        assert not found["damage"]
        assert not found["differences"]


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    command = [sys.executable, "-W", "error", "-m", "snapshot_assets_tests.faults.driver"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Driver(process)
        process.stdin.close()


@pytest.fixture(scope="session")
def source(scratch) -> str:
    return make_source(scratch / "source.duckdb")


EVERY = int(os.environ.get("EVERY", "6"))
"""One of so many cases is tried; `make test-nightly EVERY=1` tries them all, which takes six times as long."""

T = TypeVar("T")

CHANGES = ("create", "put", "open", "write", "close", "delete")
"""Calls that change storage; between two of them, the moment of a kill makes no difference."""


@dataclass
class Scenario:
    """An export that faults strike, and its location before the export.

    Attributes:
        before: The location as it is when the run starts; None for an empty one.
        settings: Settings of the struck run and of the next one.
        trace: The calls of the run without a fault.
    """

    source: str
    before: Path | None
    settings: dict[str, Any] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def checks(self) -> dict[str, Any]:
        """Settings of a check of the location."""
        return {name: value for name, value in self.settings.items() if name == "query"}

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks of the export; a copy is one."""
        return (UNTIMED_CHUNK,) if self.checks else CHUNKS

    def place(self, folder: Path) -> str:
        """Put the location as it was before the run into a folder, and return its URI."""
        shutil.rmtree(folder, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, folder)
        return location(folder)

    def sample(self, starts: str | tuple[str, ...] = CHANGES) -> list[int]:
        """Return the number of the middle call of each kind that starts so."""
        return [numbers[len(numbers) // 2] for numbers in by_kind(self.trace, starts).values()]


def finish(driver: Driver, scenario: Scenario, uri: str, what: str) -> dict[str, Any]:
    """Run a scenario again, after a run that was struck, and assert that the location is whole then."""
    after = driver.export(scenario.source, uri, **scenario.settings)
    assert "sealed" in after or "objects of a finished copy" in after.get("message", ""), f"{what}: {after}"
    driver.assert_whole(scenario.source, uri, **scenario.checks)
    return after


def by_kind(trace: list[str], starts: str | tuple[str, ...] = "") -> dict[str, list[int]]:
    """Return the numbers of all calls of each kind that starts so, from 1."""
    numbers: dict[str, list[int]] = {}
    for number, call in enumerate(trace, 1):
        if call.startswith(starts):
            numbers.setdefault(call, []).append(number)
    return numbers


def spread(cases: Sequence[T], number: int) -> Sequence[T]:
    """Return one of `EVERY` cases; tests of other numbers take the others.

    Args:
        cases: What a test may strike, in the order of its calls.
        number: That of the test among its siblings.
    """
    return cases[number % EVERY :: EVERY] or cases[:1]


def _recorded(driver, scenario: Scenario, folder: Path) -> Scenario:
    result = driver.export(scenario.source, scenario.place(folder), **scenario.settings)
    assert "sealed" in result, result
    scenario.trace = result["trace"]
    return scenario


@pytest.fixture(scope="session")
def fresh(driver, source, scratch) -> Scenario:
    """The first export into an empty location."""
    return _recorded(driver, Scenario(source, None), scratch / "fresh")


@pytest.fixture(scope="session")
def resumed(driver, source, fresh, scratch) -> Scenario:
    """The run after one that was killed with some receipts written and nothing committed."""
    before = scratch / "resumed"
    receipts = [number for number, call in enumerate(fresh.trace, 1) if call == "create receipt"]
    fault = {"kind": "kill-before", "at": receipts[3]}
    assert driver.export(source, location(before), fault=fault)["signal"] == 9
    return _recorded(driver, Scenario(source, before), scratch / "resumed and finished")


@pytest.fixture(scope="session")
def replaced(driver, scratch) -> Scenario:
    """A run that replaces a window and chunk 0 in a sealed snapshot, because rows came late."""
    source = make_source(scratch / "with late rows.duckdb")
    before = scratch / "before a replace"
    assert "sealed" in driver.export(source, location(before))
    add_rows(source)
    return _recorded(driver, Scenario(source, before, {"chunks": [0, 2], "replace": True}), scratch / "replaced")


@pytest.fixture(scope="session")
def followed(driver, scratch) -> Scenario:
    """A run that exports again the one table of a sealed snapshot whose rows changed in one window."""
    source = make_source(scratch / "with changed rows.duckdb")
    before = scratch / "before changes"
    assert "sealed" in driver.export(source, location(before))
    add_rows(source)
    return _recorded(driver, Scenario(source, before, {"chunks": [], "changed": True}), scratch / "followed")


_QUERY = "SELECT t, sensor, value FROM readings"
_TEXT = {
    "csv": {"plan": {"format": "csv"}},
    "json": {"plan": {"format": "json", "format_options": {"compression": "zstd"}}},
    "copied": {"job": "copy", "query": _QUERY, "plan": {}},
    "copied csv": {"job": "copy", "query": _QUERY, "plan": {"format": "csv", "format_options": {"header": True}}},
    "copied json": {"job": "copy", "query": _QUERY, "plan": {"format": "json"}},
}


@pytest.fixture(scope="session", params=_TEXT)
def other(request: pytest.FixtureRequest, driver, source, scratch) -> Scenario:
    """The first export of text, or copy of a query, into an empty location."""
    return _recorded(driver, Scenario(source, None, _TEXT[request.param]), scratch / f"other {request.param}")
