"""Reports early that a statement waits for a lock of another session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)
REPORTED_AFTER = 5.0
"""Seconds after which a wait is reported."""


@contextmanager
def reporting_waits(doing: str, describe: Callable[[], str]) -> Iterator[None]:
    """Report what a statement waits for, and who holds it, if it takes long.

    Args:
        doing: The operation, such as `PostgreSQL 'shop': locking public.orders`.
        describe: Returns the lock that the statement waits for, and its holder, by a connection of its own; "" for
            none. It is called in another thread.
    """

    def report() -> None:
        if text := describe():
            _LOG.warning("%s takes long: %s", doing, text)

    watch = threading.Timer(REPORTED_AFTER, report)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
