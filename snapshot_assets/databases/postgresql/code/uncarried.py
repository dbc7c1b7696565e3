"""Names what a snapshot does not carry beside relations: publications, foreign servers, settings, grants and others.

Nothing of a database is lost in silence. What belongs to the whole database is named with the first selected schema.
A restore's own role owns what it creates, so owners other than the database's own are named. So are the tables of
extensions that hold rows of the user, such as the jobs of pg_cron: an extension lists its tables whose rows pg_dump
stores, each with the condition of those that are not its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array

_TABLES = """
SELECT c.oid::regclass::text AS name, x.extname::text AS extension, f.condition, c.relkind = 'S' AS sequence,
    has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
        AND NOT row_security_active(c.oid) AS readable
FROM pg_extension x
CROSS JOIN LATERAL unnest(x.extconfig, x.extcondition) f (relation, condition)
JOIN pg_class c ON c.oid = f.relation AND c.relkind IN ('r', 'p', 'S')
ORDER BY name
"""


def _by_users(catalog: str) -> str:
    """Return the condition of objects that neither the system nor an extension made."""
    return f"""o.oid >= 16384 AND NOT EXISTS (
        SELECT FROM pg_depend x
        WHERE x.classid = '{catalog}'::regclass AND x.objid = o.oid AND x.deptype IN ('e', 'i'))"""


def _granted(catalog: str, acl: str, default: str) -> str:
    """Return the condition of objects whose privileges are not those that the server or an extension gave them."""
    return f"""o.{acl} IS NOT NULL AND o.{acl} IS DISTINCT FROM {default} AND NOT EXISTS (
        SELECT FROM pg_init_privs i WHERE i.objoid = o.oid AND i.classoid = '{catalog}'::regclass
            AND i.objsubid = 0 AND i.initprivs = o.{acl})"""


_RELATION_DEFAULT = "acldefault(CAST(CASE o.relkind WHEN 'S' THEN 's' ELSE 'r' END AS \"char\"), o.relowner)"

_RELATION_KIND = """CASE o.relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'f' THEN 'foreign table' ELSE 'table' END"""


_IN_SCHEMA = (
    ("collation", "pg_collation", "coll"),
    ("conversion", "pg_conversion", "con"),
    ("operator class", "pg_opclass", "opc"),
    ("operator family", "pg_opfamily", "opf"),
    ("statistics", "pg_statistic_ext", "stx"),
    ("text search configuration", "pg_ts_config", "cfg"),
    ("text search dictionary", "pg_ts_dict", "dict"),
)
_OF_DATABASE = (
    ("event trigger", "pg_event_trigger", "evt"),
    ("foreign data wrapper", "pg_foreign_data_wrapper", "fdw"),
    ("foreign server", "pg_foreign_server", "srv"),
    ("language", "pg_language", "lan"),
    ("publication", "pg_publication", "pub"),
)
"""Word, catalog, and the prefix of its columns, of objects that have owners."""

_OWNED_IN_SCHEMAS = " UNION ALL ".join(
    f"SELECT o.{prefix}namespace AS schema, o.{prefix}owner AS owner,"
    f" format('{word} %I.%I', n.nspname, o.{prefix}name) AS object"
    f" FROM {catalog} o JOIN pg_namespace n ON n.oid = o.{prefix}namespace WHERE {_by_users(catalog)}"
    for word, catalog, prefix in _IN_SCHEMA
)
_OWNED_OF_DATABASE = " UNION ALL ".join(
    f"SELECT o.{prefix}owner AS owner, format('{word} %I', o.{prefix}name) AS object FROM {catalog} o"
    f" WHERE {_by_users(catalog)}"
    for word, catalog, prefix in _OF_DATABASE
)

_DATABASE_OWNER = "(SELECT d.datdba FROM pg_database d WHERE d.datname = current_database())"

_COMMENTED = (
    *("pg_am", "pg_event_trigger", "pg_foreign_data_wrapper", "pg_foreign_server", "pg_language", "pg_publication"),
    *("pg_subscription", "pg_transform"),
)
"""Catalogs of objects that no snapshot carries and that lie in no schema: a comment on one is lost with it."""

_COMMENTS = f"""
SELECT format('comment on %s %s', CASE i.type WHEN 'foreign-data wrapper' THEN 'foreign data wrapper'
    WHEN 'server' THEN 'foreign server' ELSE i.type END, i.identity)
FROM pg_description o CROSS JOIN LATERAL pg_identify_object(o.classoid, o.objoid, o.objsubid) i
WHERE o.classoid = ANY ('{{{", ".join(_COMMENTED)}}}'::regclass[]) AND o.objoid >= 16384 AND NOT EXISTS (
    SELECT FROM pg_depend x
    WHERE x.classid = o.classoid AND x.objid = o.objoid AND x.deptype IN ('e', 'i'))
"""

_OWNED = f"""
SELECT o.relnamespace AS schema, o.relowner AS owner, format('%s %s', {_RELATION_KIND}, o.oid::regclass) AS object
FROM pg_class o WHERE o.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {_by_users("pg_class")}
UNION ALL SELECT o.pronamespace, o.proowner, format('function %s', o.oid::regprocedure)
FROM pg_proc o WHERE {_by_users("pg_proc")}
UNION ALL SELECT o.typnamespace, o.typowner, format('type %s', o.oid::regtype)
FROM pg_type o WHERE {_by_users("pg_type")} AND (o.typtype IN ('e', 'd', 'r') OR o.typtype = 'b' AND NOT EXISTS (
    SELECT FROM pg_type e WHERE e.typarray = o.oid) OR EXISTS (
    SELECT FROM pg_class c WHERE c.oid = o.typrelid AND c.relkind = 'c'))
UNION ALL SELECT o.oid, o.nspowner, format('schema %I', o.nspname)
FROM pg_namespace o WHERE {_by_users("pg_namespace")}
UNION ALL SELECT o.oprnamespace, o.oprowner, format('operator %s', o.oid::regoperator)
FROM pg_operator o WHERE {_by_users("pg_operator")}
UNION ALL {_OWNED_IN_SCHEMAS}
"""

_OF_SCHEMAS = f"""
SELECT o.connamespace AS schema, format('conversion %I.%I', n.nspname, o.conname) AS object
FROM pg_conversion o JOIN pg_namespace n ON n.oid = o.connamespace WHERE {_by_users("pg_conversion")}
UNION ALL SELECT o.connamespace, format('comment on conversion %I.%I', n.nspname, o.conname)
FROM pg_conversion o JOIN pg_namespace n ON n.oid = o.connamespace
WHERE {_by_users("pg_conversion")} AND obj_description(o.oid, 'pg_conversion') IS NOT NULL
UNION ALL SELECT o.relnamespace, format('grant on %s %s', {_RELATION_KIND}, o.oid::regclass)
FROM pg_class o WHERE o.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND (
    {_granted("pg_class", "relacl", _RELATION_DEFAULT)} OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped))
UNION ALL SELECT o.pronamespace, format('grant on function %s', o.oid::regprocedure)
FROM pg_proc o WHERE {_granted("pg_proc", "proacl", "acldefault('f', o.proowner)")}
UNION ALL SELECT o.typnamespace, format('grant on type %s', o.oid::regtype)
FROM pg_type o WHERE {_granted("pg_type", "typacl", "acldefault('T', o.typowner)")}
UNION ALL SELECT o.oid, format('grant on schema %I', o.nspname)
FROM pg_namespace o WHERE {_granted("pg_namespace", "nspacl", "acldefault('n', o.nspowner)")}
UNION ALL SELECT o.schema, format('owner %I of %s', pg_get_userbyid(o.owner), o.object)
FROM ({_OWNED}) o
WHERE o.owner <> {_DATABASE_OWNER}
UNION ALL SELECT c.relnamespace,
    format('index %s of %s, which is invalid', i.indexrelid::regclass, i.indrelid::regclass)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relkind = 'i' AND NOT i.indisvalid
"""

_OF_THE_DATABASE = f"""
SELECT format('publication %I', o.pubname) AS object FROM pg_publication o
UNION ALL SELECT format('subscription %I', o.subname) FROM pg_subscription o
WHERE o.subdbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
UNION ALL SELECT format('event trigger %I', o.evtname) FROM pg_event_trigger o WHERE {_by_users("pg_event_trigger")}
UNION ALL SELECT format('foreign data wrapper %I', o.fdwname) FROM pg_foreign_data_wrapper o
WHERE {_by_users("pg_foreign_data_wrapper")}
UNION ALL SELECT format('foreign server %I', o.srvname) FROM pg_foreign_server o WHERE {_by_users("pg_foreign_server")}
UNION ALL SELECT format('user mapping for %s to server %I', quote_ident(coalesce(u.usename, 'public')), u.srvname)
FROM pg_user_mappings u
UNION ALL SELECT format('language %I', o.lanname) FROM pg_language o WHERE {_by_users("pg_language")}
UNION ALL SELECT format('transform for %s language %I', format_type(o.trftype, NULL), l.lanname)
FROM pg_transform o JOIN pg_language l ON l.oid = o.trflang WHERE {_by_users("pg_transform")}
UNION ALL SELECT format('access method %I', o.amname) FROM pg_am o WHERE {_by_users("pg_am")}
UNION ALL SELECT format('database setting %s%s', split_part(c.setting, '=', 1), ' of role ' || quote_ident(r.rolname))
FROM pg_db_role_setting o CROSS JOIN LATERAL unnest(o.setconfig) c (setting)
LEFT JOIN pg_roles r ON r.oid = o.setrole
WHERE o.setdatabase = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
UNION ALL SELECT format('default privileges of role %I on %s%s', pg_get_userbyid(o.defaclrole), CASE o.defaclobjtype
    WHEN 'r' THEN 'tables' WHEN 'S' THEN 'sequences' WHEN 'f' THEN 'functions' WHEN 'T' THEN 'types'
    WHEN 'n' THEN 'schemas' ELSE 'large objects' END, ' in schema ' || quote_ident(n.nspname))
FROM pg_default_acl o LEFT JOIN pg_namespace n ON n.oid = o.defaclnamespace
UNION ALL SELECT format('grant on database %I', o.datname) FROM pg_database o
WHERE o.datname = current_database() AND {_granted("pg_database", "datacl", "acldefault('d', o.datdba)")}
UNION ALL SELECT format('grant on foreign data wrapper %I', o.fdwname) FROM pg_foreign_data_wrapper o
WHERE {_granted("pg_foreign_data_wrapper", "fdwacl", "acldefault('F', o.fdwowner)")}
UNION ALL SELECT format('grant on foreign server %I', o.srvname) FROM pg_foreign_server o
WHERE {_granted("pg_foreign_server", "srvacl", "acldefault('S', o.srvowner)")}
UNION ALL SELECT format('grant on language %I', o.lanname) FROM pg_language o
WHERE {_granted("pg_language", "lanacl", "acldefault('l', o.lanowner)")}
UNION ALL SELECT format('dependency of %s %s on extension %I', i.type, i.identity, o.extname)
FROM pg_depend d JOIN pg_extension o ON o.oid = d.refobjid
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) i
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'x'
UNION ALL SELECT format('database setting encoding %s', pg_encoding_to_char(o.encoding)) FROM pg_database o
WHERE o.datname = current_database() AND pg_encoding_to_char(o.encoding) <> 'UTF8'
UNION ALL {_COMMENTS}
UNION ALL SELECT format('comment on database %I', o.datname) FROM pg_database o
WHERE o.datname = current_database() AND shobj_description(o.oid, 'pg_database') IS NOT NULL
UNION ALL SELECT format('owner %I of %s large objects', pg_get_userbyid(o.lomowner), count(*))
FROM pg_largeobject_metadata o
WHERE o.lomowner <> {_DATABASE_OWNER} GROUP BY o.lomowner
UNION ALL SELECT format('owner %I of %s', pg_get_userbyid(o.owner), o.object)
FROM ({_OWNED_OF_DATABASE}) o WHERE o.owner <> {_DATABASE_OWNER}
UNION ALL SELECT format('grant on %s large objects', count(*)) FROM pg_largeobject_metadata o
WHERE o.lomacl IS DISTINCT FROM acldefault('L', o.lomowner) AND o.lomacl IS NOT NULL HAVING count(*) > 0
"""

# The view of labels reads twenty other tables, which takes a new session longer than all other objects.
_ANY_LABEL = "SELECT 1 AS one FROM pg_seclabel UNION ALL SELECT 1 FROM pg_shseclabel LIMIT 1"
_LABELS = """
UNION ALL SELECT format('security label on %s %s', s.objtype, s.objname) FROM pg_seclabels s
WHERE s.objtype NOT IN ('role', 'tablespace', 'database')
"""


def read_uncarried(session: PostgresqlSession, schemas: Mapping[int, str]) -> dict[str, list[str]]:
    """Return what is not carried by the name of its schema, given by oid; "" for what belongs to the database."""
    of_schemas = f"""
        SELECT f.schema::int8 AS schema, f.object FROM ({_OF_SCHEMAS}) f
        WHERE f.schema = ANY ({oid_array(schemas)}) ORDER BY f.object"""
    found: dict[str, list[str]] = {}
    doing = "listing grants and other objects of schemas"
    for row in session.rows(of_schemas, doing, optional="grants and other objects of schemas"):
        found.setdefault(schemas[row["schema"]], []).append(row["object"])
    labels = _LABELS if session.rows(_ANY_LABEL, "looking for security labels", optional="security labels") else ""
    query, doing = f"{_OF_THE_DATABASE}{labels} ORDER BY object", "listing objects of the database"
    listed = session.rows(query, doing, optional="objects of the database")
    of_database = [row["object"] for row in listed]
    tables = session.rows(_TABLES, "listing tables of extensions", optional="tables of extensions")
    readable = [each for each in tables if each["readable"]]
    queries = []
    for number, each in enumerate(readable):
        where = "WHERE is_called" if each["sequence"] else each["condition"] or ""
        queries.append(f"SELECT {number} AS number, EXISTS (SELECT FROM {each['name']} {where}) AS used")
    rows = session.rows(" UNION ALL ".join(queries), "looking for rows in tables of extensions") if readable else []
    unused = {readable[row["number"]]["name"] for row in rows if not row["used"]}
    for each in tables:
        if each["name"] not in unused:
            what = "place of extension sequence" if each["sequence"] else "rows of extension table"
            of_database.append(f"{what} {each['name']} (extension {each['extension']})")
    return found | ({"": of_database} if of_database else {})
