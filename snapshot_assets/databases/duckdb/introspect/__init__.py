"""The schema documents of a DuckDB database.

DuckDB writes a user type out in full wherever a column uses it, so that no table needs it. The options of a schema
contain its user types, and its sequences that no table draws from, in the order in which they must be created. Macros
are left out: DuckDB's catalog does not contain the defaults of their parameters.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from typing import Any

from snapshot_assets.databases.duckdb import KIND
from snapshot_assets.databases.duckdb.introspect.tables import TableReader
from snapshot_assets.databases.duckdb.parser import base_tables, by_folded_name, calls, resolve
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import is_ledger_schema, refuse_reserved
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED, without_hidden
from snapshot_assets.databases.selection.hidden import excludes, hidden_of, hides, refuse_revealing_views
from snapshot_assets.databases.selection.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import DatabaseError, UnsupportedTypeError
from snapshot_assets.format.relations import DatabaseSchema, Schema, TableName, UserType, View

_SCHEMAS = (
    "SELECT oid, comment FROM duckdb_schemas() WHERE database_name = ? AND (NOT internal OR schema_name = 'main')"
)
_NAMES = """
    SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE database_name = ? AND NOT internal
"""
_TYPES = """
    SELECT type_oid, schema_oid, type_name, logical_type, labels, comment
    FROM duckdb_types() WHERE database_name = ? AND NOT internal ORDER BY schema_oid, type_name
"""
_DEPENDENCIES = "SELECT objid, refobjid FROM duckdb_dependencies()"
_MACROS = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal"
_UNCARRIED = """
    SELECT DISTINCT schema_name AS schema, replace(function_type, '_', ' ') AS kind, function_name AS name
    FROM duckdb_functions() WHERE database_name = $1 AND NOT internal AND function_type IN ('macro', 'table_macro')
    UNION ALL
    SELECT schema_name, 'comment on index', index_name FROM duckdb_indexes()
    WHERE database_name = $1 AND comment IS NOT NULL
    UNION ALL
    SELECT schema_name, 'comment on sequence', sequence_name FROM duckdb_sequences()
    WHERE database_name = $1 AND NOT temporary AND comment IS NOT NULL
    ORDER BY ALL
"""
_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\s".,()]+)'
_HEAD = re.compile(
    rf"CREATE\s+VIEW\s+{_IDENTIFIER}(?:\.{_IDENTIFIER})*(?:\s*\(\s*{_IDENTIFIER}(?:\s*,\s*{_IDENTIFIER})*\s*\))?\s+AS\s+",
    re.IGNORECASE,
)


def extract_schema(session: DuckDBSession, selection: Selection, refusals: Refusals) -> DatabaseSchema:
    """Describe the selected schemas, tables and views; see `Database.extract`."""
    schemas = session.schema_names()
    tables = TableReader(session, schemas)
    found = {schemas[oid]: comment for oid, comment in session.rows(_SCHEMAS, [session.database])}
    comments = {name: comment for name, comment in found.items() if not is_ledger_schema(name)}
    reserved = {name: tables.column_names(name) for name in tables.relations if is_ledger_schema(name.schema)}
    tables.relations = {name: each for name, each in tables.relations.items() if name not in reserved}
    refuse_reserved(selection, reserved, refusals)
    columns = {name: tables.column_names(name) for name in tables.relations}
    selection = check_selection(selection, comments, columns, refusals, KIND.names)
    selected = sorted(name for name in tables.relations if selects(selection, name))
    documented = [name for name in selected if not tables.relations[name].view or name in selection.tables]
    schema = DatabaseSchema(
        database="duckdb",
        schemas=tuple(
            Schema(name=name, comment=comments[name], options=_options(session, schemas, tables, name))
            for name in selected_schemas(selection, selected, comments)
        ),
        tables=tuple(tables.table(name, selection, refusals) for name in documented),
        views=tuple(_view(session, tables, name, selection) for name in selected if name not in set(documented)),
    )
    if hides(selection):
        _refuse_revealing(session, tables, schema, selection, refusals)
        schema = _without_hidden_types(schema, session, tables, selection)
    return without_hidden(schema, selection, refusals, columns)


def spelled(session: DuckDBSession, selection: Selection) -> Selection:
    """Return a selection with the catalog's names; see `Database.spelled`."""
    relations: dict[TableName, list[str]] = defaultdict(list)
    for schema, table, column in session.rows(_NAMES, [session.database]):
        relations[TableName(schema, table)].append(column)
    schemas = session.schema_names().values()
    return SpelledNames(KIND.names, tuple(schemas), relations).selection(selection)


def _refuse_revealing(
    session: DuckDBSession, tables: TableReader, schema: DatabaseSchema, selection: Selection, refusals: Refusals
) -> None:
    views = [_view(session, tables, name, Selection()) for name, each in tables.relations.items() if each.view]
    macros = {name.lower() for (name,) in session.rows(_MACROS)}
    trees = {view.table_name: _tree(session, view.table_name, view.definition) for view in views}
    called = {name: sorted(calls(tree, macros)) for name, tree in trees.items()}
    doubts = {name: f"it calls {found[0]}, which may read tables" for name, found in called.items() if found}
    exported = {table.table_name: [column.name for column in table.columns] for table in schema.tables}
    refuse_revealing_views(views, exported, doubts, selection, refusals)


def _options(session: DuckDBSession, schemas: dict[int, str], tables: TableReader, name: str) -> dict[str, Any]:
    """Return a schema's options: its user types, each after those it is made of, its sequences, and what is lost."""
    records = {record["type_oid"]: record for record in session.records(_TYPES, [session.database])}
    uses: dict[int, set[int]] = {oid: set() for oid in records}
    for used, user in session.rows(_DEPENDENCIES):
        if used in records and user in records:
            uses[user].add(used)
    ordered = [records[oid] for oid in TopologicalSorter(uses).static_order()]
    types = [_user_type(session, name, each) for each in ordered if schemas[each["schema_oid"]] == name]
    drawn = {sequence for sequence, _ in tables.draws}
    every = tables.sequences.items()
    sequences = [each for oid, each in every if oid not in drawn and each.schema_name == name]
    uncarried = session.rows(_UNCARRIED, [session.database])
    options = {
        "types": [each.model_dump(mode="json", by_alias=True) for each in types],
        "sequences": [each.model_dump(mode="json", by_alias=True) for each in sequences],
        NOT_CARRIED: [f"{kind} {name}.{own}" for schema, kind, own in uncarried if schema == name],
    }
    return {option: found for option, found in options.items() if found}


def _user_type(session: DuckDBSession, schema: str, record: dict[str, Any]) -> UserType:
    """Describe a user type: an enum by its labels, any other by the type it stands for."""
    name = TableName(schema, record["type_name"])
    query = f"SELECT NULL::{session.relation(name)} AS x"
    (stands_for,) = session.types(query, f"reading type {name}").values()
    labels = record["labels"]
    return UserType(
        schema_name=name.schema,
        name=name.table,
        kind="enum" if labels else "composite" if record["logical_type"] in ("STRUCT", "UNION") else "domain",
        labels=tuple(labels or ()),
        definition={} if labels else {"type": str(stands_for)},
        comment=record["comment"],
    )


def _view(session: DuckDBSession, tables: TableReader, name: TableName, selection: Selection) -> View:
    """Describe a view, whose query follows `CREATE VIEW name (columns) AS` in its statement."""
    relation = tables.relations[name]
    statement = relation.view or ""
    head = _HEAD.match(statement)
    if head is None:
        raise DatabaseError(
            f"DuckDB {session.alias!r}: the statement of view {name} is not understood: {statement[:200]!r}. Leave its"
            " schema out of the plan, and report this."
        )
    definition = statement[head.end() :].rstrip().removesuffix(";")
    try:
        refusals = Refusals()
        columns = tables.columns(name, selection, refusals)
        refusals.raise_any()
    except (DatabaseError, UnsupportedTypeError):
        columns = ()  # it no longer works, reads files, or has a type without a carrier
    known = by_folded_name(tuple(tables.relations))
    paths = (node["qualified_name"]["path"] for node in base_tables(_tree(session, name, definition)))
    read = {each for path in paths if (each := resolve(path, name, known, session.database)) is not None}
    return View(
        schema_name=name.schema,
        name=name.table,
        definition=definition,
        columns=columns,
        depends_on=tuple(sorted(read)),
        comment=relation.comment,
    )


def _tree(session: DuckDBSession, view: TableName, definition: str) -> Any:
    """Return the statements of a view's query as DuckDB parses them."""
    tree = json.loads(session.rows("SELECT json_serialize_sql(?)", [definition])[0][0])
    if tree["error"]:
        raise DatabaseError(
            f"DuckDB {session.alias!r}: the query of view {view} cannot be parsed: {tree.get('error_message')}. Leave"
            " its schema out of the plan, and report this."
        )
    return tree["statements"]


def _without_hidden_types(
    schema: DatabaseSchema, session: DuckDBSession, tables: TableReader, selection: Selection
) -> DatabaseSchema:
    """Return documents without the types that occur in columns that are left out, and in no exported one.

    The labels of an enum reveal values of its column. DuckDB does not record which columns use a type.
    """
    hidden: list[str] = []
    for name, relation in tables.relations.items():
        whole, excluded = excludes(selection, name), hidden_of(selection, name).excluded
        if (whole and not relation.view) or excluded:
            kinds = session.column_types(name).items()
            hidden += [str(kind) for column, kind in kinds if whole or column in excluded]
    exported = [column.type for table in schema.tables for column in table.columns]
    exported += [column.type for view in schema.views for column in view.columns]
    texts = {_written_out(kind) for each in schema.schemas for kind in each.options.get("types", ())}
    texts = {text for text in texts if any(text in kind for kind in hidden)}
    texts = {text for text in texts if not any(text in kind for kind in exported)}
    schemas = []
    for each in schema.schemas:
        types = each.options.get("types", [])
        lost = [kind for kind in types if any(text in _written_out(kind) for text in texts)]
        named = [f"type {kind['schema']}.{kind['name']} (the plan hides its columns)" for kind in lost]
        if lost:
            kept = [kind for kind in types if kind not in lost]
            options = {**each.options, "types": kept, NOT_CARRIED: [*each.options.get(NOT_CARRIED, ()), *named]}
            each = each.model_copy(update={"options": {name: value for name, value in options.items() if value}})
        schemas.append(each)
    return schema.model_copy(update={"schemas": tuple(schemas)})


def _written_out(kind: dict[str, Any]) -> str:
    if kind["kind"] == "enum":
        return f"ENUM({', '.join(map(literal, kind['labels']))})"
    return str(kind["definition"]["type"])
