"""Finds the row types that tables use of relations which a snapshot does not contain, such as foreign tables."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

_DEFINITION = """
SELECT n.nspname::text AS schema, c.relname::text AS name,
    format('CREATE SCHEMA IF NOT EXISTS %I', n.nspname) AS schema_sql,
    format('CREATE TYPE %I.%I AS (%s)', n.nspname, c.relname, (
        SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)) AS type_sql
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'v' AND c.relkind <> 'm' AND (n.nspname, c.relname) IN ({names})
"""


def with_row_types(session: PostgresqlSession, tables: Sequence[SourceRelation]) -> None:
    """Add the row types of relations that are not among the tables to what the tables need."""
    exported = {each.name for table in tables for each in (table, *table.partitions)}
    system = ("pg_catalog", "information_schema")
    wanted = {name for table in tables for name in table.used.relations if name.schema not in system} - exported
    if not wanted:
        return
    names = ", ".join(f"({literal(each.schema)}, {literal(each.table)})" for each in sorted(wanted))
    rows = session.rows(_DEFINITION.format(names=names), "reading the row types of other relations")
    definitions = {TableName(row["schema"], row["name"]): [row["schema_sql"], row["type_sql"]] for row in rows}
    for table in tables:
        for name in table.used.relations:
            if name in definitions:
                entry = {
                    "kind": "type",
                    "name": name.dotted,
                    "for": [f"table {table.name.dotted}"],
                    "sql": definitions[name],
                }
                table.needs = [*table.needs, entry]
