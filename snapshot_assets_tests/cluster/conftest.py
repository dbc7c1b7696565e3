"""Drivers of a standalone cluster: the command, and programs, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.e2e.conftest import configuration_file
from snapshot_assets_tests.servers.s3 import S3Server

_PACKAGE = "snapshot_assets_tests.cluster"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Driver:
    """Starts drivers of a cluster, with a configuration that has the credentials of the S3 server.

    Attributes:
        folder: Their working folder.
        options: Endpoint and credentials.
        environment: Their environment variables.
    """

    folder: Path
    options: StoreOptions
    environment: Mapping[str, str]
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def close(self) -> None:
        """Kill the drivers that a failed test left."""
        for process in self._started:
            process.kill()
            process.communicate()

    def start(self, settings: Mapping[str, str], *commands: Sequence[str]) -> subprocess.Popen[str]:
        """Start a process that runs commands of `snapshots` with the settings of a Spark session."""
        configuration = self._configuration(settings)
        return self._start("commands", json.dumps([["--config", configuration, *command] for command in commands]))

    def run(self, settings: Mapping[str, str], *commands: Sequence[str]) -> str:
        """Run commands, which must succeed; returns what they print."""
        return finish(self.start(settings, *commands))

    def read(self, settings: Mapping[str, str], location: str, table: str) -> dict[str, Any]:
        """Return what `reader` finds in a table of a snapshot."""
        configuration = self._configuration(settings)
        out = finish(self._start("reader", json.dumps(dict(settings)), configuration, location, table))
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def _configuration(self, settings: Mapping[str, str]) -> str:
        file = configuration_file(self.folder, self.options)
        section = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in settings.items())
        with open(file, "a", encoding="utf-8") as written:
            written.write(f"spark:\n{section}")
        return file

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process


def finish(process: subprocess.Popen[str], status: int = 0, timeout: float = 900) -> str:
    """Wait for a driver, which must end with a status; returns its standard output, after a failure the other one."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == status, out[-2000:] + err[-5000:]
    return err if status else out


@pytest.fixture(scope="module")
def driver(s3_server: S3Server, executors_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Starts drivers whose executors run `executors_python`, as a user's environment says so."""
    folder = tmp_path_factory.mktemp("driver")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    environment = kept | {
        "PYTHONPATH": str(ROOT),
        "DAGSTER_HOME": str(folder / "dagster"),
        "TEST_KEY_ID": str(s3_server.options.access_key_id),
        "TEST_KEY": str(s3_server.options.secret_access_key),
        "PYSPARK_PYTHON": str(executors_python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with closing(Driver(folder, s3_server.options, environment)) as made:
        yield made
