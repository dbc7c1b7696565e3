"""Translates Spark's exceptions to the package's own errors, with readable messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from snapshot_assets.errors import DatabaseDeniedError, DatabaseError, UnknownRelationError

_LONGEST = 2000
_NO_PROGRAM = "Cannot run program"
_UNKNOWN = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND")
_FRAME = re.compile(r"at \S+\(.*\)|\.\.\. \d+ more|(Driver|JVM) stacktrace:|[\^~ ]+")
"""Lines of a Java stack, and the marks below lines of a Python one."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise Spark's errors inside as the package's own, of an operation such as `Spark catalog 'lake': reading s.t`."""
    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or ""
        text = error_text(error).rstrip(".")
        if condition.startswith(_UNKNOWN):
            raise UnknownRelationError(f"{doing} failed: {text}", condition=condition, doing=doing) from error
        if "PERMISSION" in condition or "INSUFFICIENT" in condition:
            raise DatabaseDeniedError(f"{doing} failed: {text}", condition=condition, doing=doing) from error
        raise DatabaseError(f"{doing} failed: {text}", condition=condition, doing=doing) from error
    except Exception as error:
        # Classic Spark reports some failures through py4j, whose exception is no PySparkException.
        if type(error).__module__.startswith("py4j."):
            raise DatabaseError(f"{doing} failed: {error_text(error).rstrip('.')}", doing=doing) from error
        raise


def lacks_interpreter(error: BaseException) -> bool:
    """Return whether workers could not start because a machine lacks their interpreter, which no retry brings."""
    return any(_NO_PROGRAM in text for text in _texts(error))


def error_text(error: BaseException) -> str:
    """Return an error's message with its causes and Python's traceback, in one line, without the frames of Java.

    A text that is too long keeps its beginning, which names the failure, and its end, which names the cause.
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
