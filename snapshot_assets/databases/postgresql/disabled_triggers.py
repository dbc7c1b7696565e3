"""Disables triggers, rules and forced row security of tables while a restore reads and writes their rows.

A snapshot has the rows that triggers and rules once wrote. So a restore lets none of them run, whoever made them: they
are disabled within the transaction that loads rows, which a kill rolls back. Foreign keys are still checked. Row
security that is forced would apply to the owner of a table, who is often the restore's own role; then it is not forced
until the transaction ends. Other sessions wait for such a table meanwhile. Locks are taken in one order, so that
sessions do not block each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from snapshot_assets.databases.postgresql.existing_objects import names_of
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseUnavailableError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName

LOCK_SECONDS = 2
LOCK_TRIES = 15
"""Longest wait for the lock of a table that is only read, and how often: other readers wait behind a waiting lock."""

_LOCK_TIMEOUT = "55P03"

# Parents come before partitions, as in the server's own statements. What fires depends on the session's role of
# replication. Triggers of TimescaleDB are a part of its tables.
_ACTIVE = """
WITH setting AS (
    SELECT CASE pg_catalog.current_setting('session_replication_role') WHEN 'replica' THEN 'R' ELSE 'O' END AS fires
), relation AS (
    SELECT coalesce(p.relid, c.oid) AS oid, coalesce(p.level, 0) AS level
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) p ON true
    WHERE (n.nspname, c.relname) IN ({names})
), active AS (
    SELECT r.oid, r.level, 'trigger' AS what, t.tgname AS name,
        pg_catalog.format('ALTER TABLE ONLY %s DISABLE TRIGGER %I', r.oid::pg_catalog.regclass, t.tgname) AS off,
        pg_catalog.format('ALTER TABLE ONLY %s ENABLE %sTRIGGER %I', r.oid::pg_catalog.regclass, CASE t.tgenabled
            WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, t.tgname) AS on
    FROM setting s CROSS JOIN relation r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
    JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid JOIN pg_catalog.pg_namespace m ON m.oid = f.pronamespace
    LEFT JOIN pg_catalog.pg_constraint k ON k.oid = t.tgconstraint
    WHERE t.tgenabled IN ('A', s.fires) AND t.tgtype & {events} <> 0 AND m.nspname NOT LIKE '\\_timescaledb%'
        AND (NOT t.tgisinternal OR t.tgparentid <> 0) AND k.contype IS DISTINCT FROM 'f'
    UNION ALL SELECT r.oid, r.level, 'rule', w.rulename,
        pg_catalog.format('ALTER TABLE %s DISABLE RULE %I', r.oid::pg_catalog.regclass, w.rulename),
        pg_catalog.format('ALTER TABLE %s ENABLE %sRULE %I', r.oid::pg_catalog.regclass, CASE w.ev_enabled
            WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, w.rulename)
    FROM setting s CROSS JOIN relation r JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
    WHERE w.ev_enabled IN ('A', s.fires) AND w.ev_type IN ({kinds})
)
SELECT a.off, a.on, a.what, a.name, n.nspname AS schema, c.relname AS table,
    pg_catalog.pg_has_role(c.relowner, 'USAGE') AS own, pg_catalog.pg_get_userbyid(c.relowner) AS owner
FROM active a JOIN pg_catalog.pg_class c ON c.oid = a.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY a.level, n.nspname, c.relname, a.name, a.off
"""
_INSERT, _DELETE = (4, "'3'"), (8, "'4'")
"""The bit of a trigger's type, and the type of a rule."""

# Only the row security of the table that a statement names applies to it, not that of partitions.
_FORCED = """
SELECT pg_catalog.format('ALTER TABLE ONLY %s NO FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS off,
    pg_catalog.format('ALTER TABLE ONLY %s FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS on,
    n.nspname AS schema, c.relname AS table
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({names}) AND c.relforcerowsecurity AND pg_catalog.row_security_active(c.oid)
    AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
ORDER BY n.nspname, c.relname
"""


@contextmanager
def disable_triggers(
    target: PostgresqlConnection, tables: Sequence[TableName], read: Sequence[TableName] = (), *, deletes: bool = False
) -> Iterator[None]:
    """Within a transaction, let neither triggers, rules nor forced row security act on rows of tables; see `SqlTarget`.

    Partitions of `tables` are covered too.
    """
    with _off(target, [*_forced(target, [*tables, *read]), *_active(target, tables, deletes=deletes)]):
        yield


def acting(target: PostgresqlConnection, tables: Sequence[TableName], *, deletes: bool) -> list[str]:
    """Return the triggers and rules that would act on rows, and that the role cannot disable; see `SqlTarget`."""
    others: dict[TableName, list[dict[str, Any]]] = {}
    for row in _active(target, tables, deletes=deletes):
        if not row["own"]:
            others.setdefault(TableName(row["schema"], row["table"]), []).append(row)
    sentences = []
    for name, rows in others.items():
        these = ", ".join(f"{row['what']} {identifier(row['name'])}" for row in rows)
        sentences.append(
            f"Table {name} has {these}, which would act on the rows that are loaded. Only its owner can disable them:"
            f" import as {rows[0]['owner']} or as a superuser, and the import disables them while it loads. Or let"
            f" {rows[0]['owner']} run {'; '.join(row['off'] for row in rows)} before the import, and after it"
            f" {'; '.join(row['on'] for row in rows)}."
        )
    return sentences


def _active(target: PostgresqlConnection, tables: Sequence[TableName], *, deletes: bool) -> list[dict[str, Any]]:
    """Return the triggers and rules that writing rows to tables would run."""
    if not tables:
        return []
    events, kinds = zip(_INSERT, *([_DELETE] if deletes else []), strict=True)
    query = _ACTIVE.format(names=names_of(tables), events=sum(events), kinds=", ".join(kinds))
    return target.rows(query, "looking up triggers and rules")


@contextmanager
def every_row(target: PostgresqlConnection, names: Sequence[TableName]) -> Iterator[None]:
    """Within a transaction, read all rows of the role's own tables, also if their row security is forced."""
    with _off(target, _forced(target, names)):
        yield


def forced(target: PostgresqlConnection, names: Sequence[TableName]) -> set[TableName]:
    """Return the tables whose row security is forced on the connection's role, which owns them."""
    return {TableName(row["schema"], row["table"]) for row in _forced(target, names)}


@contextmanager
def only_reading(target: PostgresqlConnection, name: TableName, *, nested: bool) -> Iterator[None]:
    """Read all rows of a table, also if its row security is forced and the role owns it; nothing stays changed.

    The force is lifted in a transaction that is rolled back. A role that bypasses row security needs none of this.
    A `nested` one is part of a transaction, which goes on afterwards.

    Raises:
        DatabaseUnavailableError: Other sessions did not release the table in time.
    """
    rows = _forced(target, [name])
    if not rows:
        yield
        return
    begin, ends = "BEGIN", ["ROLLBACK"]
    if nested:
        begin, ends = "SAVEPOINT reading", ["ROLLBACK TO SAVEPOINT reading", "RELEASE SAVEPOINT reading"]
    for left in reversed(range(LOCK_TRIES)):
        target.execute(begin, "beginning to read")
        try:
            if _lifted(target, rows, name, last=not left):
                yield
                return
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
                table=table_text(name),
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
