"""Plans a read from the log: its schema, and the work of each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from snapshot_assets.catalog.listing import METADATA_TABLES, TableRequest
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.truncation import existing_state
from snapshot_assets.catalog.schemas import read_schema, read_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.databases.selection.selection import check_relation, suggestion
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.files.parquet.reader import BATCH_ROWS, ChooseGroups
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.reading.options import ReadOptions
from snapshot_assets.engine.reading.parts import FilePart, file_parts, grouped, groups_in_range
from snapshot_assets.engine.time_range import TimeFilter, is_time
from snapshot_assets.errors import IncompleteError, NoSnapshotError, PlanError
from snapshot_assets.format.header import format_of
from snapshot_assets.format.names import NameRule, Spellings, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class TimeIndex:
    """The column by which files of a read can be left out.

    Attributes:
        zone: IANA zone of times without one.
        revision: The revision that is read.
    """

    column: str
    zone: str
    revision: int


@dataclass(frozen=True)
class PlannedRead:
    """A planned read.

    Attributes:
        schema: Spark's schema of the rows.
        read: Yields the batches of one task's work; picklable.
        work: The work of each task.
        time_index: None if a range of time leaves no files out.
    """

    schema: StructType
    read: Callable[[Any], Iterator[pa.RecordBatch]]
    work: list[Any]
    time_index: TimeIndex | None = None


@dataclass(frozen=True)
class TableRead:
    """The rows of one table to read, at one revision.

    Attributes:
        schema: The chosen columns, in the types in which Spark takes them.
        time_range: None for all rows.
        parts: The files, and what is read of each.
    """

    store: ObjectStore
    state: State
    table: Table
    schema: pa.Schema
    time_range: TimeFilter | None
    parts: list[FilePart]
    verify: bool

    def planned(self) -> PlannedRead:
        """Return the read as the work of Python tasks."""
        rows = FileRows(self.store, self.table, self.schema, self.time_range, self.verify, self.zone)
        return PlannedRead(spark_schema(self.schema), rows, grouped(self.parts), self._time_index)

    @property
    def _time_index(self) -> TimeIndex | None:
        name = self.table.time_index
        comparable = name is not None and is_time(self.table.column(name).arrow_field().type)
        return TimeIndex(name, self.zone, self.state.revision) if name is not None and comparable else None

    @property
    def zone(self) -> str:
        """IANA zone of times without one."""
        assert self.state.header is not None
        return self.state.header.time_zone


def choose_read(store: ObjectStore, options: ReadOptions) -> TableRead | PlannedRead:
    """Choose the revision and the files to read. Opens the log and schema documents, no data.

    Args:
        store: The location.
        options: The options.

    Raises:
        NoSnapshotError: There is no snapshot.
        IncompleteError: No revision is sealed yet.
        LostLogError: The log is lost.
        VersionNotFoundError: There is no such version.
        UnknownRelationError: There is no such table.
        PlanError: There is no such column, or the table cannot be read by time.
        DamageError: The log is damaged.

    Returns:
        The files of a table; for a metadata table its rows.
    """
    head = existing_state(store)
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {store.uri}.", location=store.uri)
    if isinstance(options.table, str):
        since = 0 if options.since is None else resolve_version(options.since, head)
        asked = TableRequest(head, _state(store, head, options.version), since)
        return _plan_metadata(asked, options.table, options.columns)
    if options.version is None and not head.seals:
        raise IncompleteError(
            f"The snapshot at {store.uri} was not sealed yet: materialise its manifest. The table $chunks shows what is"
            " exported.",
            location=store.uri,
        )
    if options.version is None and head.sealed:
        return _choose_table(store, head, options.table, options)  # tags and the like may follow the seal
    version = str(head.seals[-1].revision) if options.version is None else options.version
    return _choose_table(store, _state(store, head, version), options.table, options)


def _state(store: ObjectStore, head: State, version: str | None) -> State:
    """Return the state at a version; the head's for None."""
    revision = head.revision if version is None else resolve_version(version, head)
    return head if revision == head.revision else read_state(store, through=revision)


def _plan_metadata(asked: TableRequest, name: str, columns: Sequence[str]) -> PlannedRead:
    rows = METADATA_TABLES[name].read(asked)
    rows = rows.select(chosen_columns(rows.schema, columns, name).names)
    return PlannedRead(spark_schema(rows.schema), iter, [rows.to_batches(BATCH_ROWS)])


def _choose_table(store: ObjectStore, state: State, name: TableName, options: ReadOptions) -> TableRead:
    newest = read_schema(store, state.schemas[state.schema_id])
    schemas, rule = [schema.name for schema in newest.schemas], rule_of(newest.database)
    names = SpelledNames(rule, schemas, {each.table_name: () for each in newest.tables})
    name = names.table(name)
    check_relation(name, schemas, [table.table_name for table in newest.tables])
    table = newest.table(name)
    schema = batch_schema(chosen_columns(table.arrow_schema(), options.columns, str(name), rule))
    time_range = time_range_of(options, state, table)
    parts = file_parts(state, table, documents_for(store, state, name, time_range), time_range)
    return TableRead(store, state, table, schema, time_range, parts, options.verify)


def time_range_of(options: ReadOptions, state: State, table: Table) -> TimeFilter | None:
    """Return the time range of a read, in the snapshot's zone; None for all rows.

    Raises:
        PlanError: There is a range, and the table has no time index.
    """
    assert state.header is not None
    if not (options.start or options.end):
        return None
    if table.time_index is None:
        raise PlanError(
            f"table {table.table_name} has no time index, so it has no range of time: leave start and end out"
        )
    return TimeFilter(options.start, options.end, state.header.time_zone)


def documents_for(
    store: ObjectStore, state: State, table: TableName, time_range: TimeFilter | None
) -> dict[int, DatabaseSchema]:
    """Return the schemas of a state's files, by id; empty if Parquet files of the table are read without a filter."""
    needed = format_of(state.header).is_text or time_range is not None
    needed = needed or any((each.schema, each.table) == table for each in state.tombstones.values())
    return read_schemas(store, state) if needed else {}


def chosen_columns(schema: pa.Schema, columns: Sequence[str], table: str, rule: NameRule = NameRule.EXACT) -> pa.Schema:
    """Return the fields of the named columns, in that order; all fields if no column is named."""
    columns = list(map(Spellings(rule, schema.names).of, columns))
    for column in columns:
        if column not in schema.names:
            raise PlanError(f"Table {table!r} has no column {column!r}. {suggestion(column, schema.names)}")
    return pa.schema([schema.field(column) for column in columns]) if columns else schema


@dataclass(frozen=True)
class FileRows:
    """Reads parts of a table's files, in Spark's processes.

    Attributes:
        time_range: Filters the rows of cut parts.
        verify: Whether a file is hashed before its first row.
        zone: IANA zone of times without one.
    """

    store: ObjectStore
    table: Table
    schema: pa.Schema
    time_range: TimeFilter | None
    verify: bool
    zone: str

    def __call__(self, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts."""
        for part in parts:
            schema = self._with_time() if part.cut else self.schema
            batches = read_batches(
                self.store,
                part.file,
                schema,
                part.text,
                verify=self.verify,
                row_groups=self.groups_of(part),
                zone=self.zone,
                deleted=part.deleted,
            )
            for batch in batches:
                yield self._in_range(batch) if part.cut else batch

    def groups_of(self, part: FilePart) -> ChooseGroups | None:
        """Return what selects the row groups of a part; None for all."""
        return partial(groups_in_range, self.table, self.time_range) if part.cut and self.time_range else None

    def _with_time(self) -> pa.Schema:
        time = self.table.time_index
        assert time is not None
        return self.schema if time in self.schema.names else self.schema.append(self.table.column(time).arrow_field())

    def _in_range(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self.time_range is not None
        return self.time_range.filter(batch, self.table).select(self.schema.names)
