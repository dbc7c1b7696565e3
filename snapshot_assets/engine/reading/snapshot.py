"""Opens a snapshot in Python, without Spark and without Java: its tables as Arrow, pandas, Polars and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.catalog.schemas import read_schema, read_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.engine.reading.options import RowOptions
from snapshot_assets.engine.reading.parallel import read_parts
from snapshot_assets.engine.reading.planning import TableRead, choose_files, newest_state, read_metadata, readable_state
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


def open(
    location: str, version: str | None = None, *, storage: Mapping[str, StoreOptions | None] | None = None
) -> Snapshot:
    """Open one version of a snapshot, without Spark.

    The version is fixed now: all reads of the returned object see one revision. Opening reads the log and the schema
    documents, and no data.

    Args:
        location: The location's URI, such as `s3://backups/shop`.
        version: A revision, a tag or a time, as `snapshots` takes it: `tag:friday`; by default, the newest seal.
        storage: `StoreOptions` by URI scheme, such as `dict(load_configuration().storage)`.

    Raises:
        LocationUriError: The URI is invalid.
        NoSnapshotError: There is no snapshot.
        IncompleteError: No revision is sealed yet, and no version is given.
        VersionNotFoundError: There is no such version.
        DamageError: The log or a schema document is damaged.
    """
    parsed = parse_location(location)
    return open_version(open_store(parsed, (storage or {}).get(parsed.scheme)), version)


def open_version(store: ObjectStore, version: str | None) -> Snapshot:
    """Open one version of a location's snapshot; see `open`."""
    head = newest_state(store)
    state = readable_state(store, head, version)
    return Snapshot(store, head, state, read_schema(store, state.schemas[state.schema_id]))


@dataclass(frozen=True)
class Snapshot:
    """One version of a snapshot; see `open`.

    Attributes:
        store: The location.
        head: The location's newest state.
        state: The state that is read.
        schema: The definitions of its tables.
    """

    store: ObjectStore
    head: State
    state: State
    schema: DatabaseSchema

    @property
    def revision(self) -> int:
        """The revision that is read."""
        return self.state.revision

    @cached_property
    def documents(self) -> dict[int, DatabaseSchema]:
        """The schemas with which its files were written, by id; read when they are first needed."""
        return read_schemas(self.store, self.state)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, as `table` takes them, sorted."""
        return tuple(sorted(printed_name(*table.table_name) for table in self.schema.tables))

    def table(self, name: str | TableName) -> SnapshotTable:
        """Return a table, such as `public.orders`.

        Raises:
            UnknownRelationError: There is no such table; names similar ones.
        """
        return SnapshotTable(self, self.choose(RowOptions(table=parse_table(name))))

    def choose(self, options: RowOptions) -> TableRead:
        """Choose the files of a table; see `choose_files`."""
        return choose_files(self.store, self.state, self.schema, options, lambda: self.documents)

    def metadata(self, name: str, since: str | None = None) -> pa.Table:
        """Return a metadata table of this version, such as `$files` or `$tags`; see the reference of metadata tables.

        `since` is the version at which `$diff` starts, and is for that table only.

        Raises:
            PlanError: There is no such metadata table, or `since` is missing or has no effect.
            VersionNotFoundError: There is no such version.
        """
        if name not in METADATA_TABLES:
            raise PlanError(f"there is no metadata table {name!r}. {suggestion(name, METADATA_TABLES)}")
        if (name == "$diff") is (since is None):
            raise PlanError("since is the version at which $diff starts: give it for that table, and for no other")
        return read_metadata(name, self.head, self.state, since)

    def __repr__(self) -> str:
        return f"<Snapshot of {self.store.uri} at revision {self.revision}, {len(self.schema.tables)} tables>"


@dataclass(frozen=True)
class SnapshotTable:
    """One table of a snapshot.

    It is an Arrow stream (`__arrow_c_stream__`), so that pyarrow, Polars, pandas, DuckDB and others take it as it is.

    Attributes:
        snapshot: The snapshot.
    """

    snapshot: Snapshot
    _all: TableRead

    @property
    def definition(self) -> Table:
        """The table's definition in the database: types, keys, comments."""
        return self._all.table

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the Arrow types in which the data files carry them."""
        return self._all.schema

    def __repr__(self) -> str:
        return f"<SnapshotTable {self.definition.table_name} of {self.snapshot!r}>"

    def count(self) -> int:
        """Return the number of rows; from the log, unless tombstones delete some rows of a file."""
        if any(part.deleted for part in self._all.parts):
            return sum(batch.num_rows for batch in read_parts(self._all.rows(pa.schema([])), self._all.parts))
        return sum(part.file.rows for part in self._all.parts)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        filter: pc.Expression | None = None,
        *,
        verify: bool = True,
    ) -> pa.RecordBatchReader:
        """Return rows as a stream of batches in bounded memory, in the order of the files.

        Args:
            columns: The columns to return, in that order; by default, all.
            start: Rows from this time on: an aware datetime. Files and row groups before it are not read.
            end: Rows before this time.
            filter: A `pyarrow.compute` expression; only rows for which it is true are returned. It may use any column.
            verify: Whether each file is hashed before its first row is returned.

        Raises:
            PlanError: There is no such column, the table has no time index, or `filter` is no expression.
            ChecksumMismatchError: A file is damaged; raised while the stream is read, before a row of that file.
        """
        chosen = tuple(columns or ())
        if isinstance(columns, str) or (columns is not None and not chosen):
            raise PlanError(f"columns is {columns!r}; write a list of names, such as ['id', 'fare'], or leave it out")
        if filter is not None and not isinstance(filter, pc.Expression):
            raise PlanError(f"filter is {filter!r}; write an expression, such as pyarrow.compute.field('fare') > 3")
        TimeFilter(_aware(start), _aware(end))  # refuses an empty range
        options = RowOptions(table=self.definition.table_name, columns=chosen, start=start, end=end, verify=verify)
        read = self.snapshot.choose(options)
        if filter is None:
            batches = read_parts(read.rows(), read.parts)
        else:
            batches = read_parts(read.rows(self.schema), read.parts)
            batches = (batch.filter(filter).select(read.schema.names) for batch in batches)
        return pa.RecordBatchReader.from_batches(read.schema, batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as an Arrow stream (Arrow PyCapsule interface)."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *args: Any, **arguments: Any) -> pa.Table:
        """Return rows as a table in memory; takes the arguments of `scan`."""
        return self.scan(*args, **arguments).read_all()

    def to_pandas(self, *args: Any, **arguments: Any) -> pd.DataFrame:
        """Return rows as a pandas frame; takes the arguments of `scan`."""
        frame: pd.DataFrame = self.to_arrow(*args, **arguments).to_pandas()
        return frame

    def to_polars(self, *, verify: bool = True) -> pl.LazyFrame:
        """Return the table as a lazy Polars frame, which reads only the columns that a query uses.

        Raises:
            ImportError: Polars is not installed: `pip install snapshot-assets[polars]`.
        """
        import polars as pl
        from polars.io.plugins import register_io_source

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_size: int | None
        ) -> Iterator[pl.DataFrame]:
            names = self.schema.names[:1] if columns == [] else columns  # a frame without columns has no rows
            for batch in self.scan(names, verify=verify):
                frame = pl.DataFrame(batch)
                if rows is not None:  # the first rows of the table; the predicate selects among them
                    frame = frame.head(rows)
                    rows -= len(frame)
                yield frame if predicate is None else frame.filter(predicate)
                if rows == 0:
                    return

        return register_io_source(read, schema=pl.DataFrame(self.schema.empty_table()).schema)

    def to_duckdb(self, connection: DuckDBPyConnection, *, verify: bool = True) -> DuckDBPyRelation:
        """Return the table as a relation of a DuckDB connection, in the types of a restore into DuckDB.

        DuckDB itself reads Parquet files on this machine; all others are streamed to it.

        Args:
            connection: The connection, which must stay open while the relation is used.
            verify: Whether the files are hashed now.

        Raises:
            ChecksumMismatchError: A file is damaged.
        """
        from snapshot_assets.engine.reading.sql_places import relation_of

        return relation_of(self.snapshot, self.definition.table_name, connection, verify=verify)


def _aware(time: datetime | None) -> datetime | None:
    if time is not None and (not isinstance(time, datetime) or time.tzinfo is None):
        raise PlanError(f"{time!r} has no time zone; give an aware datetime, such as one in datetime.UTC")
    return time
