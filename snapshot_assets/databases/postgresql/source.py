"""PostgreSQL as a source; see `Database`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property

from snapshot_assets.databases.postgresql.changes import changes_since, read_fence
from snapshot_assets.databases.postgresql.introspect.documents import extract
from snapshot_assets.databases.postgresql.large_objects import is_large_objects
from snapshot_assets.databases.postgresql.partial_servers import NO_COPY, NO_SOURCE, with_lacking
from snapshot_assets.databases.postgresql.query import extract_query
from snapshot_assets.databases.postgresql.row_counts import count_rows
from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.types import RANGED
from snapshot_assets.databases.postgresql.unfit_values import find_unfit
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import (
    Answer,
    Database,
    DatabaseAddress,
    ExportedRows,
    HeldState,
    OwnStates,
    Rows,
    Scan,
    Selection,
    Unanalyzed,
    Verdict,
)
from snapshot_assets.databases.protocol.time_column import time_range
from snapshot_assets.databases.selection.hidden import check_masks
from snapshot_assets.databases.selection.selection import check_split
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.errors import ConsistencyLostError, DatabaseError, PlanError, SnapshotError, TransientError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.options import TableOptions
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import some_text

_PARTITIONS_WITH_ROWS = """
SELECT n.nspname AS schema, p.relname AS name, pg_table_size(p.oid) AS bytes, p.reltuples < 0 AS unanalyzed
FROM pg_class p JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE p.relkind IN ('r', 'm') AND pg_relation_size(p.oid) > 0 AND (p.oid = {table}::regclass OR p.oid IN (
    SELECT t.relid FROM pg_partition_tree({table}::regclass) t))
"""

# A view of a partitioned table reads foreign partitions, which a scan of the table leaves out.
_FOREIGN = """
WITH RECURSIVE read (root, oid) AS (
    SELECT g.oid, g.oid FROM pg_catalog.unnest(ARRAY[{relations}]::pg_catalog.regclass[]) g (oid)
    UNION
    SELECT r.root, x.oid FROM read r JOIN pg_class c ON c.oid = r.oid AND c.relkind <> 'm' CROSS JOIN LATERAL (
        SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = r.oid
        UNION ALL
        SELECT d.refobjid FROM pg_rewrite w JOIN pg_depend d ON d.objid = w.oid
        WHERE w.ev_class = r.oid AND w.rulename = '_RETURN' AND d.classid = 'pg_rewrite'::regclass
            AND d.refclassid = 'pg_class'::regclass) x (oid)
)
SELECT DISTINCT n.nspname::text AS schema, c.relname::text AS name
FROM read r JOIN pg_class f ON f.oid = r.oid AND f.relkind = 'f'
JOIN pg_class c ON c.oid = r.root JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2
"""

_NOT_ASCII = re.compile(r"\S{0,20}[^\x00-\x7f]\S{0,20}")
_UNSHARED = (
    "Connections to PostgreSQL read states of their own, because the source has `consistency: chunk`: a row that was"
    " written during the export may be missing, or there twice. Export while nobody writes."
)


class PostgresqlDatabase(Scanner, Database):
    """One connection, which reads one state of the database until it is closed; see `Database`.

    Args:
        address: A `postgresql://` URI with any options that libpq takes, such as `sslmode`; see `PostgresqlSession`.
    """

    kind = "postgresql"

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(PostgresqlSession(address), address.encoding)
        self._address = address

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe the selection; see `Database`."""
        found = refusals or Refusals()
        if self._encoding and not self._undefined_encoding:
            raise PlanError(
                f"PostgreSQL {self._address.alias!r}: the source has `encoding: {self._encoding}`, but the database"
                " has an encoding itself, from which the server converts. Remove `encoding` from the source."
            )
        if selection.query is not None:
            schema = extract_query(self._address, selection, selection.query)
        else:
            schema = self._extract(selection, found)
        if self._encoding:
            # The server takes the texts of definitions, masks and queries for UTF-8.
            parts = {f"schema {each.name}": each.model_dump_json() for each in schema.schemas}
            parts |= {str(each.table_name): each.model_dump_json() for each in (*schema.tables, *schema.views)}
            if odd := [f"{name} ({text[0]})" for name, part in parts.items() if (text := _NOT_ASCII.search(part))]:
                raise DatabaseError(
                    f"Definitions that are not ASCII: {', '.join(odd)}. The source has `encoding: {self._encoding}`,"
                    " from which only values are decoded. Change such names, comments, labels and SQL in the database,"
                    " or leave the tables out (`exclude_tables`). In masks and queries, compare bytes:"
                    r" convert_to(a, 'SQL_ASCII') = '\xe9'."
                )
        check_split(selection, schema, RANGED)
        check_masks(schema, self._check_masks, found)
        if refusals is None:
            found.raise_any()
        return schema

    def _extract(self, selection: Selection, refusals: Refusals) -> DatabaseSchema:
        try:
            schema = extract(self.session, selection, refusals)
        except SnapshotError as error:
            remedy = NO_SOURCE.get(error.attributes.get("sqlstate", ""))
            if remedy is None or "remedy" in error.attributes:
                raise
            raise type(error)(f"{error} {remedy}", **error.attributes) from None
        return schema.model_copy(update={"schemas": with_lacking(schema.schemas, self.session.lacking)})

    def unanalyzed(self, scan: Scan) -> Unanalyzed | None:
        """Return the size of partitions without statistics that a scan reads; see `Database.unanalyzed`.

        Partitions without pages, such as those for coming days, have no rows to estimate.
        """
        table = scan.table
        if is_query(table) or is_large_objects(table) or table.options.get("hypertable"):
            return None
        query = _PARTITIONS_WITH_ROWS.format(table=literal(qualified(table.table_name)))
        partitions = self.session.rows(query, f"measuring {table.table_name}", optional="sizes of tables")
        sizes = {TableName(row["schema"], row["name"]): row["bytes"] for row in partitions if row["unanalyzed"]}
        if not sizes:
            return None
        whole = len(sizes) == len(partitions)
        names = {TableName(node["Schema"], node["Relation Name"]) for node in self._reads(scan)}
        return Unanalyzed(sum(size for name, size in sizes.items() if whole or name in names), whole)

    def _check_masks(self, table: Table, conditions: str) -> None:
        query = f"EXPLAIN SELECT 1 AS one FROM {self.from_item(table)} WHERE {conditions}"
        self.rows_of(table, query, f"reading the masks of {table.table_name}")

    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        """Find values that native carriers cannot hold, that no restore could load, or whose bytes are no text."""
        if is_large_objects(table):  # numbers, bytes and texts
            return []
        return find_unfit(self, table, rows, undefined_encoding=self._undefined_encoding)

    @cached_property
    def _undefined_encoding(self) -> bool:
        [row] = self.session.rows("SHOW server_encoding", "reading the encoding")
        return bool(row["server_encoding"] == "SQL_ASCII")

    def count_outside(self, table: Table, start: datetime, end: datetime, zone: str = "UTC") -> int:
        """Count the rows with a finite time outside `[start, end)`."""
        time = self.time_column(table, zone)
        query = f"SELECT pg_catalog.count(*) AS rows FROM {self.from_item(table)} WHERE {time.outside(start, end)}"
        return int(self.rows_of(table, query, f"counting {table.table_name}")[0]["rows"])

    def count_rows(self, reads: Sequence[tuple[Table, Sequence[Rows]]], *, thorough: bool) -> list[list[int] | None]:
        """Count the rows of disjoint sets; see `Database.count_rows`."""
        return count_rows(self, reads, thorough=thorough)

    def time_bounds(
        self, tables: tuple[Table, ...], zone: str = "UTC", within: tuple[datetime, datetime] | None = None
    ) -> tuple[datetime, datetime] | None:
        """Return the least and greatest finite time over the timed tables; see `SchemaSource.time_bounds`."""
        ends: list[datetime] = []
        for table in tables:
            if table.time_index is None:
                continue
            query = self.time_column(table, zone).bounds_query(self.from_item(table), within)
            row = self.rows_of(table, query, f"finding the earliest and latest time of {table.table_name}")[0]
            try:
                ends += time_range((row["low"], row["high"])) or ()
            except OverflowError:
                raise DatabaseError(
                    f"The earliest or latest {table.table_name}.{table.time_index} is outside the years 1 to 9999, so"
                    " the range cannot be computed. Write `start_time` and `end_time` in the plan.",
                    table=table_text(table.table_name),
                    column=table.time_index,
                ) from None
        return (min(ends), max(ends)) if ends else None

    def fence(self) -> dict[str, str]:
        """Return the snapshot that this connection reads, the position of the write-ahead log, and their history.

        Two connections read one state if and only if their `snapshot` is equal. `lsn` is not earlier than the snapshot.
        """
        return read_fence(self.session) if self._address.shares_states else {}

    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        """Tell which rows changed since they were exported, by their transaction ids; see `Database.changes_since`."""
        if not self._address.shares_states:
            return [
                Answer(Verdict.UNKNOWN, "the source's connections read states of their own", lasting=True)
                for _ in parts
            ]
        return changes_since(self, parts)

    def stateless(self, schema: DatabaseSchema) -> str:
        """Return which tables are foreign, or views that read foreign ones; see `SchemaSource.stateless`."""
        kinds = {each.table_name: TableOptions.of(each).relation for each in schema.tables}
        asked = [literal(qualified(name)) for name, kind in kinds.items() if kind in ("view", "foreign table")]
        if not asked:
            return ""
        query = _FOREIGN.format(relations=", ".join(asked))
        rows = self.session.rows(query, "looking for foreign tables", optional="foreign tables that views read")
        if not rows:
            return ""
        return (
            f"Rows of {some_text([str(TableName(row['schema'], row['name'])) for row in rows])} are foreign: each"
            " connection reads them in a state of its own, so rows that are written during the export may be missing,"
            " or there twice. Export them while nobody writes."
        )

    @contextmanager
    def hold(self, readers: Callable[[], int]) -> Iterator[HeldState]:
        """Hold the present state until this connection closes, if connections share states; see `Database`."""
        if self._address.copy:
            self._try_copy()
        if not self._address.shares_states:
            yield OwnStates(_UNSHARED)
            return
        yield _ExportedSnapshot(self.session, self._address.alias)

    def _try_copy(self) -> None:
        query, doing = "SELECT 1 AS one", "trying COPY"
        try:
            with self.session.stream(query, doing) as batches:
                list(batches)
        except TransientError:
            raise
        except SnapshotError as error:
            self.session.rows(query, doing)  # else the connection is lost
            raise DatabaseError(f"{error} {NO_COPY}", **error.attributes) from None

    def close(self) -> None:
        """Close the connection."""
        self.session.close()


class _ExportedSnapshot:
    """An exported snapshot, which exists until its session's transaction ends; see `HeldState`."""

    unshared = ""

    def __init__(self, session: PostgresqlSession, alias: str) -> None:
        self._session = session
        self._alias = alias
        self.token = session.export()

    def check(self) -> None:
        """Check that the session is still open; see `HeldState`."""
        try:
            self._session.rows("SELECT 1 AS alive", "checking the held snapshot")
        except DatabaseError as cause:
            raise ConsistencyLostError(
                f"PostgreSQL {self._alias!r}: the session that held the exported snapshot {self.token!r} has ended:"
                f" {cause.attributes['reason']}. Nothing more is exported in this run; start a new one.",
                token=self.token,
            ) from None
