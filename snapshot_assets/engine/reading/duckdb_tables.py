"""How DuckDB reads a table of a snapshot: by itself where it reads the values as the snapshot's own reader does.

Values have the types that they would have after a restore into DuckDB. DuckDB reads a Parquet file by itself if the
file has the table's types and no row of it is deleted; the snapshot's reader streams all others to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from snapshot_assets.catalog.state.file_pruning import written_schemas
from snapshot_assets.databases.convert.collations import loose_collations
from snapshot_assets.databases.duckdb.parser import Texts
from snapshot_assets.databases.duckdb.types import ingest, type_for
from snapshot_assets.databases.protocol.driver_batches import Feed
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.engine.reading.parallel import read_parts
from snapshot_assets.engine.reading.planning import FilePart, TableRead
from snapshot_assets.errors import DocumentError, UnsupportedTypeError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName

_TEXTS = re.compile(r"text|name|(?:character varying|varchar|string)(?:\(\d+\))?", re.IGNORECASE)
"""Types of databases that compare as DuckDB's texts do."""


@dataclass(frozen=True)
class SqlColumn:
    """A column as DuckDB shows it.

    Attributes:
        name: Its name in the snapshot.
        shown: Its name in SQL: another one if two names of the table differ only by case.
        type: DuckDB's type.
        streamed: The Arrow type in which a stream carries it.
        value: The SQL expression of its value, from a column of the name in SQL.
    """

    name: str
    shown: str
    type: str
    streamed: pa.DataType
    value: str

    @property
    def selected(self) -> str:
        """The item of a SELECT list."""
        return f"CAST({self.value} AS {self.type}) AS {identifier(self.shown)}"


@dataclass(frozen=True)
class SqlTable:
    """A table as DuckDB shows it.

    Attributes:
        name: Its name in SQL.
        notes: Sentences on columns that are texts here, are left out, or have another name.
    """

    table: Table
    name: TableName
    columns: tuple[SqlColumn, ...]
    notes: tuple[str, ...]

    @property
    def empty(self) -> str:
        """A query without rows, of the table's columns."""
        nulls = ", ".join(f"CAST(NULL AS {each.type}) AS {identifier(each.shown)}" for each in self.columns)
        return f"SELECT {nulls} WHERE false"

    def direct(self, paths: Sequence[str], file_columns: Sequence[str]) -> str:
        """Return the query of the rows of Parquet files, which have the named columns."""
        items = [
            column.selected
            if column.name in file_columns
            else f"CAST(NULL AS {column.type}) AS {identifier(column.shown)}"
            for column in self.columns
        ]
        files = f"read_parquet([{', '.join(map(literal, paths))}], hive_partitioning = false)"
        return f"SELECT {', '.join(items)} FROM {files}"

    def streamed(self, source: str) -> str:
        """Return the query of the rows of a `Stream` that is registered as `source`."""
        return f"SELECT {', '.join(column.selected for column in self.columns)} FROM {source}"

    def groups(
        self, read: TableRead, documents: Mapping[int, DatabaseSchema]
    ) -> tuple[dict[int, list[FilePart]], list[FilePart]]:
        """Return the files that DuckDB reads by itself, by schema id, and those that are streamed.

        `documents` are the schemas of the files, by id.
        """
        own: dict[int, list[FilePart]] = {}
        streamed: list[FilePart] = []
        alike = {
            schema_id: self._reads_alike(schema)
            for schema_id, schema in written_schemas(documents, self.table.table_name).items()
        }
        for part in read.parts:
            if part.text is None and not part.deleted and alike.get(part.file.schema_id, False):
                own.setdefault(part.file.schema_id, []).append(part)
            else:
                streamed.append(part)
        return own, streamed

    def _reads_alike(self, written: pa.Schema) -> bool:
        """Return whether DuckDB reads files of a schema as the snapshot's reader does."""
        if any(column.shown != column.name for column in self.columns):
            return False
        kinds = {column.name: self.table.column(column.name).arrow_field().type for column in self.columns}
        present = [name for name in kinds if name in written.names]
        same = all(written.field(name).type == kinds[name] and _is_plain(kinds[name]) for name in present)
        return same and len({name.lower() for name in written.names}) == len(written.names)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether DuckDB reads a type from Parquet as it takes it from Arrow."""
    is_ = pa.types
    if is_.is_struct(kind):
        return kind.num_fields > 0 and all(_is_plain(member.type) for member in kind)
    if is_.is_map(kind):
        return _is_plain(kind.key_type) and _is_plain(kind.item_type)
    if is_.is_list(kind):
        return _is_plain(kind.value_type)
    if is_.is_timestamp(kind):
        return kind.unit in ("ms", "us") if kind.tz is None else kind.unit == "us"
    if is_.is_decimal128(kind):
        return bool(0 <= kind.scale <= kind.precision)
    numbers = is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_float32(kind) or is_.is_float64(kind)
    bytes_ = is_.is_string(kind) or is_.is_binary(kind) or is_.is_fixed_size_binary(kind)
    return bool(numbers or bytes_ or is_.is_date32(kind) or kind == pa.time64("us"))


class Stream:
    """Files of a table as an Arrow stream that DuckDB may begin more than once (Arrow PyCapsule interface).

    Attributes:
        feeds: What was streamed, each with its error.
    """

    def __init__(self, table: SqlTable, read: TableRead, parts: Sequence[FilePart]) -> None:
        self._rows, self._parts = read.rows(pa.schema([read.schema.field(each.name) for each in table.columns])), parts
        self._schema = pa.schema([(column.shown, column.streamed) for column in table.columns])
        self.feeds: list[Feed] = []

    def __arrow_c_schema__(self) -> object:
        """Return the columns and types."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows, from the first one on."""
        batches = (batch.rename_columns(self._schema.names) for batch in read_parts(self._rows, self._parts))
        self.feeds.append(Feed(batches, self._schema))
        return self.feeds[-1].reader().__arrow_c_stream__(requested_schema)


def sql_tables(schema: DatabaseSchema, texts: Texts, only: TableName | None = None) -> Iterator[SqlTable]:
    """Yield the tables of a snapshot as DuckDB shows them; one without columns is left out, as DuckDB has none."""
    names = unique([table.table_name for table in schema.tables if table.columns])
    for name in names if only is None else [only]:
        yield _table(schema.table(name), names, schema.database, texts)


def unique(names: Sequence[TableName]) -> dict[TableName, TableName]:
    """Return names in SQL, of tables or of columns: DuckDB ignores case.

    Of several that differ only by case, the one in lower case keeps its name, or the first; the others get a number
    with which no other has that name.
    """
    taken = {_folded(name) for name in names}
    keeps: dict[TableName, TableName] = {}
    for name in sorted(names, key=lambda name: name != _folded(name)):
        keeps.setdefault(_folded(name), name)
    shown = {}
    for name in names:
        free, numbers = name, count(1)
        while keeps[_folded(name)] != name and _folded(free) in taken:
            free = TableName(name.schema, f"{name.table}_{next(numbers)}")
        taken.add(_folded(free))
        shown[name] = free
    return shown


def _folded(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())


def _renamed(shown: Mapping[TableName, TableName], name: TableName, *table: str) -> list[str]:
    """Return a sentence if other names differ from one only by case; `shown` are those in SQL, `table` theirs."""
    alike = [each for each in shown if _folded(each) == _folded(name)]
    pairs = ", ".join(
        f"{printed_name(*(table or (each.schema,)), each.table)} is {printed_name(shown[each].table)}" for each in alike
    )
    return [f"DuckDB ignores case in names, so here {pairs}."] if len(alike) > 1 else []


def _table(table: Table, names: Mapping[TableName, TableName], database: str, texts: Texts) -> SqlTable:
    name, columns, notes, carried = table.table_name, [], _renamed(names, table.table_name), []
    shown = unique([TableName("", column.name) for column in table.columns])
    for column in table.columns:
        own = TableName("", column.name)
        notes += [note for note in _renamed(shown, own, *name) if note not in notes]
        try:
            columns.append(_column(name, column, shown[own].table, database, texts))
        except UnsupportedTypeError as error:
            notes.append(f"{printed_name(*name, column.name)} is left out: {error}")
            continue
        if columns[-1].type == "VARCHAR" and not _TEXTS.fullmatch(column.type):
            carried.append(f"{printed_name(column.name)} ({column.type})")
    if carried:
        notes.append(f"Texts here, which compare as texts, in {printed_name(*name)}: {', '.join(carried)}.")
    if loose := [f"{printed_name(own)} ({each})" for own, each in loose_collations(table).items()]:
        notes.append(
            "Texts compare by their bytes here, and by collations that ignore case or the like in the source, in"
            f" {printed_name(*name)}: {', '.join(loose)}."
        )
    return SqlTable(table, names[name], tuple(columns), tuple(notes))


def _column(table: TableName, column: Column, shown: str, database: str, texts: Texts) -> SqlColumn:
    named, where = column.model_copy(update={"name": shown}), printed_name(*table, column.name)
    kind = None
    if database == "duckdb":
        with suppress(DocumentError):  # a type that the database defines, such as an enumeration
            kind = texts.type(column.type, where)
    if kind is None:
        arrow_type = column.arrow_field().type
        type_text = "JSON" if column.type in ("json", "jsonb") and arrow_type == pa.string() else type_for(arrow_type)
        kind = texts.type(type_text, where)
        named = Column(name=shown, type=type_text, arrow_type=column.arrow_type)
    streamed, value = ingest(table, named, kind)
    return SqlColumn(column.name, shown, str(kind), streamed, value)
