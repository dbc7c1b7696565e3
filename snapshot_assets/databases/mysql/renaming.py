"""Gives schema documents new names for a target server.

The queries of views name relations with their databases, as in `shop`.`orders`; other texts name none but sequences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from snapshot_assets.databases.convert.renaming import Renaming, check_distinct, renamed_schemas, renamed_tables
from snapshot_assets.databases.mysql.texts import called, quoted, unquoted
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED
from snapshot_assets.format.options import SchemaOptions, ViewOptions
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName, View

_Names = Mapping[TableName, TableName]

_NAME = r"`(?:[^`]|``)+`"
_NAMES = re.compile(rf"'(?:[^'\\]|\\.|'')*'|(?<![`.])(?P<schema>{_NAME})\.(?P<table>{_NAME})|{_NAME}", re.DOTALL)
"""Strings, names of two parts, and other names."""


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `TargetModule.rename`."""
    relations = [each.table_name for each in (*schema.tables, *schema.views)]
    sequences = [each.table_name for own in schema.schemas for each in SchemaOptions.of(own).sequences]
    names = {name: renaming.table(name) for name in (*relations, *sequences)}
    check_distinct((f"table {old}", new) for old, new in names.items())
    renamed = renamed_tables(schema, renaming)
    tables = tuple(_table(table, names) for table in renamed.tables)
    views = tuple(_view(view, names) for view in schema.views)
    schemas = renamed_schemas(schema, renaming, lambda each: _schema_options(each, renaming))
    return renamed.model_copy(update={"schemas": schemas, "tables": tables, "views": views}), ()


def _schema_options(schema: Schema, renaming: Renaming) -> dict[str, object]:
    moved = {"schema_name": renaming.schema(schema.name)}
    options = SchemaOptions.of(schema)
    sequences = tuple(each.model_copy(update=moved) for each in options.sequences)
    on = (None if each.on is None else renaming.table(each.on) for each in options.code)
    code = tuple(each.model_copy(update={"on": name}) for each, name in zip(options.code, on, strict=True))
    return options.model_copy(update={"sequences": sequences, "code": code}).values()


def _view(view: View, names: _Names) -> View:
    new = names[view.table_name]
    update = {
        "schema_name": new.schema,
        "name": new.table,
        "definition": _replaced(view.definition, names),
        "depends_on": tuple(names.get(each, each) for each in view.depends_on),
        "options": _view_options(view, new),
    }
    return view.model_copy(update=update)


def _view_options(view: View, new: TableName) -> dict[str, object]:
    """Return the options of a view, which calls functions that it names without a schema in its own schema."""
    listed, calls = ViewOptions.of(view).not_carried, set()
    for schema, own in called(view.definition, ""):
        if f"function {schema or view.schema_name}.{own}" in listed:
            calls.add(f"function {schema or new.schema}.{own}")
    return view.options | ({NOT_CARRIED: sorted(calls)} if calls else {})


def _table(table: Table, names: _Names) -> Table:
    """Return a table whose parts have the new names too."""
    columns = tuple(_column(column, names) for column in table.columns)
    sequences = tuple(each.model_copy(update={"schema_name": table.schema_name}) for each in table.sequences)
    return table.model_copy(update={"columns": columns, "sequences": sequences})


def _column(column: Column, names: _Names) -> Column:
    if column.default is None:
        return column
    return column.model_copy(update={"default": _replaced(column.default, names)})


def _replaced(text: str, names: _Names) -> str:
    """Return a text with the new names of relations that it names with their databases."""

    def replace(match: re.Match[str]) -> str:
        if match["schema"] is None:
            return match[0]
        old = TableName(unquoted(match["schema"]), unquoted(match["table"]))
        return quoted(*names[old]) if old in names else match[0]

    return _NAMES.sub(replace, text)
