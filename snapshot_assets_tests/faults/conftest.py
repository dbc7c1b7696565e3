"""The process that forks exporters, and a source for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets_tests.faults.source import make_source


class Driver:
    """Runs jobs in processes of their own; see `driver.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Run jobs side by side and return what became of them."""
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        answers = json.loads(self._process.stdout.readline())
        crashes = [answer["crash"] for answer in answers if "crash" in answer]
        assert not crashes, crashes[0]
        return answers

    def export(self, source: str, location: str, **settings: Any) -> dict[str, Any]:
        [answer] = self.run({"job": "export", "source": source, "location": location, **settings})
        return answer

    def assert_whole(self, source: str, location: str) -> None:
        """Verify in full, and compare all rows."""
        [found] = self.run({"job": "check", "source": source, "location": location})
        assert not found["damage"]
        assert not found["differences"]


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    command = [sys.executable, "-W", "error", "-m", "snapshot_assets_tests.faults.driver"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Driver(process)
        process.stdin.close()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory) -> Iterator[Path]:
    """A folder in memory where there is one: what survives a power cut is not asked here, and flushing takes long."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("faults")
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def source(scratch) -> str:
    return make_source(scratch / "source.duckdb")
