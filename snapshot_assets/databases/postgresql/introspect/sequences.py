"""Reads the sequences that columns own or draw their default from, those that no column uses, and their last values.

If rights are missing, the error has the statements that give them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.relations import Sequence, TableName

_RIGHTS = """
SELECT quote_ident(current_user) AS role,
    ARRAY(SELECT n.nspname::text FROM pg_namespace n WHERE NOT has_schema_privilege(n.oid, 'USAGE')) AS closed,
    ARRAY(SELECT quote_ident(u.name) FROM unnest(ARRAY[{names}]::text[]) WITH ORDINALITY AS u (name, number)
        ORDER BY u.number) AS quoted
"""


def grants(session: PostgresqlSession, denied: Mapping[TableName, Collection[str]]) -> str:
    """Return the statements that let this user read what is denied: `SELECT`, and `USAGE` of schemas where it lacks.

    Args:
        session: A session of the user.
        denied: The columns to read, by table or sequence; none for all of them.
    """
    names = sorted({part for name, columns in denied.items() for part in (*name, *columns)})
    (rights,) = session.rows(_RIGHTS.format(names=", ".join(map(literal, names))), "reading the rights of this user")
    quoted = dict(zip(names, rights["quoted"], strict=True))
    closed = sorted({name.schema for name in denied} & set(rights["closed"]))
    whole = [".".join(quoted[part] for part in name) for name, columns in denied.items() if not columns]
    granted = [f"USAGE ON SCHEMA {', '.join(quoted[schema] for schema in closed)}"] if closed else []
    granted += [f"SELECT ON {', '.join(whole)}"] if whole else []
    granted += [
        f"SELECT ({', '.join(quoted[column] for column in columns)}) ON {'.'.join(quoted[part] for part in name)}"
        for name, columns in denied.items()
        if columns
    ]
    return " ".join(f"GRANT {each} TO {rights['role']};" for each in granted)


_PROPERTIES = """
    n.nspname::text AS schema, c.relname::text AS name, format_type(s.seqtypid, NULL) AS type, s.seqstart AS start,
    s.seqincrement AS increment, s.seqmin AS minimum, s.seqmax AS maximum, s.seqcache AS cache, s.seqcycle AS cycle,
    c.relpersistence = 'u' AS unlogged, obj_description(c.oid, 'pg_class') AS comment,
    has_schema_privilege(n.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT') AS readable"""

_USED = f"""
WITH every AS (
    SELECT d.objid AS sequence, d.refobjid AS relation, d.refobjsubid AS number, true AS owned,
        d.deptype = 'i' AS internal
    FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
        AND d.deptype IN ('a', 'i') AND d.refobjid = ANY ({{oids}})
    UNION ALL
    SELECT d.refobjid, f.adrelid, f.adnum, false, false FROM pg_attrdef f JOIN pg_depend d ON d.objid = f.oid
    WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND f.adrelid = ANY ({{oids}})
), used AS (
    SELECT e.relation, e.sequence, e.number, bool_or(e.owned) AS owned, bool_or(e.internal) AS internal
    FROM every e GROUP BY e.relation, e.sequence, e.number
)
SELECT u.relation::int8 AS relation, a.attname::text AS column, u.owned, u.internal, {_PROPERTIES}
FROM used u
JOIN pg_sequence s ON s.seqrelid = u.sequence
JOIN pg_class c ON c.oid = u.sequence
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = u.relation AND a.attnum = u.number
ORDER BY u.relation, a.attnum, n.nspname, c.relname
"""

_LOOSE = f"""
SELECT {_PROPERTIES}
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.oid = ANY ({{schemas}}) AND c.relpersistence <> 't' AND NOT EXISTS (
    SELECT FROM pg_depend d LEFT JOIN pg_class t ON t.oid = d.refobjid AND t.relkind IN ('r', 'p')
    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND (d.deptype = 'e' OR t.oid IS NOT NULL
        AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i'))
    UNION ALL SELECT FROM pg_depend d JOIN pg_attrdef f ON f.oid = d.objid
    JOIN pg_class t ON t.oid = f.adrelid AND t.relkind IN ('r', 'p')
    WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid)
ORDER BY n.nspname, c.relname
"""


@dataclass(frozen=True)
class SourceSequence:
    """A sequence of the source, as one column uses it, or none.

    Attributes:
        internal: Whether PostgreSQL created it for an identity column.
        readable: Whether this user may read it.
        next: The value that it returns next, if that is neither its start nor one after its last value.
    """

    document: Sequence
    comment: str | None
    unlogged: bool
    internal: bool = False
    readable: bool = True
    next: int | None = None


def read_sequences(session: PostgresqlSession, relations: Iterable[int]) -> dict[int, list[SourceSequence]]:
    """Return sequences by relation; those not readable lack their last value."""
    rows = session.rows(_USED.format(oids=oid_array(relations)), "reading sequences")
    sequences: dict[int, list[SourceSequence]] = {}
    for relation, sequence in zip([row.pop("relation") for row in rows], _with_values(session, rows), strict=True):
        sequences.setdefault(relation, []).append(sequence)
    return sequences


def read_loose_sequences(session: PostgresqlSession, schemas: Iterable[int]) -> list[SourceSequence]:
    """Return the sequences of schemas that no column owns or draws from; those not readable lack their last value."""
    return _with_values(session, session.rows(_LOOSE.format(schemas=oid_array(schemas)), "reading sequences"))


def recorded_identity_sequences(sequences: Iterable[SourceSequence]) -> dict[str, list[str]]:
    """Return schema and name of each identity column's sequence; only for columns that own several sequences."""
    owned = [each for each in sequences if each.document.owned]
    columns = Counter(each.document.column for each in owned)
    return {
        str(each.document.column): [each.document.schema_name, each.document.name]
        for each in owned
        if each.internal and columns[each.document.column] > 1
    }


def recorded_states(sequences: Collection[SourceSequence], *, unlogged: bool) -> dict[str, dict[str, Any]]:
    """Return options: sequences that are `logged` or `unlogged` unlike usual, and the next values of restarted ones.

    Args:
        sequences: Sequences that one relation uses.
        unlogged: Whether the relation is unlogged, and so are usually the sequences that it owns.
    """
    return {
        "sequence_persistence": {
            each.document.table_name.dotted: "unlogged" if each.unlogged else "logged"
            for each in sequences
            if each.unlogged != (unlogged and each.document.owned)
        },
        "sequence_restarts": {
            each.document.table_name.dotted: each.next for each in sequences if each.next is not None
        },
    }


def _with_values(session: PostgresqlSession, rows: list[dict[str, Any]]) -> list[SourceSequence]:
    """Return sequences with their last value: after a RESTART, the value before the next one."""
    names = sorted({TableName(row["schema"], row["name"]) for row in rows if row["readable"]})
    parts = (f"SELECT {n} AS number, last_value, is_called FROM {qualified(name)}" for n, name in enumerate(names))
    read = session.rows(" UNION ALL ".join(parts), "reading where sequences stand") if names else []
    stands = {names[row["number"]]: (row["last_value"], row["is_called"]) for row in read}
    sequences = []
    for row in rows:
        other = {name: row.pop(name) for name in ("comment", "unlogged", "internal", "readable") if name in row}
        value, called = stands.get(TableName(row["schema"], row["name"]), (None, False))
        last, following = value, None
        if value is not None and not called:
            before = value - row["increment"]
            restarted = value != row["start"]
            last = before if restarted and row["minimum"] <= before <= row["maximum"] else None
            following = value if restarted and last is None else None
        sequences.append(SourceSequence(Sequence(**row, last_value=last), next=following, **other))
    return sequences
