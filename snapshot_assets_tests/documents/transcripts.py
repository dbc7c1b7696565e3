"""Compares what commands print with what a document shows, leaving out what differs from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from snapshot_assets_tests.documents.shell import Printed

OMITTED = "…"
"""A line of a document that stands for any number of lines; within a line, for any text."""

_VARYING = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "RUN"),
    (r"\S+@\S+(?= [0-9a-f]{8}\b)", "HOST"),
    (r"\b[0-9a-f]{8,}\b", "HEX"),  # of letters alone in one of 2,500
    (r"(?<!\d)(?!2025-)20\d\d-\d\d-\d\d(T[\d:.]+Z)?", "TIME"),
    (r"\b[\d,.]+ (B|KiB|MiB|GiB)\b", "SIZE"),
    (r"\b[\d,]+ bytes; expected [\d,]+", "SIZE"),
    (r"\b[\d.]+ (ms|s|min|h( \d+ min)?)\b", "DURATION"),
    (r"\b(revision |rev:)\d+", r"\1N"),  # chunks that end together are committed together
    (r"[ \t─━]+", " "),
    (r"\b\d+\*? TIME", "N TIME"),
)


def _masked(line: str) -> str:
    for pattern, name in _VARYING:
        line = re.sub(pattern, name, line)
    return line.strip()


def _pattern(lines: Sequence[str]) -> re.Pattern[str]:
    """Return what a whole output must match."""
    parts = []
    for line in lines:
        if line.strip() == OMITTED:
            parts.append(r"(?:[^\n]*\n)*")
        else:
            parts.append("[^\n]*".join(map(re.escape, _masked(line).split(OMITTED))) + r"\n")
    return re.compile("".join(parts))


def _is_among(line: str, printed: Iterable[str]) -> bool:
    pattern = _pattern([line])
    return any(pattern.fullmatch(f"{each}\n") for each in printed)


def appears(shown: Sequence[str], printed: Printed) -> bool:
    """Return whether each line that a document shows is among what a command has printed."""
    lines = [_masked(line) for line in (*printed.stdout, *printed.stderr)]
    return all(_is_among(each, lines) for each in shown)


def difference(shown: Sequence[str], printed: Printed) -> str:
    """Return how an output differs from what a document shows; empty if it does not.

    Lines of stderr may be shown or left out. Lines of stdout must be shown, or left out by a line `…`.
    """
    errors = {_masked(line) for line in printed.stderr}
    out = [_masked(line) for line in printed.stdout]
    shown = [line for line in shown if line.strip()]
    of_stdout = [line for line in shown if line.strip() == OMITTED or not _is_among(line, errors)]
    if _pattern(of_stdout).fullmatch("".join(f"{line}\n" for line in out if line)):
        return ""
    return "\n".join(["shown:", *shown, "printed:", *printed.stdout, "to stderr:", *printed.stderr])
