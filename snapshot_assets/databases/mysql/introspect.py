"""The schema documents of MySQL and MariaDB, from information_schema and SHOW CREATE TABLE.

SQL texts in documents have names in backticks and backslashes that escape, as the server prints them without SQL modes.
The definitions of keys, checks and foreign keys are the lines of SHOW CREATE TABLE, and the option `table_options` is
its end, without what documents have elsewhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from snapshot_assets.databases.mysql.code import LISTED, code_options
from snapshot_assets.databases.mysql.created_table import CreatedTable, refuse_columns, refuse_partly, view_query
from snapshot_assets.databases.mysql.session import SQL_MODE, MysqlSession
from snapshot_assets.databases.mysql.texts import NAME, called, constant, quoted, unquoted
from snapshot_assets.databases.mysql.time_predicates import TIMESTAMPS
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import is_ledger_schema, refuse_reserved
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED, Unshown, with_lost, without_hidden
from snapshot_assets.databases.selection.hidden import excludes, hidden_of, hides, refuse_revealing_views
from snapshot_assets.databases.selection.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.errors import DatabaseDeniedError, SnapshotError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text, table_text
from snapshot_assets.format.relations import (
    CheckConstraint,
    Column,
    DatabaseSchema,
    ForeignKey,
    Index,
    PrimaryKey,
    Schema,
    Sequence,
    Table,
    TableName,
    UniqueConstraint,
    View,
)

SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
"""The server's own databases."""

_SCHEMATA = "SELECT * FROM information_schema.schemata WHERE {schema}"
_TABLES = "SELECT * FROM information_schema.tables WHERE {table} ORDER BY table_schema, table_name"
_COLUMNS = "SELECT * FROM information_schema.columns WHERE {table} ORDER BY table_schema, table_name, ordinal_position"
_KEYS = "SELECT * FROM information_schema.statistics WHERE {table} ORDER BY index_name, seq_in_index"
_REFERENCES = """
SELECT * FROM information_schema.key_column_usage WHERE {table} AND referenced_table_name IS NOT NULL
ORDER BY constraint_name, ordinal_position
"""
_COLUMN_CHECKS = """
SELECT constraint_schema AS table_schema, table_name, constraint_name AS name, check_clause AS clause
FROM information_schema.check_constraints WHERE level = 'Column' AND {constraint}
"""
_SRIDS = """
SELECT g_table_schema AS table_schema, g_table_name AS table_name, g_geometry_column AS name, srid
FROM information_schema.geometry_columns WHERE srid <> 0 AND {g_table}
"""
_VIEWS = "SELECT * FROM information_schema.views WHERE {table}"
_READ = re.compile(rf"(?:\b(?:from|join)|,)[\s(]*({NAME})\.({NAME})", re.IGNORECASE)
_ON_UPDATE = re.compile(r"\bon update (\S+)", re.IGNORECASE)
_SEQUENCE_TYPE = "SEQUENCE"
_DOING = "reading the catalog"
_UNSHOWN = Unshown(
    "the server shows this user no columns of it: it is broken, or calls a function without the right EXECUTE"
)

_Record = dict[str, Any]
_Described = TypeVar("_Described")


def extract_schema(session: MysqlSession, selection: Selection, refusals: Refusals) -> DatabaseSchema:
    """Describe the selected schemas, tables and views; see `Database.extract`."""
    with _plain_texts(session):
        return _Reader(session).schema(selection, refusals)


@contextmanager
def _plain_texts(session: MysqlSession) -> Iterator[None]:
    """Let the server print SQL without modes, with names in backticks."""
    session.execute("SET SESSION sql_mode = ''", _DOING)
    if session.database:
        session.execute("USE information_schema", _DOING)  # the server leaves out the name of the session's database
    try:
        yield
    finally:
        with suppress(SnapshotError):  # of a session that was lost
            if session.database:
                session.execute(f"USE {quoted(session.database)}", _DOING)
            session.execute(f"SET SESSION sql_mode = '{SQL_MODE}'", _DOING)


class _Reader:
    """Reads the catalog of all databases that the URI means."""

    def __init__(self, session: MysqlSession) -> None:
        self._session = session
        databases = (session.database,) if session.database else SYSTEM
        self._within = f"{'IN' if session.database else 'NOT IN'} ({', '.join(['%s'] * len(databases))})"
        self._databases = databases
        self.schemata = {each["schema_name"]: each for each in self._rows(_SCHEMATA)}
        self.tables = {TableName(each["table_schema"], each["table_name"]): each for each in self._rows(_TABLES)}
        self._columns = self._by_table(_COLUMNS)
        self._keys = self._by_table(_KEYS)
        self._references = self._by_table(_REFERENCES)
        self._srids = {
            (TableName(each["table_schema"], each["table_name"]), each["name"]): each["srid"]
            for each in (self._rows(_SRIDS) if session.mariadb else ())
        }
        self._checks = self._by_table(_COLUMN_CHECKS) if session.mariadb else {}
        self._views = {TableName(each["table_schema"], each["table_name"]): each for each in self._rows(_VIEWS)}
        self._listed = self._rows(LISTED)

    def _rows(self, query: str) -> list[_Record]:
        places = {
            name: f"{name}_schema {self._within}"
            for name in ("table", "constraint", "trigger", "routine", "event", "g_table")
        }
        sql = query.format(schema=f"schema_name {self._within}", **places)
        rows = self._session.rows(sql, _DOING, self._databases * sql.count(self._within))
        return [{name.lower(): value for name, value in row.items()} for row in rows]

    def _by_table(self, query: str) -> dict[TableName, list[_Record]]:
        found: dict[TableName, list[_Record]] = defaultdict(list)
        for row in self._rows(query):
            found[TableName(row["table_schema"], row["table_name"])].append(row)
        return found

    def schema(self, selection: Selection, refusals: Refusals) -> DatabaseSchema:
        every = {name: [each["column_name"] for each in self._columns.get(name, ())] for name in self.tables}
        reserved = {name: columns for name, columns in every.items() if is_ledger_schema(name.schema)}
        columns = {name: names for name, names in every.items() if name not in reserved and not self._draws(name)}
        schemas = [name for name in self.schemata if not is_ledger_schema(name)]
        refuse_reserved(selection, reserved, refusals)
        selection = check_selection(selection, schemas, columns, refusals)
        selected = sorted(name for name in columns if selects(selection, name))
        documented = [name for name in selected if name not in self._views or name in selection.tables]
        hidden = {name for _, name in (*selection.exclude_columns, *selection.masks)}
        hidden |= {name.table for name in columns if excludes(selection, name)}
        code = code_options(self._session, self._listed, set(documented) - self._views.keys(), hidden)
        named = (name for name in selected if name not in set(documented))
        views = list(_readable(named, lambda name: self._view(name, selection), refusals))
        unshown = {view.table_name: _UNSHOWN for view in views if not view.columns}
        schema = DatabaseSchema(
            database="mysql",
            schemas=tuple(
                with_lost(self._schema(name, code.get(name, {}), refusals), unshown)
                for name in selected_schemas(selection, selected, schemas)
            ),
            tables=tuple(_readable(documented, lambda name: self._table(name, selection, refusals), refusals)),
            views=tuple(view for view in views if view.columns),
        )
        if hides(selection):
            views = list(_readable(self._views, lambda name: self._view(name, Selection()), refusals))
            exported = {table.table_name: [column.name for column in table.columns] for table in schema.tables}
            refuse_revealing_views(views, exported, {}, selection, refusals)
        return without_hidden(schema, selection, refusals)

    def _draws(self, name: TableName) -> bool:
        return bool(self.tables[name]["table_type"] == _SEQUENCE_TYPE)

    def _schema(self, name: str, code: Mapping[str, Any], refusals: Refusals) -> Schema:
        record = self.schemata[name]
        drawn = (each for each in self.tables if each.schema == name and self._draws(each))
        sequences = _readable(drawn, self._sequence, refusals)
        options = {
            "charset": record["default_character_set_name"],
            "collation": record["default_collation_name"],
            "sequences": [each.model_dump(mode="json", by_alias=True) for each in sequences],
            **code,
        }
        return Schema(
            name=name,
            options={option: value for option, value in options.items() if value},
            comment=record.get("schema_comment") or None,
        )

    def _sequence(self, name: TableName) -> Sequence:
        [row] = self._session.rows(f"SELECT * FROM {quoted(*name)}", f"reading sequence {name}")
        unused = row["next_not_cached_value"] == row["start_value"]
        return Sequence(
            schema_name=name.schema,
            name=name.table,
            start=row["start_value"],
            increment=row["increment"],
            minimum=row["minimum_value"],
            maximum=row["maximum_value"],
            cache=row["cache_size"] or 1,
            cycle=bool(row["cycle_option"]),
            last_value=None if unused else row["next_not_cached_value"] - row["increment"],
        )

    def columns(self, name: TableName, selection: Selection, refusals: Refusals) -> tuple[Column, ...]:
        """Describe the columns of a table or view."""
        columns, excluded = [], hidden_of(selection, name).excluded
        for record in self._columns[name]:
            if record["column_name"] not in excluded:
                with refusals.noting():
                    columns.append(_column(name, record, selection, mariadb=self._session.mariadb))
        return tuple(columns)

    def _table(self, name: TableName, selection: Selection, refusals: Refusals) -> Table:
        record, columns, time_index = self.tables[name], self.columns(name, selection, refusals), None
        with refusals.noting():
            time_index = choose_time_index(
                name,
                selection.time_columns,
                timestamps=[column.name for column in columns if column.type in TIMESTAMPS],
                dates=[column.name for column in columns if column.type == "date"],
            )
        if name in self._views:
            if not self._columns.get(name):
                refusals.note(
                    DatabaseDeniedError(
                        f"MySQL {self._session.alias!r} shows this user no columns of view {name}. Grant EXECUTE on the"
                        " functions that it calls, mend it if it is broken, or leave it out.",
                        table=table_text(name),
                    )
                )
            else:
                with refusals.noting():
                    refuse_partly(self._session, name)
            return Table(
                schema_name=name.schema, name=name.table, columns=columns, time_index=time_index, options={"view": True}
            )
        parts = CreatedTable.read(self._session, name)
        with refusals.noting():
            refuse_columns(self._session, name, parts.columns, self._columns[name], selection)
        unique, indexes, primary = self._indexes(name, parts)
        columns = tuple(
            each.model_copy(update={"default": parts.defaults.get(each.name, each.default)}) for each in columns
        )
        kept = {column.name for column in columns}
        return Table(
            schema_name=name.schema,
            name=name.table,
            columns=columns,
            time_index=time_index,
            primary_key=primary,
            unique=unique,
            checks=self._checks_of(name, parts),
            foreign_keys=self._foreign_keys(name, parts),
            indexes=indexes,
            sequences=tuple(
                _identity_sequence(name, column, record["auto_increment"]) for column in columns if column.identity
            ),
            options=self._options(name, parts, kept),
            comment=record["table_comment"] or None,
        )

    def _options(self, name: TableName, parts: CreatedTable, kept: Collection[str]) -> dict[str, Any]:
        settings: dict[str, dict[str, Any]] = defaultdict(dict)
        for record in self._columns[name]:
            if match := _ON_UPDATE.search(record["extra"]):
                settings[record["column_name"]]["on_update"] = match[1]
            if "INVISIBLE" in record["extra"]:
                settings[record["column_name"]]["invisible"] = True
            if srid := record.get("srs_id") or self._srids.get((name, record["column_name"])):
                settings[record["column_name"]]["srid"] = srid
        for check in self._checks.get(name, ()):
            settings[check["name"]]["check"] = True
        versioned = self.tables[name]["table_type"] == "SYSTEM VERSIONED"
        options = {
            "engine": self.tables[name]["engine"],
            "table_options": parts.options,
            "periods": list(parts.periods),
            "partitions_by": parts.partitions,
            "column_options": {column: values for column, values in settings.items() if column in kept},
            NOT_CARRIED: ["earlier versions of rows"] if versioned else [],
        }
        return {option: value for option, value in options.items() if value}

    def _indexes(
        self, name: TableName, parts: CreatedTable
    ) -> tuple[tuple[UniqueConstraint, ...], tuple[Index, ...], PrimaryKey | None]:
        records: dict[str, list[_Record]] = defaultdict(list)
        for record in self._keys[name]:
            records[record["index_name"]].append(record)
        unique, indexes, primary = [], [], None
        order = {index: number for number, index in enumerate(parts.keys)}
        for index, keys in sorted(records.items(), key=lambda item: order.get(item[0], -1)):
            columns = tuple(key["column_name"] for key in keys if key["column_name"] is not None)
            whole = all(key["column_name"] is not None and key["sub_part"] is None for key in keys)
            if index == "PRIMARY":
                primary = PrimaryKey(columns=columns, definition=parts.primary)
            elif whole and not keys[0]["non_unique"]:
                unique.append(UniqueConstraint(name=index, columns=columns, definition=parts.keys[index]))
            else:
                own = not keys[0]["non_unique"]
                indexes.append(Index(name=index, columns=columns, unique=own, definition=parts.keys[index]))
        return tuple(unique), tuple(indexes), primary

    def _foreign_keys(self, name: TableName, parts: CreatedTable) -> tuple[ForeignKey, ...]:
        by_name: dict[str, list[_Record]] = defaultdict(list)
        for record in self._references[name]:
            by_name[record["constraint_name"]].append(record)
        return tuple(
            ForeignKey(
                name=key,
                columns=tuple(each["column_name"] for each in records),
                referenced_schema=records[0]["referenced_table_schema"],
                referenced_table=records[0]["referenced_table_name"],
                referenced_columns=tuple(each["referenced_column_name"] for each in records),
                definition=parts.foreign_keys[key],
            )
            for key, records in by_name.items()
        )

    def _checks_of(self, name: TableName, parts: CreatedTable) -> tuple[CheckConstraint, ...]:
        found = {each["name"]: f"CHECK ({each['clause']})" for each in self._checks.get(name, ())}
        found |= parts.checks
        return tuple(CheckConstraint(name=key, definition=text) for key, text in found.items())

    def _view(self, name: TableName, selection: Selection) -> View:
        record, query = self._views[name], view_query(self._session, name)
        refusals = Refusals()
        columns = self.columns(name, selection, refusals)
        read = {TableName(*map(unquoted, pair)) for pair in _READ.findall(query)}
        functions = {
            TableName(each["table_schema"], each["name"]) for each in self._listed if each["kind"] == "function"
        }
        calls = [f"function {each.dotted}" for each in sorted(called(query, name.schema) & functions)]
        return View(
            schema_name=name.schema,
            name=name.table,
            definition=query,
            columns=() if refusals.errors else columns,
            depends_on=tuple(sorted((read & self.tables.keys()) - {name})),
            options={
                "definer": record["definer"],
                "security": record["security_type"],
                "check_option": record["check_option"],
                "algorithm": record.get("algorithm") or "UNDEFINED",
                **({NOT_CARRIED: calls} if calls else {}),
            },
        )


def _readable(
    names: Iterable[TableName], describe: Callable[[TableName], _Described], refusals: Refusals
) -> Iterator[_Described]:
    """Yield descriptions; what the user may not read is noted, so that one error names all of it."""
    for name in names:
        with refusals.noting():
            yield describe(name)


def _column(name: TableName, record: _Record, selection: Selection, *, mariadb: bool) -> Column:
    column, kind, extra = record["column_name"], ColumnType(record["column_type"]), record["extra"].upper()
    carried = kind.carry(selection.carriers.get((name, column)), column_text(ColumnPath(name, column)))
    generated = record["generation_expression"] or None
    default = record["column_default"]
    if not mariadb and default is not None and "DEFAULT_GENERATED" not in extra and not default.startswith("b'"):
        default = constant(default)  # MySQL shows the value, MariaDB its SQL
    return Column(
        name=column,
        type=kind.text,
        arrow_type=arrow_type_text(carried.arrow),
        carrier=carried.carrier,
        nullable=record["is_nullable"] == "YES",
        default=None if generated or default in (None, "NULL") else default,
        generated=generated,
        generated_kind=("virtual" if "VIRTUAL" in extra else "stored") if generated else None,
        identity="by default" if "AUTO_INCREMENT" in extra else None,
        collation=record["collation_name"],
        comment=record["column_comment"] or None,
    )


def _identity_sequence(name: TableName, column: Column, following: int | None) -> Sequence:
    """Return the numbers of an AUTO_INCREMENT column as a sequence; InnoDB tells the next one."""
    bits = column.arrow_field().type.bit_width
    return Sequence(
        schema_name=name.schema,
        name=f"{name.table}_{column.name}_seq",
        column=column.name,
        owned=True,
        start=1,
        increment=1,
        minimum=1,
        maximum=(1 << min(bits, 64) - (0 if ColumnType(column.type).unsigned else 1)) - 1,
        last_value=following - 1 if following and following > 1 else None,
    )
