"""Reads what each object needs, from `pg_depend`: the order in which code, types, tables and views can be created.

Objects are named by a kind and a name: `function public.f(integer)`, `type public.mood`, `relation public.orders`. What
belongs to an object counts as the object: the default of a column as its table, an array as the type of its elements, a
partition as its table. What a table needs only after its rows, such as the function of a check, counts as `later …`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS

if TYPE_CHECKING:
    from snapshot_assets.databases.postgresql.session import PostgresqlSession

Needs = dict[str, set[str]]
"""What each object needs directly, by kind and name."""

LATER = "later "

FIRST_USER_OID = 16384
"""The server reserves smaller ones for its own objects."""


def user_objects(kind: str) -> str:
    """Return the condition of the objects of a kind that neither the system nor an extension made."""
    catalog = CODE_KINDS[kind].catalog
    return f"""o.oid >= {FIRST_USER_OID} AND NOT EXISTS (
        SELECT FROM pg_depend x WHERE x.classid = '{catalog}'::regclass AND x.objid = o.oid
            AND (x.deptype = 'e' OR x.deptype = 'i' AND x.refclassid <> 'pg_class'::regclass))"""


_NAMED_CODE = " UNION ALL ".join(
    f"SELECT '{kind.catalog}'::regclass::oid AS class, o.oid, '{word} ' || {kind.label} AS key"
    f" FROM {kind.source} WHERE {kind.where} AND {user_objects(word)}"
    for word, kind in CODE_KINDS.items()
    if not (kind.part or kind.relation)
)

_MEMBERS = """
    SELECT 'pg_{catalog}'::regclass::oid, m.oid, c.key FROM pg_{catalog} m
    JOIN pg_depend d ON d.classid = 'pg_{catalog}'::regclass AND d.objid = m.oid
    JOIN ({code}) c ON c.class = d.refclassid AND c.oid = d.refobjid AND d.refclassid = 'pg_opclass'::regclass
    UNION ALL
    SELECT 'pg_{catalog}'::regclass::oid, m.oid, replace(c.key, 'operator family ', 'operator family members ')
    FROM pg_{catalog} m JOIN pg_depend d ON d.classid = 'pg_{catalog}'::regclass AND d.objid = m.oid
    JOIN ({code}) c ON c.class = d.refclassid AND c.oid = d.refobjid AND d.refclassid = 'pg_opfamily'::regclass"""

_QUERY = f"""
WITH code AS MATERIALIZED ({_NAMED_CODE}), relation AS MATERIALIZED (
    SELECT c.oid, c.reltype, format('relation %s.%s', rn.nspname, r.relname) AS key
    FROM pg_class c
    JOIN pg_class r ON r.oid = CASE WHEN c.relispartition THEN pg_partition_root(c.oid) ELSE c.oid END
    JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relnamespace = ANY ({{schemas}}) AND NOT EXISTS (
        SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
), own_type AS MATERIALIZED (
    SELECT t.oid, t.typarray, t.typrelid, format('type %s.%s', n.nspname, t.typname) AS key
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE t.typnamespace = ANY ({{schemas}}) AND (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c') AND NOT EXISTS (
        SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
    UNION ALL
    SELECT t.oid, t.typarray, 0, format('type %s.%s', n.nspname, of.typname)
    FROM pg_range r JOIN pg_type t ON t.oid = r.rngmultitypid JOIN pg_type of ON of.oid = r.rngtypid
    JOIN pg_namespace n ON n.oid = of.typnamespace WHERE of.typnamespace = ANY ({{schemas}})
    UNION ALL
    SELECT t.oid, t.typarray, 0, r.key FROM relation r JOIN pg_type t ON t.oid = r.reltype
), node (class, oid, key) AS MATERIALIZED (
    SELECT class, oid, key FROM code
    UNION ALL SELECT 'pg_class'::regclass, oid, key FROM relation
    UNION ALL SELECT 'pg_type'::regclass, oid, key FROM own_type
    UNION ALL SELECT 'pg_type'::regclass, typarray, key FROM own_type WHERE typarray <> 0
    UNION ALL SELECT 'pg_class'::regclass, typrelid, key FROM own_type WHERE typrelid <> 0
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid, t.key FROM pg_constraint k JOIN own_type t ON t.oid = k.contypid
    UNION ALL SELECT d.classid, d.objid, t.key FROM pg_depend d JOIN own_type t ON t.oid = d.refobjid
        WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_type'::regclass AND d.deptype = 'i'
    UNION ALL SELECT d.classid, d.objid, r.key FROM pg_depend d JOIN relation r ON r.oid = d.refobjid
        JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    UNION ALL SELECT 'pg_attrdef'::regclass, f.oid, r.key FROM pg_attrdef f JOIN relation r ON r.oid = f.adrelid
    UNION ALL SELECT 'pg_rewrite'::regclass, w.oid, CASE w.rulename WHEN '_RETURN' THEN '' ELSE '{LATER}' END || r.key
        FROM pg_rewrite w JOIN relation r ON r.oid = w.ev_class
    UNION ALL SELECT 'pg_trigger'::regclass, g.oid, '{LATER}' || r.key
        FROM pg_trigger g JOIN relation r ON r.oid = g.tgrelid
    UNION ALL SELECT 'pg_policy'::regclass, p.oid, '{LATER}' || r.key
        FROM pg_policy p JOIN relation r ON r.oid = p.polrelid
    UNION ALL SELECT 'pg_constraint'::regclass, k.oid, '{LATER}' || r.key
        FROM pg_constraint k JOIN relation r ON r.oid = k.conrelid
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, '{LATER}' || r.key
        FROM pg_index i JOIN relation r ON r.oid = i.indrelid
    UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, '{LATER}' || r.key
        FROM pg_statistic_ext s JOIN relation r ON r.oid = s.stxrelid
    UNION ALL SELECT c.class, t.typarray, c.key FROM code c JOIN pg_type t ON t.oid = c.oid
        WHERE c.class = 'pg_type'::regclass AND t.typarray <> 0
    UNION ALL SELECT d.classid, d.objid, c.key FROM pg_depend d JOIN code c ON c.class = d.refclassid
        AND c.oid = d.refobjid WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
    -- A snapshot carries neither languages nor transforms; those of extensions are nodes already.
    UNION ALL SELECT 'pg_language'::regclass, l.oid, 'language ' || quote_ident(l.lanname)
        FROM pg_language l WHERE l.oid >= {FIRST_USER_OID} AND NOT EXISTS (
            SELECT FROM pg_depend e WHERE e.classid = 'pg_language'::regclass AND e.objid = l.oid AND e.deptype = 'e')
    UNION ALL SELECT 'pg_transform'::regclass, f.oid,
        format('transform for %s language %I', format_type(f.trftype, NULL), l.lanname)
        FROM pg_transform f JOIN pg_language l ON l.oid = f.trflang WHERE f.oid >= {FIRST_USER_OID} AND NOT EXISTS (
            SELECT FROM pg_depend e WHERE e.classid = 'pg_transform'::regclass AND e.objid = f.oid AND e.deptype = 'e')
    UNION ALL {_MEMBERS.format(catalog="amop", code="SELECT * FROM code")}
    UNION ALL {_MEMBERS.format(catalog="amproc", code="SELECT * FROM code")}
)
SELECT DISTINCT a.key AS object, b.key AS needs
FROM pg_depend d
JOIN node a ON a.class = d.classid AND a.oid = d.objid
JOIN node b ON b.class = d.refclassid AND b.oid = d.refobjid
WHERE a.key <> b.key AND d.deptype <> 'e' AND b.key NOT LIKE '{LATER}%'
    -- Before PostgreSQL 18, functions depend on every transform of their types, used by them or not.
    AND NOT (d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_transform'::regclass AND NOT EXISTS (
        SELECT FROM pg_proc p JOIN pg_transform f ON f.trftype = ANY (p.protrftypes)
        WHERE p.oid = d.objid AND f.oid = d.refobjid))
"""


def read_needs(session: PostgresqlSession, schemas: Iterable[int]) -> Needs:
    """Return what objects in schemas, given by their oids, and code without a schema need directly."""
    needs: Needs = {}
    from snapshot_assets.databases.postgresql.session import oid_array  # loads the driver, an extra

    query, doing = _QUERY.format(schemas=oid_array(schemas)), "reading what code depends on"
    for row in session.rows(query, doing, optional="what code depends on"):
        needs.setdefault(row["object"], set()).add(row["needs"])
    for key in [each for each in needs if each.startswith("base type ")]:
        shell = f"shell {key.removeprefix('base ')}"
        for function in [each for each in needs[key] if key in needs.get(each, ())]:
            needs[function] = needs[function] - {key} | {shell}
        needs[key].add(shell)
    return needs


def everything_needed(roots: Iterable[str], needs: Needs) -> set[str]:
    """Return the given objects, and all that they need directly or through others."""
    needed: set[str] = set()
    waiting = list(roots)
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting += needs.get(key, ())
    return needed
