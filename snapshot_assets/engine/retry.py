"""Retry by exponential backoff with full jitter, capped at five minutes (GreptimeDB RFC, "Retry and Resume")."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from snapshot_assets.engine.jobs import AnyOutcome, Chunk, by_cause, chunk_names
from snapshot_assets.errors import TransientError
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)


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
    chunks: Iterable[Chunk],
    stop: threading.Event,
    attempt: Callable[[Sequence[Chunk]], Iterable[AnyOutcome]],
    policy: RetryPolicy,
) -> list[AnyOutcome]:
    """Process chunks; those with a transient failure are retried by themselves, until `stop` is set.

    `attempt` tries some of them once, and yields the outcome of each, in order.

    Returns:
        The last outcome of each chunk; chunks without one were stopped before.
    """
    outcomes: list[AnyOutcome] = []
    waits = policy.waits()
    todo = list(chunks)
    while todo and not stop.is_set():
        again: list[Chunk] = []
        failed: dict[int, str] = {}
        wait = next(waits, None)
        for chunk, outcome in zip(todo, attempt(todo), strict=True):
            if isinstance(outcome.error, TransientError) and wait is not None and not stop.is_set():
                failed[outcome.chunk] = scrub(str(outcome.error))
                again.append(chunk)
            else:
                outcomes.append(outcome)
        for some, error in by_cause(failed):
            verb = "is" if len(some) == 1 else "are"
            _LOG.warning("%s failed and %s tried again: %s", chunk_names(some).capitalize(), verb, error)
        todo = again
        if todo and wait is not None:
            stop.wait(wait)
    return outcomes
