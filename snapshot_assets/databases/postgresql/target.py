"""PostgreSQL as a target: COPY loads rows, and one transaction covers a file and its ledger row. Scratch databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from snapshot_assets.databases.definition import Definition, Need, Statement
from snapshot_assets.databases.postgresql.connect import SETTINGS
from snapshot_assets.databases.postgresql.database_locale import differing_locale
from snapshot_assets.databases.postgresql.disabled_triggers import (
    acting,
    disable_triggers,
    every_row,
    forced,
    only_reading,
)
from snapshot_assets.databases.postgresql.driver import refused, refused_types
from snapshot_assets.databases.postgresql.existing_objects import conflicts, names_of, other_types, references_to
from snapshot_assets.databases.postgresql.large_objects import (
    COLUMNS,
    LARGE_OBJECTS,
    delete_large_objects,
    has_large_objects,
    insert_large_objects,
    is_large_objects,
    pages_of_imports,
)
from snapshot_assets.databases.postgresql.object_names import lookup
from snapshot_assets.databases.postgresql.rehearsal import rehearse
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.time_predicates import PostgresqlTimeColumn
from snapshot_assets.databases.postgresql.write_forms import Receiver, WriteForm, receivers, unfit_values, write_form
from snapshot_assets.databases.protocol.driver_batches import Feed
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import Question, SqlTarget
from snapshot_assets.databases.protocol.target import ExistingTable, Load, UnfitValues
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import DatabaseError, DatabaseLockedError, PlanError, SnapshotError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName

# A commit waits for the disk whatever the role's default, unless it says otherwise; see `flush`.
_SETTINGS = SETTINGS | {"temp_buffers": "64MB", "synchronous_commit": "on"}
_STAGE = TableName("pg_temp", "snapshot_assets_stage")
_PORTION_BYTES = 8 << 20
_EXISTING = """
SELECT n.nspname AS schema, c.relname AS name, ARRAY(
        SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS columns, CASE c.relkind
    WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type'
    WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' ELSE 'table' END AS what
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({names}) ORDER BY n.nspname, c.relname
"""
# The rows of a partitioned table are in its partitions; those of a hypertable are in its chunks, which inherit from it.
_HAS_OWN_ROWS_ONLY = """
SELECT n.nspname AS schema, c.relname AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN ({names}) AND c.relkind = 'r' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace s ON s.oid = h.relnamespace
    WHERE i.inhparent = c.oid AND s.nspname = '_timescaledb_internal')
"""
_ADVISORY = """
SELECT pg_catalog.pg_advisory_xact_lock{kind}(pg_catalog.hashtextextended('snapshot_assets', 0)) IS NULL AS got
"""

_INDEX_MEMORY = 256 << 10
# Parallel workers share the memory of an index. Their number is left to the server, which knows its processors.
_PREPARE_INDEXES = f"""
SELECT pg_catalog.set_config(name, '{_INDEX_MEMORY}kB', true) FROM pg_catalog.pg_settings
WHERE name = 'maintenance_work_mem' AND setting::pg_catalog.int8 < {_INDEX_MEMORY}
"""

_MOST_BYTES = 63
"""Bytes of a name; the server cuts longer ones."""

_OURS = "Scratch database of snapshot_assets: dropped after use, or by the next one of this name."


class PostgresqlTarget(PostgresqlConnection, SqlTarget):
    """One connection that writes; see `SqlTarget` and `PostgresqlConnection`."""

    kind = "postgresql"
    time_column = PostgresqlTimeColumn
    # Functions whose first argument is the connection are its methods.
    acting = acting
    conflicts = conflicts
    other_types = other_types
    rehearse = rehearse
    _execute = PostgresqlConnection.execute
    _disable_triggers = disable_triggers
    _references = references_to
    _rows = PostgresqlConnection.rows

    def __init__(self, address: DatabaseAddress) -> None:
        if address.encoding:
            raise PlanError(
                f"PostgreSQL {address.alias!r} has `encoding`, which is for sources: a restore writes UTF-8. Name the"
                " target by an alias of its own, or by its URI."
            )
        super().__init__(address, _SETTINGS)
        self._transacting = False

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist; see `SqlTarget`."""
        if not tables:
            return {}
        existing = {}
        if LARGE_OBJECTS in tables:
            existing[LARGE_OBJECTS] = ExistingTable(tuple(COLUMNS), has_large_objects(self), mixes=False)
        there = [(TableName(row["schema"], row["name"]), row) for row in self._there(tables)]
        filled = self._with_rows([name for name, row in there if row["what"] == "table"])
        for name, row in there:
            existing[name] = ExistingTable(tuple(row["columns"]), name in filled, row["what"])
        return existing

    def _there(self, tables: Sequence[TableName]) -> list[dict[str, Any]]:
        return self.rows(_EXISTING.format(names=names_of(tables)), "looking up tables")

    def _has(self, table: TableName) -> bool:
        return bool(self._there([table]))  # without looking for rows

    def missing(self, needs: Sequence[Need]) -> list[Need]:
        """Return the objects that the target lacks; see `SqlTarget`."""
        rows = self.rows(lookup(needs), "looking up what tables depend on") if needs else []
        there = {(row["kind"], row["name"]) for row in rows}
        return [need for need in needs if (need.kind, need.name) not in there]

    def unfit_values(self, column: Column) -> UnfitValues | None:
        """Return which values PostgreSQL cannot hold; see `SqlTarget`."""
        return unfit_values(column)

    def differing(self, schema: DatabaseSchema, definition: Definition) -> list[str]:
        """Return how the target's locale differs from the source's; see `SqlTarget`."""
        return list(differing_locale(self, schema))

    def slow_types(self) -> list[str]:
        """Return the types that the driver does not take as bytes: their values are loaded as text."""
        with self._transaction():
            return refused_types(self)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with super()._transaction():
                self._transacting = True
                yield
        finally:
            self._transacting = False

    def _commit_early(self) -> None:
        # Rows and ledger row are one transaction: if the server loses its last moments, the ledger does not list the
        # file, and it loads again. WAL is written in order, so each later commit that waits makes this one durable.
        self.execute("SET LOCAL synchronous_commit = off", "beginning a transaction")

    def flush(self) -> None:
        """Return once all files that were loaded so far are on disk; see `SqlTarget`."""
        # A commit waits for its own records only if it has some.
        self.rows("SELECT pg_catalog.pg_logical_emit_message(true, 'snapshot_assets', '')::text", "flushing")

    def _prepare_indexes(self) -> None:
        self.rows(_PREPARE_INDEXES, "preparing indexes")

    def _insert(self, table: Table, batches: Iterable[pa.RecordBatch]) -> int:
        if is_large_objects(table):
            feed = Feed(batches, table.arrow_schema())
            insert_large_objects(self, table, feed.portions(_PORTION_BYTES))
            return feed.rows
        columns = self._write_forms(table)
        schema = pa.schema([(name, each.arrow_type) for name, each in columns.items()])
        feed = Feed(batches, schema, {name: each.encode for name, each in columns.items() if each.encode is not None})
        if not columns:  # COPY refuses an empty list of columns
            rows: int = sum(batch.num_rows for batch in batches)
            self.execute(
                f"INSERT INTO {qualified(table.table_name)} SELECT FROM pg_catalog.generate_series(1, {rows})",
                f"loading {table.table_name}",
            )
            return rows
        if any(each.value != identifier(name) for name, each in columns.items()):
            self._insert_staged(table, columns, feed)
        else:
            with feed.errors():
                self.copy(table.table_name, feed.reader())
        return feed.rows

    def _write_forms(self, table: Table) -> dict[str, WriteForm]:
        found = receivers(self, table.table_name)
        stored = {column.name: column for column in table.columns if column.generated is None}
        plain = {each: write_form(column, Receiver(column.type)) for each, column in stored.items()}
        forms = plain | {each: write_form(stored[each], found[each]) for each in stored.keys() & found.keys()}
        tried = {each: (form.arrow_type, found[each]) for each, form in forms.items() if form != plain[each]}
        return forms | {each: plain[each] for each in refused(self, tried)}

    def _insert_staged(self, table: Table, columns: dict[str, WriteForm], feed: Feed) -> None:
        """Load through a temporary table, in portions that fit into `temp_buffers` and so are never written to disk."""
        name = table.table_name
        definitions = ", ".join(f"{identifier(column)} {each.type}" for column, each in columns.items())
        names, values = ", ".join(map(identifier, columns)), ", ".join(each.value for each in columns.values())
        self.execute(
            f"CREATE TEMPORARY TABLE {_STAGE.table} ({definitions}) ON COMMIT DROP",
            f"creating the staging table of {name}",
        )
        for portion in feed.portions(_PORTION_BYTES):
            self.copy(_STAGE, portion)
            self.execute(
                f"INSERT INTO {qualified(name)} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {_STAGE}",
                f"loading {name}",
            )
            self.execute(f"TRUNCATE {_STAGE}", f"emptying the staging table of {name}")
        self.execute(f"DROP TABLE {_STAGE}", f"dropping the staging table of {name}")

    def _run(self, statement: Statement) -> None:
        with every_row(self, statement.reads):
            super()._run(statement)

    def _answers(self, asked: Sequence[Question], doing: str) -> list[Any]:
        # Lifting a force locks a table, and a table with partitions locks them all: of these, one is read at a time.
        names = [each.table for each in asked]
        alone = self._alone(names) - forced(self, names)
        shared = iter(super()._answers([each for each in asked if each.table in alone], doing))
        answers: list[Any] = []
        for each in asked:
            if each.table in alone:
                answers.append(next(shared))
                continue
            with only_reading(self, each.table, nested=self._transacting):
                answers += super()._answers([each], doing)
        return answers

    def _delete_rows(self, load: Load, doing: str) -> None:
        if is_large_objects(load.table):
            delete_large_objects(self)
        else:
            super()._delete_rows(load, doing)

    def _own_rows(self, names: Sequence[TableName]) -> Mapping[TableName, str]:
        alone = self._alone(names)
        items = {name: f"ONLY {qualified(name)}" if name in alone else qualified(name) for name in names}
        return items | ({LARGE_OBJECTS: pages_of_imports(self)} if LARGE_OBJECTS in items else {})

    def _alone(self, names: Sequence[TableName]) -> set[TableName]:
        """Return the tables that have all their rows themselves."""
        rows = self.rows(_HAS_OWN_ROWS_ONLY.format(names=names_of(names)), "looking up tables") if names else []
        return {TableName(row["schema"], row["name"]) for row in rows}

    def _lock_imports(self) -> None:
        self.rows(_ADVISORY.format(kind="_shared"), "waiting for other imports")

    def _lock(self, tables: Sequence[TableName] = ()) -> None:
        self.rows(_ADVISORY.format(kind=""), "waiting for other imports")
        for name in sorted({*tables} - {LARGE_OBJECTS}):
            self.execute(f"LOCK TABLE {qualified(name)} IN SHARE ROW EXCLUSIVE MODE", f"locking {name}")


@contextmanager
def scratch(address: DatabaseAddress, name: str) -> Iterator[DatabaseAddress]:
    """Yield the address of a new database; see `TargetModule.scratch`."""
    name = name.encode()[:_MOST_BYTES].decode(errors="ignore")
    drop = f"DROP DATABASE {identifier(name)} WITH (FORCE)", f"dropping the scratch database {name}"
    with closing(PostgresqlConnection(address)) as server:
        _claim(server, address, name)
        server.execute(f"CREATE DATABASE {identifier(name)}", f"creating the scratch database {name}")
        try:
            server.execute(f"COMMENT ON DATABASE {identifier(name)} IS {literal(_OURS)}", "commenting on it")
            yield replace(address, uri=_uri_of(address.uri, name), encoding=None)
        except BaseException:
            with suppress(SnapshotError):  # the first error counts, and the next one of this name drops it
                server.execute(*drop)
            raise
        server.execute(*drop)


def _claim(server: PostgresqlConnection, address: DatabaseAddress, name: str) -> None:
    """Lock the name until the connection is closed, and drop the database of a killed run, whose lock has ended."""
    [row] = server.rows(
        f"SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtext({literal(name)})) AS locked", f"locking {name}"
    )
    if not row["locked"]:
        raise DatabaseLockedError(
            f"PostgreSQL {address.alias!r}: another run uses the scratch database {name!r}. Run again when it ends.",
            name=name,
        )
    query = (
        "SELECT pg_catalog.shobj_description(oid, 'pg_database') AS comment FROM pg_catalog.pg_database"
        f" WHERE datname = {literal(name)}"
    )
    for row in server.rows(query, "looking for a scratch database"):
        if row["comment"] != _OURS:
            raise DatabaseError(
                f"PostgreSQL {address.alias!r} has a database {name!r} without the comment of a scratch database. Drop"
                " it if nobody needs it; otherwise rename it, or give another server.",
                name=name,
            )
        server.execute(f"DROP DATABASE {identifier(name)} WITH (FORCE)", f"dropping {name}, which a killed run left")


def _uri_of(uri: str, database: str) -> str:
    """Return a URI with another database, for each way in which libpq takes its name."""
    scheme, _, rest = uri.partition("://")
    address, _, query = rest.partition("?")
    user, at, host = address.rpartition("@")
    options = "&".join(each for each in query.split("&") if each.partition("=")[0] != "dbname")
    return f"{scheme}://{user}{at}{host.partition('/')[0]}/{quote(database, safe='')}{'?' if options else ''}{options}"
