"""Waits until something is so. No test waits for a time instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

_SECONDS = 300  # only what hangs takes as long, also on a busy machine


class Process(Protocol):
    """A process that was started; `subprocess.Popen` is one."""

    def poll(self) -> int | None:
        """Return the exit status of a process that has ended."""


def until(
    answer: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    explain: Callable[[], object] = lambda: "",
    process: Process | None = None,
    seconds: float = _SECONDS,
) -> T:
    """Repeat a question until its answer is acceptable, and return that answer.

    Args:
        answer: Called every few milliseconds at first, and every half second at last.
        accept: Returns whether an answer is acceptable.
        explain: Returns what a failure shows beside the last answer.
        process: The wait fails at once when it has ended.
        seconds: The wait fails after so long.
    """
    end, pause = time.monotonic() + seconds, 0.002
    while not accept(found := answer()):
        assert process is None or process.poll() is None, f"the process ended: {explain()}"
        assert time.monotonic() < end, f"still {found!r} after {seconds:g} s: {explain()}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
    return found
