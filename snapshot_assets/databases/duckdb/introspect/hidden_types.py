"""Leaves out the user types that only hidden columns use: the labels of an enum tell values of its column.

DuckDB does not record which columns use a user type, but writes the type out in full in theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from snapshot_assets.databases.selection.exclusions import NOT_CARRIED
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import DatabaseSchema, Schema


def without_hidden_types(schema: DatabaseSchema, hidden: Collection[str]) -> DatabaseSchema:
    """Return documents without the types that occur in hidden columns and in no exported one.

    Args:
        schema: The documents.
        hidden: The types of the hidden columns, written out.
    """
    columns = [column.type for table in schema.tables for column in table.columns]
    columns += [column.type for view in schema.views for column in view.columns]
    types = [kind for each in schema.schemas for kind in each.options.get("types", ())]

    def is_hidden(text: str) -> bool:
        return any(text in kind for kind in hidden) and not any(text in kind for kind in columns)

    texts = {text for kind in types if is_hidden(text := _written_out(kind))}
    schemas = tuple(_without(each, texts) for each in schema.schemas)
    return schema.model_copy(update={"schemas": schemas})


def _without(schema: Schema, texts: Collection[str]) -> Schema:
    types = schema.options.get("types", [])
    kept = [kind for kind in types if not any(text in _written_out(kind) for text in texts)]
    lost = [f"type {kind['schema']}.{kind['name']} (the plan hides its columns)" for kind in types if kind not in kept]
    if not lost:
        return schema
    options = {**schema.options, "types": kept, NOT_CARRIED: [*schema.options.get(NOT_CARRIED, ()), *lost]}
    return schema.model_copy(update={"options": {name: value for name, value in options.items() if value}})


def _written_out(kind: dict[str, Any]) -> str:
    if kind["kind"] == "enum":
        return f"ENUM({', '.join(map(literal, kind['labels']))})"
    return str(kind["definition"]["type"])
