"""Writes the statements that create objects which a snapshot does not contain, for people to run before an import.

They are those that `--with-code` runs, and here are those of the kinds that are not code. Kinds that are missing here
have no statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS
from snapshot_assets.databases.postgresql.code.statements import STATEMENTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array

# A target may lack one of the system too. A column that only some versions have is read through JSON.
_COLLATIONS = """
SELECT l.oid::int8 AS oid, l.collnamespace::int8 AS schema, ARRAY[format(
    'CREATE COLLATION %I.%I (%s)', n.nspname, l.collname, concat_ws(', ',
        'provider = ' || CASE l.collprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END,
        'locale = ' || quote_literal(v.locale),
        CASE WHEN v.locale IS NULL THEN 'lc_collate = ' || quote_literal(v.row ->> 'collcollate') END,
        CASE WHEN v.locale IS NULL THEN 'lc_ctype = ' || quote_literal(v.row ->> 'collctype') END,
        'rules = ' || quote_literal(v.row ->> 'collicurules'),
        CASE WHEN NOT l.collisdeterministic THEN 'deterministic = false' END))] AS sql
FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace
CROSS JOIN LATERAL (SELECT to_jsonb(l) AS row, coalesce(
    to_jsonb(l) ->> 'colllocale', to_jsonb(l) ->> 'colliculocale',
    CASE WHEN l.collprovider = 'i' THEN to_jsonb(l) ->> 'collcollate' END) AS locale) v
WHERE l.oid = ANY ({oids})
"""

_ACCESS_METHODS = """
SELECT a.oid::int8 AS oid, NULL::int8 AS schema, ARRAY[format('CREATE ACCESS METHOD %I TYPE %s HANDLER %s', a.amname,
    CASE a.amtype WHEN 't' THEN 'TABLE' ELSE 'INDEX' END, a.amhandler)] AS sql
FROM pg_am a WHERE a.oid = ANY ({oids})
"""

# A class that is created without its family would have one of its own.
_OWN_FAMILY = """ARRAY(
    SELECT format('CREATE OPERATOR FAMILY %I.%I USING %I', fn.nspname, f.opfname, fa.amname)
    FROM pg_opfamily f JOIN pg_namespace fn ON fn.oid = f.opfnamespace JOIN pg_am fa ON fa.oid = f.opfmethod
    WHERE f.oid = o.opcfamily AND f.oid >= 16384)"""

# The functions of a base type need the type, and it needs them: first comes an empty type of that name.
_SHELL_AND_FUNCTIONS = """format('CREATE TYPE %I.%I', n.nspname, o.typname)
    || ARRAY(SELECT pg_get_functiondef(f.id) FROM unnest(ARRAY[o.typinput::oid, o.typoutput::oid, o.typreceive::oid,
            o.typsend::oid, o.typmodin::oid, o.typmodout::oid, o.typanalyze::oid]) WITH ORDINALITY f (id, place)
        WHERE f.id >= 16384 ORDER BY f.place)"""

_OTHER_TYPES = """
SELECT t.oid::int8 AS oid, t.typnamespace::int8 AS schema, ARRAY[format('CREATE %s %I.%I AS %s',
    CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, n.nspname, t.typname, CASE t.typtype
        WHEN 'e' THEN (SELECT format('ENUM (%s)', string_agg(quote_literal(l.enumlabel), ', ' ORDER BY l.enumsortorder))
            FROM pg_enum l WHERE l.enumtypid = t.oid)
        WHEN 'c' THEN (SELECT format('(%s)', string_agg(format('%I %s', a.attname,
            format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum))
            FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
        WHEN 'r' THEN (SELECT format('RANGE (SUBTYPE = %s)', format_type(r.rngsubtype, NULL))
            FROM pg_range r WHERE r.rngtypid = t.oid)
        ELSE concat_ws(' ', format_type(t.typbasetype, t.typtypmod),
            'DEFAULT ' || pg_get_expr(t.typdefaultbin, 0), CASE WHEN t.typnotnull THEN 'NOT NULL' END,
            (SELECT string_agg(format('CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), ' '
                ORDER BY k.conname)
             FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c')) END)] AS sql
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE t.oid = ANY ({oids}) AND (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c')
"""

_CONFIGURATIONS = """
SELECT g.oid::int8 AS oid, g.cfgnamespace::int8 AS schema,
    format('CREATE TEXT SEARCH CONFIGURATION %s (PARSER = %I.%I)', g.oid::regconfig, pn.nspname, p.prsname)
    || ARRAY(SELECT format('ALTER TEXT SEARCH CONFIGURATION %s ADD MAPPING FOR %I WITH %s', g.oid::regconfig, k.alias,
            string_agg(m.mapdict::regdictionary::text, ', ' ORDER BY m.mapseqno))
        FROM pg_ts_config_map m JOIN LATERAL ts_token_type(g.cfgparser) k ON k.tokid = m.maptokentype
        WHERE m.mapcfg = g.oid GROUP BY k.tokid, k.alias ORDER BY k.tokid) AS sql
FROM pg_ts_config g JOIN pg_ts_parser p ON p.oid = g.cfgparser JOIN pg_namespace pn ON pn.oid = p.prsnamespace
WHERE g.oid = ANY ({oids})
"""


def _as_code(word: str, first: str = "ARRAY[]::text[]") -> str:
    """Return the query for objects of a kind of code, with the statement that `--with-code` runs after `first` ones."""
    kind = CODE_KINDS[word]
    return (
        f"SELECT o.oid::int8 AS oid, {kind.namespace}::int8 AS schema, {first} || {STATEMENTS[word]} AS sql"
        f" FROM {kind.source} WHERE o.oid = ANY ({{oids}}) AND {kind.where}"
    )


_QUERIES = {
    ("function", "procedure"): (_as_code("function"), _as_code("procedure")),
    ("aggregate",): (_as_code("aggregate"),),
    ("operator",): (_as_code("operator"),),
    ("collation",): (_COLLATIONS,),
    ("access method",): (_ACCESS_METHODS,),
    ("operator class",): (_as_code("operator class", _OWN_FAMILY),),
    ("type",): (_as_code("base type", _SHELL_AND_FUNCTIONS), _OTHER_TYPES),
    ("text search configuration",): (_CONFIGURATIONS,),
    ("text search dictionary",): (_as_code("text search dictionary"),),
    ("extension",): (_as_code("extension"),),
}

# The target has these schemas, or the import's user cannot create them.
_SCHEMAS = """
SELECT n.oid::int8 AS oid, format('CREATE SCHEMA IF NOT EXISTS %I', n.nspname) AS sql FROM pg_namespace n
WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('public', 'information_schema')
"""


def read_definitions(
    session: PostgresqlSession, objects: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[str]]:
    """Return the statements that create objects, by kind and oid; nothing for those that have none."""
    statements: dict[tuple[str, int], list[str]] = {}
    schemas = {row["oid"]: row["sql"] for row in session.rows(_SCHEMAS, "listing schemas")}
    for kinds, queries in _QUERIES.items():
        kind_of = {oid: kind for kind, oid in objects if kind in kinds}
        for query in queries if kind_of else ():
            for row in session.rows(query.format(oids=oid_array(kind_of)), f"reading {kinds[0]}s"):
                schema = schemas.get(row["schema"])
                own = [text.rstrip() for text in row["sql"]]
                statements[kind_of[row["oid"]], row["oid"]] = [schema, *own] if schema else own
    return statements
