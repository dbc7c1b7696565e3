"""MySQL and MariaDB as a target: a transaction adds the rows of a file with its ledger row.

A statement that creates something ends the transaction. So each step of a schema is made alone, and the ledger records
it before: a step whose object is there, though it is recorded as failed, was made. Only the keys of one table are added
by one statement; each is made alone if that fails.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile

from snapshot_assets.databases.definition import Definition, Statement
from snapshot_assets.databases.mysql.code import CodeStatement, forbidden_by_log
from snapshot_assets.databases.mysql.collations import losses, with_nearest
from snapshot_assets.databases.mysql.ddl import Addition
from snapshot_assets.databases.mysql.session import SQL_MODE
from snapshot_assets.databases.mysql.time_predicates import MysqlTimeColumn
from snapshot_assets.databases.mysql.write_forms import unfit_values
from snapshot_assets.databases.mysql.writer import MysqlWriter
from snapshot_assets.databases.protocol import ledger
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult
from snapshot_assets.databases.protocol.target import (
    LEDGER_SCHEMA,
    ExistingTable,
    OtherType,
    Reference,
    RestoreRecord,
    UnfitValues,
    parents_first,
)
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import DatabaseError, DatabaseLockedError, SnapshotError, TransientError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName

_YEAR = 31_536_000
_STRICT = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_LOAD_MODE = f"{SQL_MODE},{_STRICT}"
_SETTINGS = {
    "sql_mode": f"'{_LOAD_MODE}'",
    "innodb_lock_wait_timeout": str(_YEAR),
    "lock_wait_timeout": str(_YEAR),
    "foreign_key_checks": "1",
    "unique_checks": "1",
    "explicit_defaults_for_timestamp": "1",
    "sql_notes": "0",  # notes name no loss
}
_EXISTS = (1007, 1022, 1050, 1061, 1068, 1826)
_VIOLATED = (1048, 1062, 1215, 1216, 1217, 1264, 1451, 1452, 1586, 3819, 4025)
_BEGAN = "It began."
_INSIDE = re.compile(r"(?P<name>[a-z]+)(?:\((?P<sizes>[\d,]+)\))?(?P<rest>.*)", re.DOTALL)
_ANY_WIDTH = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")

_EXISTING = """
SELECT table_schema AS "schema", table_name AS "table", table_type AS what FROM information_schema.tables WHERE {names}
"""
_EXISTING_COLUMNS = """
SELECT table_schema AS "schema", table_name AS "table", column_name AS "column" FROM information_schema.columns
WHERE {names} ORDER BY ordinal_position
"""
_TYPES = """
SELECT column_name AS name, column_type AS type, generation_expression AS "generated"
FROM information_schema.columns WHERE table_schema = {schema} AND table_name = {table}
"""
_REFERENCES = """
SELECT constraint_name AS name, table_schema AS "schema", table_name AS "table",
    referenced_table_schema AS other_schema, referenced_table_name AS other,
    column_name AS here, referenced_column_name AS there
FROM information_schema.key_column_usage
WHERE referenced_table_name IS NOT NULL AND ({names}) ORDER BY 2, 3, 1, ordinal_position
"""
_TRIGGERS = """
SELECT trigger_name AS name, event_object_schema AS "schema", event_object_table AS "table",
    event_manipulation AS event
FROM information_schema.triggers WHERE event_manipulation IN ({events}) AND ({names}) ORDER BY 2, 3, 1
"""
_WITHOUT_TRANSACTIONS = """
SELECT table_schema AS "schema", table_name AS "table", t.engine AS engine
FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
WHERE e.transactions <> 'YES' AND ({names}) ORDER BY 1, 2
"""


class MysqlTarget(MysqlWriter, SqlTarget):
    """One connection that writes; see `SqlTarget` and `MysqlWriter`."""

    kind = "mysql"
    time_column = MysqlTimeColumn
    _insert = MysqlWriter.insert
    _rows = MysqlWriter.rows
    ledger = tuple(
        ledger.create_ledger(
            ledger.LedgerTypes(
                name="varchar(64)",
                path="varchar(570)",
                text="longtext",
                moment="timestamp DEFAULT current_timestamp",
                options=" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC",
            )
        )
    )
    _drop_ledger = f'DROP DATABASE IF EXISTS "{LEDGER_SCHEMA}"'

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(address, _SETTINGS)

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist; see `SqlTarget`."""
        if not tables:
            return {}
        wanted = {self._folded(name): name for name in tables}
        columns = dict[TableName, list[str]]()
        # Of a join with the columns, the server reads those of all its tables, however few are named.
        found = dict(self._named(_EXISTING, tables, wanted, "what"))
        for name, column in self._named(_EXISTING_COLUMNS, tables, wanted, "column"):
            columns.setdefault(name, []).append(column)
        kinds = {name: {"VIEW": "view", "SEQUENCE": "sequence"}.get(what, "table") for name, what in found.items()}
        filled = self._with_rows([name for name, kind in kinds.items() if kind == "table"])
        return {name: ExistingTable(tuple(columns.get(name, ())), name in filled, kind) for name, kind in kinds.items()}

    def _named(
        self, query: str, tables: Sequence[TableName], wanted: Mapping[TableName, TableName], value: str
    ) -> Iterator[tuple[TableName, str]]:
        """Yield a value of each row of a query that names one of the wanted tables, and that table's name."""
        for row in self.rows(query.format(names=_among(tables, "table_schema", "table_name")), "looking up tables"):
            name = wanted.get(self._folded(TableName(row["schema"], row["table"])))
            if name is not None:
                yield name, row[value]

    def _folded(self, name: TableName) -> TableName:
        return TableName(name.schema.lower(), name.table.lower()) if self.folds else name

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns whose type in the target differs from the tables' type; see `SqlTarget`."""
        others = []
        for table in tables:
            there = self._types(table.table_name)
            for column in table.columns if there else ():
                found, generated = there.get(column.name, ("missing", False))
                if generated is not (column.generated is not None):
                    texts = [f"{found}{', generated' if generated else ''}"]
                    texts += [f"{column.type}{'' if generated else ', generated'}"]
                    others.append(OtherType(table.table_name, column.name, texts[0], texts[1]))
                elif (limit := _limit(found, column.type)) is not None:
                    others.append(OtherType(table.table_name, column.name, found, column.type, limit or None))
        return others

    def _types(self, name: TableName) -> dict[str, tuple[str, bool]]:
        """Return the type of each column of a table, and whether it is generated."""
        query = _TYPES.format(schema=literal(name.schema), table=literal(name.table))
        rows = self.rows(query, f"reading the columns of {name}")
        return {row["name"]: (row["type"], bool(row["generated"])) for row in rows}

    def unfit_values(self, column: Column) -> UnfitValues | None:
        """Return which values MySQL cannot hold; see `SqlTarget`."""
        return unfit_values(column) or self.longer_than_a_statement(column)

    def differing(self, schema: DatabaseSchema, definition: Definition) -> list[str]:
        """Return which collations MariaDB lacks; see `SqlTarget`."""
        return list(losses(definition)) if self.mariadb else []

    def conflicts(self, definition: Definition) -> list[str]:
        """Return which functions and triggers the server's binary log forbids; see `SqlTarget`."""
        return forbidden_by_log(self, [each for each in definition.after if isinstance(each, CodeStatement)])

    def acting(self, tables: Sequence[TableName], *, deletes: bool) -> list[str]:
        """Return the triggers of tables, which cannot be switched off, and tables without transactions."""
        if not tables:
            return []
        self.execute("START TRANSACTION READ WRITE", "asking whether the server may write")  # changes nothing
        self.execute("ROLLBACK", "asking whether the server may write")
        events = "'INSERT', 'DELETE'" if deletes else "'INSERT'"
        query = _TRIGGERS.format(events=events, names=_among(tables, "event_object_schema", "event_object_table"))
        found = [
            f"Trigger {row['name']} of {TableName(row['schema'], row['table'])} acts on each {row['event']}."
            " Drop it until the import ends; with --with-code, the import creates the snapshot's triggers again."
            for row in self.rows(query, "looking for triggers")
        ]
        query = _WITHOUT_TRANSACTIONS.format(names=_among(tables, "table_schema", "table_name"))
        return found + [
            f"The rows of {TableName(row['schema'], row['table'])} have no transactions, so a load that fails would"
            f" leave some: its engine is {row['engine']}. Alter it to InnoDB until the import ends."
            for row in self.rows(query, "looking up engines")
        ]

    def _execute(self, sql: str, doing: str) -> None:
        self.execute(sql, doing)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with super()._transaction():
                yield
        finally:
            with suppress(SnapshotError):  # the lock ends with the session too
                self.execute("DO RELEASE_LOCK('snapshot_assets')", "releasing the lock of imports")

    def _lock(self, tables: Sequence[TableName] = ()) -> None:
        # A lock of the session outlives the statements that end its transaction. Loads hold the rows of imports.
        doing = "waiting for other imports"
        [row] = self.rows(f"SELECT GET_LOCK('snapshot_assets', {_YEAR}) AS got", doing)
        if row["got"] != 1:
            raise DatabaseLockedError(f"{self._name}: {doing} failed: the server gave no lock. Run again.")
        if self._has_ledger():
            self.rows(f"SELECT id FROM {ledger.IMPORTS} FOR UPDATE", doing)

    def _lock_imports(self) -> None:
        # The gaps between its rows are locked too: no import begins until the load ends.
        self.rows(f"SELECT id FROM {ledger.IMPORTS} LOCK IN SHARE MODE", "waiting for other imports")

    def _insert_absent(self, insert: str, doing: str) -> bool:
        return self.execute(f"{insert} ON DUPLICATE KEY UPDATE path = path", doing) == 1

    def _write(self, results: Sequence[StepResult]) -> None:
        self.execute(ledger.record_steps(results, replaces=True), "recording steps in the ledger")

    def _try_group(
        self, record: RestoreRecord, group: list[SchemaStep], before: Mapping[str, StepResult]
    ) -> list[StepResult]:
        group = list(takewhile(lambda step: _joins(group[0], step, before.get(step.name)), group)) or group[:1]
        begun = [StepResult(each.name, record.id, "failed", _BEGAN) for each in group if each.name not in before]
        self._record(begun)
        if len(group) > 1 and (made := self._made_at_once(record, group)):
            return made
        return [result for step in group for result in super(MysqlTarget, self)._try_group(record, [step], before)]

    def _made_at_once(self, record: RestoreRecord, steps: Sequence[SchemaStep]) -> list[StepResult]:
        """Add keys of one table by one statement, and return their results; none if it fails."""
        additions = [each for step in steps for each in step.statements if isinstance(each, Addition)]
        sql = ", ".join([additions[0].sql, *(each.added for each in additions[1:])])
        made = [StepResult(step.name, record.id, "made") for step in steps]
        try:
            with self._transaction():
                self._lock()
                if self._made_already(record, steps):
                    return []
                self._run(replace(additions[0], sql=sql))
                self._write(made)
        except TransientError:
            raise
        except SnapshotError:  # trying each tells which, and why
            return []
        return made

    def _run(self, statement: Statement) -> None:
        """Run a statement of a definition, which is for a session in which backslashes escape, or with its settings."""
        doing = f"making {statement.key}"
        within = statement.table.schema if statement.table else ""
        sql = self._known(statement.sql).encode()
        settings, after = f"SESSION sql_mode = '{_STRICT}'", [f"SET SESSION sql_mode = '{_LOAD_MODE}'"]
        if isinstance(statement, CodeStatement):
            within, settings = statement.within, self._known(statement.settings)
            after += ["SET NAMES utf8mb4", "SET SESSION time_zone = '+00:00', SESSION timestamp = DEFAULT"]
        before = [f"USE {identifier(within)}"] if within else []  # views may call functions without naming it
        try:
            for each in (*before, f"SET {settings}"):
                self.execute(each, doing)
            self.execute(sql, doing)
        finally:
            try:
                for each in after:
                    self.execute(each, doing)
            except SnapshotError:
                self.close()  # no row may be read in other settings
                raise

    def _known(self, sql: str) -> str:
        return with_nearest(sql) if self.mariadb else sql

    def _exists_already(self, error: SnapshotError, step: SchemaStep) -> bool:
        return error.attributes.get("errno") in _EXISTS

    def _violated(self, error: SnapshotError) -> bool:
        return error.attributes.get("errno") in _VIOLATED

    def _own_rows(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        return {name: qualified(name) for name in names}

    @contextmanager
    def _disable_triggers(
        self, tables: Sequence[TableName], read: Sequence[TableName] = (), *, deletes: bool = False
    ) -> Iterator[None]:
        # The server checks foreign keys row by row, so no order is right for rows that refer to each other.
        keys = self._foreign_keys(_among(tables, "table_schema", "table_name")) if deletes else {}
        inside = [key for key in keys if key.parent in tables]
        order = parents_first(tables, inside)
        if all(order.index(key.parent) < order.index(key.table) for key in inside):
            yield
            return
        doing = "replacing rows that refer to each other"
        self.execute("SET SESSION foreign_key_checks = 0", doing)
        try:
            yield
        finally:
            with suppress(SnapshotError):  # of a connection that is lost
                self.execute("SET SESSION foreign_key_checks = 1", doing)
        for key, refers in keys.items():
            lost = f"NOT EXISTS (SELECT 1 FROM {qualified(key.parent)} AS p WHERE {key.match})"
            query = f"SELECT 1 AS found FROM {qualified(key.child)} AS c WHERE {refers} AND {lost} LIMIT 1"
            if self.rows(query, f"checking foreign key {key.name} of {key.child}"):
                raise DatabaseError(
                    f"{self._name}: {doing} failed: by foreign key {key.name} of {key.child}, a row refers to none of"
                    f" {key.parent}. Nothing was changed.",
                    table=table_text(key.child),
                )

    def _references(self, tables: Sequence[TableName]) -> list[Reference]:
        return list(self._foreign_keys(_among(tables, "referenced_table_schema", "referenced_table_name")))

    def _foreign_keys(self, among: str) -> dict[Reference, str]:
        """Return foreign keys, each with the condition of row `c` referring to any row."""
        pairs: dict[tuple[str, TableName, TableName], list[tuple[str, str]]] = {}
        for row in self.rows(_REFERENCES.format(names=among), "looking for foreign keys"):
            child, parent = TableName(row["schema"], row["table"]), TableName(row["other_schema"], row["other"])
            here, there = f"c.{identifier(row['here'])}", f"p.{identifier(row['there'])}"
            pairs.setdefault((row["name"], child, parent), []).append((here, there))
        return {
            Reference(name, child, child, parent, parent, " AND ".join(f"{there} = {here}" for here, there in columns)):
            " AND ".join(f"{here} IS NOT NULL" for here, _ in columns)
            for (name, child, parent), columns in pairs.items()
        }  # fmt: skip


def _joins(first: SchemaStep, step: SchemaStep, prior: StepResult | None) -> bool:
    """Return whether one statement may make two steps, the second of which has not failed before."""
    kinds = {first.kind == "foreign key", step.kind == "foreign key"}  # for these, the server copies the table
    untried = prior is None or prior.message in ("", _BEGAN)
    return isinstance(step.statements[0], Addition) and step.table == first.table and len(kinds) == 1 and untried


def _among(tables: Collection[TableName], schema: str, table: str) -> str:
    """Return the predicate of rows that name one of the tables in two columns."""
    return " OR ".join(
        f"({schema} = {literal(name.schema)} AND {table} = {literal(name.table)})" for name in sorted(set(tables))
    )


def _limit(found: str, wanted: str) -> int | None:
    """Return None if a type holds another one's values; else the most characters that it holds, 0 for other types."""
    one, other = _INSIDE.fullmatch(found.lower()), _INSIDE.fullmatch(wanted.lower())
    if found.lower() == wanted.lower():
        return None
    if one is None or other is None or (one["name"], one["rest"]) != (other["name"], other["rest"]):
        return 0
    sizes, others = ([int(each) for each in (match["sizes"] or "0").split(",")] for match in (one, other))
    if one["name"] in _ANY_WIDTH or (sizes[0] >= others[0] and sizes[1:] == others[1:]):
        return None
    return sizes[0] if one["name"] in ("varchar", "char") else 0
