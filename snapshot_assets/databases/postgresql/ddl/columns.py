"""Writes the SQL of columns: declarations and storage settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.sequences import settings
from snapshot_assets.databases.postgresql.ddl.statements import alter
from snapshot_assets.databases.postgresql.ddl.types import collate
from snapshot_assets.databases.postgresql.sql import literal
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import Column, Sequence, TableName


def typed(column: Column, place: str) -> str:
    """Return a column's name, type and collation."""
    return f"{identifier(column.name)} {text.type_text(column.type, place)}{collate(column.collation, place)}"


def value(column: Column, sequence: Sequence | None, place: str) -> str:
    """Return the clause of a column's generated value, identity or default; "" for none."""
    if column.generated is not None:
        kind = "VIRTUAL" if column.generated_kind == "virtual" else "STORED"
        return f" GENERATED ALWAYS AS {text.expression(column.generated, f'expression of {place}')} {kind}"
    if column.identity is not None:
        named = ""
        if sequence is not None:
            name = qualified(TableName(sequence.schema_name, sequence.name))
            named = f" (SEQUENCE NAME {name} {settings(sequence)})"
        return f" GENERATED {column.identity.upper()} AS IDENTITY{named}"
    return f" DEFAULT {default(column.default, place)}" if column.default is not None else ""


def default(expression: str, place: str) -> str:
    """Return the expression of a default."""
    sequence = text.drawn_from(expression)
    if sequence is not None:
        return f"nextval({literal(qualified(sequence)).strip()}::regclass)"
    return text.expression(expression, f"default of {place}")


def not_null(column: Column, options: Mapping[str, Any]) -> str:
    """Return the clause that forbids NULL; "" for none."""
    if column.nullable or options.get("not_null_not_valid"):
        return ""
    named = f" CONSTRAINT {identifier(options['not_null_name'])}" if "not_null_name" in options else ""
    return f"{named} NOT NULL{' NO INHERIT' if options.get('not_null_no_inherit') else ''}"


def column_settings(settings_of: Mapping[str, Any], relation: TableName, of: TableName) -> Iterator[Statement]:
    """Yield the statements for storage, statistics, options and compression of columns."""
    for column, options in settings_of.items():
        actions = {}
        if "storage" in options:
            actions["storage"] = (
                f"SET STORAGE {text.word(options['storage'], f'storage of column {relation}.{column}')}"
            )
        if "statistics_target" in options:
            actions["statistics target"] = f"SET STATISTICS {int(options['statistics_target'])}"
        if inner := text.parameters(options.get("options"), f"options of column {relation}.{column}"):
            actions["options"] = f"SET ({inner})"
        for what, action in actions.items():
            makes = f"{what} of column {relation}.{column}"
            yield alter(relation, f"ALTER COLUMN {identifier(column)} {action}", makes=makes, of=of)
        if "compression" in options:
            yield _compression(relation, column, str(options["compression"]), of)


def _compression(relation: TableName, column: str, method: str, of: TableName) -> Statement:
    makes = f"compression of column {relation}.{column}"
    sql = f"ALTER COLUMN {identifier(column)} SET COMPRESSION {text.word(method, makes)}"
    unknown = (
        "SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE"
        f" s.name = 'default_toast_compression' AND {literal(method)} = ANY (s.enumvals))"
    )
    return replace(alter(relation, sql, makes=makes, of=of), unless=unknown)
