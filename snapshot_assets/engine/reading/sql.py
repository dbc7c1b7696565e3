"""Answers SQL queries of snapshots with an embedded DuckDB, read-only, without Spark.

There are two databases in memory. The first one has every table, without rows, and plans a query: DuckDB's optimizer
moves comparisons down to the tables, and those with a table's time index leave out files that cannot have such rows.
The second one runs the query; it has only the tables that queries have named, as views of their files.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import duckdb
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.databases.duckdb.parser import Texts, base_tables, nodes
from snapshot_assets.databases.duckdb.types import contains
from snapshot_assets.databases.protocol.interruptible import interruptible
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.engine.reading.duckdb_tables import Stream
from snapshot_assets.engine.reading.object_files import PROTOCOL, ObjectFiles
from snapshot_assets.engine.reading.parallel import Hashed, check_parts
from snapshot_assets.engine.reading.snapshot import Snapshot
from snapshot_assets.engine.reading.sql_places import DEFAULT, MARGIN, Bounds, Place, local_root, places_of
from snapshot_assets.errors import DatabaseError, InterruptedRunError, PlanError, SnapshotError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.scratch_folders import scratch_folder

_QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
"""Nodes of queries that only read: DuckDB takes others, such as COPY, as expressions of WITH."""

_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_PLANNING = "statistics_propagation,empty_result_pullup,late_materialization,row_group_pruner"
"""Optimizers that would drop the scan of a table without rows from a plan."""

_INEXACT = ("hugeint", "uhugeint", "interval", "time with time zone", "union")  # in Parquet
_EXPLAINS = re.compile(r"\A\s*EXPLAIN\b(?:\s+ANALYZE\b)?(?:\s*\([\w\s,]*\))?", re.IGNORECASE)
_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
_Result = TypeVar("_Result")
_DESCRIBES = re.compile(r"\s*(?:DESC|DESCRIBE|SHOW)\b", re.IGNORECASE)
_SHOWS_TABLES = re.compile(r"\s*SHOW\s+TABLES\s*;?\s*", re.IGNORECASE)
_READ_ONLY = (
    "A snapshot is read-only, and a call runs one statement: write one SELECT, FROM, WITH, DESCRIBE, SHOW, SUMMARIZE or"
    " EXPLAIN. PIVOT must list the values of its columns: FROM (PIVOT t ON month IN (1, 2) USING sum(amount))."
)
_TABLES = (
    " SHOW TABLES lists the tables. The source's views are not among them, and $diff is not: `snapshots catalog"
    " table diff` shows it."
)
_LINE = "\n\nLINE "  # what follows is the query as it was planned
_METADATA = "snapshot_metadata"
_Key = tuple[str, str, str]
"""Database, schema and table in SQL, in lower case."""


@contextmanager
def _cancelled() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError("The query was cancelled.") from None


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
        self._hashed, self._noted, self._streams = Hashed(), set[str](), list[Stream]()
        self._used = list[Place]()
        self._files = ObjectFiles()
        with ExitStack() as stack:
            spill = stack.enter_context(scratch_folder(Path(gettempdir()), "snapshots-sql"))
            self._planner, self._runner = (
                stack.enter_context(duckdb.connect(config={"temp_directory": str(spill)})) for _ in range(2)
            )
            self._runner.register_filesystem(self._files)
            self._confine()
            texts = Texts(self._planner)
            self._places = {_key(place.path): place for place in places_of(snapshots, texts)}
            self._define()
            self._opened = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._streams.clear()  # ends their threads
        self._opened.close()

    def _define(self) -> None:
        """Create the schemas in both databases, and the tables, without rows, in the one that plans."""
        schemas = dict.fromkeys(place.path[:2] for place in self._places.values())
        names = [name for name in self._snapshots if name != DEFAULT]
        first = next(iter(self._snapshots))
        default = dict.fromkeys([*(path for path in schemas if path[0] == first), (first, "main")])
        tables = [f"CREATE TABLE {qualified(place.path)} AS {place.table.empty}" for place in self._places.values()]
        statements = [
            "SET TimeZone = 'UTC'",
            *(f"ATTACH ':memory:' AS {identifier(name)}" for name in names),
            *(f"CREATE SCHEMA IF NOT EXISTS {qualified(path)}" for path in schemas),
            f"SET search_path = {literal(','.join(map(qualified, default)))}",
            "SET lock_configuration = true",
        ]
        self._planner.execute(f"SET disabled_optimizers = {literal(_PLANNING)}")
        for connection, own in ((self._planner, [*statements, *tables]), (self._runner, statements)):
            for statement in own:
                connection.execute(statement)

    def _confine(self) -> None:
        """Let only the database that runs queries open files: one that a query names itself fails in its plan."""
        folders = [f"{root}/data" for snapshot in self._snapshots.values() if (root := local_root(snapshot))]
        outputs = [] if self._output is None else [str(self._output)]
        for connection, allowed in ((self._planner, []), (self._runner, [*folders, f"{PROTOCOL}://"])):
            connection.execute(
                f"SET allowed_directories = [{', '.join(map(literal, allowed))}];"
                f"SET allowed_paths = [{', '.join(map(literal, outputs))}];"
                "SET python_enable_replacements = false; SET enable_external_access = false"
            )

    @_cancelled()
    def rows(self, sql: str, limit: int) -> tuple[list[str], list[tuple[str | None, ...]]]:
        """Return the names of the columns of a query, and at most so many of its rows, as texts.

        Raises:
            PlanError: It is not one query that only reads, or DuckDB refuses it.
            DatabaseError: DuckDB cannot run it, for lack of memory for example.
            ChecksumMismatchError: A file that it needs is damaged; no row was returned.
        """
        connection, query = self._prepare(sql)
        text = query.query
        if query.type is duckdb.StatementType.SELECT:
            text = f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({_body(query)}\n) LIMIT {limit}"
        return self._run(connection, lambda: _fetched(connection.execute(text)))

    @_cancelled()
    def write(self, sql: str, kind: str) -> None:
        """Write the rows of a query to the session's `output` as `csv`, `json` (one object a line) or `parquet`.

        Integers of 128 bits, such as sums of integers, are DECIMAL(38, 0) in Parquet. Values for which it has no exact
        type, such as intervals, are texts.

        Raises: See `rows`.
        """
        connection, query = self._prepare(sql)
        if query.type is not duckdb.StatementType.SELECT:
            raise PlanError("EXPLAIN has no rows to write: leave --format and --output out.")
        rows = f"FROM ({_body(query)}\n)"
        if kind == "parquet":
            relation = self._run(connection, lambda: connection.sql(rows))
            casts = ", ".join(_parquet_casts(dict(zip(relation.columns, relation.types, strict=True))))
            rows = f"SELECT * REPLACE ({casts}) {rows}" if casts else rows
        text = f"COPY ({rows}) TO {literal(str(self._output))} (FORMAT {kind}, USE_TMP_FILE false)"
        self._run(connection, lambda: connection.execute(text))

    # Before a query runs

    def _prepare(self, sql: str) -> tuple[duckdb.DuckDBPyConnection, duckdb.Statement]:
        """Return the one statement of a text, and the database that runs it, with views of the tables that it names."""
        started, hashed = time.monotonic(), len(self._hashed)
        if _SHOWS_TABLES.fullmatch(sql):  # DuckDB lists the names alone, and only those of the first version
            version = "" if DEFAULT in self._snapshots else "database AS version, "
            sql = f'SELECT {version}schema, name AS "table" FROM (SHOW ALL TABLES)'
        with _refusals():
            statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READS:
            raise PlanError(_READ_ONLY)
        self._add_metadata(sql)
        self._streams.clear()
        self._files.error = None
        named = Counter(self._keys(_EXPLAINS.sub("", sql)))
        bounds = self._planned(statements[0], named)  # has also tables that functions such as `query_table` read
        self._used = [place for key, place in self._places.items() if key in bounds or key in named]
        if not self._used or _DESCRIBES.match(sql):
            return self._planner, statements[0]
        self._note()
        for place in self._used:
            self._show(place, bounds.get(_key(place.path), (None, None)))
        if len(self._hashed) > hashed and time.monotonic() - started > MARGIN.total_seconds() / 2:
            return self._prepare(sql)  # `now()` is later by the time of hashing, which is not spent again
        return self._runner, statements[0]

    def _keys(self, sql: str) -> Iterator[_Key]:
        """Yield the tables that a query may name, once for each time.

        Raises:
            PlanError: It is not one query, or a part of it writes.
        """
        row = self._planner.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        assert row is not None
        tree = json.loads(row[0])
        if tree["error"]:
            raise PlanError(f"DuckDB refuses the query: {tree['error_message']}")
        kinds = {str(node.get("type")) for node in nodes(tree)}
        if len(tree["statements"]) != 1 or {kind for kind in kinds if kind.endswith("_NODE")} - _QUERIES:
            raise PlanError(_READ_ONLY)
        for node in base_tables(tree):
            *above, table = map(str.lower, node["qualified_name"]["path"])
            keys = [key for key in self._places if key[2] == table and {*above} <= {*key[:2]}]
            if not above:
                keys = [key for key in keys if key[0] == next(iter(self._snapshots))]
                if len(keys) > 1:
                    several = ", ".join(printed_name(*self._places[key].path[1:]) for key in keys)
                    raise PlanError(f"Several schemas have a table {table}: name one of {several}.")
            yield from keys

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

    def _planned(self, query: duckdb.Statement, named: Mapping[_Key, int]) -> dict[_Key, Bounds]:
        """Return, by table that a query reads, bounds of time that contain all rows that it reads.

        They are open for a table of which the plan has fewer scans than the query names: a scan that was left out of
        the plan, because the table there has no rows, may have had other bounds.
        """
        text = _EXPLAINS.sub("", query.query)
        with _refusals():
            explained = self._planner.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()
        found: dict[_Key, list[Bounds]] = {}
        for scan in _scans(json.loads(explained[0][1])):
            key = _key(_parts("\n".join(_lines(scan["Table"]))))
            if (place := self._places.get(key)) is not None:
                found.setdefault(key, []).append(place.scans(_lines(scan.get("Filters", ()))))
        return {key: _hull(some) if len(some) >= named[key] > 0 else (None, None) for key, some in found.items()}

    def _note(self) -> None:
        """Report the notes of the tables that a query uses, each once, with the versions that it is true of."""
        versions: dict[str, list[str]] = {}
        for place in self._used:
            for note in place.table.notes:
                versions.setdefault(note, []).append(place.path[0])
        for note, names in versions.items():
            text = note if len(self._snapshots) == 1 else f"{', '.join(dict.fromkeys(names))}: {note}"
            if text not in self._noted:
                self._noted.add(text)
                self._notify(text)

    def _show(self, place: Place, bounds: Bounds) -> None:
        """Make a table the view of its files that may have rows in some bounds, once they are hashed."""
        snapshot, store = place.snapshot, place.snapshot.store
        read = place.read(bounds)
        if self._verify:
            check_parts(store, read.parts, self._hashed)
        root = local_root(snapshot)
        queries, streamed = place.queries(
            read, lambda part: f"{root}/{part.file.path}" if root else self._files.name(store, part)
        )
        if streamed:
            name = f"stream of {'.'.join(place.path)}"
            self._streams.append(Stream(place.table, read, streamed))
            self._runner.register(name, self._streams[-1])
            queries.append(place.table.streamed(f"temp.main.{identifier(name)}"))
        place.parts = read.parts
        text = " UNION ALL ".join(queries) or place.table.empty
        view = f"CREATE OR REPLACE VIEW {qualified(place.path)} AS {text}"
        self._run(self._runner, lambda: self._runner.execute(view))

    def _run(self, connection: duckdb.DuckDBPyConnection, call: Callable[[], _Result]) -> _Result:
        """Return what a call of a connection returns; raise the error of a file instead of DuckDB's own."""
        try:
            return interruptible(call, connection.interrupt)
        except duckdb.Error as error:
            if self._files.error is not None:
                raise self._files.error from None
            for feed in (feed for stream in self._streams for feed in stream.feeds):
                if feed.error is not None:
                    raise feed.error from None
            for place in self._used if not self._verify else ():
                check_parts(place.snapshot.store, place.parts or (), set())
            raise _refused(error) from None


def statement_end(text: str) -> int | None:
    """Return the place of the semicolon, in bytes of UTF-8, that ends a statement, which a comment may follow."""
    data = text.encode()
    return next((offset for offset, _ in duckdb.tokenize(text) if data[offset : offset + 1] == b";"), None)


def _body(query: duckdb.Statement) -> str:
    return query.query.encode()[: statement_end(query.query)].decode()


def _parquet_casts(columns: Mapping[str, DuckDBPyType]) -> Iterator[str]:
    """Yield casts of the columns that DuckDB would write into Parquet with other values, such as rounded ones."""
    for name, kind in columns.items():
        if contains(kind, _INEXACT):
            fits = "DECIMAL(38, 0)" if kind.id in ("hugeint", "uhugeint") else "VARCHAR"
            yield f"CAST({identifier(name)} AS {fits}) AS {identifier(name)}"


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
    more = _TABLES if "Table with name" in str(error) else ""
    return PlanError(f"DuckDB refuses the query: {str(error).split(_LINE)[0]}{more}")


def _key(path: Sequence[str]) -> _Key:
    database, schema, table = ([DEFAULT, "main", ""] + [part.lower() for part in path])[-3:]
    return database, schema, table


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name that DuckDB prints."""
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name))


def _lines(text: str | Sequence[str]) -> Sequence[str]:
    """Return the lines of a detail of a plan, which is a list if it has several."""
    return [text] if isinstance(text, str) else text


def _scans(nodes: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the details of the scans of tables in a plan."""
    for node in nodes:
        if "Table" in node["extra_info"]:
            yield node["extra_info"]
        yield from _scans(node["children"])


def _hull(some: Sequence[Bounds]) -> Bounds:
    starts, ends = [start for start, _ in some], [end for _, end in some]
    first = None if None in starts else min(filter(None, starts))
    return first, None if None in ends else max(filter(None, ends))
