"""Views: their queries, and what must exist before them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapshot_assets.databases.postgresql.session import Session
from snapshot_assets.databases.postgresql.sql import oid_array

_QUERY = """
SELECT c.oid::int8 AS relation, pg_get_viewdef(c.oid) AS definition,
    ARRAY(
        SELECT DISTINCT d.refobjid::int8 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        JOIN pg_class u ON u.oid = d.refobjid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid <> c.oid AND u.relkind IN ('r', 'p', 'v', 'm', 'f')) AS depends_on,
    ARRAY(
        SELECT DISTINCT d.refobjid::int8 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass
            AND d.refclassid = 'pg_type'::regclass) AS types,
    ARRAY(
        SELECT DISTINCT d.refobjid::regprocedure::text FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid
        WHERE r.ev_class = c.oid AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_proc'::regclass
        ORDER BY 1) AS functions
FROM pg_class c WHERE c.oid = ANY ({oids})
"""


def read_views(session: Session, relations: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return, by relation, the query of a view, the oids of relations and types in it, and the functions it calls."""
    rows = session.rows(_QUERY.format(oids=oid_array(relations)), "reading views")
    return {row["relation"]: row for row in rows}
