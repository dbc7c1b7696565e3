"""PostgreSQL as a target: rows go in through COPY, each file with its ledger row in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from snapshot_assets.databases.postgresql.ddl.existing_columns import other_type, other_types_query
from snapshot_assets.databases.postgresql.failures import connect_failure, translated
from snapshot_assets.databases.postgresql.ingest import Ingest, ingest
from snapshot_assets.databases.postgresql.nested import with_json
from snapshot_assets.databases.postgresql.references import reference, references_to
from snapshot_assets.databases.postgresql.session import SETTINGS, WITHOUT_COPY, pinning, secrets_of
from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.databases.postgresql.time_predicates import documented
from snapshot_assets.databases.references import Reference
from snapshot_assets.databases.source import DatabaseAddress, Rows, WindowRows
from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets.databases.streams import Feed
from snapshot_assets.databases.target import ExistingTable, OtherType
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Table, TableName

_DRIVER_ERRORS = (adbc_driver_manager.Error, pa.ArrowException, OSError)
_STAGE = "snapshot_assets_stage"
_PORTION_BYTES = 8 << 20
_SETTINGS = SETTINGS | {"temp_buffers": "64MB"}
_EXISTING = """
SELECT n.nspname AS schema, c.relname AS name, a.attname AS column_name, CASE c.relkind
    WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type'
    WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' ELSE 'table' END AS what
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE (n.nspname, c.relname) IN ({names}) ORDER BY n.nspname, c.relname, a.attnum
"""
# A partitioned table's rows lie in its partitions, and a hypertable's in its chunks, which inherit from it.
_HOLDS_ALL_ITSELF = """
SELECT c.relkind = 'r' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace s ON s.oid = h.relnamespace
    WHERE i.inhparent = c.oid AND s.nspname = '_timescaledb_internal') AS alone
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name}
"""
_ADVISORY = """
SELECT pg_catalog.pg_advisory_xact_lock{kind}(pg_catalog.hashtextextended('snapshot_assets', 0)) IS NULL AS got
"""


class PostgresqlTarget(SqlTarget):
    """One connection that writes; see `Target`.

    Args:
        address: Where to connect.

    Raises:
        DatabaseUnavailableError: The server cannot be reached.
        DatabaseDeniedError: It refused the user or password.
    """

    kind = "postgresql"

    def __init__(self, address: DatabaseAddress) -> None:
        self._name = f"PostgreSQL {address.alias!r}"
        self._secrets = secrets_of(address.uri)
        try:
            # Transactions are begun and ended by statements: the driver's own are not begun again after every error.
            self._connection = adbc.connect(address.uri, autocommit=True)
        except _DRIVER_ERRORS as error:
            raise connect_failure(error, address.alias, self._secrets) from None
        try:
            self._rows(pinning(_SETTINGS), "pinning the session")
        except BaseException:
            self._connection.close()
            raise

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist; see `Target`."""
        names = ", ".join(f"({literal(name.schema)}, {literal(name.table)})" for name in tables)
        if not names:
            return {}
        columns: dict[TableName, list[str]] = {}
        kinds: dict[TableName, str] = {}
        for row in self._rows(_EXISTING.format(names=names), "looking up tables"):
            name = TableName(row["schema"], row["name"])
            known, kinds[name] = columns.setdefault(name, []), row["what"]
            if row["column_name"] is not None:
                known.append(row["column_name"])
        return {
            name: ExistingTable(tuple(found), kinds[name] == "table" and self._has_rows(name), kinds[name])
            for name, found in columns.items()
        }

    def _has_rows(self, name: TableName) -> bool:
        query = f"SELECT EXISTS (SELECT FROM {self._own_rows(name)}) AS found"
        return bool(self._rows(query, f"looking into {name}")[0]["found"])

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns that are there with another type than the tables give them; see `Target`."""
        query = other_types_query(tables)
        rows = self._rows(query, "comparing types") if query else []
        return [other for row in rows if (other := other_type(row)) is not None]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _execute(self, sql: str, doing: str) -> None:
        with self._translating(doing), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**WITHOUT_COPY)
            cursor.execute(sql)

    def _rows(self, sql: str, doing: str) -> list[dict[str, Any]]:
        with self._translating(doing), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**WITHOUT_COPY)
            cursor.execute(sql)
            found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return found

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN", "beginning a transaction")
        try:
            yield
            self._execute("COMMIT", "committing")
        except BaseException:
            with suppress(SnapshotError):
                self._execute("ROLLBACK", "taking back a transaction")
            raise

    @contextmanager
    def _translating(self, doing: str) -> Iterator[None]:
        try:
            yield
        except _DRIVER_ERRORS as error:
            raise translated(error, f"{self._name}: {doing}", self._secrets, alive=True) from None

    def _insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        how = {column.name: ingest(column) for column in table.columns if column.generated is None}
        given = pa.schema([(name, each.arrow_type) for name, each in how.items()])
        if nested := {name for name, each in how.items() if each.json}:
            batches = (with_json(batch, nested) for batch in batches)
        feed = Feed(batches, given)
        if not how:  # COPY takes no empty list of columns
            rows: int = sum(batch.num_rows for batch in batches)
            self._execute(
                f"INSERT INTO {qualified(table.table_name)} SELECT FROM pg_catalog.generate_series(1, {rows})",
                f"loading {table.table_name}",
            )
            return rows
        if any(each.staged for each in how.values()):
            self._insert_staged(table, how, feed)
        else:
            with feed.errors():
                self._ingest(table.name, table.schema_name, feed.reader())
        return feed.rows

    def _ingest(self, name: str, schema: str | None, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Copy rows into a table; into a temporary one where no schema is given."""
        with self._translating(f"loading {name}"), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="append", db_schema_name=schema, temporary=schema is None)

    def _insert_staged(self, table: Table, how: dict[str, Ingest], feed: Feed) -> None:
        """Load through a staging table, portion by portion: what fits into the session's buffers is never written."""
        name = table.table_name
        definitions = ", ".join(f"{identifier(column)} {each.type}" for column, each in how.items())
        columns, values = ", ".join(map(identifier, how)), ", ".join(each.value for each in how.values())
        self._execute(
            f"CREATE TEMPORARY TABLE {_STAGE} ({definitions}) ON COMMIT DROP", f"making the staging table of {name}"
        )
        for portion in feed.portions(_PORTION_BYTES):
            self._ingest(_STAGE, None, portion)
            self._execute(
                f"INSERT INTO {qualified(name)} ({columns}) OVERRIDING SYSTEM VALUE"
                f" SELECT {values} FROM pg_temp.{_STAGE}",
                f"loading {name}",
            )
            self._execute(f"TRUNCATE pg_temp.{_STAGE}", f"emptying the staging table of {name}")
        self._execute(f"DROP TABLE pg_temp.{_STAGE}", f"dropping the staging table of {name}")

    def _literal(self, value: str) -> str:
        return literal(value)

    def _qualified(self, name: TableName) -> str:
        return qualified(name)

    def _own_rows(self, name: TableName) -> str:
        query = _HOLDS_ALL_ITSELF.format(schema=literal(name.schema), name=literal(name.table))
        alone = any(row["alone"] for row in self._rows(query, f"looking up {name}"))
        return f"ONLY {qualified(name)}" if alone else qualified(name)

    def _predicate(self, table: Table, rows: Rows) -> str:
        zone = rows.zone if isinstance(rows, WindowRows) else "UTC"
        return documented(table, zone).predicate(rows) or "true"

    def _references(self, tables: Sequence[TableName]) -> list[Reference]:
        return [reference(row) for row in self._rows(references_to(tables), "looking up foreign keys")]

    def _lock_imports(self) -> None:
        self._rows(_ADVISORY.format(kind="_shared"), "waiting for other imports")

    def _lock(self, tables: Sequence[TableName] = ()) -> None:
        self._rows(_ADVISORY.format(kind=""), "waiting for other imports")
        for name in sorted(set(tables)):
            self._execute(f"LOCK TABLE {qualified(name)} IN SHARE ROW EXCLUSIVE MODE", f"locking {name}")
