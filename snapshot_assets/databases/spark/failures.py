"""What Spark's errors say, for people."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 2000
_FRAME = re.compile(r"at \S+\(.*\)|\.\.\. \d+ more|(Driver|JVM) stacktrace:|[\^~ ]+")
"""Lines of a Java stack, and the marks below lines of a Python one."""


def error_text(error: BaseException) -> str:
    """Return an error's message with its causes and Python's traceback, in one line, without the frames of Java.

    Of a text that is too long the beginning and the end stay: what happened, and what raised it.
    """
    lines = [line.strip() for text in _texts(error) for line in text.splitlines()]
    text = " | ".join(dict.fromkeys(line for line in lines if line and not _FRAME.fullmatch(line)))
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the text of an error and of its causes; py4j's errors hold theirs in their own text."""
    yield str(error)
    while (cause := error.__cause__) is not None:
        yield f"Caused by: {type(cause).__name__}: {cause}"
        error = cause
