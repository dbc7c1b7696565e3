"""The tables of snapshots at their places in SQL: which of their files a query needs, and the views of all of them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import duckdb
import pyarrow as pa

from snapshot_assets.databases.duckdb.parser import Texts
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.engine.reading.duckdb_tables import SqlTable, Stream, sql_tables
from snapshot_assets.engine.reading.options import RowOptions
from snapshot_assets.engine.reading.parallel import check_parts
from snapshot_assets.engine.reading.planning import FilePart, TableRead
from snapshot_assets.engine.reading.snapshot import Snapshot
from snapshot_assets.engine.time_range import clock_change, in_zone, is_time
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import FILE, parse_location

DEFAULT = "memory"
"""DuckDB's name of the database of a snapshot that has no name of its own."""

_PATTERN = frozenset("*?[]{}\\")
MARGIN = timedelta(minutes=1)  # `now()` is later when the query runs than when it is planned
Bounds = tuple[datetime | None, datetime | None]
"""The first time, and the end, of the rows that are read; None where they are unbounded."""


@dataclass
class Place:
    """A table of one of the snapshots, by its path in SQL: database, schema and table.

    Attributes:
        parts: The files of its view; None while it has no view.
    """

    path: tuple[str, str, str]
    snapshot: Snapshot
    table: SqlTable
    parts: Sequence[FilePart] | None = None

    def read(self, bounds: Bounds) -> TableRead:
        """Return the files that may have rows in some bounds; without a hash, since they are hashed before."""
        name = self.table.table.table_name
        return self.snapshot.choose(RowOptions(table=name, start=bounds[0], end=bounds[1], verify=False))

    def queries(self, read: TableRead, path_of: Callable[[FilePart], str]) -> tuple[list[str], list[FilePart]]:
        """Return the queries of the files that DuckDB reads by itself, and the other files."""
        documents, name = self.snapshot.documents, self.table.table.table_name
        own, streamed = self.table.groups(read, documents)
        queries = [
            self.table.direct(list(map(path_of, parts)), documents[schema_id].table(name).arrow_schema().names)
            for schema_id, parts in own.items()
        ]
        return queries, streamed

    def scans(self, filters: Iterable[str]) -> Bounds:
        """Return the bounds that filters of one scan, as DuckDB explains them, set to the time index."""
        table, start, end = self.table.table, list[datetime](), list[datetime]()
        name = table.time_index
        shown = next((column.shown for column in self.table.columns if column.name == name), None)
        if name is None or shown is None or not is_time(table.column(name).arrow_field().type):
            return None, None
        assert self.snapshot.state.header is not None
        zone = self.snapshot.state.header.time_zone
        one = rf"\({re.escape(shown)} (>=|>|<=|<|=) '([^']*)'::(?:TIMESTAMP(?: WITH TIME ZONE|_S|_MS|_NS)?|DATE)\)"
        for text in filters:
            match = re.fullmatch(f"{one}|\\({one} AND {one}\\)", text)
            found = list(filter(None, match.groups())) if match else []
            for sign, value in zip(found[::2], found[1::2], strict=True):
                for time, margin in _instants(value, zone):
                    start += [time - margin] if sign in (">", ">=", "=") else []
                    end += [time + margin] if sign in ("<", "<=", "=") else []
        first, last = max(start, default=None), min(end, default=None)
        if first is not None and last is not None and first >= last:
            last = first + MARGIN  # no row is in the range; one of time is never empty
        return first, last


def local_root(snapshot: Snapshot) -> str | None:
    """Return the folder of a snapshot from which DuckDB opens files by their paths; None for object storage.

    A folder whose path is a pattern for DuckDB is read as object storage is.
    """
    location = parse_location(snapshot.store.uri)
    if location.scheme != FILE or _PATTERN.intersection(str(location.local_path)):
        return None
    return str(location.local_path)


def places_of(snapshots: Mapping[str, Snapshot], texts: Texts) -> Iterator[Place]:
    """Yield the tables of snapshots by their names in SQL."""
    for name, snapshot in snapshots.items():
        for table in sql_tables(snapshot.schema, texts):
            yield Place((name, *table.name), snapshot, table)


def relation_of(
    snapshot: Snapshot, name: TableName, connection: duckdb.DuckDBPyConnection, *, verify: bool
) -> duckdb.DuckDBPyRelation:
    """Return a table as a relation of any connection; see `SnapshotTable.to_duckdb`."""
    if not snapshot.schema.table(name).columns:
        raise PlanError(f"{printed_name(*name)} has no columns, and a relation of DuckDB needs some: use count().")
    with closing(Texts()) as texts:
        [table] = sql_tables(snapshot.schema, texts, name)
    place = Place((DEFAULT, *table.name), snapshot, table)
    read, root = place.read((None, None)), local_root(snapshot)
    if verify:
        check_parts(snapshot.store, read.parts, set())
    queries, streamed = place.queries(read, partial(_path_below, root or ""))
    if streamed or root is None:
        streamed = streamed if root else read.parts
        queries = queries if root else []
        view = f"snapshot_{secrets.token_hex(8)}"
        connection.register(view, Stream(place.table, read, streamed))
        queries.append(place.table.streamed(view))
    return connection.sql(" UNION ALL ".join(queries) or place.table.empty)


def view_statements(snapshots: Mapping[str, Snapshot]) -> Iterator[str]:
    """Yield statements by which DuckDB alone reads snapshots: views of their files, which are not hashed.

    A comment names each table that DuckDB alone cannot read.

    Raises:
        PlanError: DuckDB opens no files of the location.
    """
    for snapshot in snapshots.values():
        uri = snapshot.store.uri
        if parse_location(uri).scheme not in ("s3", "gs") and local_root(snapshot) is None:
            raise PlanError(f"DuckDB alone opens no files of {uri}: write the query, and `snapshots sql` answers it.")
    for name in snapshots:
        if name != DEFAULT:
            yield f"ATTACH ':memory:' AS {identifier(name)};"
    schemas = set[tuple[str, ...]]()
    with closing(Texts()) as texts:
        places = list(places_of(snapshots, texts))
    for place in places:
        path = place.path[1:] if place.path[0] == DEFAULT else place.path
        if path[:-1] not in schemas:
            schemas.add(path[:-1])
            yield f"CREATE SCHEMA IF NOT EXISTS {qualified(path[:-1])};"
        root = local_root(place.snapshot) or place.snapshot.store.uri
        queries, streamed = place.queries(place.read((None, None)), partial(_path_below, root))
        if streamed:
            yield (
                f"-- {printed_name(*path)} is not here: some of its files are text, have deleted rows or older types,"
                " or have names that differ only by case. `snapshots sql` reads it; `snapshots catalog compact`"
                " rewrites Parquet files with deleted rows or older types."
            )
        else:
            yield f"CREATE VIEW {qualified(path)} AS {' UNION ALL '.join(queries) or place.table.empty};"


def _path_below(root: str, part: FilePart) -> str:
    return f"{root}/{part.file.path}"


def _instants(text: str, zone: str) -> Iterator[tuple[datetime, timedelta]]:
    """Yield a time as DuckDB prints it as an instant, and how far rows of that time may be from it.

    Nothing is yielded for a time at an end of the calendar.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return
    if not 1 < time.year < 9999:
        return
    if time.tzinfo:
        yield time, MARGIN
    else:
        local = in_zone(pa.array([time], pa.timestamp("us")), zone)
        instant = local.cast(pa.timestamp("us", "UTC"))[0].as_py()
        yield instant, MARGIN + clock_change(instant, zone)
