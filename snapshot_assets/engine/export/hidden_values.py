"""Errors of plans that hide columns or mask them, without the text of the database, which may hold the values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.errors import SnapshotError, TaskFailedError, TaskLostError

_KEPT = ("sqlstate", "errno", "table", "column", "chunk", "remedy")
"""Attributes of errors that hold no values of rows."""


def hide_values(error: SnapshotError) -> SnapshotError:
    """Return an error of the same kind without the database's text; errors that have none are returned as they are.

    A server quotes values in its errors, also those of hidden columns: `invalid input syntax for type integer: "…"`.
    Locations and reports of plans that hide values must not show them.

    Args:
        error: An error of a task or of a source, whose attribute `doing` says that its text is a database's.
    """
    doing = error.attributes.get("doing")
    if doing is None and not isinstance(error, TaskFailedError | TaskLostError):
        return error
    names = {"sqlstate": "SQLSTATE", "errno": "error"}
    state = "".join(f" with {name} {found}" for key, name in names.items() if (found := error.attributes.get(key)))
    message = (
        f"{doing or 'A task of the export'} failed{state}. The text of the error may hold values that the plan hides,"
        " so it is left out here: a query with the plan's masks shows it, and so may the log of the database."
    )
    message += f" {remedy}" if (remedy := error.attributes.get("remedy")) else ""
    kept = {name: error.attributes[name] for name in _KEPT if name in error.attributes}
    return type(error)(message, **kept)


@contextmanager
def hiding_values(hidden: bool) -> Iterator[None]:
    """Raise errors inside without the database's text, if a plan hides anything."""
    try:
        yield
    except SnapshotError as error:
        safe = hide_values(error) if hidden else error
        if safe is error:
            raise
        raise safe from None
