"""The schema documents of a DuckDB database.

DuckDB writes a user type out in full wherever a column uses it, so that no table needs it. The options of a schema
contain its user types, and its sequences that no table draws from, in the order in which they must be created. Macros
are left out: DuckDB's catalog does not contain the defaults of their parameters.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

from snapshot_assets.databases.duckdb.introspect.tables import TableReader
from snapshot_assets.databases.duckdb.introspect.views import ViewReader
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.sql import Schemas
from snapshot_assets.databases.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.source import Selection
from snapshot_assets.format.relations import DatabaseSchema, Schema, TableName, UserType

_SCHEMAS = (
    "SELECT oid, comment FROM duckdb_schemas() WHERE database_name = ? AND (NOT internal OR schema_name = 'main')"
)
_TYPES = """
    SELECT type_oid, schema_oid, type_name, logical_type, labels, comment
    FROM duckdb_types() WHERE database_name = ? AND NOT internal ORDER BY schema_oid, type_name
"""
_DEPENDENCIES = "SELECT objid, refobjid FROM duckdb_dependencies()"


def extract_schema(session: DuckDBSession, schemas: Schemas, selection: Selection) -> DatabaseSchema:
    """Describe the selected schemas, tables and views; see `Database.extract`."""
    tables = TableReader(session, schemas)
    comments = {schemas.names[oid]: comment for oid, comment in session.rows(_SCHEMAS, [session.database])}
    check_selection(selection, comments, {name: tables.column_names(name) for name in tables.relations})
    views = ViewReader(session, tables)
    selected = sorted(name for name in tables.relations if selects(selection, name))
    documented = [name for name in selected if not tables.relations[name].is_view or name in selection.tables]
    return DatabaseSchema(
        database="duckdb",
        schemas=tuple(
            Schema(name=name, comment=comments[name], options=_options(session, schemas, tables, name))
            for name in selected_schemas(selection, selected, comments)
        ),
        tables=tuple(tables.table(name, selection) for name in documented),
        views=tuple(views.view(name, selection) for name in selected if name not in set(documented)),
    )


def _options(session: DuckDBSession, schemas: Schemas, tables: TableReader, name: str) -> dict[str, Any]:
    options = {
        "types": [each.model_dump(mode="json", by_alias=True) for each in _types(session, schemas, name)],
        "sequences": [each.model_dump(mode="json", by_alias=True) for each in tables.loose_sequences(name)],
    }
    return {option: value for option, value in options.items() if value}


def _types(session: DuckDBSession, schemas: Schemas, name: str) -> list[UserType]:
    """Return a schema's user types, each after those it is made of."""
    records = {record["type_oid"]: record for record in session.records(_TYPES, [session.database])}
    uses: dict[int, set[int]] = {oid: set() for oid in records}
    for used, user in session.rows(_DEPENDENCIES):
        if used in records and user in records:
            uses[user].add(used)
    ordered = [records[oid] for oid in TopologicalSorter(uses).static_order()]
    return [_user_type(session, schemas, each) for each in ordered if schemas.names[each["schema_oid"]] == name]


def _user_type(session: DuckDBSession, schemas: Schemas, record: dict[str, Any]) -> UserType:
    """Describe a user type: an enum by its labels, any other by the type it stands for."""
    name = TableName(schemas.names[record["schema_oid"]], record["type_name"])
    query = f"SELECT NULL::{schemas.relation(name)} AS x"
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
