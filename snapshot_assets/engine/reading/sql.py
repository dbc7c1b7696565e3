"""Answers SQL queries of snapshots with an embedded DuckDB, read-only, without Spark.

Two databases in memory have every table, without rows. The first one plans a query: DuckDB's optimizer moves
comparisons down to the tables, and those with a table's time index leave out files that cannot have such rows. The
second one runs the query; there, the tables that the query names are views of their files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.engine.reading.duckdb_tables import SqlTable, Stream, sql_tables, table_query
from snapshot_assets.engine.reading.object_files import PROTOCOL, ObjectFiles
from snapshot_assets.engine.reading.options import RowOptions
from snapshot_assets.engine.reading.parallel import check_parts
from snapshot_assets.engine.reading.planning import FilePart, TableRead, choose_files
from snapshot_assets.engine.reading.snapshot import Snapshot
from snapshot_assets.engine.time_range import in_zone, is_time
from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.scratch_folders import scratch_folder
from snapshot_assets.storage.location import FILE, parse_location

DEFAULT = "memory"
"""DuckDB's name of the database of a snapshot that has no name of its own."""

_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_PLANNING = "statistics_propagation,empty_result_pullup,late_materialization,row_group_pruner"
"""Optimizers that would drop the scan of a table without rows from a plan."""

_CONFINED = {"python_enable_replacements": "false", "enable_external_access": "false", "lock_configuration": "true"}
_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
_PATTERN = frozenset("*?[]{}\\")
_MARGIN = timedelta(minutes=1)  # `now()` is later when the query runs than when it is planned
_Result = TypeVar("_Result")
_DESCRIBES = re.compile(r"\s*(?:DESC|DESCRIBE|SHOW)\b", re.IGNORECASE)
_METADATA = "snapshot_metadata"
_Key = tuple[str, str, str]
"""Database, schema and table in SQL, in lower case."""
_Bounds = tuple[datetime | None, datetime | None]
"""The first time, and the end, of the rows that are read; None where they are unbounded."""


@dataclass
class _Place:
    """A table of one of the snapshots, by its path in SQL: database, schema and table.

    Attributes:
        documents: The schemas of its files, by id; read when a query first needs the table.
        parts: The files of its view; None while it has no view.
    """

    path: tuple[str, str, str]
    snapshot: Snapshot
    table: SqlTable
    documents: Mapping[int, DatabaseSchema] = field(default_factory=dict)
    parts: Sequence[FilePart] | None = None

    def read(self, bounds: _Bounds) -> TableRead:
        """Return the files that may have rows in some bounds; without a hash, since they are hashed before."""
        snapshot, name = self.snapshot, self.table.table.table_name
        options = RowOptions(table=name, start=bounds[0], end=bounds[1], verify=False)
        return choose_files(snapshot.store, snapshot.state, snapshot.schema, options)

    def scans(self, filters: Iterable[str]) -> _Bounds:
        """Return the bounds that filters of one scan, as DuckDB explains them, set to the time index."""
        table, start, end = self.table.table, list[datetime](), list[datetime]()
        name = table.time_index
        shown = next((column.shown for column in self.table.columns if column.name == name), None)
        if name is None or shown is None or not is_time(table.column(name).arrow_field().type):
            return None, None
        assert self.snapshot.state.header is not None
        one = rf"\({re.escape(shown)} (>=|>|<=|<|=) '([^']*)'::(?:TIMESTAMP(?: WITH TIME ZONE|_S|_MS|_NS)?|DATE)\)"
        for text in filters:
            match = re.fullmatch(f"{one}|\\({one} AND {one}\\)", text)
            found = list(filter(None, match.groups())) if match else []
            for sign, value in zip(found[::2], found[1::2], strict=True):
                for time in _instants(value, self.snapshot.state.header.time_zone):
                    start += [time - _MARGIN] if sign in (">", ">=", "=") else []
                    end += [time + _MARGIN] if sign in ("<", "<=", "=") else []
        first, last = max(start, default=None), min(end, default=None)
        if first is not None and last is not None and first >= last:
            last = first + _MARGIN  # no row is in the range; one of time is never empty
        return first, last


class SqlSession(AbstractContextManager["SqlSession"]):
    """Runs queries of one or several versions of snapshots.

    Every table is in its schema; the metadata tables are in the schema `main`, such as `"$files"`.

    Args:
        snapshots: The snapshots by their names in SQL; one without another may have the name `DEFAULT`.
        verify: Whether the files that a query reads are hashed before it runs, each once in a session.
        notify: Called with sentences on the columns of the tables that a query uses.
        output: The only file that `write` may write.
    """

    def __init__(
        self,
        snapshots: Mapping[str, Snapshot],
        *,
        verify: bool = True,
        notify: Callable[[str], None] = lambda _: None,
        output: Path | None = None,
    ) -> None:
        self._snapshots, self._verify, self._notify, self._output = snapshots, verify, notify, output
        self._hashed, self._noted, self._streams = set[tuple[str, str]](), set[str](), list[Stream]()
        self._places = {
            _key(path): _Place(path, snapshot, table)
            for name, snapshot in snapshots.items()
            for table in sql_tables(snapshot.schema)
            for path in [(name, *table.name)]
        }
        with ExitStack() as stack:
            spill = stack.enter_context(scratch_folder(Path(gettempdir()), "snapshots-sql"))
            self._planner = stack.enter_context(duckdb.connect())
            self._runner = stack.enter_context(duckdb.connect(config={"temp_directory": str(spill)}))
            self._files = ObjectFiles()
            self._runner.register_filesystem(self._files)
            self._define()
            self._confine()
            self._opened = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _define(self) -> None:
        """Create the tables, without rows, in both databases."""
        schemas = dict.fromkeys(place.path[:2] for place in self._places.values())
        names = [name for name in self._snapshots if name != DEFAULT]
        default = [path for path in schemas if path[0] == next(iter(self._snapshots))]
        statements = [
            f"SET disabled_optimizers = {literal(_PLANNING)}",
            "SET TimeZone = 'UTC'",
            *(f"ATTACH ':memory:' AS {identifier(name)}" for name in names),
            *(f"CREATE SCHEMA IF NOT EXISTS {qualified(path)}" for path in schemas),
            *(f"CREATE TABLE {qualified(place.path)} AS {place.table.empty}" for place in self._places.values()),
            *([f"SET search_path = {literal(','.join(map(qualified, default)))}"] if default else []),
        ]
        for connection, own in ((self._planner, statements), (self._runner, statements[1:])):
            for statement in own:
                connection.execute(statement)

    def _confine(self) -> None:
        """Let the runner open the files of the snapshots and the output, and nothing else."""
        folders = [f"{root}/data" for snapshot in self._snapshots.values() if (root := local_root(snapshot))]
        self._runner.execute(f"SET allowed_directories = [{', '.join(map(literal, [*folders, f'{PROTOCOL}://']))}]")
        if self._output is not None:
            self._runner.execute(f"SET allowed_paths = [{literal(str(self._output))}]")
        for setting in (
            "python_enable_replacements = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._runner.execute(f"SET {setting}")

    def rows(self, sql: str, limit: int) -> tuple[list[str], list[tuple[str | None, ...]]]:
        """Return the names of the columns of a query, and at most so many of its rows, as texts.

        Raises:
            PlanError: It is not one query that only reads, or DuckDB refuses it.
            DatabaseError: DuckDB cannot run it, for lack of memory for example.
            ChecksumMismatchError: A file that it needs is damaged; no row was returned.
        """
        query = self._prepare(sql)
        if query.type is duckdb.StatementType.SELECT:
            text = f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({_body(query)}\n) LIMIT {limit}"
        else:
            text = query.query
        return self._run(lambda: _fetched(self._runner.execute(text)))

    def write(self, sql: str, kind: str) -> None:
        """Write the rows of a query to the session's `output` as `csv`, `json` (one object a line) or `parquet`.

        Raises: See `rows`.
        """
        query = self._prepare(sql)
        if query.type is not duckdb.StatementType.SELECT:
            raise PlanError("EXPLAIN has no rows to write: leave --format and --output out.")
        options = f"FORMAT {kind}, USE_TMP_FILE false"
        text = f"COPY ({_body(query)}\n) TO {literal(str(self._output))} ({options})"
        self._run(lambda: self._runner.execute(text))

    # Before a query runs

    def _prepare(self, sql: str) -> duckdb.Statement:
        """Return the one statement of a text, and make views of the tables that it names."""
        with _refusals():
            statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READS:
            raise PlanError(
                "A snapshot is read-only, and a call runs one statement: write one SELECT, FROM, WITH, DESCRIBE, SHOW,"
                " SUMMARIZE or EXPLAIN."
            )
        self._add_metadata(sql)
        with _refusals():
            named = {_parts(name) for name in self._planner.get_table_names(sql, qualified=True)}
        if _DESCRIBES.match(sql):
            return statements[0]
        tables = {path[-1].lower() for path in named if path}
        places = {key: place for key, place in self._places.items() if key[2] in tables}
        bounds = self._planned(statements[0], places) if places else {}
        for key, place in places.items():
            self._show(place, bounds.get(key, (None, None)))
        return statements[0]

    def _add_metadata(self, sql: str) -> None:
        """Create the metadata tables that a text mentions."""
        for name, snapshot in self._snapshots.items():
            for metadata in METADATA_TABLES:
                if metadata in sql.lower() and metadata != "$diff":
                    rows = snapshot.metadata(metadata)
                    for connection in (self._planner, self._runner):
                        connection.register(_METADATA, rows)
                        path = qualified((name, "main", metadata))
                        connection.execute(f"CREATE OR REPLACE TABLE {path} AS FROM {_METADATA}")
                        connection.unregister(_METADATA)

    def _planned(self, query: duckdb.Statement, places: Mapping[_Key, _Place]) -> dict[_Key, _Bounds]:
        """Return bounds of time that contain all rows that a query reads of a table; others have none."""
        if query.type is not duckdb.StatementType.SELECT:
            return {}
        with _refusals():
            explained = self._planner.execute(f"EXPLAIN (FORMAT json) {query.query}").fetchall()
        found: dict[_Key, list[_Bounds]] = {}
        for scan in _scans(json.loads(explained[0][1])):
            key = _key(_parts(scan["Table"]))
            filters = scan.get("Filters", ())
            if key in places:
                found.setdefault(key, []).append(places[key].scans([filters] if isinstance(filters, str) else filters))
        return {key: _hull(some) for key, some in found.items()}

    def _show(self, place: _Place, bounds: _Bounds) -> None:
        """Make a table the view of its files that may have rows in some bounds, once they are hashed."""
        snapshot, store = place.snapshot, place.snapshot.store
        for note in place.table.notes:
            if note not in self._noted:
                self._noted.add(note)
                self._notify(note)
        place.documents = place.documents or read_schemas(store, snapshot.state)
        read = place.read(bounds)
        if self._verify:
            new = [part for part in read.parts if (store.uri, part.file.path) not in self._hashed]
            check_parts(store, new)
            self._hashed.update((store.uri, part.file.path) for part in new)
        own, streamed = place.table.groups(read, place.documents)
        root = local_root(snapshot)
        queries = table_query(
            place.table,
            own,
            place.documents,
            lambda part: f"{root}/{part.file.path}" if root else self._files.name(store, part),
        )
        if streamed:
            name = f"stream_{len(self._streams)}"
            self._streams.append(Stream(place.table, read, streamed))
            self._runner.register(name, self._streams[-1])
            queries.append(place.table.streamed(f"temp.{name}"))
        if place.parts is None:
            self._runner.execute(f"DROP TABLE {qualified(place.path)}")
        place.parts = read.parts
        text = " UNION ALL ".join(queries) or place.table.empty
        self._run(lambda: self._runner.execute(f"CREATE OR REPLACE VIEW {qualified(place.path)} AS {text}"))

    def _run(self, call: Callable[[], _Result]) -> _Result:
        """Return what a call of the runner returns; raise the error of a file instead of DuckDB's own."""
        try:
            return interruptible(call, self._runner.interrupt)
        except duckdb.Error as error:
            if self._files.error is not None:
                raise self._files.error from None
            for feed in (feed for stream in self._streams for feed in stream.feeds):
                with feed.errors():
                    raise
            for place in self._places.values() if not self._verify else ():
                check_parts(place.snapshot.store, place.parts or ())
            raise _refused(error) from None


def local_root(snapshot: Snapshot) -> str | None:
    """Return the folder of a snapshot from which DuckDB opens files by their paths; None for object storage.

    A folder whose path is a pattern for DuckDB is read as object storage is.
    """
    location = parse_location(snapshot.store.uri)
    if location.scheme != FILE or _PATTERN.intersection(str(location.local_path)):
        return None
    return str(location.local_path)


def _body(query: duckdb.Statement) -> str:
    return query.query.strip().removesuffix(";")


def _fetched(cursor: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[str | None, ...]]]:
    return [column[0] for column in cursor.description or ()], cursor.fetchall()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise _refused(error) from None


def _refused(error: duckdb.Error) -> SnapshotError:
    if isinstance(error, duckdb.OperationalError):
        return DatabaseError(f"DuckDB cannot run the query: {error}")
    return PlanError(f"DuckDB refuses the query: {error}")


def _key(path: Sequence[str]) -> _Key:
    database, schema, table = ([DEFAULT, "main", ""] + [part.lower() for part in path])[-3:]
    return database, schema, table


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name that DuckDB prints."""
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name))


def _scans(nodes: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the details of the scans of tables in a plan."""
    for node in nodes:
        if "Table" in node["extra_info"]:
            yield node["extra_info"]
        yield from _scans(node["children"])


def _hull(some: Sequence[_Bounds]) -> _Bounds:
    starts, ends = [start for start, _ in some], [end for _, end in some]
    first = None if None in starts else min(filter(None, starts))
    return first, None if None in ends else max(filter(None, ends))


def _instants(text: str, zone: str) -> Iterator[datetime]:
    """Yield a time as DuckDB prints it as an instant, unless it lies at an end of the calendar."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return
    if 1 < time.year < 9999:
        local = pa.array([time.replace(tzinfo=None)], pa.timestamp("us"))
        yield time if time.tzinfo else in_zone(local, zone).cast(pa.timestamp("us", "UTC"))[0].as_py()
