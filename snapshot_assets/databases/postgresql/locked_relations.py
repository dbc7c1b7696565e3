"""The relations that a session has locked against rewriting, as it reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn, read_columns
from snapshot_assets.databases.postgresql.large_objects import ROWS, is_large_objects
from snapshot_assets.databases.postgresql.partial_servers import NO_SOURCE
from snapshot_assets.databases.postgresql.partitions import EXPRESSIONS, read_partitions
from snapshot_assets.databases.postgresql.read_forms import NO_PATH, UNRESOLVED, reading_path
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import ConsistencyLostError, DatabaseError, SnapshotError, UnknownRelationError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName

_QUOTED = re.compile(r'"([a-z_][a-z0-9_]*)"')
_RELATION = f"""
SELECT c.oid::int8 AS oid, c.relkind::text AS kind, has_table_privilege(c.oid, 'SELECT') AS lockable, {EXPRESSIONS} AS
    expressions, ARRAY(
        SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
            AND NOT a.attisdropped AND has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY a.attnum) AS readable, (
    SELECT max(pg_relation_size(p.oid)) / current_setting('block_size')::int8 FROM pg_class p
    WHERE p.relkind IN ('r', 'm') AND (p.oid = c.oid OR c.relkind = 'p' AND p.oid IN (
        SELECT t.relid FROM pg_partition_tree(c.oid) t))) AS blocks
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {{schema}} AND c.relname = {{name}}
"""

# System tables show the session's snapshot, pg_relation_filenode() the present. Where they differ, the table has been
# truncated or rewritten since, and the session would see an empty table.
_REWRITTEN = """
WITH RECURSIVE read (oid) AS (
    SELECT {oid}::oid
    UNION
    SELECT x.oid FROM read r CROSS JOIN LATERAL (
        SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = r.oid
        UNION ALL
        SELECT d.refobjid FROM pg_rewrite w JOIN pg_depend d ON d.objid = w.oid
        WHERE w.ev_class = r.oid AND w.rulename = '_RETURN' AND d.classid = 'pg_rewrite'::regclass
            AND d.refclassid = 'pg_class'::regclass) x (oid)
)
SELECT c.oid::regclass::text AS name FROM pg_class c JOIN read ON read.oid = c.oid
WHERE c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
"""

# The planner locks what a query reads, with the relations behind its views.
_LOCKED_AND_REWRITTEN = """
SELECT c.oid::regclass::text AS name FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
"""


@dataclass(frozen=True)
class LockedRelation:
    """A relation that the session has locked against rewriting.

    Attributes:
        item: FROM item of its rows, without those of tables that inherit from it.
        path: Statement that sets the path under which the server plans its queries; see `reading_path`.
    """

    oid: int
    kind: str
    blocks: int | None
    columns: dict[str, SourceColumn]
    item: str
    path: str | None


class LockedRelations:
    """Relations that a session reads, which keeps its locks until it ends, or until an error."""

    def __init__(self, session: PostgresqlSession) -> None:
        self._session = session
        self._relations: dict[TableName, LockedRelation] = {}
        self._queries: set[str] = set()
        self._paths: dict[TableName, str] = {}
        self._recoveries = session.recoveries

    def of(self, table: Table) -> LockedRelation:
        """Return a table after locking it and checking that its columns are those of its document.

        `lock_query` locks what a query reads.

        Raises:
            DatabaseError: A column has another type, or is gone.
            UnknownRelationError: The table is gone.
            ConsistencyLostError: It was rewritten after the state that the session reads.
        """
        if is_large_objects(table):
            return LockedRelation(0, "-", None, {}, ROWS, None)
        if is_query(table):
            return LockedRelation(0, "-", None, {}, f"(\n{table.options['sql']}\n) AS copied", None)
        self._forget_lost_locks()
        name = table.table_name
        relation = self._relations.get(name) or self._read(name)
        self._relations[name] = relation
        for column in table.columns:
            present = relation.columns.get(column.name)
            # A restore under another name writes `"shop"."mood"`, with needless quotation marks.
            if present is None or _QUOTED.sub(r"\1", present.type.text) != _QUOTED.sub(r"\1", column.type):
                raise DatabaseError(
                    f"Column {name}.{column.name} was {column.type} when the schema was extracted, and is now"
                    f" {present.type.text if present else 'gone'}. Extract the schema again.",
                    column=f"{name}.{column.name}",
                )
        return relation

    def check_partitions(self, table: Table) -> None:
        """Check that no partition of a table was attached or detached before its rows were read."""
        relation = self._relations.get(table.table_name)
        if relation is not None and relation.kind == "p":
            read_partitions(self._session, relation.oid, table.table_name)

    def lock_query(self, name: TableName, source: str) -> None:
        """Lock what a query reads, given by its name and its FROM item.

        Raises:
            ConsistencyLostError: A table of it was rewritten after the state that this session reads.
        """
        self._forget_lost_locks()
        if source not in self._queries:
            self._session.rows(f"EXPLAIN SELECT FROM {source}", f"locking what {name} reads")
            self._refuse_rewritten(_LOCKED_AND_REWRITTEN, name)
            self._queries.add(source)

    def _read(self, name: TableName) -> LockedRelation:
        query = _RELATION.format(schema=literal(name.schema), name=literal(name.table))
        rows = self._session.rows(query, f"looking up {name}", NO_SOURCE)
        if not rows:
            raise UnknownRelationError(
                f"Table '{name}' no longer exists. It existed when the schema was extracted. Extract the schema"
                " again, or leave the table out.",
                table=table_text(name),
            )
        row = rows[0]
        oid, kind, parts, expressions = row["oid"], row["kind"], None, row["expressions"]
        # LOCK TABLE refuses views and foreign tables, and privileges on columns do not suffice; planning locks as well.
        if lockable := kind in "rp" and row["lockable"]:
            self._session.execute(f"LOCK TABLE {qualified(name)} IN ACCESS SHARE MODE", f"locking {name}")
        if kind == "p":
            parts, expressions = read_partitions(self._session, oid, name)
        only = f"ONLY {qualified(name)}"
        item = only if kind == "r" else qualified(name)
        if parts is not None:
            # ONLY, where there is no partition, has no rows.
            united = (f"SELECT {', '.join(row['readable'])} FROM {each}" for each in parts or [only])
            item = f"({' UNION ALL '.join(united)}) AS {identifier(name.table)}"
        if (parts is not None or expressions or not lockable) and not self._plans(name, item):
            return self._read(name)
        self._refuse_rewritten(_REWRITTEN.format(oid=oid), name)
        columns = {column.name: column for column in read_columns(self._session, [oid]).get(oid, [])}
        blocks = row["blocks"] if parts is None else None
        return LockedRelation(oid, kind, blocks, columns, item, self._paths.get(name))

    def _plans(self, name: TableName, item: str) -> bool:
        """Return whether the server plans queries of a FROM item, which locks it; if not, choose another path first."""
        path, plan = self._paths.get(name), f"EXPLAIN SELECT FROM {item} WHERE pg_catalog.random() < 2"
        try:
            for statement in (path, plan, NO_PATH) if path else (plan,):
                self._session.execute(statement, f"locking {name}")
        except SnapshotError as error:
            if path is not None or error.attributes.get("sqlstate") not in UNRESOLVED:
                raise
            self._forget_lost_locks()
            self._paths[name] = reading_path(self._session, name.schema)
            return False
        return True

    def _forget_lost_locks(self) -> None:
        """Forget what was locked before an error, whose rollback released the locks."""
        if self._recoveries != self._session.recoveries:
            self._recoveries = self._session.recoveries
            self._relations.clear()
            self._queries.clear()

    def _refuse_rewritten(self, query: str, name: TableName) -> None:
        if rewritten := self._session.rows(query, f"checking {name}", NO_SOURCE):
            raise ConsistencyLostError(
                f"{rewritten[0]['name']} was truncated or rewritten (TRUNCATE, VACUUM FULL, CLUSTER, ALTER TABLE,"
                f" REFRESH) after the state that this run reads, so the rows of {name} in that state are gone."
                " Start a new run, and run no such commands during it.",
                table=table_text(name),
            )
