"""Retry by exponential backoff with full jitter, capped at five minutes (RFC, "Retry and Resume")."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently a transient failure is retried.

    Attributes:
        tries: Attempts in all.
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
