"""A process that ends while its JVM starts takes that with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_STARTS = """
import signal
from snapshot_assets.engine.session_start import start_session

def interrupt(*_):
    raise KeyboardInterrupt  # as Dagster does in a run that is terminated

signal.signal(signal.SIGTERM, interrupt)
start_session({"spark.master": "local[1]"})
"""
_HELD = """#!/bin/sh
exec 3>"$0.started"
echo started >&3
exec cat "$0.hold" 2>/dev/null
"""


def test_a_start_that_is_interrupted_leaves_no_jvm(tmp_path: Path) -> None:
    """`java` is held at its start, and holds a pipe open for as long as it lives."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_HELD)
    java.chmod(0o755)
    for pipe in ("started", "hold"):
        os.mkfifo(f"{java}.{pipe}")
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", _STARTS], env=environment, stderr=subprocess.DEVNULL)
    with process, open(f"{java}.started", "rb", buffering=0) as started:
        assert started.read(8) == b"started\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
        ended, _, _ = select.select([started], [], [], 30)
        assert ended
        assert started.read() == b""
