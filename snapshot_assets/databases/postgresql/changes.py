"""Whether rows changed since an export, by their transaction ids: no value is read.

A row version has the id of the transaction that wrote it, `xmin`, which stays through VACUUM FREEZE. The export's fence
has the snapshot that it read. A set of rows is unchanged if it has as many rows as were exported, and none was written
by a transaction at or above the *xmin* of that snapshot: every transaction below it had ended, so the export saw its
rows. A transaction that ran at the time of the export is above it, so the rule names more than has changed, never less.

What a row shows also depends on definitions. If the table, one of its columns or partitions, their schema or a type was
changed after the fence, the answer is unknown; so it is if the fence is not of this database and of this history, or
the server was started since, or recovered from a crash. Meanwhile no commit that it showed is lost, and no file of its
data is replaced by an older one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from snapshot_assets.databases.postgresql.large_objects import is_large_objects
from snapshot_assets.databases.postgresql.row_counts import in_sets
from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.source import AllRows, Answer, ExportedRows, Rows, Verdict
from snapshot_assets.databases.selection.hidden import MASKS
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted

_TOGETHER = 50
"""Most tables that one statement reads: a server locks each, with its indexes."""

_NO_VERSIONS = "the rows of views, queries, foreign tables and large objects have no versions"

_MOST_DISTANCE = 1 << 30
"""Most transactions since a fence: rows have ids of 32 bits, of which only distances below 2^31 are unambiguous."""

_REFUSED = ("42", "0A", "55")
"""Classes of SQLSTATE of a server that has no such function, does not support it, or denies it to this user."""

_FIRST_XID = 3
"""The first id of an ordinary transaction."""

# If one of its processes crashes, a server loses commits that were not written yet, and resets its statistics.
_STATE = """
SELECT pg_catalog.pg_current_snapshot()::text AS snapshot, (CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END)::text AS lsn,
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())::text AS database,
    greatest(pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_stat_get_bgwriter_stat_reset_time())::text AS started
"""

# After a promotion, the control file has the new timeline only from the next checkpoint on; the file of the log has it
# at once, and a standby has no such file. The greater one is that of the present.
_HISTORY = """
SELECT s.system_identifier::text AS system_identifier, greatest(c.timeline_id, r.min_recovery_end_timeline, CASE WHEN
    NOT pg_catalog.pg_is_in_recovery() THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(
        pg_catalog.pg_current_wal_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int4 END)::text AS timeline
FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r
"""

_AGE = "(pg_catalog.age({0}) & 2147483647)"
"""The transactions since the one with an id. No id is from the future: a negative age is that of an older one, which
becomes a great one; computed once for each row, as rows are many."""

_NEWEST = f"pg_catalog.min({_AGE.format('xmin')})"
_BASE = f"pg_catalog.age('{_FIRST_XID}'::pg_catalog.xid)"

# The types of the exported columns, with those that they consist of: an array's elements, a domain's base, and so on.
# Labels and attributes have row versions of their own, and so have the names of columns: two can be exchanged.
_DEFINITIONS = f"""
WITH RECURSIVE given (number, root, columns) AS (VALUES {{tables}}), tree (root, oid) AS (
    SELECT g.root, g.root FROM given g
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.root AND c.relkind = 'p'
        JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
), types (root, oid) AS (
    SELECT g.root, a.atttypid FROM given g JOIN pg_catalog.pg_attribute a ON a.attrelid = g.root
        AND a.attname = ANY (g.columns)
    UNION
    SELECT root, part.oid FROM types JOIN pg_catalog.pg_type y USING (oid) CROSS JOIN LATERAL (
        VALUES (y.typelem), (y.typbasetype)
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE y.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = y.typrelid AND a.attnum > 0
    ) part (oid) WHERE part.oid <> 0
), defined (root, xid) AS (
    SELECT g.root, d.xmin FROM given g, pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
    UNION ALL
    SELECT root, c.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
    UNION ALL
    SELECT root, n.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    UNION ALL
    SELECT root, i.xmin FROM tree JOIN pg_catalog.pg_inherits i ON i.inhrelid = tree.oid
    UNION ALL
    SELECT root, a.xmin FROM tree JOIN pg_catalog.pg_attribute a ON a.attrelid = tree.oid AND a.attnum > 0
    UNION ALL
    SELECT root, d.xmin FROM tree JOIN pg_catalog.pg_attrdef d ON d.adrelid = tree.oid
    UNION ALL
    SELECT root, y.xmin FROM types JOIN pg_catalog.pg_type y USING (oid)
    UNION ALL
    SELECT root, e.xmin FROM types JOIN pg_catalog.pg_enum e ON e.enumtypid = types.oid
    UNION ALL
    SELECT root, a.xmin FROM types JOIN pg_catalog.pg_type y USING (oid)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = y.typrelid AND a.attnum > 0
), newest (root, age) AS (SELECT root, pg_catalog.min({_AGE.format("xid")}) FROM defined GROUP BY root)
SELECT c.relkind::text AS kind, newest.age AS newest, {_BASE} AS base, (
    SELECT pg_catalog.bool_and(p.relkind = 'p' OR p.relkind IN ('r', 'm') AND m.amname = 'heap')
    FROM tree JOIN pg_catalog.pg_class p USING (oid) LEFT JOIN pg_catalog.pg_am m ON m.oid = p.relam
    WHERE tree.root = g.root) AS heap,
    CASE WHEN c.relkind <> 'v' THEN pg_catalog.has_column_privilege(g.root, 'xmin', 'SELECT') END AS readable,
    EXISTS (SELECT FROM types JOIN pg_catalog.pg_type y USING (oid) WHERE types.root = g.root
        AND y.typname ~ '^(reg|aclitem$)' AND y.typnamespace = 'pg_catalog'::pg_catalog.regnamespace) AS named
FROM given g JOIN pg_catalog.pg_class c ON c.oid = g.root JOIN newest ON newest.root = g.root ORDER BY g.number
"""

_VALUES = {"rows": "pg_catalog.count(*)", "newest": _NEWEST, "base": f"pg_catalog.min((SELECT {_BASE}))"}
"""What is asked of each set of rows: how many there are, and the age of the newest; the base is computed once."""


def read_fence(session: PostgresqlSession) -> dict[str, str]:
    """Return the state that a connection reads, with the history that its transaction ids and log positions belong to.

    `system_identifier` and `timeline` are lacking where the server refuses them, so that changes are unknown.
    """
    [state] = session.rows(_STATE, "reading the snapshot")
    try:
        [history] = session.rows(_HISTORY, "reading the history of the cluster")
    except DatabaseError as error:
        if not str(error.attributes.get("sqlstate")).startswith(_REFUSED):
            raise
        history = {}
    return dict(state) | dict(history)


class _Snapshot(NamedTuple):
    """A snapshot: transactions below `xmin` had ended, and of those below `xmax` all but the running ones."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a `pg_snapshot`."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def precedes(self, other: Self) -> bool:
        """Return whether all transactions that had ended here have ended in another snapshot too."""
        later = {each for each in other.running if each < self.xmax and each not in self.running}
        return self.xmax <= other.xmax and not later


def _is_newer(ages: Mapping[str, Any], fence: Mapping[str, str]) -> bool:
    """Return whether a transaction that the export may not have seen wrote rows, by the age of the newest one."""
    # The base is the age of the first id, by which the age of any other is known.
    oldest = (ages["base"] + _FIRST_XID - _Snapshot.parse(fence["snapshot"]).xmin) % (1 << 32)
    return ages["newest"] is not None and ages["newest"] <= oldest


def _unusable(fence: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return why an export's fence proves nothing about the present state; "" if it does."""
    snapshot = fence.get("snapshot", "")
    if not snapshot:
        return "the export recorded no state of the database"
    names = {
        "system_identifier": "the cluster",
        "timeline": "the timeline of the cluster",
        "database": "the database",
        # Its files may have been replaced by older ones, such as those of a copied disk, on the same timeline.
        "started": "the start of the server",
    }
    for name, text in names.items():
        if name not in now:
            return "this user may not read the identity of the cluster (pg_control_system)"
        if name not in fence:
            return f"the export did not record {text}"
        if fence[name] != now[name]:
            return f"{text} is another one"
    then, present = _Snapshot.parse(snapshot), _Snapshot.parse(now["snapshot"])
    if not then.precedes(present) or _position(now["lsn"]) < _position(fence["lsn"]):
        return "the export read a later state than the present one"
    if present.xmax - then.xmin >= _MOST_DISTANCE:
        return "more than 2^30 transactions ran since the export"
    return ""


def _position(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def changes_since(scanner: Scanner, parts: Sequence[ExportedRows]) -> list[Answer]:
    """Tell which sets of rows changed since they were exported; see `Database.changes_since`.

    Ordinary tables that are read as a whole are asked for many at a time, without looking each up.
    """
    now = read_fence(scanner.session)
    tables = {part.table.table_name: part.table for part in parts}
    sets: dict[TableName, dict[int, ExportedRows]] = {name: {} for name in tables}
    for number, part in enumerate(parts):
        sets[part.table.table_name][number] = part
    reasons = {name: _unversioned(table) for name, table in tables.items()}
    asked = [name for name, reason in reasons.items() if not reason]
    answers: dict[int, Answer] = {}
    for first in range(0, len(asked), _TOGETHER):
        group = asked[first : first + _TOGETHER]
        defined = _definitions(scanner, [tables[name] for name in group])
        reasons |= {name: _unprovable(scanner, tables[name], defined[name]) for name in group}
        group = [name for name in group if not reasons[name]]
        whole = [name for name in group if defined[name]["kind"] == "r" and _is_whole(sets[name].values())]
        found = {name: [row] for name, row in zip(whole, _of_whole_tables(scanner, whole), strict=True)}
        for name in group:
            own = sets[name]
            run = partial(_read, scanner, tables[name])
            rows = found.get(name) or in_sets(scanner, tables[name], [part.rows for part in own.values()], _VALUES, run)
            scanner.relations.check_partitions(tables[name])
            for (number, part), row in zip(own.items(), rows, strict=True):
                answers[number] = _answer(part, row, defined[name], now)
    for name, reason in reasons.items():
        if reason:
            answers |= dict.fromkeys(sets[name], Answer(Verdict.UNKNOWN, reason, lasting=True))
    return [answers[number] for number in range(len(parts))]


def _read(scanner: Scanner, table: Table, values: str, end: str, read: Sequence[Rows]) -> list[dict[str, Any]]:
    """Run a query of a table, which may use any index."""
    query = f"SELECT {values} FROM {scanner.from_item(table)} WHERE {scanner.any_of(table, read)}{end}"
    return scanner.rows_of(table, query, f"looking for changes in {table.table_name}")


def _is_whole(parts: Collection[ExportedRows]) -> bool:
    return all(part.rows == AllRows() for part in parts)


def _definitions(scanner: Scanner, tables: Sequence[Table]) -> dict[TableName, Mapping[str, Any]]:
    """Return the kind of each table, and the age of the newest change to what defines it."""
    given = (
        f"({number}, {literal(qualified(table.table_name))}::pg_catalog.regclass::pg_catalog.oid,"
        f" ARRAY[{', '.join(literal(each.name) for each in table.columns)}]::pg_catalog.name[])"
        for number, table in enumerate(tables)
    )
    doing = f"reading what defines {counted(len(tables), 'table')}"
    rows = scanner.session.rows(_DEFINITIONS.format(tables=", ".join(given)), doing)
    return {table.table_name: row for table, row in zip(tables, rows, strict=True)}


def _of_whole_tables(scanner: Scanner, names: Sequence[TableName]) -> list[dict[str, Any]]:
    """Return the values of ordinary tables, by one statement."""
    if not names:
        return []
    values = ", ".join(f"({sql})::pg_catalog.int8" for sql in _VALUES.values())
    # Scalar subqueries, as in `count_rows`: for a join of many, the server would look for an order.
    items = (f"(SELECT ARRAY[{values}] FROM ONLY {qualified(name)}) AS t{n}" for n, name in enumerate(names))
    [row] = scanner.session.rows(f"SELECT {', '.join(items)}", f"looking for changes in {counted(len(names), 'table')}")
    return [dict(zip(_VALUES, found, strict=True)) for found in row.values()]


def _answer(part: ExportedRows, row: Mapping[str, Any], defined: Mapping[str, Any], now: Mapping[str, str]) -> Answer:
    rows = row.get("rows") or 0
    if rows != part.count:
        return Answer(Verdict.CHANGED, "rows added" if rows > part.count else "rows fewer", rows)
    if not rows:
        return Answer(Verdict.UNCHANGED, found=0)
    if reason := _unusable(part.fence, now):
        return Answer(Verdict.UNKNOWN, reason, rows)
    if _is_newer(row, part.fence):
        return Answer(Verdict.CHANGED, "rows newer", rows)
    if _is_newer(defined, part.fence):
        return Answer(Verdict.UNKNOWN, "the table, a partition, or a type was changed since", rows)
    return Answer(Verdict.UNCHANGED, found=rows)


def _unversioned(table: Table) -> str:
    """Return why a table's rows have no versions, whatever holds them; "" if they may have."""
    if is_query(table) or is_large_objects(table) or "view" in table.options:
        return _NO_VERSIONS
    if table.options.get("hypertable"):
        return "its storage has no row versions"
    return "masks may read more than the row, such as a function that was replaced" if table.options.get(MASKS) else ""


def _unprovable(scanner: Scanner, table: Table, defined: Mapping[str, Any]) -> str:
    """Return why the definitions of a table let no row be proved unchanged; "" if they do."""
    if defined["kind"] not in ("r", "p", "m"):
        return _NO_VERSIONS
    if not defined["heap"]:
        return "its storage has no row versions"
    if not defined["readable"]:
        return "this user may read columns of the table, but not the transactions of its rows"
    if defined["named"]:  # their text is the name of another object or role, which can be renamed
        return "a column shows names of other objects"
    if defined["kind"] == "p" and scanner.from_item(table).startswith("("):
        return "it has foreign or half detached partitions"
    return ""
