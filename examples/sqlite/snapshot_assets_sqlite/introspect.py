"""Reads a file's own tables into schema documents. Its one schema is `main`."""

from __future__ import annotations

from typing import Any

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import refused_carrier
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, Index, PrimaryKey, Table, TableName, View
from snapshot_assets_sqlite.session import Session
from snapshot_assets_sqlite.types import TIMESTAMPS, native_of

SCHEMA = "main"


class Relations:
    """The tables and views of a file, and their columns: by name, the declared type in capitals."""

    def __init__(self, session: Session) -> None:
        self._session = session
        found = session.rows(
            "SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%'"
            " ESCAPE '\\' ORDER BY name",
            "listing tables",
        )
        self.views = {TableName(SCHEMA, name): str(sql) for name, kind, sql in found if kind == "view"}
        self.columns = {
            TableName(SCHEMA, name): {each[1]: str(each[2]).upper() for each in self._pragma("table_xinfo", name)}
            for name, *_ in found
        }

    def table(self, name: TableName, selection: Selection, refusals: Refusals) -> Table:
        """Return the document of a table, or of a view as a table."""
        pragma = self._pragma("table_xinfo", name.table)
        columns = []
        for _, column, declared, not_null, default, _, hidden in pragma:
            with refusals.noting():
                override = selection.carriers.get((name, column))
                document = describe(name, column, str(declared).upper(), override)
                update = {"nullable": not not_null, "default": None if hidden else default}
                columns.append(document.model_copy(update=update))
        kinds = self.columns[name]
        time_index = None
        with refusals.noting():
            time_index = choose_time_index(
                name,
                selection.time_columns,
                timestamps=[column for column, kind in kinds.items() if kind in TIMESTAMPS],
                dates=[column for column, kind in kinds.items() if kind == "DATE"],
            )
        key = [each[1] for each in sorted(pragma, key=lambda each: int(each[5])) if each[5]]
        indexes, left = self._indexes(name.table)
        left += [f"expression of generated column {column}" for _, column, *_, hidden in pragma if hidden in (2, 3)]
        options: dict[str, Any] = {"view": True} if name in self.views else {}
        return Table(
            schema_name=SCHEMA,
            name=name.table,
            columns=tuple(columns),
            time_index=time_index,
            primary_key=PrimaryKey(columns=tuple(key)) if key else None,
            indexes=tuple(indexes),
            options=options | ({NOT_CARRIED: left} if left else {}),
        )

    def view(self, name: TableName) -> View:
        """Return the document of a view."""
        return View(schema_name=SCHEMA, name=name.table, definition=self.views[name])

    def _pragma(self, pragma: str, name: str) -> list[tuple[Any, ...]]:
        return self._session.rows(f"SELECT * FROM pragma_{pragma}({literal(name)})", f"describing {name}")

    def _indexes(self, table: str) -> tuple[list[Index], list[str]]:
        """Return the indexes of a table, and what else of it is not in its document."""
        indexes, keys = [], self._pragma("foreign_key_list", table)
        left = [f"foreign key to {referred}" for _, number, referred, *_ in keys if not number]
        for _, name, unique, origin, *_ in self._pragma("index_list", table):
            columns = tuple(each[2] for each in self._pragma("index_info", name) if each[2] is not None)
            if origin == "u":
                left.append(f"unique constraint of {', '.join(columns)}")
            elif origin == "c":
                sql = f"SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = {literal(name)}"
                [(definition,)] = self._session.rows(sql, f"describing {name}")
                indexes.append(Index(name=name, columns=columns, unique=bool(unique), definition=definition))
        return sorted(indexes, key=lambda each: each.name), left


def describe(table: TableName, column: str, declared: str, override: Carrier | None) -> Column:
    """Return the document of a column: native if its declared type says what it holds, else text."""
    native = native_of(declared)
    if native is None and override is Carrier.NATIVE:
        name = column_text(ColumnPath(table, column))
        raise refused_carrier(name, declared, override, "a column of this type may hold any value")
    if native is None or override is Carrier.TEXT:
        return Column(name=column, type=declared, arrow_type="string", carrier=Carrier.TEXT)
    return Column(name=column, type=declared, arrow_type=arrow_type_text(native.arrow))
