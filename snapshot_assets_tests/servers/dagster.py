"""Dagster's real web server and daemon on a project, on a free port of the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from snapshot_assets_tests.e2e.graphql import ask, listening
from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
_BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class DagsterServers:
    """A running web server and daemon.

    Attributes:
        port: The web server's port on 127.0.0.1.
        output: The file with what both print.
    """

    port: int
    output: Path

    @property
    def url(self) -> str:
        """The UI's address."""
        return f"http://127.0.0.1:{self.port}"

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """Ask the web server, as its UI does."""
        return ask(str(self.port), query, variables)


@contextmanager
def start_dagster(
    folder: Path, code: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[DagsterServers]:
    """Run Dagster's web server and daemon in a folder until the block ends; what they started ends with them.

    Args:
        folder: The working folder; its folder `dagster` becomes `DAGSTER_HOME`.
        code: Options that name the code location.
        environment: Further variables.
    """
    home = folder / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(home)) as instance:  # two processes cannot create one at the same time
        instance.get_runs_count()
    servers = DagsterServers(free_port(), folder / "output")
    variables = os.environ | {"DAGSTER_HOME": str(home), "PYTHONPATH": str(ROOT)} | dict(environment or {})
    commands = (("dagster-webserver", "--host", "127.0.0.1", "--port", str(servers.port)), ("dagster-daemon", "run"))
    processes: list[subprocess.Popen[bytes]] = []
    with servers.output.open("wb") as out:
        try:
            for program, *options in commands:
                command = [str(_BIN / program), *options, *code]
                processes.append(
                    subprocess.Popen(command, cwd=folder, env=variables, stdout=out, stderr=out, start_new_session=True)
                )
            until(lambda: listening(servers.graphql), explain=servers.output.read_text)
            yield servers
        finally:
            _stop(processes)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        os.killpg(process.pid, signal.SIGINT)
    try:
        for process in processes:
            process.wait(120)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):  # the group ended
                os.killpg(process.pid, signal.SIGKILL)
