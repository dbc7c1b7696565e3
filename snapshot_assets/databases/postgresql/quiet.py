"""Keeps triggers, rules and forced row security of tables quiet while a restore reads and writes their rows.

A snapshot has the rows that triggers and rules once wrote. So a restore that creates them (`--with-code`) must not let
them run, when it adds windows later or replaces some. Foreign keys are still checked. Row security that is forced would
apply to the owner of a table, who is often the restore's own role; then it is not forced until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from snapshot_assets.databases.postgresql.existing_types import names_of
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.relations import Table, TableName

QUIET = "quiet"
"""The option of a table whose triggers and rules the restore itself creates."""

_ACTIVE = """
WITH relation AS (
    SELECT coalesce(p.relid, c.oid) AS oid FROM (SELECT pg_catalog.to_regclass({table})::oid AS oid) c
    LEFT JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) p ON true
)
SELECT pg_catalog.format('ALTER TABLE ONLY %s DISABLE TRIGGER %I', r.oid::pg_catalog.regclass, t.tgname) AS off,
    pg_catalog.format('ALTER TABLE ONLY %s ENABLE %sTRIGGER %I', r.oid::pg_catalog.regclass, CASE t.tgenabled
        WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, t.tgname) AS on
FROM relation r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
LEFT JOIN pg_catalog.pg_constraint k ON k.oid = t.tgconstraint
WHERE t.tgenabled <> 'D' AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND k.contype IS DISTINCT FROM 'f')
    AND k.contype IS DISTINCT FROM 'f'
UNION ALL SELECT pg_catalog.format('ALTER TABLE %s DISABLE RULE %I', r.oid::pg_catalog.regclass, w.rulename),
    pg_catalog.format('ALTER TABLE %s ENABLE %sRULE %I', r.oid::pg_catalog.regclass, CASE w.ev_enabled
        WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, w.rulename)
FROM relation r JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
WHERE w.ev_enabled <> 'D' AND w.rulename <> '_RETURN'
"""

# Only the row security of the table that a statement names applies to it, not that of partitions.
_FORCED = """
SELECT pg_catalog.format('ALTER TABLE ONLY %s NO FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS off,
    pg_catalog.format('ALTER TABLE ONLY %s FORCE ROW LEVEL SECURITY', c.oid::pg_catalog.regclass) AS on
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({names}) AND c.relforcerowsecurity AND pg_catalog.row_security_active(c.oid)
    AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
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
    for name in (table.table_name for table in tables if QUIET in table.options):
        rows += target.rows(_ACTIVE.format(table=literal(qualified(name))), f"looking up triggers of {name}")
    with _off(target, rows):
        yield


@contextmanager
def every_row(target: PostgresqlConnection, names: Sequence[TableName]) -> Iterator[None]:
    """Within a transaction, read all rows of the role's own tables, also if their row security is forced."""
    with _off(target, _forced(target, names)):
        yield


def is_forced(target: PostgresqlConnection, names: Sequence[TableName]) -> bool:
    """Return whether rows of tables can be read only within `every_row`."""
    return bool(_forced(target, names))


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
