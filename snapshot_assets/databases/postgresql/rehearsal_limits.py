"""Decides which statements a rehearsal does not run, because they reach beyond what its end takes back.

A lock on a table that others use keeps them waiting until the rehearsal ends. A function that the server calls may
change what no rollback restores, such as the place of a sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from snapshot_assets.databases.definition.statements import Statement
from snapshot_assets.databases.postgresql.ddl.checked_sql import qualified_name
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

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
_CREATES_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE ")
_OTHER_TABLES = re.compile(r"\b(?:INHERITS|PARTITION OF|REFERENCES)\b.*", re.DOTALL)
_CODE = frozenset(("function", "procedure", "operator", "cast"))
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX ")
_CONSTRAINT = re.compile(r"ALTER (?:TABLE|DOMAIN) .*\b(?:CHECK|EXCLUDE)\b", re.DOTALL)


def event_trigger(connection: PostgresqlConnection) -> str | None:
    """Return an event trigger of the target that statements would run; those of extensions do not count."""
    found = connection.rows(_EVENT_TRIGGERS, "looking for event triggers")
    return found[0]["name"] if found else None


def unsafe(connection: PostgresqlConnection, statements: Sequence[Statement]) -> dict[Statement, str]:
    """Return the statements that a rehearsal must not run, and why."""
    existing = _existing(connection, {name for each in statements for name in _locked(each)})
    code = any(each.key.kind in _CODE for each in statements)
    found = {}
    for each in statements:
        locked = sorted(str(name) for name in _locked(each) if _locks(each, existing.get(name)))
        if locked and not any(connection.rows(query, f"rehearsing {each.key}") for query in each.skips):
            found[each] = "they would lock what exists in the target"
        elif code and _evaluates(each.sql):
            found[each] = "they may call functions of the snapshot"
    return found


def _existing(connection: PostgresqlConnection, names: set[TableName]) -> dict[TableName, bool]:
    """Return those of the tables and sequences that exist, and whether each is a sequence."""
    if not names:
        return {}
    listed = ", ".join(f"({literal(name.schema)}, {literal(name.table)})" for name in sorted(names))
    rows = connection.rows(_EXISTING.format(names=listed), "looking up tables")
    return {TableName(row["schema"], row["name"]): row["sequence"] for row in rows}


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


def _locks(statement: Statement, is_sequence: bool | None) -> bool:
    """Return whether a statement locks a table or sequence that it names; None is neither."""
    return is_sequence is False or (is_sequence is True and statement.sql.startswith("ALTER SEQUENCE "))


def _evaluates(sql: str) -> bool:
    """Return whether the server may compute an expression when it runs a statement."""
    index = _INDEX.match(sql) is not None and (sql.count("(") > 1 or " WHERE " in sql)
    return index or _CONSTRAINT.match(sql) is not None
