"""Shows progress on stderr: a bar on a terminal, else a line every 30 s, or JSON lines every second."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from snapshot_assets.cli.output import messages_are_json, show_line, show_message

_LINE_SECONDS, _JSON_SECONDS, _BAR_SECONDS = 30.0, 1.0, 0.5

Update = Callable[[], None]
"""Brings a bar up to date."""


class Watch(Protocol):
    """Counts what was done so far."""

    def totals(self) -> dict[str, Any]:
        """Return the counts, as JSON has them."""

    def line(self) -> str:
        """Return the counts as a sentence."""


@contextmanager
def displayed(watch: Watch, mode: str, bar: Callable[[], AbstractContextManager[Update]]) -> Iterator[None]:
    """Show progress until the context ends.

    Args:
        watch: The counts.
        mode: `auto`: a bar on a terminal, else a line every 30 s; `json`: a JSON object a second; `none`.
        bar: Shows a bar until its context ends.
    """
    if mode == "none":
        yield
    elif mode == "json":
        with _repeated(lambda: show_line(json.dumps(watch.totals())), _JSON_SECONDS, at_end=True):
            yield
    elif messages_are_json() or not sys.stderr.isatty():
        with _repeated(lambda: show_message(watch.line()), _LINE_SECONDS):
            yield
    else:
        with bar() as update, _repeated(update, _BAR_SECONDS):
            yield


@contextmanager
def _repeated(act: Callable[[], None], seconds: float, *, at_end: bool = False) -> Iterator[None]:
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
