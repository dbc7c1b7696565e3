"""Adds rows to tables: as files of LOAD DATA where the server takes them, or else by INSERT.

LOAD DATA LOCAL makes warnings of errors: it leaves out a row whose key is there, and changes a value that does not fit.
So rows of which the server warns are taken back and inserted by statements, which fail as they should.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import CLIENT, COMMAND
from pymysql.protocol import LoadLocalPacketWrapper, OKPacketWrapper

from snapshot_assets.databases.mysql.failures import LOST, number_of
from snapshot_assets.databases.mysql.session import MysqlConnection
from snapshot_assets.databases.mysql.texts import escaped
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.mysql.write_forms import (
    NO_FIELD,
    constants_of,
    content_of,
    fields_of,
    holds_bytes,
    rows_of,
)
from snapshot_assets.databases.protocol.driver_batches import Feed
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.target import UnfitValues
from snapshot_assets.databases.sql import identifier, identifiers, literal, qualified
from snapshot_assets.errors import DatabaseError, SnapshotError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Column, Table
from snapshot_assets.format.units import counted

_STATEMENT_BYTES = 1 << 20
_PORTION_BYTES = 4 << 20
_PACKET_BYTES = 1 << 18
_PACKET_SPARE = 1 << 10
_REFUSED = -1, 0
_SERVER = """
SELECT @@max_allowed_packet AS packet, @@lower_case_table_names AS folds, @@local_infile AS files
"""
_LOAD = (
    "LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET utf8mb4"
    " FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({fields}, @snapshots_end){values}"
)
# For NULL they get the time of the statement, without a warning.
_OWN_TIMES = """
SELECT column_name AS name FROM information_schema.columns
WHERE table_schema = {schema} AND table_name = {table} AND data_type = 'timestamp' AND is_nullable = 'NO'
"""


class MysqlWriter(MysqlConnection):
    """A connection that adds rows.

    Attributes:
        folds: Whether the server compares names of tables without their case.
    """

    def __init__(self, address: DatabaseAddress, settings: Mapping[str, str]) -> None:
        # The driver's `local_infile` would send the server any file that it names.
        super().__init__(address, settings, client_flag=CLIENT.LOCAL_FILES)
        try:
            [row] = self.rows(_SERVER, "looking up settings")
        except BaseException:
            self.close()
            raise
        self.folds, self._takes_files = bool(row["folds"]), bool(row["files"])
        self._packet = int(row["packet"]) - _PACKET_SPARE

    def insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows to a table within a transaction, and return their number."""
        stored = {column.name: column for column in table.columns if column.generated is None}
        feed = Feed(batches, pa.schema({name: _fed_type(column) for name, column in stored.items()}))
        load = _load_statement(table, stored) if self._takes_files else ""
        own_times = self._own_times(table)
        enums = [name for name, column in stored.items() if ColumnType(column.type).empty_is_error]
        for portion in filter(len, feed.portions(_PORTION_BYTES)):
            if unfit := [name for name in own_times if portion.column(name).null_count]:
                raise DatabaseError(
                    f"{self._name}: loading {table.table_name} failed: column {unfit[0]} is NOT NULL in the target, and"
                    " would take the time of the load for NULL. Alter it, or drop the table and import again.",
                    table=table_text(table.table_name),
                )
            errors = sum(pc.sum(pc.equal(portion.column(name), "")).as_py() or 0 for name in enums)
            if not (load and self._takes_files and self._load_file(load, table, portion, errors)):
                self._insert_rows(table, portion, errors)
        return feed.rows

    def longer_than_a_statement(self, column: Column) -> UnfitValues | None:
        """Return which values of a column no statement can hold; None if all are short."""
        kind = column.arrow_field().type
        if not (holds_bytes(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return None

        def count(values: pa.Array) -> int:
            return pc.sum(pc.greater(pc.binary_length(constants_of(values)), self._packet)).as_py() or 0

        return UnfitValues(f"of more than {self._packet} bytes, which max_allowed_packet of the server forbids", count)

    def _own_times(self, table: Table) -> list[str]:
        name = table.table_name
        query = _OWN_TIMES.format(schema=literal(name.schema), table=literal(name.table))
        stored = {column.name for column in table.columns if column.generated is None}
        return [row["name"] for row in self.rows(query, f"reading the columns of {name}") if row["name"] in stored]

    def _load_file(self, sql: str, table: Table, portion: pa.Table, errors: int) -> bool:
        """Load rows as a file; return False, with nothing changed, if the server did not take all as they are.

        It warns of each of the `errors`, the error values of enums.
        """
        rows = pc.binary_join_element_wise(
            *(fields_of(column.combine_chunks()) for column in portion.columns),
            *(pa.scalar(b"\n"), pa.scalar(b"\t")), null_handling="replace", null_replacement=NO_FIELD,
        )  # fmt: skip
        if pc.max(pc.binary_length(rows)).as_py() > self._packet:
            return False
        doing = f"loading {table.table_name}"
        self.execute("SAVEPOINT before_file", doing)
        added, warnings = interruptible(lambda: self._send(sql, rows, doing), self.interrupt)
        if (added, warnings) == (portion.num_rows, errors):
            return True
        self.execute("ROLLBACK TO SAVEPOINT before_file", doing)
        return False

    def _send(self, sql: str, rows: pa.Array, doing: str) -> tuple[int, int]:
        """Run LOAD DATA with a file that has all rows; return how many the server added, and its warnings."""
        connection = self._connection
        content = content_of(rows)
        size = min(_PACKET_BYTES, self._packet)
        with self.translating(doing), self._running(doing):
            connection._execute_command(COMMAND.COM_QUERY, escaped(sql))
            try:
                LoadLocalPacketWrapper(connection._read_packet())
            except pymysql.err.Error as error:
                if number_of(error) in LOST:
                    raise
                self._takes_files = False  # something between us and the server refuses files
                return _REFUSED
            for at in range(0, len(content), size):
                connection.write_packet(content[at : at + size])
            connection.write_packet(b"")
            answer = OKPacketWrapper(connection._read_packet())
        return answer.affected_rows, answer.warning_count

    def _insert_rows(self, table: Table, portion: pa.Table, errors: int) -> None:
        """Insert rows by statements; those with error values of enums without strict modes, which refuse them."""
        doing, warnings = f"loading {table.table_name}", 0
        constants = [constants_of(column.combine_chunks()) for column in portion.columns]
        into = f"INSERT INTO {qualified(table.table_name)} {identifiers(portion.column_names)} VALUES (".encode()
        with self._not_strict(doing) if errors else nullcontext():
            for rows in self._statements(table, rows_of(constants), len(into)):
                self.execute(into + b"),(".join(rows) + b")", doing)
                warnings += self.rows("SELECT @@warning_count AS found", doing)[0]["found"] if errors else 0
        if warnings != errors:
            raise DatabaseError(
                f"{self._name}: {doing} failed: the server warned {warnings} times of rows in which"
                f" {counted(errors, 'value')} of enums are no member; every other value must fit its column. Nothing"
                " was changed. Alter the columns as the snapshot has them, or drop the table, and import again.",
                table=table_text(table.table_name),
            )

    @contextmanager
    def _not_strict(self, doing: str) -> Iterator[None]:
        self.execute("SET SESSION sql_mode = REPLACE(@@sql_mode, 'STRICT_ALL_TABLES', '')", doing)
        try:
            yield
        finally:
            try:
                self.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')", doing)
            except SnapshotError:
                self.close()  # no other row may be loaded so
                raise

    def _statements(self, table: Table, rows: list[bytes], head: int) -> Iterator[list[bytes]]:
        """Yield the rows of one statement after the other, each within the server's limit."""
        some: list[bytes] = []
        size = head
        for row in rows:
            if (alone := head + len(row)) > self._packet:
                raise DatabaseError(
                    f"{self._name}: loading {table.table_name} failed: a row has {alone} bytes, and the server takes"
                    f" statements of {self._packet}. Set max_allowed_packet on the server to"
                    f" {alone + 2 * _PACKET_SPARE} or more, and run again.",
                    table=table_text(table.table_name),
                )
            if some and size + len(row) + 3 > min(_STATEMENT_BYTES, self._packet):
                yield some
                some, size = [], head
            some.append(row)
            size += len(row) + 3
        if some:
            yield some


def _is_number(column: Column) -> bool:
    """Return whether a column takes the characters of a text, or another number for them."""
    return ColumnType(column.type).name in ("bit", "year")


def _fed_type(column: Column) -> pa.DataType:
    return pa.uint64() if _is_number(column) else column.arrow_field().type


def _load_statement(table: Table, stored: Mapping[str, Column]) -> str:
    fields, values = [], []
    for number, (name, column) in enumerate(stored.items()):
        if holds_bytes(column.arrow_field().type):
            form = "UNHEX({})"
        elif _is_number(column):
            form = "CAST({} AS UNSIGNED)"
        else:
            fields.append(identifier(name))
            continue
        fields.append(f"@snapshots_{number}")
        values.append(f"{identifier(name)} = {form.format(fields[-1])}")
    sets = f" SET {', '.join(values)}" if values else ""
    return _LOAD.format(table=qualified(table.table_name), fields=", ".join(fields), values=sets)
