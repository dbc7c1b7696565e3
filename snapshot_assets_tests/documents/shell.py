"""A shell that runs a document's commands, one after the other, as its reader's would."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from snapshot_assets_tests.waiting import until


@dataclass(frozen=True)
class Printed:
    """What a command printed, and its exit status."""

    status: int
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]


class Shell:
    """A bash whose folder and variables one command leaves to the next.

    Args:
        folder: Where it starts.
        files: A folder for files of its own.
        environment: All variables.
    """

    def __init__(self, folder: Path, files: Path, environment: Mapping[str, str]) -> None:
        files.mkdir(exist_ok=True)
        self._files = files
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bash.communicate()

    def run(self, command: str) -> Printed:
        """Run a command to its end."""
        return self._read(int(self._send(command, "").split()[-1]))

    def serve(self, command: str, ready: Callable[[Printed], bool]) -> Printed:
        """Run a command that serves until it is interrupted, which happens when it is ready."""
        # A process in the background of a script ignores Ctrl-C, unless it has a group of its own.
        process = int(self._send(command, "&").split()[-1])
        try:
            printed = until(lambda: self._read(0), ready)
        finally:
            os.killpg(process, signal.SIGINT)
            self._send(f"wait {process}", "")
        return printed

    def pwd(self) -> Path:
        """Return the folder that the shell is in."""
        return Path(self.run("pwd").stdout[0])

    def _send(self, command: str, how: str) -> str:
        (self._files / "command").write_text(command)
        out, err = self._files / "stdout", self._files / "stderr"
        reply = "set -m; " if how else ""
        ended = "$!" if how else "$?"
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(
            f'{reply}eval "$(cat "{self._files}/command")" >"{out}" 2>"{err}" </dev/null {how}\necho "" {ended}\n'
        )
        self._bash.stdin.flush()
        return self._bash.stdout.readline()

    def _read(self, status: int) -> Printed:
        lines = [tuple((self._files / name).read_text().splitlines()) for name in ("stdout", "stderr")]
        return Printed(status, *lines)
