"""Writes the statements that create objects which a snapshot does not contain, for people to run before an import.

The server prints functions itself. The other statements are built from the system catalogs, as pg_dump does. Kinds
that are missing here, such as aggregates, have no statement.
"""

from __future__ import annotations

from collections.abc import Collection

from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array

# A column that only some versions of the server have is read through JSON.
_FUNCTIONS = """
SELECT p.oid::int8 AS oid, ARRAY[pg_get_functiondef(p.oid)] AS sql, p.pronamespace::int8 AS schema
FROM pg_proc p WHERE p.oid = ANY ({oids}) AND p.prokind IN ('f', 'p', 'w')
"""

_OPERATORS = """
SELECT o.oid::int8 AS oid, o.oprnamespace::int8 AS schema, ARRAY[format(
    'CREATE OPERATOR %I.%s (%s)', n.nspname, o.oprname, concat_ws(', ', 'FUNCTION = ' || o.oprcode::text,
        'LEFTARG = ' || format_type(nullif(o.oprleft, 0), NULL),
        'RIGHTARG = ' || format_type(nullif(o.oprright, 0), NULL),
        (SELECT format('COMMUTATOR = OPERATOR(%I.%s)', xn.nspname, x.oprname) FROM pg_operator x
            JOIN pg_namespace xn ON xn.oid = x.oprnamespace WHERE x.oid = o.oprcom),
        (SELECT format('NEGATOR = OPERATOR(%I.%s)', xn.nspname, x.oprname) FROM pg_operator x
            JOIN pg_namespace xn ON xn.oid = x.oprnamespace WHERE x.oid = o.oprnegate),
        'RESTRICT = ' || nullif(o.oprrest::oid, 0)::regproc::text,
        'JOIN = ' || nullif(o.oprjoin::oid, 0)::regproc::text,
        CASE WHEN o.oprcanhash THEN 'HASHES' END, CASE WHEN o.oprcanmerge THEN 'MERGES' END))] AS sql
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE o.oid = ANY ({oids})
"""

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

_MEMBER = """EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = '{catalog}'::regclass AND d.objid = m.oid
        AND d.refclassid = 'pg_opclass'::regclass AND d.refobjid = c.oid)"""

_OPERATOR_CLASSES = f"""
SELECT c.oid::int8 AS oid, c.opcnamespace::int8 AS schema,
    ARRAY[format('CREATE OPERATOR CLASS %I.%I %sFOR TYPE %s USING %I AS %s', n.nspname, c.opcname,
        CASE WHEN c.opcdefault THEN 'DEFAULT ' ELSE '' END, format_type(c.opcintype, NULL), a.amname, concat_ws(', ',
            (SELECT string_agg(format('OPERATOR %s %s', m.amopstrategy, m.amopopr::regoperator), ', '
                ORDER BY m.amopstrategy, m.amoplefttype, m.amoprighttype)
             FROM pg_amop m WHERE {_MEMBER.format(catalog="pg_amop")}),
            (SELECT string_agg(format('FUNCTION %s (%s, %s) %s', m.amprocnum, format_type(m.amproclefttype, NULL),
                format_type(m.amprocrighttype, NULL), m.amproc::regprocedure), ', '
                ORDER BY m.amprocnum, m.amproclefttype, m.amprocrighttype)
             FROM pg_amproc m WHERE {_MEMBER.format(catalog="pg_amproc")}),
            'STORAGE ' || format_type(nullif(c.opckeytype, 0), NULL)))] AS sql
FROM pg_opclass c JOIN pg_namespace n ON n.oid = c.opcnamespace JOIN pg_am a ON a.oid = c.opcmethod
WHERE c.oid = ANY ({{oids}})
"""

# The functions of a base type need the type, and it needs them: first comes an empty type of that name.
_BASE_TYPES = """
SELECT t.oid::int8 AS oid, t.typnamespace::int8 AS schema, format('CREATE TYPE %I.%I', n.nspname, t.typname)
    || ARRAY(SELECT pg_get_functiondef(f.id) FROM unnest(ARRAY[t.typinput::oid, t.typoutput::oid, t.typreceive::oid,
            t.typsend::oid, t.typmodin::oid, t.typmodout::oid, t.typanalyze::oid]) WITH ORDINALITY f (id, place)
        WHERE f.id >= 16384 ORDER BY f.place)
    || format('CREATE TYPE %I.%I (%s)', n.nspname, t.typname, concat_ws(', ',
        'INPUT = ' || t.typinput::text, 'OUTPUT = ' || t.typoutput::text,
        'RECEIVE = ' || nullif(t.typreceive::oid, 0)::regproc::text,
        'SEND = ' || nullif(t.typsend::oid, 0)::regproc::text,
        'TYPMOD_IN = ' || nullif(t.typmodin::oid, 0)::regproc::text,
        'TYPMOD_OUT = ' || nullif(t.typmodout::oid, 0)::regproc::text,
        'ANALYZE = ' || nullif(t.typanalyze::oid, 0)::regproc::text,
        'INTERNALLENGTH = ' || CASE WHEN t.typlen = -1 THEN 'VARIABLE' ELSE t.typlen::text END,
        CASE WHEN t.typbyval THEN 'PASSEDBYVALUE' END,
        'ALIGNMENT = ' || CASE t.typalign WHEN 'c' THEN 'char' WHEN 's' THEN 'int2' WHEN 'i' THEN 'int4'
            ELSE 'double' END,
        'STORAGE = ' || CASE t.typstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main'
            ELSE 'extended' END,
        'CATEGORY = ' || quote_literal(t.typcategory::text), CASE WHEN t.typispreferred THEN 'PREFERRED = true' END,
        'DEFAULT = ' || quote_literal(t.typdefault), 'ELEMENT = ' || format_type(nullif(t.typelem, 0), NULL),
        'DELIMITER = ' || quote_literal(nullif(t.typdelim::text, ',')),
        CASE WHEN t.typcollation <> 0 THEN 'COLLATABLE = true' END)) AS sql
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY ({oids}) AND t.typtype = 'b'
"""

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

_DICTIONARIES = """
SELECT i.oid::int8 AS oid, i.dictnamespace::int8 AS schema, ARRAY[format('CREATE TEXT SEARCH DICTIONARY %s (%s)',
    i.oid::regdictionary, concat_ws(', ', format('TEMPLATE = %I.%I', tn.nspname, t.tmplname), i.dictinitoption))] AS sql
FROM pg_ts_dict i JOIN pg_ts_template t ON t.oid = i.dicttemplate JOIN pg_namespace tn ON tn.oid = t.tmplnamespace
WHERE i.oid = ANY ({oids})
"""

_EXTENSIONS = """
SELECT e.oid::int8 AS oid, e.extnamespace::int8 AS schema,
    ARRAY[format('CREATE EXTENSION IF NOT EXISTS %I SCHEMA %I', e.extname, n.nspname)] AS sql
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.oid = ANY ({oids})
"""

_QUERIES = {
    ("function", "procedure"): (_FUNCTIONS,),
    ("operator",): (_OPERATORS,),
    ("collation",): (_COLLATIONS,),
    ("access method",): (_ACCESS_METHODS,),
    ("operator class",): (_OPERATOR_CLASSES,),
    ("type",): (_BASE_TYPES, _OTHER_TYPES),
    ("text search configuration",): (_CONFIGURATIONS,),
    ("text search dictionary",): (_DICTIONARIES,),
    ("extension",): (_EXTENSIONS,),
}

# The target has these schemas, or the import's user cannot create them.
_SCHEMAS = """
SELECT n.oid::int8 AS oid, format('CREATE SCHEMA IF NOT EXISTS %I', n.nspname) AS sql FROM pg_namespace n
WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('public', 'information_schema')
"""

Kinds = Collection[tuple[str, int]]
"""Kind and oid of objects."""


def read_definitions(session: PostgresqlSession, objects: Kinds) -> dict[tuple[str, int], list[str]]:
    """Return the statements that create objects, by kind and oid; nothing for those that have none."""
    statements: dict[tuple[str, int], list[str]] = {}
    if not objects:
        return statements
    schemas = {row["oid"]: row["sql"] for row in session.rows(_SCHEMAS, "listing schemas")}
    for kinds, queries in _QUERIES.items():
        kind_of = {oid: kind for kind, oid in objects if kind in kinds}
        for query in queries if kind_of else ():
            for row in session.rows(query.format(oids=oid_array(kind_of)), f"reading {kinds[0]}s"):
                schema = schemas.get(row["schema"])
                own = [text.rstrip() for text in row["sql"]]
                statements[kind_of[row["oid"]], row["oid"]] = [schema, *own] if schema else own
    return statements
