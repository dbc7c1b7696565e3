"""DuckDB's exceptions as the package's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from snapshot_assets.errors import DatabaseDeniedError, DatabaseError, DatabaseLockedError

_LOCKED = re.compile(r"Could not set lock on file.*?Conflicting lock is held in (.+? \(PID \d+\).*?)\.", re.DOTALL)

_LONGEST = 1000
# What a commit that runs out of memory says does not call it so.
_MEMORY = re.compile("Out of Memory Error|failed to pin block|could not allocate block|Failed to delete all rows from")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise what DuckDB raises inside as the package's own errors.

    Args:
        doing: What is being done, such as `DuckDB 'shop': reading main.orders`.
    """
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:  # a stream of Arrow breaks off with the last two
        raise _own(error, doing) from error


def _shortened(text: str) -> str:
    """Return the beginning of what DuckDB says, which in a few cases goes on with thousands of rows."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _own(error: Exception, doing: str) -> DatabaseError:
    told = _shortened(" ".join(str(error).split()).rstrip("."))
    if "Could not set lock on file" in told:
        match = _LOCKED.search(told)
        holder = match.group(1) if match else told
        return DatabaseLockedError(
            f"{doing} failed: another process holds the file for writing: {holder}. Stop that process or let it close"
            " the database, then try again; several readers may hold the file, a writer only alone.",
            holder=holder,
        )
    other_settings = isinstance(error, duckdb.ConnectionException) and "different configuration" in told
    if other_settings or "Unique file handle conflict" in told:
        return DatabaseLockedError(
            f"{doing} failed: this very process has the file open already, for writing or with other settings."
            " Close that connection first."
        )
    if _MEMORY.search(told):
        return DatabaseError(
            f"{doing} failed: it needs more memory than DuckDB may use; it unpacks 2048 rows at once, however large, a"
            " view may need them all, and indexes are held in memory. Allow it more in the URI of the database, such"
            f" as duckdb:///….duckdb?memory_limit=2GiB. {told.partition(' Possible solutions')[0]}"
        )
    if "Permission Error" in told:
        return DatabaseDeniedError(
            f"{doing} failed: something reads outside the database file, which is switched off: {told}"
        )
    return DatabaseError(f"{doing} failed: {told}")
