"""Prints results and tables to stdout, and everything else to stderr.

Texts may contain a document's text or a server's message. No character of them reaches a terminal that it would obey.
A command whose output nobody reads any more ends quietly, as in `snapshots … | head`.

Words in tables, such as ids and paths, are never cut. On a terminal that is too narrow, texts continue in the next
line; elsewhere each row is one line. Commands that print no table start without rich.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import duration_text, number_text, time_text

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


READER_GONE = 141
"""Exit status then: that of a process which SIGPIPE ended, as shells report it."""
_STDOUT, _STDERR = 1, 2


def run_for_reader(run: Callable[[], int]) -> int:
    """Run a command and return its exit status, or `READER_GONE` if its output has no reader any more."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not is_reader_gone():
            raise
        # When the interpreter ends, it writes what is left in its buffers to nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (_STDOUT, _STDERR):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        return READER_GONE


def is_reader_gone() -> bool:
    """Return whether stdout or stderr is a pipe whose reader has closed it."""
    poll = select.poll()
    for descriptor in (_STDOUT, _STDERR):
        poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


_COUNTED = frozenset({"bytes", "columns", "count", "files", "rows"})
"""Words of titles over counts; other numbers are names, such as revisions."""
_GAP = 2
_UNLIMITED = 1_000_000
"""Width of what is no terminal, in characters."""
_MOST_CELLS = 5_000
"""Cells that rich lays out, which takes 0.1 ms for each; the rows of larger tables are not divided among lines."""


def show_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns to stdout; numbers are aligned to the right, and counts have separators of thousands."""
    counts = [not _COUNTED.isdisjoint(re.split("[_ ]", title.lower())) for title in headers]
    texts = [[_text(cell, count=count) for count, cell in zip(counts, row, strict=True)] for row in rows]
    right = [bool(rows) and all(isinstance(row[place], int) for row in rows) for place in range(len(headers))]
    lay_out = _by_rich if len(headers) * len(rows) <= _MOST_CELLS else _one_line_each
    for line in lay_out([_text(title, count=False) for title in headers], texts, right):
        sys.stdout.write(f"{line.rstrip()}\n")


def _text(cell: object, *, count: bool) -> str:
    text = number_text(cell) if count and isinstance(cell, int) else str(cell)
    return printable(text).replace("\n", " ").expandtabs()


def _by_rich(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len
    from rich.console import Console, JustifyMethod
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    needed = 0
    for title, cells, number in zip(headers, _columns(headers, rows), right, strict=True):
        longest = max((cell_len(word) for text in cells for word in text.split()), default=0)
        whole = longest == max(map(cell_len, cells))
        justify: JustifyMethod = "right" if number else "left"
        table.add_column(Text(title), justify=justify, min_width=longest, no_wrap=whole)
        needed += longest + _GAP
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=sys.stdout)
    console.width = max(console.width, needed) if sys.stdout.isatty() else _UNLIMITED
    with console.capture() as captured:
        console.print(table)
    yield from captured.get().splitlines()


def _one_line_each(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in _columns(headers, rows)]
    for row in (headers, *rows):
        spaces = [" " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)]
        cells = (
            space + text if number else text + space for text, space, number in zip(row, spaces, right, strict=True)
        )
        yield (" " * _GAP).join(cells)


def _columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip(headers, *rows, strict=True))
