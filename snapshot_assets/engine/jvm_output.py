"""Starts Spark's JVM with a pipe for what it writes to stderr; the lines go to Python's log.

No option turns off the JVM's own notices, such as that it uses an incubator module, for which Spark asks at each start.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import Popen
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.java_gateway import launch_gateway

from snapshot_assets.spans import span

_LOG = logging.getLogger(__name__)
_NOTICE = re.compile(r"WARNING: (?!.*(?:exception|error)).*|(?:NOTE: )?Picked up \w+: .*", re.IGNORECASE)
"""Notices of the JVM itself: about modules, deprecated parts of it, and variables that it reads."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process with the settings of a session, which then uses it."""
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    # Other starts of a session wait for this JVM.
    with span("start JVM"), SparkContext._lock, _logged() as pipe, _ended_on_failure():
        gateway = launch_gateway(conf, {"stderr": pipe, "process_group": 0})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _ended_on_failure() -> Iterator[None]:
    """End the JVM that is started inside the context if an exception leaves it, such as that of a terminated run.

    PySpark then removes the folder where the JVM is to report its port, and a JVM that cannot report it never ends.
    """
    started: list[Popen[bytes]] = []

    def start(*args: Any, **options: Any) -> Popen[bytes]:
        started.append(Popen(*args, **options))
        return started[-1]

    java_gateway.Popen = start  # type: ignore[attr-defined,assignment]
    try:
        yield
    except BaseException:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        java_gateway.Popen = Popen  # type: ignore[attr-defined]


@contextmanager
def _logged() -> Iterator[int]:
    """Yield a pipe for a process that is started inside the context; its lines are logged until the process ends."""
    output, pipe = os.pipe()
    threading.Thread(target=_log_lines, args=(output,), name="jvm-output", daemon=True).start()
    try:
        yield pipe
    finally:
        os.close(pipe)


def _log_lines(output: int) -> None:
    """Log lines as warnings, so that they are seen by default, and notices as information."""
    with open(output, encoding="utf-8", errors="replace") as lines:
        for line in map(str.rstrip, lines):
            _LOG.log(logging.INFO if _NOTICE.fullmatch(line) else logging.WARNING, "%s", line)
