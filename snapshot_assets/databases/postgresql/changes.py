"""Whether rows changed since an export, by their transaction ids: no value is read.

A row version has the id of the transaction that wrote it, `xmin`, which stays through VACUUM FREEZE. The export's fence
has the snapshot that it read. A set of rows is unchanged if it has as many rows as were exported, and none was written
by a transaction at or above the *xmin* of that snapshot: every transaction below it had ended, so the export saw its
rows. A transaction that ran at the time of the export is above it, so the rule names more than has changed, never less.

What a row shows also depends on definitions. If the table, one of its partitions, their schema or a label of an enum
was changed after the fence, the answer is unknown; so it is if the fence is not of this database and of this history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.large_objects import is_large_objects
from snapshot_assets.databases.postgresql.row_counts import in_sets
from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.source import AllRows, Answer, ExportedRows, Verdict, by_count
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted

_TOGETHER = 50
"""Most tables that one statement reads: a server locks each, with its indexes."""

_NO_VERSIONS = "the rows of views, queries, foreign tables and large objects have no versions"

_MOST_DISTANCE = (1 << 31) - (1 << 20)
"""Most transactions since a fence: ids of rows have 32 bits, and are compared by their distance from the present."""

_FIRST_XID = 3
"""The first id of an ordinary transaction."""

_ALLOWED = """
SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
    AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE')
    AND pg_catalog.has_function_privilege('pg_catalog.pg_control_recovery()', 'EXECUTE') AS allowed
"""

_STATE = """
SELECT pg_catalog.pg_current_snapshot()::text AS snapshot, (CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END)::text AS lsn,
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())::text AS database
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

# A column of a type that others defined: its labels or attributes have row versions of their own.
_DEFINITIONS = f"""
WITH RECURSIVE tree (root, oid) AS (
    SELECT r.oid, r.oid FROM pg_catalog.unnest(ARRAY[{{tables}}]::pg_catalog.regclass[]::pg_catalog.oid[]) r (oid)
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.root AND c.relkind = 'p'
        JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
), defined (root, xid) AS (
    SELECT root, c.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
    UNION ALL
    SELECT root, n.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    UNION ALL
    SELECT root, i.xmin FROM tree JOIN pg_catalog.pg_inherits i ON i.inhrelid = tree.oid
    UNION ALL
    SELECT root, d.xmin FROM tree JOIN pg_catalog.pg_attrdef d ON d.adrelid = tree.oid
    UNION ALL
    SELECT root, own.xid FROM (
        SELECT e.xmin FROM pg_catalog.pg_enum e
        UNION ALL SELECT a.xmin FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
            WHERE c.relkind = 'c'
    ) own (xid) JOIN tree ON tree.root = tree.oid WHERE EXISTS (
        SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
        WHERE a.attrelid = tree.oid AND a.attnum > 0 AND y.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace)
), newest (root, age) AS (SELECT root, pg_catalog.min({_AGE.format("xid")}) FROM defined GROUP BY root)
SELECT (SELECT c.relkind FROM pg_catalog.pg_class c WHERE c.oid = root)::text AS kind, newest.age AS newest,
    {_BASE} AS base, (
        SELECT pg_catalog.bool_and(c.relkind = 'p' OR c.relkind IN ('r', 'm') AND m.amname = 'heap')
        FROM tree JOIN pg_catalog.pg_class c USING (oid) LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
        WHERE tree.root = newest.root) AS heap
FROM newest JOIN pg_catalog.unnest(ARRAY[{{tables}}]::pg_catalog.regclass[]::pg_catalog.oid[])
    WITH ORDINALITY r (root, number) USING (root) ORDER BY r.number
"""

_VALUES = {"rows": "pg_catalog.count(*)", "newest": _NEWEST, "base": f"pg_catalog.min((SELECT {_BASE}))"}
"""What is asked of each set of rows: how many there are, and the age of the newest; the base is computed once."""


def read_fence(session: PostgresqlSession) -> dict[str, str]:
    """Return the state that a connection reads, with the history that its transaction ids and log positions belong to.

    `system_identifier` and `timeline` are lacking where this user may not read them, so that changes are unknown.
    """
    [state] = session.rows(_STATE, "reading the snapshot")
    [row] = session.rows(_ALLOWED, "reading the rights to the control file")
    history = session.rows(_HISTORY, "reading the history of the cluster")[0] if row["allowed"] else {}
    return dict(state) | dict(history)


@dataclass(frozen=True)
class _Cut:
    """The first transaction whose rows an export may not have seen, by its 32 bits.

    Attributes:
        unusable: Why the fence proves nothing here; "" if it does.
    """

    xid: int
    unusable: str = ""

    def precedes(self, newest: int | None, base: int) -> bool:
        """Return whether a transaction at or above the cut wrote rows, by the ages of the newest and the first id."""
        age = (base + _FIRST_XID - self.xid) % (1 << 32)
        return newest is not None and newest <= age


def _cut(fence: Mapping[str, str], now: Mapping[str, str]) -> _Cut:
    """Return the cut of an export's fence, seen from the present state."""
    snapshot = fence.get("snapshot", "")
    if not snapshot:
        return _Cut(0, "the export recorded no state of the database")
    names = {
        "system_identifier": "the cluster",
        "timeline": "the timeline of the cluster",
        "database": "the database",
    }
    for name, text in names.items():
        if name not in now:
            return _Cut(0, "this user may not read the identity of the cluster (pg_control_system)")
        if name not in fence:
            return _Cut(0, f"the export did not record {text}")
        if fence[name] != now[name]:
            return _Cut(0, f"{text} is another one")
    xmin, present = (int(text.split(":")[index]) for text, index in ((snapshot, 0), (now["snapshot"], 1)))
    if present < xmin or _position(now["lsn"]) < _position(fence["lsn"]):
        return _Cut(0, "the export read a later state than the present one")
    if present - xmin >= _MOST_DISTANCE:
        return _Cut(0, "more than 2^31 transactions ran since the export")
    return _Cut(xmin % (1 << 32))


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
    answers: dict[int, Answer] = {}
    named = [name for name, table in tables.items() if not _unversioned(table)]
    for first in range(0, len(named), _TOGETHER):
        group = named[first : first + _TOGETHER]
        defined = _definitions(scanner, group)
        whole = [name for name in group if defined[name]["kind"] == "r" and _is_whole(sets[name].values())]
        found = {name: [row] for name, row in zip(whole, _of_whole_tables(scanner, whole), strict=True)}
        for name in group:
            asked = list(sets[name].values())
            if reason := _unknown_storage(scanner, tables[name], defined[name], whole):
                own = [Answer(Verdict.UNKNOWN, reason, lasting=True)] * len(asked)
            else:
                rows = found.get(name) or in_sets(scanner, tables[name], [part.rows for part in asked], _VALUES)
                own = [_answer(part, row, defined[name], now) for part, row in zip(asked, rows, strict=True)]
            answers |= zip(sets[name], own, strict=True)
    for name, table in tables.items():
        if reason := _unversioned(table):
            answers |= dict.fromkeys(sets[name], Answer(Verdict.UNKNOWN, reason, lasting=True))
    return [answers[number] for number in range(len(parts))]


def _is_whole(parts: Collection[ExportedRows]) -> bool:
    return all(part.rows == AllRows() for part in parts)


def _definitions(scanner: Scanner, names: Sequence[TableName]) -> dict[TableName, Mapping[str, Any]]:
    """Return the kind of each table, and the age of the newest change to what defines it."""
    texts = ", ".join(literal(qualified(name)) for name in names)
    doing = f"reading what defines {counted(len(names), 'table')}"
    return dict(zip(names, scanner.session.rows(_DEFINITIONS.format(tables=texts), doing), strict=True))


def _of_whole_tables(scanner: Scanner, names: Sequence[TableName]) -> list[dict[str, Any]]:
    """Return the values of ordinary tables, by one statement."""
    if not names:
        return []
    queries = (
        f"SELECT {', '.join(f'{sql} AS {name}{n}' for name, sql in _VALUES.items())} FROM ONLY {qualified(table)}"
        for n, table in enumerate(names)
    )
    items = ", ".join(f"({query}) AS t{n}" for n, query in enumerate(queries))
    doing = f"looking for changes in {counted(len(names), 'table')}"
    [row] = scanner.session.rows(f"SELECT * FROM {items}", doing)
    return [{name: row[f"{name}{n}"] for name in _VALUES} for n in range(len(names))]


def _answer(part: ExportedRows, row: Mapping[str, Any], defined: Mapping[str, Any], now: Mapping[str, str]) -> Answer:
    cut, rows = _cut(part.fence, now), row.get("rows") or 0
    if answer := by_count(part, rows):
        return answer
    if cut.unusable:
        return Answer(Verdict.UNKNOWN, cut.unusable, rows)
    if cut.precedes(row["newest"], row["base"]):
        return Answer(Verdict.CHANGED, "rows newer", rows)
    if cut.precedes(defined["newest"], defined["base"]):
        return Answer(Verdict.UNKNOWN, "the table, a partition, or a type was changed since", rows)
    return Answer(Verdict.UNCHANGED, found=rows)


def _unversioned(table: Table) -> str:
    """Return why a table's rows have no versions, whatever holds them; "" if they may have."""
    if is_query(table) or is_large_objects(table) or "view" in table.options:
        return _NO_VERSIONS
    if table.options.get("hypertable"):
        return "its storage has no row versions"
    # Their text is the name of another object, which can be renamed.
    named = [column.name for column in table.columns if column.type.removesuffix("[]").startswith("reg")]
    return f"column {named[0]} shows names of other objects" if named else ""


def _unknown_storage(scanner: Scanner, table: Table, defined: Mapping[str, Any], whole: Collection[TableName]) -> str:
    """Return why the rows of a relation have no versions; "" if they have."""
    if defined["kind"] not in ("r", "p", "m"):
        return _NO_VERSIONS
    if not defined["heap"]:
        return "its storage has no row versions"
    if table.table_name not in whole and scanner.from_item(table).startswith("("):
        return "it has foreign or half detached partitions"
    return ""
