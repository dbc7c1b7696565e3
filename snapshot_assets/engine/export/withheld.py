"""Keeps a database's own error texts out of locations and reports of plans that hide values.

A server quotes values in its errors, also those of hidden columns: `invalid input syntax for type integer: "…"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.errors import SnapshotError, TaskFailedError, TaskLostError

_KEPT = ("sqlstate", "table", "column", "chunk", "remedy")


def withheld(error: SnapshotError) -> SnapshotError:
    """Return an error of the same kind without foreign text; errors that have none are returned as they are.

    Args:
        error: An error of a task or of a source, whose attribute `doing` says that its text is a database's.
    """
    doing = error.attributes.get("doing")
    if doing is None and not isinstance(error, TaskFailedError | TaskLostError):
        return error
    state = f" with SQLSTATE {error.attributes['sqlstate']}" if error.attributes.get("sqlstate") else ""
    message = (
        f"{doing or 'A task of the export'} failed{state}. The text of the error may hold values that the plan hides,"
        " so it is left out here: the log of the database has it, or a query with the plan's masks."
    )
    message += f" {remedy}" if (remedy := error.attributes.get("remedy")) else ""
    kept = {name: error.attributes[name] for name in _KEPT if name in error.attributes}
    return type(error)(message, **kept)


@contextmanager
def withholding(hidden: bool) -> Iterator[None]:
    """Raise errors inside without foreign text, if a plan hides anything."""
    try:
        yield
    except SnapshotError as error:
        safe = withheld(error) if hidden else error
        if safe is error:
            raise
        raise safe from None
