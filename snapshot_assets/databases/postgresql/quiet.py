"""Keeps triggers, rules and forced row security of tables quiet while a restore reads and writes their rows.

A snapshot has the rows that triggers and rules once wrote. So a restore that creates them (`--with-code`) must not let
them run, when it adds windows later or replaces some. Foreign keys are still checked. Row security that is forced would
apply to the owner of a table, who is often the restore's own role; then it is not forced until the transaction ends.
Other sessions wait for such a table meanwhile. Locks are taken in one order, so that sessions do not block each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from snapshot_assets.databases.postgresql.existing_types import names_of
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.errors import DatabaseUnavailableError
from snapshot_assets.format.relations import Table, TableName

QUIET = "quiet"
"""The option of a table whose triggers and rules the restore itself creates."""

LOCK_SECONDS = 2
LOCK_TRIES = 15
"""Longest wait for the lock of a table that is only read, and how often: other readers wait behind a waiting lock."""

_LOCK_TIMEOUT = "55P03"

# Parents come before partitions, as in the server's own statements.
_ACTIVE = """
WITH relation AS (
    SELECT coalesce(p.relid, c.oid) AS oid, coalesce(p.level, 0) AS level
    FROM (SELECT pg_catalog.to_regclass({table})::oid AS oid) c
    LEFT JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) p ON true
), active AS (
    SELECT r.oid, r.level, t.tgname AS name,
        pg_catalog.format('ALTER TABLE ONLY %s DISABLE TRIGGER %I', r.oid::pg_catalog.regclass, t.tgname) AS off,
        pg_catalog.format('ALTER TABLE ONLY %s ENABLE %sTRIGGER %I', r.oid::pg_catalog.regclass, CASE t.tgenabled
            WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, t.tgname) AS on
    FROM relation r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
    LEFT JOIN pg_catalog.pg_constraint k ON k.oid = t.tgconstraint
    WHERE t.tgenabled <> 'D' AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND k.contype IS DISTINCT FROM 'f')
        AND k.contype IS DISTINCT FROM 'f'
    UNION ALL SELECT r.oid, r.level, w.rulename,
        pg_catalog.format('ALTER TABLE %s DISABLE RULE %I', r.oid::pg_catalog.regclass, w.rulename),
        pg_catalog.format('ALTER TABLE %s ENABLE %sRULE %I', r.oid::pg_catalog.regclass, CASE w.ev_enabled
            WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, w.rulename)
    FROM relation r JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
    WHERE w.ev_enabled <> 'D' AND w.rulename <> '_RETURN'
)
SELECT a.off, a.on FROM active a JOIN pg_catalog.pg_class c ON c.oid = a.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY a.level, n.nspname, c.relname, a.name, a.off
"""

# Only the row security of the table that a statement names applies to it, not that of partitions.
_FORCED = """
SELECT pg_catalog.format('ALTER TABLE ONLY %s NO FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS off,
    pg_catalog.format('ALTER TABLE ONLY %s FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS on
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({names}) AND c.relforcerowsecurity AND pg_catalog.row_security_active(c.oid)
    AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
ORDER BY n.nspname, c.relname
"""


@contextmanager
def quiet(target: PostgresqlConnection, tables: Sequence[Table], read: Sequence[TableName] = ()) -> Iterator[None]:
    """Within a transaction, let neither triggers, rules nor forced row security act on the rows of tables.

    Triggers and rules are those of tables with the option, and of their partitions.

    Args:
        target: The connection.
        tables: The tables that are written to.
        read: More tables, which are only read.
    """
    rows = _forced(target, [*(table.table_name for table in tables), *read])
    for name in sorted(table.table_name for table in tables if QUIET in table.options):
        rows += target.rows(_ACTIVE.format(table=literal(qualified(name))), f"looking up triggers of {name}")
    with _off(target, rows):
        yield


@contextmanager
def every_row(target: PostgresqlConnection, names: Sequence[TableName]) -> Iterator[None]:
    """Within a transaction, read all rows of the role's own tables, also if their row security is forced."""
    with _off(target, _forced(target, names)):
        yield


@contextmanager
def only_reading(target: PostgresqlConnection, name: TableName, *, nested: bool) -> Iterator[None]:
    """Read all rows of a table, also if its row security is forced and the role owns it; nothing stays changed.

    The force is lifted in a transaction that is rolled back. A role that bypasses row security needs none of this.

    Args:
        target: The connection.
        name: The table.
        nested: Whether the connection is in a transaction, which goes on afterwards.

    Raises:
        DatabaseUnavailableError: Other sessions did not release the table in time.
    """
    rows = _forced(target, [name])
    if not rows:
        yield
        return
    for left in reversed(range(LOCK_TRIES)):
        with _rolled_back(target, nested=nested):
            if _lifted(target, rows, name, last=not left):
                yield
                return


@contextmanager
def _rolled_back(target: PostgresqlConnection, *, nested: bool) -> Iterator[None]:
    begin, ends = "BEGIN", ["ROLLBACK"]
    if nested:
        begin, ends = "SAVEPOINT reading", ["ROLLBACK TO SAVEPOINT reading", "RELEASE SAVEPOINT reading"]
    target.execute(begin, "beginning to read")
    try:
        yield
    finally:
        for sql in ends:
            target.execute(sql, "ending to read")


def _lifted(target: PostgresqlConnection, rows: Sequence[Mapping[str, Any]], name: TableName, *, last: bool) -> bool:
    """Lift the force on a table; return whether its lock was free in time, or raise an error at the `last` try."""
    target.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", "beginning to read")
    try:
        for row in rows:
            target.execute(row["off"], f"disabling the forced row security of {name}")
    except DatabaseUnavailableError as error:
        if error.attributes.get("sqlstate") != _LOCK_TIMEOUT:
            raise
        if last:
            raise DatabaseUnavailableError(
                f"Table {name} could not be read: its row security is forced, also on this role. Reading all rows needs"
                f" a lock on the table, which other sessions held for {LOCK_TRIES * LOCK_SECONDS} s. Try again when"
                " they are done, or as a role with BYPASSRLS.",
                table=str(name),
            ) from error
        return False
    return True


def _forced(target: PostgresqlConnection, names: Sequence[TableName]) -> list[dict[str, Any]]:
    return target.rows(_FORCED.format(names=names_of(names)), "looking up row security") if names else []


@contextmanager
def _off(target: PostgresqlConnection, rows: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Run the statements `off` of rows, and at the end `on`; after an error, the transaction is rolled back.

    All are off before the first row and on after the last one: in between, the server alters no table with checks that
    are deferred, and rows may refer to each other in circles.
    """
    for row in rows:
        target.execute(row["off"], "disabling triggers and forced row security")
    yield
    if rows:
        target.execute("SET CONSTRAINTS ALL IMMEDIATE", "checking constraints")
    for row in rows:
        target.execute(row["on"], "enabling triggers and forced row security")
