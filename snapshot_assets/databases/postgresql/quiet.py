"""Keeps the triggers and rules of a table quiet while a restore writes to it.

A snapshot has the rows that they once wrote. So a restore that creates them (`--with-code`) must not let them run, when
it adds windows later or replaces some. Foreign keys are still checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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
SELECT pg_catalog.format('ALTER TABLE ONLY %s', r.oid::pg_catalog.regclass) AS alter, CASE t.tgenabled
    WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END AS state,
    pg_catalog.format('TRIGGER %I', t.tgname) AS what
FROM relation r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
LEFT JOIN pg_catalog.pg_constraint k ON k.oid = t.tgconstraint
WHERE t.tgenabled <> 'D' AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND k.contype IS DISTINCT FROM 'f')
    AND k.contype IS DISTINCT FROM 'f'
UNION ALL SELECT pg_catalog.format('ALTER TABLE %s', r.oid::pg_catalog.regclass), CASE w.ev_enabled
    WHEN 'R' THEN 'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END, pg_catalog.format('RULE %I', w.rulename)
FROM relation r JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
WHERE w.ev_enabled <> 'D' AND w.rulename <> '_RETURN'
"""


@contextmanager
def quiet(target: PostgresqlConnection, tables: Sequence[Table]) -> Iterator[None]:
    """Within a transaction, disable the triggers and rules of tables with the option, and of their partitions.

    All are disabled before the first row and enabled after the last one: in between, the server alters no table with
    checks that are deferred, and rows may refer to each other in circles.
    """
    active: list[tuple[TableName, dict[str, Any]]] = []
    for name in (table.table_name for table in tables if QUIET in table.options):
        query = _ACTIVE.format(table=literal(qualified(name)))
        active += ((name, row) for row in target.rows(query, f"looking up triggers of {name}"))
    for name, row in active:
        target.execute(f"{row['alter']} DISABLE {row['what']}", f"disabling triggers of {name}")
    yield
    if active:
        target.execute("SET CONSTRAINTS ALL IMMEDIATE", "checking constraints")
    for name, row in active:  # after an error, the transaction is rolled back
        target.execute(f"{row['alter']} ENABLE {row['state']}{row['what']}", f"enabling triggers of {name}")
