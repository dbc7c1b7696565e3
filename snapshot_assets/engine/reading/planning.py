"""Plans a read from the log: its schema, and the files and row groups that each task reads.

The log selects files; the task that reads a file selects row groups from its footer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.listing import METADATA_TABLES, TableRequest
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.truncation import existing_state
from snapshot_assets.catalog.schemas import read_schema, read_schemas
from snapshot_assets.catalog.state.file_pruning import deletions, match_files, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.databases.selection.selection import check_relation, suggestion
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.engine.files.parquet.statistics import row_groups
from snapshot_assets.engine.files.read import TextSchema, read_batches, text_schemas
from snapshot_assets.engine.reading.options import RowOptions
from snapshot_assets.engine.time_range import TimeFilter, is_time
from snapshot_assets.errors import IncompleteError, NoSnapshotError, PlanError
from snapshot_assets.format.actions import ColumnStatistics, DataFile
from snapshot_assets.format.header import format_of
from snapshot_assets.format.names import NameRule, Spellings, rule_of
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class FilePart:
    """The part of one file that is read.

    Attributes:
        file: The file, without its statistics.
        cut: Whether the time range selects row groups from the file's footer, and filters rows.
        deleted: Predicates of tombstones; rows for which one is true are left out.
        dropped: Whether tombstones delete all rows.
        text: What a text file does not say about itself; None for Parquet.
        share: Which share of how many is read of a Parquet file's row groups; the first one hashes the file.
    """

    file: DataFile
    cut: bool = False
    deleted: tuple[Predicate, ...] = ()
    dropped: bool = False
    text: TextSchema | None = None
    share: tuple[int, int] = (0, 1)


def file_parts(
    state: State,
    table: Table,
    documents: Mapping[int, DatabaseSchema],
    time_range: TimeFilter | None,
    *,
    dropped: bool = False,
) -> list[FilePart]:
    """Return the parts to read for the rows of a table of the newest schema, by chunk and path.

    The documents are used only for text files, with a time range or with tombstones. Without a time range, rows without
    a time are read too. Files that are deleted whole are included if they are to be (`dropped`).

    Raises:
        PlanError: A time that is carried as text would have to filter rows.
    """
    written = written_schemas(documents, table.table_name)
    gone = deletions(state, table.table_name, written)
    text_of = text_schemas(state.header, documents)
    parts = [
        replace(
            part,
            deleted=gone.of(part.file.path),
            dropped=part.file.path in gone.dropped,
            text=text_of(part.file),
        )
        for part in _in_range(state, table, written, time_range)
    ]
    return [part for part in parts if dropped or not part.dropped]


def _in_range(
    state: State, table: Table, written: Mapping[int, pa.Schema], time_range: TimeFilter | None
) -> Iterator[FilePart]:
    """Yield the parts that may hold rows of a time range."""
    start, end = (time_range.start, time_range.end) if time_range else (None, None)
    found = match_files(state, table.table_name, start=start, end=end)
    matches = list(found)
    edges = [match for match in matches if not match.certain]
    bare = [replace(match.file, columns=(), row_groups=()) for match in matches]  # without statistics
    if not edges or time_range is None or table.time_index is None:
        yield from map(FilePart, bare)
        return
    kind = table.column(table.time_index).arrow_field().type
    if not is_time(kind):
        raise PlanError(
            f"{table.table_name}.{table.time_index} is carried as {kind}, so rows cannot be filtered by it. Let"
            " start and end lie on bounds of chunks (table $chunks lists them), or omit them."
        )
    paths = [match.file.path for match in edges]
    statistics = dict(zip(paths, found.statistics(table.time_index, edges), strict=True))
    for match, file in zip(matches, bare, strict=True):
        if match.certain:
            yield FilePart(file)
        elif all(_overlap(written[file.schema_id], table, time_range, [statistics[file.path]])):
            yield FilePart(file, cut=True)


def _overlap(
    schema: pa.Schema, table: Table, time_range: TimeFilter, bounds: Sequence[ColumnStatistics | None]
) -> list[bool]:
    """Return for each bounds of a file's time column whether they overlap the range; unknown bounds do."""
    kind = schema.field(table.time_index).type if table.time_index in schema.names else None
    if kind is None or not is_time(kind):
        return [True] * len(bounds)
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        kind = pa.timestamp("ms", kind.tz)  # Parquet has no seconds
    numbers = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    known = [one if one and type(one.minimum) is type(one.maximum) is int else None for one in bounds]
    first = pa.array([one and one.minimum for one in known], numbers).view(kind)
    last = pa.array([one and one.maximum for one in known], numbers).view(kind)
    kept: list[bool] = time_range.overlapping(first, last, table).fill_null(True).to_pylist()
    return kept


def groups_in_range(
    table: Table, time_range: TimeFilter, metadata: pq.FileMetaData, schema: pa.Schema
) -> Sequence[int]:
    """Return the numbers of the row groups that may contain rows of a time range, from a file's footer."""
    bounds = [
        next((one for one in group.columns if one.column == table.time_index), None)
        for group in row_groups(metadata, schema)
    ]
    return [number for number, kept in enumerate(_overlap(schema, table, time_range, bounds)) if kept]


@dataclass(frozen=True)
class TableRead:
    """The rows of one table to read, at one revision.

    Attributes:
        schema: The chosen columns.
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

    def rows(self, schema: pa.Schema | None = None) -> FileRows:
        """Return what reads parts of the files, in a schema or in that of the read."""
        assert self.state.header is not None
        zone = self.state.header.time_zone
        chosen = self.schema if schema is None else schema  # one without columns is false
        return FileRows(self.store, self.table, chosen, self.time_range, self.verify, zone)


def choose_read(store: ObjectStore, options: RowOptions) -> TableRead | pa.Table:
    """Choose the revision and the files to read. Opens the log and schema documents, no data.

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
    head = newest_state(store)
    if isinstance(options.table, str):
        rows = read_metadata(options.table, head, _state(store, head, options.version), options.since)
        return rows.select(chosen_columns(rows.schema, options.columns, options.table).names)
    state = readable_state(store, head, options.version)
    return choose_files(store, state, read_schema(store, state.schemas[state.schema_id]), options)


def read_metadata(name: str, head: State, state: State, since: str | None) -> pa.Table:
    """Return a metadata table of a state; `since` is the version at which `$diff` starts."""
    first = 0 if since is None else resolve_version(since, head)
    return METADATA_TABLES[name].read(TableRequest(head, state, first))


def newest_state(store: ObjectStore) -> State:
    """Return the newest state of a location; raises `NoSnapshotError` if it has no snapshot, see `choose_read`."""
    head = existing_state(store)
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {store.uri}.", location=store.uri)
    return head


def readable_state(store: ObjectStore, head: State, version: str | None) -> State:
    """Return the state at a version, by default the newest sealed one; see `choose_read` for errors."""
    if version is None and not head.seals:
        raise IncompleteError(
            f"The snapshot at {store.uri} was not sealed yet: materialise its manifest. The table $chunks shows what is"
            " exported.",
            location=store.uri,
        )
    if version is None and head.sealed:
        return head  # tags and the like may follow the seal
    return _state(store, head, str(head.seals[-1].revision) if version is None else version)


def _state(store: ObjectStore, head: State, version: str | None) -> State:
    """Return the state at a version; the head's for None."""
    revision = head.revision if version is None else resolve_version(version, head)
    return head if revision == head.revision else read_state(store, through=revision)


def choose_files(
    store: ObjectStore,
    state: State,
    newest: DatabaseSchema,
    options: RowOptions,
    documents: Callable[[], Mapping[int, DatabaseSchema]] | None = None,
) -> TableRead:
    """Choose the files of a table at a state with that newest schema; see `choose_read` for errors.

    `documents` returns the schemas of the state's files, by id; by default, they are read where they are needed.
    """
    assert isinstance(options.table, TableName)
    schemas, rule = [schema.name for schema in newest.schemas], rule_of(newest)
    names = SpelledNames(rule, schemas, {each.table_name: () for each in newest.tables})
    name = names.table(options.table)
    check_relation(name, schemas, [table.table_name for table in newest.tables])
    table = newest.table(name)
    schema = chosen_columns(table.arrow_schema(), options.columns, str(name), rule)
    time_range = time_range_of(options, state, table)
    documents = documents or partial(read_schemas, store, state)
    parts = file_parts(state, table, documents() if needs_documents(state, name, time_range) else {}, time_range)
    return TableRead(store, state, table, schema, time_range, parts, options.verify)


def time_range_of(options: RowOptions, state: State, table: Table) -> TimeFilter | None:
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


def needs_documents(state: State, table: TableName, time_range: TimeFilter | None) -> bool:
    """Return whether a read needs the schemas of a table's files: not for Parquet that is read without a filter."""
    tombstones = ((each.schema, each.table) for each in state.tombstones.values())
    return format_of(state.header).is_text or time_range is not None or table in tombstones


def chosen_columns(schema: pa.Schema, columns: Sequence[str], table: str, rule: NameRule = NameRule.EXACT) -> pa.Schema:
    """Return the fields of the named columns, in that order; all fields if no column is named."""
    columns = list(map(Spellings(rule, schema.names).of, columns))
    for column in columns:
        if column not in schema.names:
            raise PlanError(f"Table {table!r} has no column {column!r}. {suggestion(column, schema.names)}")
    return pa.schema([schema.field(column) for column in columns]) if columns else schema


@dataclass(frozen=True)
class FileRows:
    """Reads parts of a table's files, in any process.

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
            schema, time = self.schema, self.table.time_index
            if part.cut and time is not None and time not in schema.names:
                schema = schema.append(self.table.column(time).arrow_field())
            batches = read_batches(
                self.store,
                part.file,
                schema,
                part.text,
                verify=self.verify and part.share[0] == 0,
                row_groups=partial(self.groups, part),
                zone=self.zone,
                deleted=part.deleted,
            )
            for batch in batches:
                rows = self.time_range.filter(batch, self.table) if part.cut and self.time_range else batch
                yield rows.select(self.schema.names) if part.cut else batch

    def groups(self, part: FilePart, metadata: pq.FileMetaData, schema: pa.Schema) -> Sequence[int]:
        """Return the numbers of the row groups to read, from a file's footer."""
        groups: Sequence[int] = range(metadata.num_row_groups)
        if part.cut and self.time_range:
            groups = groups_in_range(self.table, self.time_range, metadata, schema)
        number, shares = part.share
        return groups[len(groups) * number // shares : len(groups) * (number + 1) // shares]
