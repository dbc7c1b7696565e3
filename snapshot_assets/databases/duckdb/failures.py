"""Translates DuckDB's exceptions to the package's own errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from snapshot_assets.errors import DatabaseDeniedError, DatabaseError, DatabaseLockedError

_LOCKED = re.compile(r"Could not set lock on file.*?Conflicting lock is held in (.+? \(PID \d+\).*?)\.", re.DOTALL)

_LONGEST = 1000
# The last two are the messages of a commit that runs out of memory.
_MEMORY = re.compile("Out of Memory Error|failed to pin block|could not allocate block|Failed to delete all rows from")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise DuckDB's errors inside as the package's own.

    Args:
        doing: The operation, such as `DuckDB 'shop': reading main.orders`.
    """
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:  # a stream of Arrow breaks off with the last two
        raise _translated(error, doing) from error


def _translated(error: Exception, doing: str) -> DatabaseError:
    text = " ".join(str(error).split()).rstrip(".")
    if len(text) > _LONGEST:  # some of DuckDB's messages contain thousands of rows
        text = f"{text[:_LONGEST]}…"
    if "Could not set lock on file" in text:
        match = _LOCKED.search(text)
        holder = match.group(1) if match else text
        return DatabaseLockedError(
            f"{doing} failed: another process holds the file for writing: {holder}. Stop that process or let it close"
            " the database, then try again; several readers may hold the file, a writer only alone.",
            holder=holder,
        )
    other_settings = isinstance(error, duckdb.ConnectionException) and "different configuration" in text
    if other_settings or "Unique file handle conflict" in text:
        return DatabaseLockedError(
            f"{doing} failed: this very process has the file open already, for writing or with other settings."
            " Close that connection first."
        )
    if _MEMORY.search(text):
        return DatabaseError(
            f"{doing} failed: it needs more memory than DuckDB may use; it unpacks 2048 rows at once, however large, a"
            " view may need them all, and indexes are held in memory. Allow it more in the URI of the database, such"
            f" as duckdb:///….duckdb?memory_limit=2GiB. {text.partition(' Possible solutions')[0]}"
        )
    if "Permission Error" in text:
        return DatabaseDeniedError(
            f"{doing} failed: something reads outside the database file, which is switched off: {text}"
        )
    return DatabaseError(f"{doing} failed: {text}")
