"""How continuous integration runs the tests: a failed one runs again, and the slow ones take turns.

With `CI=true`, a failed test runs once more. If it passes then, it is *flaky*: the end of the run lists it with its
first error, and the run does not fail.

`--third` runs a third of the slow tests. The tests of a file stay together, because they share servers and snapshots
that each third would otherwise make again; those of `documents/` and `faults/` share none, and are divided one by one.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from typing import Any

import pytest

THIRDS = ("1", "2", "3")
_BY_COMMIT = "commit"
_EVERY_RUN = {"golden"}
"""Folders whose slow tests run with each third: what storage holds must stay readable."""
_DIVIDED = {"documents", "faults"}
"""Folders of files whose tests share little."""
_SALT = "1830"
"""Of 3,000 numbers, the one by which the thirds differ least in files, tests, pages and fault schedules."""
_LONG = {"browser", "cluster", "documents", "e2e", "examples", "faults"}
"""Folders of long tests. They start first, so that no worker is left with one when the others have finished."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gate").addoption(
        "--third",
        choices=(_BY_COMMIT, *THIRDS),
        help="run this third of the slow tests; `commit`: the one that the commit's hash names",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") == "true" and config.option.reruns is None and not config.option.usepdb:
        config.option.reruns = 1
    if config.option.third == _BY_COMMIT:  # workers of xdist get the number
        config.option.third = third_of_commit(config)
    config.pluginmanager.register(FlakyTests(), "flaky tests")


def third_of_commit(config: pytest.Config) -> str:
    """Return the third that belongs to the commit that is checked out; the first one where git knows of none."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True)
    return THIRDS[int(done.stdout, 16) % len(THIRDS)] if done.returncode == 0 else THIRDS[0]


def pytest_report_header(config: pytest.Config) -> str | None:
    third = config.option.third
    return third and f"third {third} of the slow tests; repeat it with --third {third}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in _LONG)
    if config.option.third is None:
        return
    others = {item for item in items if takes_turns(item) and third_of(item) != config.option.third}
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def takes_turns(item: pytest.Item) -> bool:
    """Return whether a test is in one third only."""
    return item.get_closest_marker("slow") is not None and item.path.parent.name not in _EVERY_RUN


def third_of(item: pytest.Item) -> str:
    """Return the third of a test, by its node id or its file alone."""
    name = item.nodeid if item.path.parent.name in _DIVIDED else item.nodeid.partition("::")[0]
    return third_of_name(name)


def third_of_name(name: str) -> str:
    """Return the third that a hash of a node id or file chooses."""
    return THIRDS[zlib.crc32(f"{_SALT}{name}".encode()) % len(THIRDS)]


class FlakyTests:
    """Lists the tests that failed, and passed when they ran again."""

    def __init__(self) -> None:
        self._first_errors: dict[str, str] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome == "rerun":
            self._first_errors.setdefault(report.nodeid, report.longreprtext)
        elif report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        flaky = {test: error for test, error in self._first_errors.items() if test not in self._failed}
        if not flaky:
            return
        terminalreporter.section(f"{len(flaky)} flaky: mend them before the work is called done", yellow=True)
        for test, error in flaky.items():
            terminalreporter.write_line(f"FLAKY {test}", yellow=True)
            terminalreporter.write_line(error)
