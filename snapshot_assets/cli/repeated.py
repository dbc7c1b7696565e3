"""Does something again and again in a thread, such as showing progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], None], seconds: float, *, at_end: bool = False) -> Iterator[None]:
    """Do something again and again in a thread while the context is open."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if at_end:
            act()
