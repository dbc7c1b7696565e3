"""Prints results to stdout, and everything else to stderr.

Texts may contain a document's text or a server's message. No character of them reaches a terminal that it would obey.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import duration_text, time_text

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and those that change the direction of text."""

_messages_are_json = False
_completed: Callable[[str], str] = str


def show_message(text: str, level: str = "info") -> None:
    """Print a message without credentials to stderr: as text, or as `json_record` inside `json_messages`."""
    text = _completed(text)
    show_line(json_record(datetime.now(UTC), level, "snapshots", text) if _messages_are_json else scrub(text))


def show_line(line: str) -> None:
    """Print a line to stderr."""
    sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()


def json_record(moment: datetime, level: str, logger: str, text: str) -> str:
    """Return a message, or a record of the log, as one JSON object; its text has no credentials."""
    fields = {"time": time_text(moment), "level": level, "logger": logger, "message": scrub(text.rstrip("\n"))}
    return _json_text(fields)


@contextmanager
def json_messages() -> Iterator[None]:
    """Let `show_message` print JSON objects until the context ends."""
    global _messages_are_json
    _messages_are_json = True
    try:
        yield
    finally:
        _messages_are_json = False


def messages_are_json() -> bool:
    """Return whether messages are JSON objects, so that nothing else may be printed to stderr."""
    return _messages_are_json


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Complete what people read, results and messages, until the context ends."""
    global _completed
    _completed = complete
    try:
        yield
    finally:
        _completed = str


def show(text: str) -> None:
    """Print a result to stdout."""
    _print(_completed(text))


def show_json(value: Any) -> None:
    """Print one JSON document to stdout."""
    _print(_json_text(value, indent=2))


def _print(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")


def _json_text(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def printable(text: str) -> str:
    """Return a text with a replacement for each character that a terminal would obey."""
    return _OBEYED.sub("\ufffd", text)


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Redirect stdout to stderr: for Python, native code, and processes that are started inside.

    Spark's JVM keeps the redirected descriptor, so it never writes to stdout afterwards either.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def plain(value: Any) -> Any:
    """Return a value for JSON: times and durations as texts."""
    match value:
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime():
            return time_text(value)
        case timedelta():
            return duration_text(value)
        case Enum():
            return value.value
    return value
