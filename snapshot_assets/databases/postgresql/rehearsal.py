"""Rehearses statements on a server: runs them in a transaction that is rolled back, and collects what it refuses.

This finds what no list of objects can: missing privileges, names that are taken, and SQL of a newer version. The
tables that are created are empty, and no row is read or written. A rehearsal ends early when it takes too long or
holds too many locks; then the rest is unknown, which refuses no import.

Statements are left out that reach beyond what the rollback takes back. A lock on a table that others use would keep
them waiting. A function of the snapshot may change what no rollback restores, such as the place of a sequence.
Functions that the target has already may be called, for example by an index.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from snapshot_assets.databases.definition import (
    Advance,
    Create,
    FailedStatement,
    ObjectKey,
    Rehearsal,
    Statement,
    Unchecked,
)
from snapshot_assets.databases.postgresql.ddl.checked_sql import qualified_name
from snapshot_assets.databases.postgresql.disabled_triggers import every_row
from snapshot_assets.databases.postgresql.existing_objects import names_of
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.ledger import LEDGER
from snapshot_assets.errors import SnapshotError, TransientError
from snapshot_assets.format.relations import TableName

LOCK_SECONDS = 2
"""Longest wait for a lock. Another session that holds one may be anything, so the rest is not rehearsed."""

SECONDS = 60
"""Longest time of a rehearsal."""

_PORTION = 25
"""Number of statements after which the locks are counted."""

_LOCKS = """
SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE NOT fastpath) AS held, (
    SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings s WHERE s.name = 'max_locks_per_transaction') * (
    SELECT pg_catalog.sum(s.setting::pg_catalog.int8) FROM pg_catalog.pg_settings s
    WHERE s.name IN ('max_connections', 'max_prepared_transactions'))::pg_catalog.int8 AS most
"""
_ENDS = ("53", "57014")
"""SQLSTATEs that say nothing of a statement: the server's memory for locks or its disk is full, time is up."""

_LACKING = frozenset(("42P01", "42703", "42704", "42883", "3F000", "0A000", "58P01"))
"""SQLSTATEs of what does not exist; the last two are an extension's that is not installed on the server."""

_HOLD_ROWS = frozenset(("table", "partition", "extension"))
_USED_BY_OTHERS = frozenset(("table", "partition", "view", "materialized view", "type", "sequence", "schema"))
"""Kinds of objects that statements of other tables may need."""


_EVENT_TRIGGERS = """
SELECT pg_catalog.quote_ident(e.evtname) AS name FROM pg_catalog.pg_event_trigger e
WHERE e.evtenabled IN ('O', 'A') AND e.evtevent <> 'login' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_event_trigger'::pg_catalog.regclass AND d.objid = e.oid AND d.deptype = 'e')
ORDER BY e.evtname LIMIT 1
"""

_EXISTING = """
SELECT n.nspname AS schema, c.relname AS name, c.relkind = 'S' AS sequence
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'S') AND (n.nspname, c.relname) IN ({names})
"""

_NAME = r'(?:"(?:[^"]|"")+"|\w+)'
_QUALIFIED = re.compile(rf"{_NAME}\.{_NAME}")
# These lock nothing of others, except against changes of a table's definition.
_READS = re.compile(
    r"(?:CREATE (?:OR REPLACE )?(?:MATERIALIZED VIEW|RECURSIVE VIEW|VIEW|FUNCTION|PROCEDURE|AGGREGATE|POLICY|RULE"
    r"|SCHEMA|EXTENSION|TYPE|DOMAIN|SEQUENCE)|COMMENT) "
)
_FILLS = re.compile(r"CREATE MATERIALIZED VIEW .* WITH DATA\Z|REFRESH MATERIALIZED VIEW ", re.DOTALL)
_CREATES_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE ")
_OTHER_TABLES = re.compile(r"\b(?:INHERITS|PARTITION OF|REFERENCES)\b.*", re.DOTALL)
_CODE = frozenset(("function", "procedure", "operator", "cast"))
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX .*(?:\(.*\(| WHERE )", re.DOTALL)
_CONSTRAINT = re.compile(r"ALTER (?:TABLE|DOMAIN) .*\b(?:CHECK|EXCLUDE)\b", re.DOTALL)


def rehearse(connection: PostgresqlConnection, statements: Sequence[Statement]) -> Rehearsal:
    """Return what the server refuses of the ledger and the statements, without what belongs to what it refused."""
    todo = [*LEDGER, *(each for each in statements if not isinstance(each, Advance))]
    if trigger := event_trigger(connection):
        reason = f"event trigger {trigger} of the target would run"
        untried = tuple(each.key for each in todo if not isinstance(each, Unchecked))
        return Rehearsal(tuple(_unchecked(todo)), {reason: untried})
    left_out = unsafe(connection, todo)
    connection.execute("BEGIN", "beginning a rehearsal")
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", "beginning a rehearsal")
        attempt = _Attempt(connection)
        attempt.run([each for each in todo if each not in left_out])
    finally:
        connection.execute("ROLLBACK", "ending a rehearsal")
    return attempt.rehearsal(left_out)


class _Attempt:
    """One transaction, which the caller rolls back.

    Attributes:
        failed: The statements that the server refused.
        rest: The statements that were not run, because the rehearsal ended early.
        ended: Why it did; "" if it did not.
    """

    def __init__(self, connection: PostgresqlConnection) -> None:
        self.failed: list[FailedStatement] = []
        self.rest: Sequence[Statement] = ()
        self.ended = ""
        self._connection = connection
        self._skipped: set[Statement] = set()
        self._kept: set[ObjectKey] = set()  # what the target has already, and keeps
        self._made: set[ObjectKey] = set()
        self._deadline = time.monotonic() + SECONDS

    def run(self, statements: Sequence[Statement]) -> None:
        """Run the statements; one that fails is run again after the others, as an import does."""
        todo = statements
        while True:
            self.failed = []
            for number, statement in enumerate(todo):
                self.ended = self._limit(number) or self._try(statement)
                if self.ended:
                    self.rest = [each for each in todo[number:] if not isinstance(each, Unchecked)]
                    self.failed += _unchecked(todo[number:])
                    return
            if len(self.failed) in (0, len(todo)):
                return
            todo = [each.statement for each in self.failed]

    def _limit(self, number: int) -> str:
        """Return why the next statement cannot run, "" if it can."""
        if time.monotonic() >= self._deadline:
            return f"a rehearsal ends after {SECONDS} s"
        if number % _PORTION == 0:
            locks = self._connection.rows(_LOCKS, "counting locks")[0]
            if locks["held"] > locks["most"] // 2:
                return "the rest of the server's memory for locks is left to others"
        return ""

    def _try(self, statement: Statement) -> str:
        """Run a statement; return why the rehearsal cannot go on after it, "" if it can."""
        if not self._kept.isdisjoint(statement.key.owners):
            self._skipped.add(statement)
            return ""
        if isinstance(statement, Unchecked):
            self.failed += _unchecked([statement])
            return ""
        doing = f"rehearsing {statement.key}"
        left = max(1, int((self._deadline - time.monotonic()) * 1000))
        self._connection.execute(f"SET LOCAL statement_timeout = {left}", doing)
        self._connection.execute("SAVEPOINT rehearsed", doing)
        try:
            there = isinstance(statement, Create) and bool(self._connection.rows(statement.there, doing))
            if there or (statement.unless and self._connection.rows(statement.unless, doing)):
                self._skipped.add(statement)
                self._kept |= {statement.key} if there and statement.key not in self._made else set()
            else:
                self._made.add(statement.key)
                sql, reads = statement.sql, statement.reads
                if _FILLS.match(sql):  # a materialized view, whose query does not run
                    sql, reads = f"{sql.removesuffix(' WITH DATA')} WITH NO DATA", ()
                with every_row(self._connection, reads):
                    self._connection.execute(sql, doing)
            self._connection.execute("RELEASE SAVEPOINT rehearsed", doing)
        except SnapshotError as error:
            self._connection.execute("ROLLBACK TO SAVEPOINT rehearsed", doing)
            message = str(error.attributes.get("reason", error))
            if isinstance(error, TransientError) or str(error.attributes.get("sqlstate")).startswith(_ENDS):
                return f"{statement.key} could not be tried: {message}"
            lacks = error.attributes.get("sqlstate") in _LACKING
            self.failed.append(FailedStatement(statement, message, _holds_rows(statement), lacks))
        return ""

    def rehearsal(self, left_out: Mapping[Statement, str]) -> Rehearsal:
        """Return what failed by itself, what belongs to that, and what is unknown.

        What lacks something is unknown if that may be what was not tried. `left_out` was not run, for a reason each.
        """
        untried = dict.fromkeys(self.rest, self.ended) | dict(left_out)
        absent: dict[ObjectKey, ObjectKey | str] = {each.key: reason for each, reason in untried.items()}
        failed, following = dict[ObjectKey, FailedStatement](), set[Statement]()
        for each in self.failed:
            statement = each.statement
            cause = next((absent[key] for key in _needed(statement) if key in absent), None)
            if cause is None and each.lacks:
                unknown = (
                    reason
                    for other, reason in left_out.items()
                    if other.key.kind in _USED_BY_OTHERS or (other.table and other.table == statement.table)
                )
                cause = self.ended or next(unknown, None)
            if isinstance(cause, str):
                untried[statement] = cause
            elif cause is None:
                failed[statement.key] = each
            else:
                following.add(statement)
                failed[cause] = replace(failed[cause], holds_rows=failed[cause].holds_rows or each.holds_rows)
            absent.setdefault(statement.key, statement.key if cause is None else cause)
        by_reason: dict[str, tuple[ObjectKey, ...]] = {}
        for statement, reason in untried.items():
            by_reason[reason] = (*by_reason.get(reason, ()), statement.key)
        return Rehearsal(tuple(failed.values()), by_reason, frozenset(following), frozenset(self._skipped))


def _needed(statement: Statement) -> Iterator[ObjectKey]:
    """Yield the keys of what a statement needs, as far as its own key and table tell."""
    key, table = statement.key, statement.table
    yield from (each.key for each in LEDGER if statement in LEDGER)
    yield key
    yield from key.owners
    if table is not None:
        yield from (ObjectKey(kind, table) for kind in ("table", "view", "materialized view"))
    yield from (ObjectKey("schema", name.schema) for name in (key.name, table) if isinstance(name, TableName))


def _unchecked(statements: Iterable[Statement]) -> Iterator[FailedStatement]:
    """Yield those of the statements that an import refuses to run."""
    for each in statements:
        if isinstance(each, Unchecked):
            yield FailedStatement(each, each.reason, _holds_rows(each))


def _holds_rows(statement: Statement) -> bool:
    return statement.key.kind in _HOLD_ROWS or statement in LEDGER


def event_trigger(connection: PostgresqlConnection) -> str | None:
    """Return an event trigger of the target that statements would run; those of extensions do not count."""
    found = connection.rows(_EVENT_TRIGGERS, "looking for event triggers")
    return found[0]["name"] if found else None


def unsafe(connection: PostgresqlConnection, statements: Sequence[Statement]) -> dict[Statement, str]:
    """Return the statements that a rehearsal must not run, and why."""
    names = names_of(sorted({name for each in statements for name in _locked(each)}))
    rows = connection.rows(_EXISTING.format(names=names), "looking up tables") if names else []
    existing = {TableName(row["schema"], row["name"]): row["sequence"] for row in rows}
    code = any(each.key.kind in _CODE for each in statements)
    found = {}
    for each in statements:
        there = [existing[name] for name in _locked(each) if name in existing]
        locks = any(not is_sequence or each.sql.startswith("ALTER SEQUENCE ") for is_sequence in there)
        if locks and not any(connection.rows(query, f"rehearsing {each.key}") for query in each.skips):
            found[each] = "they would lock what exists in the target"
        elif code and (_CONSTRAINT.match(each.sql) or _INDEX.match(each.sql)):  # the server may compute an expression
            found[each] = "they may call functions of the snapshot"
    return found


def _locked(statement: Statement) -> Iterator[TableName]:
    """Yield the names in a statement of which it locks those that exist."""
    sql = statement.sql
    if _READS.match(sql):
        return
    if _CREATES_TABLE.match(sql):
        others = _OTHER_TABLES.search(sql)
        sql = others.group() if others else ""
    for match in _QUALIFIED.finditer(sql):
        if name := qualified_name(match.group()):  # else a number
            yield name
