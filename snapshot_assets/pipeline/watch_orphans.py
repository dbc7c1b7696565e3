"""Dagster's watcher of a step's output, run as a script, without a trace of its own where Ctrl-C ends the command.

A terminal sends Ctrl-C to all processes of a command. The watcher ends with the step, so it need not answer itself.
"""

from __future__ import annotations

import runpy
import signal
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dagster = find_spec("dagster")  # importing it would take more than a second
    assert dagster is not None
    assert dagster.origin is not None
    watcher = Path(dagster.origin).parent / "_core" / "execution" / "scripts" / "watch_orphans.py"
    runpy.run_path(str(watcher), run_name="__main__")
