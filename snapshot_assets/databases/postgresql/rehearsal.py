"""Rehearses statements on a server: runs them in a transaction that is rolled back, and collects what it refuses.

This finds what no list of objects can: missing privileges, names that are taken, and SQL of a newer version. Nothing
stays, and no row is read or written, because the tables that are created are empty. Statements that would change
something outside the transaction, such as the place of a sequence, are not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from snapshot_assets.databases.kinds import kind_of_object
from snapshot_assets.databases.ledger import LEDGER
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.target import FailedStatement, Statement
from snapshot_assets.errors import SnapshotError, TransientError

_SECONDS = 5
"""Longest wait for a lock. Another session that holds one may be anything, so the rest is not rehearsed."""

_MISSING = re.compile(r'(?:relation|type|schema|table) "(?P<name>[^"]+)" does not exist')
_MADE = re.compile(r"(?:table|partition|type|view|materialized view|schema|sequence) (?P<name>.+)")
_AROUND = re.compile(r"^PostgreSQL '.*?': rehearsing .*? failed: (?:ERROR: )?| LINE \d+: .*? \^(?= |$)", re.DOTALL)
_LEDGER = "the ledger"
_HOLD_ROWS = frozenset(("table", "partition", "extension"))


def rehearse(connection: PostgresqlConnection, statements: Sequence[Statement]) -> list[FailedStatement]:
    """Return what the server refuses of the ledger and the statements, without what lacks only what another makes."""
    connection.execute("BEGIN", "beginning a rehearsal")
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{_SECONDS}s'", "beginning a rehearsal")
        return _failing(connection, [*LEDGER, *(each for each in statements if not each.always)])
    finally:
        connection.execute("ROLLBACK", "ending a rehearsal")


def _failing(connection: PostgresqlConnection, statements: Sequence[Statement]) -> list[FailedStatement]:
    """Return the statements that fail; one that fails is run again after the others, as an import does."""
    todo, kept = list(statements), set[str]()
    while True:
        failed: list[FailedStatement] = []
        for statement in todo:
            try:
                message = None if statement.changes in kept else _refused(connection, statement, kept)
            except TransientError:
                if not _alive(connection):
                    raise
                return _causes(failed)  # a lock of another session: what the rest would do is unknown
            if message is not None:
                failed.append(FailedStatement(statement, message, _holds_rows(statement)))
        if len(failed) in (0, len(todo)):
            return _causes(failed)
        todo = [each.statement for each in failed]


def _group(statement: Statement) -> str:
    """Return what a statement makes; all parts of the ledger are one object."""
    return _LEDGER if statement in LEDGER else statement.makes


def _holds_rows(statement: Statement) -> bool:
    return kind_of_object(statement.makes) in _HOLD_ROWS or statement in LEDGER


def _causes(failed: Sequence[FailedStatement]) -> list[FailedStatement]:
    """Return the statements that did not fail because of others; each holds the rows that those hold."""
    causes: dict[str, FailedStatement] = {}
    absent: dict[str, str] = {}  # what is not there, and the object because of which it is not
    for each in failed:
        cause = _cause(each, absent)
        makes = each.statement.makes
        if cause is None:
            cause = makes
            causes[makes] = each
        elif each.holds_rows:
            causes[cause] = replace(causes[cause], holds_rows=True)
        absent.setdefault(_group(each.statement), cause)
        if made := _MADE.fullmatch(makes):
            absent.setdefault(made["name"], cause)
    return list(causes.values())


def _cause(failed: FailedStatement, absent: Mapping[str, str]) -> str | None:
    """Return the object because of which a statement failed, if there is one."""
    lacking, statement = _MISSING.search(failed.message), failed.statement
    own = _group(statement)
    names = (own, f"table {statement.table}", lacking["name"] if lacking else own)
    return next((absent[name] for name in names if name in absent), None)


def _refused(connection: PostgresqlConnection, statement: Statement, kept: set[str]) -> str | None:
    """Run a statement; return the server's message if it refuses it, which undoes only that statement.

    What the target has already, and keeps, is added to `kept`.
    """
    doing = f"rehearsing {statement.makes}"
    connection.execute("SAVEPOINT rehearsed", doing)
    try:
        if not (statement.unless and connection.rows(statement.unless, doing)):
            connection.execute(_without_rows(statement.sql), doing)
        elif statement.keeps:
            kept.add(statement.makes)
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
