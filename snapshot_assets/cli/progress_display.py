"""Shows progress on stderr: a bar on a terminal, else a line every 30 s, or JSON lines every second."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from snapshot_assets.cli.output import messages_are_json, show_line, show_message
from snapshot_assets.cli.repeated import repeated

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
        with repeated(lambda: show_line(json.dumps(watch.totals())), _JSON_SECONDS, at_end=True):
            yield
    elif messages_are_json() or not sys.stderr.isatty():
        with repeated(lambda: show_message(watch.line()), _LINE_SECONDS):
            yield
    else:
        with bar() as update, repeated(update, _BAR_SECONDS):
            yield
