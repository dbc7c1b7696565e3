"""Whether rows changed since an export, by their transaction ids: no value is read.

A row version has the id of the transaction that wrote it, `xmin`, which stays through VACUUM FREEZE. The export's fence
has the snapshot that it read. A set of rows is unchanged if it has as many rows as were exported, and none was written
by a transaction at or above the *xmin* of that snapshot: every transaction below it had ended, so the export saw its
rows. A transaction that ran at the time of the export is above it, so the rule names more than has changed, never less.

What a row shows also depends on definitions. If the table, one of its columns or partitions, their schema or a type was
changed after the fence, the answer is unknown; so it is if the fence is not of this database and of this history, or
the server was started since. Between two starts of a server, no file of its data was replaced by an older one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Self

from snapshot_assets.databases.postgresql.row_counts import in_sets
from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.source import Answer, ExportedRows, Verdict, by_count
from snapshot_assets.databases.selection.hidden import MASKS
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.relations import Table

_MOST_DISTANCE = 1 << 30
"""Most transactions since a fence: ids of rows have 32 bits, and only distances below 2^31 are told from others."""

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
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())::text AS database,
    pg_catalog.pg_postmaster_start_time()::text AS started
"""

# After a promotion, the control file has the new timeline only from the next checkpoint on; the file of the log has it
# at once, and a standby has no such file. The greater one is that of the present.
_HISTORY = """
SELECT s.system_identifier::text AS system_identifier, greatest(c.timeline_id, r.min_recovery_end_timeline, CASE WHEN
    NOT pg_catalog.pg_is_in_recovery() THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(
        pg_catalog.pg_current_wal_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int4 END)::text AS timeline
FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r
"""

_AGE = "CASE WHEN pg_catalog.age({0}) >= 0 THEN pg_catalog.age({0}) END"
"""The transactions since the one with an id; NULL if there were more than 2^31, as no row is from the future."""

_NEWEST = f"pg_catalog.min({_AGE.format('xmin')})"
_BASE = f"pg_catalog.age('{_FIRST_XID}'::pg_catalog.xid)"

# The types of the exported columns, with those that they consist of: an array's elements, a domain's base, and so on.
# Labels and attributes have row versions of their own, and so have the names of columns: two can be exchanged.
_DEFINITIONS = f"""
WITH RECURSIVE tree (oid) AS (
    SELECT {{table}}::pg_catalog.regclass::oid
    UNION ALL
    SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
    WHERE (SELECT c.relkind FROM pg_catalog.pg_class c WHERE c.oid = {{table}}::pg_catalog.regclass) = 'p'
), types (oid) AS (
    SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = {{table}}::pg_catalog.regclass
        AND a.attname = ANY (ARRAY[{{columns}}]::pg_catalog.name[])
    UNION
    SELECT part.oid FROM types JOIN pg_catalog.pg_type y USING (oid) CROSS JOIN LATERAL (
        VALUES (y.typelem), (y.typbasetype)
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE y.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = y.typrelid AND a.attnum > 0
    ) part (oid) WHERE part.oid <> 0
), defined (xid) AS (
    SELECT d.xmin FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
    UNION ALL
    SELECT c.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
    UNION ALL
    SELECT n.xmin FROM tree JOIN pg_catalog.pg_class c USING (oid)
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    UNION ALL
    SELECT i.xmin FROM tree JOIN pg_catalog.pg_inherits i ON i.inhrelid = tree.oid
    UNION ALL
    SELECT a.xmin FROM tree JOIN pg_catalog.pg_attribute a ON a.attrelid = tree.oid AND a.attnum > 0
    UNION ALL
    SELECT d.xmin FROM tree JOIN pg_catalog.pg_attrdef d ON d.adrelid = tree.oid
    UNION ALL
    SELECT y.xmin FROM types JOIN pg_catalog.pg_type y USING (oid)
    UNION ALL
    SELECT e.xmin FROM types JOIN pg_catalog.pg_enum e ON e.enumtypid = types.oid
    UNION ALL
    SELECT a.xmin FROM types JOIN pg_catalog.pg_type y USING (oid)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = y.typrelid AND a.attnum > 0
)
SELECT (SELECT pg_catalog.min({_AGE.format("d.xid")}) FROM defined d) AS newest, {_BASE} AS base,
    (SELECT pg_catalog.bool_and(c.relkind = 'p' OR c.relkind IN ('r', 'm') AND m.amname = 'heap')
        FROM tree JOIN pg_catalog.pg_class c USING (oid) LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam) AS heap,
    pg_catalog.has_column_privilege({{table}}::pg_catalog.regclass, 'xmin', 'SELECT') AS readable,
    EXISTS (SELECT FROM types JOIN pg_catalog.pg_type y USING (oid) WHERE y.typname ~ '^(reg|aclitem$)'
        AND y.typnamespace = 'pg_catalog'::pg_catalog.regnamespace) AS named
"""


def read_fence(session: PostgresqlSession) -> dict[str, str]:
    """Return the state that a connection reads, with the history that its transaction ids and log positions belong to.

    `system_identifier` and `timeline` are lacking where this user may not read them, so that changes are unknown.
    """
    [state] = session.rows(_STATE, "reading the snapshot")
    [row] = session.rows(_ALLOWED, "reading the rights to the control file")
    history = session.rows(_HISTORY, "reading the history of the cluster")[0] if row["allowed"] else {}
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
        # Its files may have been replaced by older ones, such as those of a copied disk, on the same timeline.
        "started": "the start of the server",
    }
    for name, text in names.items():
        if name not in now:
            return _Cut(0, "this user may not read the identity of the cluster (pg_control_system)")
        if name not in fence:
            return _Cut(0, f"the export did not record {text}")
        if fence[name] != now[name]:
            return _Cut(0, f"{text} is another one")
    then, present = _Snapshot.parse(snapshot), _Snapshot.parse(now["snapshot"])
    if not then.precedes(present) or _position(now["lsn"]) < _position(fence["lsn"]):
        return _Cut(0, "the export read a later state than the present one")
    if present.xmax - then.xmin >= _MOST_DISTANCE:
        return _Cut(0, "more than 2^30 transactions ran since the export")
    return _Cut(then.xmin % (1 << 32))


def _position(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def changes_since(scanner: Scanner, parts: Sequence[ExportedRows]) -> list[Answer]:
    """Tell which sets of rows changed since they were exported; see `Database.changes_since`."""
    now = read_fence(scanner.session)
    answers: dict[int, Answer] = {}
    order = sorted(range(len(parts)), key=lambda number: parts[number].table.table_name)
    for _, numbers in groupby(order, key=lambda number: parts[number].table.table_name):
        chosen = list(numbers)
        answers |= zip(chosen, _of_table(scanner, now, [parts[number] for number in chosen]), strict=True)
    return [answers[number] for number in range(len(parts))]


def _of_table(scanner: Scanner, now: Mapping[str, str], parts: Sequence[ExportedRows]) -> list[Answer]:
    table = parts[0].table
    if reason := _unversioned(scanner, table):
        return [Answer(Verdict.UNKNOWN, reason, lasting=True)] * len(parts)
    defined = _read_definitions(scanner, table)
    if reason := _unprovable(defined):
        return [Answer(Verdict.UNKNOWN, reason, lasting=True)] * len(parts)
    values = {"rows": "pg_catalog.count(*)", "newest": _NEWEST}
    found = in_sets(scanner, table, [part.rows for part in parts], values | {"base": f"pg_catalog.min({_BASE})"})
    scanner.check_partitions(table)
    answers = []
    for part, row in zip(parts, found, strict=True):
        cut, rows = _cut(part.fence, now), row.get("rows") or 0
        answer = by_count(part, rows)
        if answer is None and cut.unusable:
            answer = Answer(Verdict.UNKNOWN, cut.unusable, rows)
        elif answer is None and cut.precedes(row["newest"], row["base"]):
            answer = Answer(Verdict.CHANGED, "rows newer", rows)
        elif answer is None and cut.precedes(defined["newest"], defined["base"]):
            answer = Answer(Verdict.UNKNOWN, "the table, a partition, or a type was changed since", rows)
        answers.append(answer or Answer(Verdict.UNCHANGED, found=rows))
    return answers


def _read_definitions(scanner: Scanner, table: Table) -> dict[str, Any]:
    name, columns = literal(qualified(table.table_name)), ", ".join(literal(each.name) for each in table.columns)
    query = _DEFINITIONS.format(table=name, columns=columns)
    [row] = scanner.session.rows(query, f"reading what defines {table.table_name}")
    return row


def _unprovable(defined: Mapping[str, Any]) -> str:
    """Return why the definitions of a table let no row be proved unchanged; "" if they do."""
    if not defined["heap"]:
        return "its storage has no row versions"
    if not defined["readable"]:
        return "this user may read columns of the table, but not the transactions of its rows"
    # Their text is the name of another object or role, which can be renamed.
    return "a column shows names of other objects" if defined["named"] else ""


def _unversioned(scanner: Scanner, table: Table) -> str:
    """Return why a table's rows have no versions here; "" if they have."""
    if is_query(table) or not scanner.is_stored(table):
        return "the rows of views, queries, foreign tables and large objects have no versions"
    if table.options.get("hypertable"):
        return "its storage has no row versions"
    if table.options.get(MASKS):
        return "masks may read more than the row, such as a function that was replaced"
    return "it has foreign or half detached partitions" if scanner.from_item(table).startswith("(") else ""
