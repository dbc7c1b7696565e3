"""Reads the rows of tables: the query of a scan, the planner's estimate, and its division into parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from typing import Any

import pyarrow as pa

from snapshot_assets.databases.postgresql.large_objects import is_large_objects
from snapshot_assets.databases.postgresql.locked_relations import LockedRelations
from snapshot_assets.databases.postgresql.query import OWN_PATH, bounds_statements
from snapshot_assets.databases.postgresql.read_forms import CLEARED, NO_PATH, decoding, expression, sent, shaped
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.time_predicates import PostgresqlTimeColumn
from snapshot_assets.databases.postgresql.types import RANGED, SourceType
from snapshot_assets.databases.protocol.query import ORDERED, SAMPLE_ROWS, ColumnRange, Quantiles, fractions, is_query
from snapshot_assets.databases.protocol.scan_order import order_clause
from snapshot_assets.databases.protocol.source import AllRows, KeyRows, Rows, Scan, WindowRows
from snapshot_assets.databases.selection.hidden import mask_of
from snapshot_assets.databases.selection.selection import ranged_key
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Carrier, Column, Table

# The bounds of the histogram are in the order of the column, and have equal shares of the rows between them.
_BOUNDS = """
SELECT ARRAY(
    SELECT bound::text FROM pg_catalog.unnest(s.histogram_bounds::text::{type}[]) WITH ORDINALITY AS b (bound, place)
    WHERE {within} ORDER BY place) AS bounds
FROM pg_catalog.pg_stats s WHERE s.schemaname = {schema} AND s.tablename = {table} AND s.attname = {column}
    AND NOT s.inherited AND pg_catalog.abs(s.correlation) >= {ordered}
"""


class Scanner:
    """Reads tables in one session, which locks them; see `LockedRelations`."""

    def __init__(self, session: PostgresqlSession, encoding: str | None = None) -> None:
        self.session = session
        self._encoding = encoding
        self.relations = LockedRelations(session)

    def interrupt(self) -> None:
        """Cancel the query that another thread runs; see `Database`."""
        self.session.interrupt()

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream a scan's rows; see `Database`."""
        query, path = self.query(scan), self.relations.of(scan.table).path
        doing = f"reading {scan.table.table_name}"
        if not is_query(scan.table):
            self.session.prepare([path] if path else (), doing)
        with self.session.stream(query, doing) as batches:
            yield shaped((batch for batch in batches if batch.num_rows), scan.table)
        self.relations.check_partitions(scan.table)

    def rows_of(self, table: Table, sql: str, doing: str) -> list[dict[str, Any]]:
        """Return the rows of a query of a table's FROM item; `doing` is its purpose, for messages."""
        if (path := self.relations.of(table).path) is None:
            return self.session.rows(sql, doing)
        self.session.execute(path, doing)
        rows = self.session.rows(sql, doing)
        self.session.execute(NO_PATH, doing)
        return rows

    def query(self, scan: Scan) -> str:
        """Return the SQL of a scan."""
        table = scan.table
        if is_query(table):
            carried = table.options["select"]
        elif is_large_objects(table):
            carried = [identifier(column.name) for column in table.columns]
        else:
            types = self.types_of(table)
            carried = [
                decoding(
                    expression(column.name, types[column.name], column.carrier, mask_of(table, column.name)),
                    column,
                    self.encoding_of(table, column),
                )
                for column in table.columns
            ]
        order = order_clause(scan, carried, 'pg_catalog."C"')
        return f"SELECT {', '.join(map(sent, carried))} FROM {self._rows(scan)}{order}"

    def encoding_of(self, table: Table, column: Column) -> str | None:
        """Return the encoding of a text column: masks return UTF-8, and `"char"` holds a byte, not a character."""
        return None if column.type == '"char"' or mask_of(table, column.name) is not None else self._encoding

    def _rows(self, scan: Scan) -> str:
        """Return the FROM item and the condition of a scan; sets the bounds of a query's window."""
        table, source, time = scan.table, self.from_item(scan.table), None
        if is_query(table):
            self.session.prepare((OWN_PATH, *bounds_statements(scan.rows)), "setting the bounds of the window")
            self.relations.lock_query(table.table_name, source)
        else:
            time = self._predicate(table, scan.rows)
        cleared = CLEARED if self.relations.of(table).path else None
        where = " AND ".join(filter(None, (time, _part(scan.part), cleared)))
        return f"{source} WHERE {where}" if where else source

    def from_item(self, table: Table) -> str:
        """Return the FROM item of a table, without the rows of tables that inherit from it.

        Partitions, and the chunks of a hypertable, are included.
        """
        item = self.relations.of(table).item
        return qualified(table.table_name) if table.options.get("hypertable") else item

    def time_column(self, table: Table, zone: str = "UTC") -> PostgresqlTimeColumn:
        """Return the time column of a timed table."""
        if table.time_index is None:
            raise DatabaseError(
                f"Table '{table.table_name}' has no time index, so it has no windows. Scan all its rows.",
                table=table_text(table.table_name),
            )
        return PostgresqlTimeColumn.typed(table.time_index, self.types_of(table)[table.time_index].name, zone)

    def estimate(self, scan: Scan) -> int:
        """Return the planner's estimate of a scan's bytes."""
        plan = self._plan(scan.table, self.query(scan))
        return int(plan["Plan Rows"]) * int(plan["Plan Width"])

    def cost(self, table: Table, query: str) -> float:
        """Return the planner's estimate of the cost of a query of a table's FROM item."""
        return float(self._plan(table, query)["Total Cost"])

    def is_stored(self, table: Table) -> bool:
        """Return whether every session that reads this state reads the same rows: not those of views or servers."""
        return self.relations.of(table).kind in "rmp"

    def split(self, scan: Scan, parts: int) -> list[Scan]:
        """Divide a scan by time or key, if an index serves it; else by the table's blocks, if it has any."""
        if parts <= 1 or scan.part is not None or is_query(scan.table):
            return [scan]
        if isinstance(scan.rows, KeyRows):
            return [replace(scan, part=each) for each in self.divide(scan, parts)] or [scan]
        if isinstance(scan.rows, WindowRows):
            kinds = [node["Node Type"] for node in self._reads(scan)]
            if kinds and all("Index" in kind or "Bitmap" in kind for kind in kinds):
                start, end = scan.rows.start.astimezone(UTC), scan.rows.end.astimezone(UTC)
                step = (end - start) / parts
                times = sorted({start, *(start + step * number for number in range(1, parts)), end})
                return [replace(scan, rows=replace(scan.rows, start=a, end=b)) for a, b in pairwise(times)]
        blocks = self.relations.of(scan.table).blocks
        if not self.is_stored(scan.table) or not blocks or scan.table.options.get("hypertable"):
            return [scan]
        cuts = sorted({blocks * number // parts for number in range(parts)})
        # The last part has no end: the table may have grown since its size was read.
        ends = (*map(str, cuts[1:]), "")
        return [replace(scan, part=f"blocks {low}-{high}") for low, high in zip(cuts, ends, strict=True)]

    def divide(self, scan: Scan, parts: int) -> list[ColumnRange]:
        """Divide rows by the server's statistics of the key, which `ANALYZE` gathers; see `Database.divide`."""
        column = ranged_key(scan.table, RANGED)
        if column is None or self.relations.of(scan.table).kind != "r" or scan.table.options.get("hypertable"):
            return []
        within = scan.rows.range if isinstance(scan.rows, KeyRows) else None
        query = _BOUNDS.format(
            schema=literal(scan.table.schema_name),
            table=literal(scan.table.name),
            column=literal(column.name),
            type=column.type,
            ordered=ORDERED,
            within=replace(within, column="bound").predicate if within else "true",
        )
        rows = self.session.rows(query, f"dividing {scan.table.table_name}", optional="statistics of columns")
        values = tuple(rows[0]["bounds"] or ()) if rows else ()
        return Quantiles(column.name, column.type, 0, values).ranges(parts, within) if values else []

    def quantiles(self, scan: Scan, column: str, parts: int) -> Quantiles:
        """Return the values that divide a sample of a column; see `Database.quantiles`."""
        present = f"SELECT * FROM (SELECT {identifier(column)} AS value FROM {self._rows(scan)}) p"
        sample = f"{present} WHERE value IS NOT NULL ORDER BY pg_catalog.random() LIMIT {SAMPLE_ROWS}"
        values = f"pg_catalog.percentile_disc({literal(f'{{{str(fractions(parts))[1:-1]}}}')}::pg_catalog.float8[])"
        [row] = self.rows_of(
            scan.table,
            f"SELECT pg_catalog.count(*) AS rows, {values} WITHIN GROUP (ORDER BY value)::pg_catalog.text[] AS values"
            f" FROM ({sample}) AS sample",
            f"sampling {column} of {scan.table.name}",
        )
        return Quantiles(column, scan.table.column(column).type, row["rows"], tuple(row["values"] or ()))

    def types_of(self, table: Table) -> dict[str, SourceType]:
        """Return the types of a table's columns."""
        return {name: column.type for name, column in self.relations.of(table).columns.items()}

    def row_keys(self, table: Table) -> dict[str, str]:
        """Return SQL that tells a row from others, by name: the primary key, else the `ctid`; empty for a view."""
        relation, shown = self.relations.of(table), {column.name for column in table.columns}
        key = table.primary_key.columns if table.primary_key else ()
        if key and all(name in shown and mask_of(table, name) is None for name in key):
            return {name: expression(name, relation.columns[name].type, Carrier.TEXT) for name in key}
        if relation.kind not in "rmp" or relation.item.startswith("("):
            return {}
        return {"ctid": "ctid"} | ({"partition": "tableoid::pg_catalog.regclass"} if relation.kind == "p" else {})

    def any_of(self, table: Table, rows: Sequence[Rows]) -> str:
        """Return the condition of the rows that belong to one of some sets."""
        return " OR ".join(f"({self._predicate(table, each) or 'true'})" for each in rows)

    def _predicate(self, table: Table, rows: Rows) -> str | None:
        if isinstance(rows, AllRows):
            return None
        if isinstance(rows, KeyRows):
            return rows.range.predicate
        if isinstance(rows, WindowRows):
            return self.time_column(table, rows.zone).within(rows.start, rows.end)
        return self.time_column(table).timeless

    def _reads(self, scan: Scan) -> list[dict[str, Any]]:
        """Return the nodes of a scan's plan that read a table or partition; none reads one outside the window."""
        return [node for node in _nodes(self._plan(scan.table, self.query(scan))) if "Relation Name" in node]

    def _plan(self, table: Table, query: str) -> dict[str, Any]:
        rows = self.rows_of(table, f"EXPLAIN (FORMAT JSON, VERBOSE) {query}", f"planning {table.name}")
        plan: dict[str, Any] = json.loads(rows[0]["QUERY PLAN"])[0]["Plan"]
        return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _part(part: ColumnRange | str | None) -> str | None:
    """Return the predicate of a range, or of a part that `split` created."""
    if not isinstance(part, str):
        return part.predicate if part else None
    low, _, high = part.removeprefix("blocks ").partition("-")
    predicate = f"ctid >= '({int(low)},0)'::pg_catalog.tid"
    return f"{predicate} AND ctid < '({int(high)},0)'::pg_catalog.tid" if high else predicate
