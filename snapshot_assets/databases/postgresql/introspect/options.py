"""What documents hold under `options`: only what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.relations import Relation


def storage(relation: Relation) -> dict[str, Any]:
    """Return how a relation is stored."""
    names = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")
    return {name: relation.facts[name] for name in names}


def column_options(
    columns: Sequence[SourceColumn], constraints: Sequence[dict[str, Any]], table: str = ""
) -> dict[str, Any]:
    """Return, by column, what its document has no field for."""
    not_null = {row["columns"][0]: row for row in constraints if row["kind"] == "n"}
    found = {}
    for column in columns:
        row = not_null.get(column.name)
        found[column.name] = present(
            **{name: column.facts[name] for name in ("storage", "compression", "statistics_target", "options")},
            inherited=column.facts["inherited"],
            not_null_name=row["name"] if row and row["name"] != f"{table}_{column.name}_not_null" else None,
            not_null_no_inherit=row["no_inherit"] if row else None,
            not_null_inherited=not row["local"] if row else None,
            not_null_not_valid=row["name"] if row and not row["valid"] else None,
        )
    return present(**found)


def comments(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return comments by the name of what they are on."""
    return {row["name"]: row["comment"] for row in rows if row["comment"] is not None}


def flagged(rows: Sequence[dict[str, Any]], flag: str) -> str | None:
    """Return the name of the row that has a flag."""
    return next((row["name"] for row in rows if row[flag]), None)


def present(**values: Any) -> dict[str, Any]:
    """Return what is there: no None, no false, nothing empty. Zero is a value."""
    return {name: value for name, value in values.items() if not (value is None or value is False or value in ([], {}))}
