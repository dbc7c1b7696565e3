"""Extensions that tables and views need: their types, functions, operators and access methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snapshot_assets.databases.postgresql.session import Session
from snapshot_assets.databases.postgresql.sql import oid_array

_SCHEMAS = """
SELECT e.extname::text AS name, n.nspname::text AS schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
"""

_USED = """
WITH parts (relation, class, oid) AS (
    SELECT c.oid, 'pg_class'::regclass, c.oid FROM pg_class c WHERE c.oid = ANY ({oids})
    UNION ALL
    SELECT i.indrelid, 'pg_class'::regclass, i.indexrelid FROM pg_index i WHERE i.indrelid = ANY ({oids})
    UNION ALL
    SELECT d.adrelid, 'pg_attrdef'::regclass, d.oid FROM pg_attrdef d WHERE d.adrelid = ANY ({oids})
    UNION ALL
    SELECT k.conrelid, 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE k.conrelid = ANY ({oids})
    UNION ALL
    SELECT s.stxrelid, 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s WHERE s.stxrelid = ANY ({oids})
    UNION ALL
    SELECT r.ev_class, 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r
    WHERE r.ev_class = ANY ({oids}) AND r.rulename = '_RETURN'
)
SELECT DISTINCT p.relation::int8 AS relation, e.extname::text AS name
FROM parts p
JOIN pg_depend d ON d.classid = p.class AND d.objid = p.oid
JOIN pg_depend x ON x.classid = d.refclassid AND x.objid = d.refobjid AND x.deptype = 'e'
JOIN pg_extension e ON x.refclassid = 'pg_extension'::regclass AND e.oid = x.refobjid
"""


@dataclass(frozen=True)
class Extensions:
    """Extensions of the database.

    Attributes:
        schemas: The schema of each.
        used: Names of those that a relation needs, by its oid, types apart.
    """

    schemas: Mapping[str, str]
    used: Mapping[int, frozenset[str]]


def read_extensions(session: Session, relations: Iterable[int]) -> Extensions:
    """Return which extensions relations need by their indexes, constraints, defaults, statistics and queries."""
    used: dict[int, set[str]] = {}
    for row in session.rows(_USED.format(oids=oid_array(relations)), "reading what extensions are used"):
        used.setdefault(row["relation"], set()).add(row["name"])
    schemas = {row["name"]: row["schema"] for row in session.rows(_SCHEMAS, "listing extensions")}
    return Extensions(schemas, {relation: frozenset(names) for relation, names in used.items()})
