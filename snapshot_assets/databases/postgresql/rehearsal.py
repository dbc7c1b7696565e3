"""Rehearses statements on a server: runs them in a transaction that is rolled back, and collects what it refuses.

This finds what no list of objects can: missing privileges, names that are taken, and SQL of a newer version. Nothing
stays, and no row is read or written, because the tables that are created are empty. Statements that would change
something outside the transaction, such as the place of a sequence, are not run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.target import FailedStatement, Statement
from snapshot_assets.errors import SnapshotError, TransientError

_SECONDS = 5
"""Longest wait for a lock. Another session that holds one may be anything, so the rest is not rehearsed."""

_MISSING = re.compile(r'(?:relation|type|schema|table) "(?P<name>[^"]+)" does not exist')
_MADE = re.compile(r"(?:table|partition|type|view|materialized view|schema|sequence) (?P<name>.+)")
_AROUND = re.compile(r"^PostgreSQL '.*?': rehearsing .*? failed: (?:ERROR: )?| LINE \d+: .*? \^(?= |$)", re.DOTALL)
_LEDGER = "the ledger"
"""Beginning of what the ledger's statements make: where the first fails, the others say nothing new."""


def rehearse(connection: PostgresqlConnection, statements: Sequence[Statement]) -> list[FailedStatement]:
    """Return the statements that the server refuses, without those that lack only what an earlier one makes."""
    connection.execute("BEGIN", "beginning a rehearsal")
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{_SECONDS}s'", "beginning a rehearsal")
        return _failing(connection, [each for each in statements if not each.always])
    finally:
        connection.execute("ROLLBACK", "ending a rehearsal")


def _failing(connection: PostgresqlConnection, statements: Sequence[Statement]) -> list[FailedStatement]:
    failed: list[FailedStatement] = []
    absent: set[str] = set()
    for statement in statements:
        try:
            message = _refused(connection, statement)
        except TransientError:
            if not _alive(connection):
                raise
            break  # a lock of another session: what the rest would do is unknown
        if message is None:
            continue
        lacking = _MISSING.search(message)
        follows = (lacking is not None and lacking["name"] in absent) or f"table {statement.table}" in absent
        of_ledger = statement.makes.startswith(_LEDGER)
        if not (follows or (of_ledger and _LEDGER in absent)):
            failed.append(FailedStatement(statement, message))
        if of_ledger:
            absent.add(_LEDGER)
        if made := _MADE.fullmatch(statement.makes):
            absent |= {made["name"], statement.makes}
    return failed


def _refused(connection: PostgresqlConnection, statement: Statement) -> str | None:
    """Run a statement; return the server's message if it refuses it, which undoes only that statement."""
    doing = f"rehearsing {statement.makes}"
    connection.execute("SAVEPOINT rehearsed", doing)
    try:
        if not (statement.unless and connection.rows(statement.unless, doing)):
            connection.execute(_without_rows(statement.sql), doing)
    except TransientError:
        raise
    except SnapshotError as error:
        connection.execute("ROLLBACK TO SAVEPOINT rehearsed", doing)
        return _AROUND.sub("", str(error))
    connection.execute("RELEASE SAVEPOINT rehearsed", doing)
    return None


def _without_rows(sql: str) -> str:
    """Return the statement of a materialized view so that its query does not run; others do not change."""
    fills = sql.startswith("CREATE MATERIALIZED VIEW ") and sql.endswith(" WITH DATA")
    return f"{sql.removesuffix(' WITH DATA')} WITH NO DATA" if fills else sql


def _alive(connection: PostgresqlConnection) -> bool:
    try:
        connection.execute("ROLLBACK TO SAVEPOINT rehearsed", "ending a rehearsal")
    except SnapshotError:
        return False
    return True
