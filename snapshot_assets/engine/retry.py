"""Parallel jobs, and retry by exponential backoff with full jitter (GreptimeDB RFC, "Retry and Resume")."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Protocol, TypeVar

from snapshot_assets.errors import SnapshotError, TransientError
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)


class _Outcome(Protocol):
    """Outcome of one chunk."""

    @property
    def chunk(self) -> int:
        """The chunk's id."""
        ...

    @property
    def error(self) -> SnapshotError | None:
        """The error of a failed chunk; None if it succeeded."""
        ...


_T = TypeVar("_T")
_O = TypeVar("_O", bound=_Outcome)
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class RetryPolicy:
    """How often a transient failure is retried, and after which waits.

    Attributes:
        tries: Most attempts.
        base: Upper bound of the first wait, in seconds; doubles each time.
        cap: Most seconds of any wait.
    """

    tries: int = 4
    base: float = 1.0
    cap: float = 300.0

    def waits(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt."""
        for attempt in range(self.tries - 1):
            yield random.uniform(0, min(self.cap, self.base * 2**attempt))


def attempt_chunks(
    chunks: Iterable[_T],
    attempt: Callable[[Sequence[_T]], Iterable[tuple[_T, _O]]],
    policy: RetryPolicy,
    stop: threading.Event,
) -> list[_O]:
    """Process chunks; those with a transient failure are retried by themselves.

    Args:
        chunks: The chunks.
        attempt: Tries some of them once, and yields the outcome of each.
        policy: How often, and after which waits.
        stop: Set to prevent further attempts.

    Returns:
        The last outcome of each chunk; chunks without one were stopped before.
    """
    outcomes: list[_O] = []
    waits = policy.waits()
    todo = list(chunks)
    while todo and not stop.is_set():
        again: list[_T] = []
        wait = next(waits, None)
        for chunk, outcome in attempt(todo):
            if isinstance(outcome.error, TransientError) and wait is not None:
                _LOG.warning("Chunk %s failed and is tried again: %s", outcome.chunk, scrub(str(outcome.error)))
                again.append(chunk)
            else:
                outcomes.append(outcome)
        todo = again
        if todo and wait is not None:
            stop.wait(wait)
    return outcomes


def side_by_side(
    run: Callable[[_T, threading.Event], Sequence[_Done]], jobs: Sequence[_T], parallelism: int, name: str
) -> Iterator[_Done]:
    """Run jobs and yield their outcomes as they finish.

    An error that a job raises, rather than returns, ends all jobs: jobs that have not started are cancelled, and the
    event is set, so that running jobs can stop.

    Args:
        run: Called with a job and the event.
        jobs: The jobs.
        parallelism: Most jobs at a time.
        name: Prefix of the threads' names.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(parallelism, thread_name_prefix=name) as pool:
        futures = [pool.submit(run, job, stop) for job in jobs]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
