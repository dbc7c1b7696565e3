"""SQL expressions of the statements that create code, as pg_dump writes them.

The server's own functions write functions, triggers and rules. The others are composed from the system tables; `o` is
the object's row, as in `CodeKind`.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_assets.databases.postgresql.code.kinds import CODE_KINDS, loose_members

_LABELS = {word: kind.label for word, kind in CODE_KINDS.items()}


def _operator(oid: str) -> str:
    """Return the SQL expression that refers to an operator; NULL for none."""
    return (
        "(SELECT format('OPERATOR(%I.%s)', xn.nspname, x.oprname) FROM pg_operator x"
        f" JOIN pg_namespace xn ON xn.oid = x.oprnamespace WHERE x.oid = {oid})"
    )


def _family(oid: str) -> str:
    return (
        "(SELECT format('%I.%I', fn.nspname, f.opfname) FROM pg_opfamily f"
        f" JOIN pg_namespace fn ON fn.oid = f.opfnamespace WHERE f.oid = {oid})"
    )


def _option(name: str, value: str, given: str = "true") -> str:
    """Return the SQL expression of `name = value`; NULL where the value is, or is not `given`."""
    return f"CASE WHEN {given} THEN '{name} = ' || {value} END"


def _function_option(name: str, column: str) -> str:
    return _option(name, f"{column}::regproc::text", f"{column}::oid <> 0")


def _final_function(name: str, prefix: str) -> str:
    modify = f"CASE a.{prefix}modify WHEN 'r' THEN 'READ_ONLY' WHEN 's' THEN 'SHAREABLE' ELSE 'READ_WRITE' END"
    extra = f"CASE WHEN a.{prefix}extra THEN ', {name}_EXTRA' ELSE '' END"
    value = f"a.{prefix}fn::regproc::text || {extra} || ', {name}_MODIFY = ' || {modify}"
    return _option(name, value, f"a.{prefix}fn::oid <> 0")


_AGGREGATE_OPTIONS = ", ".join(
    (
        "'SFUNC = ' || a.aggtransfn::regproc::text",
        "'STYPE = ' || format_type(a.aggtranstype, NULL)",
        _option("SSPACE", "a.aggtransspace", "a.aggtransspace <> 0"),
        _final_function("FINALFUNC", "aggfinal"),
        _function_option("COMBINEFUNC", "a.aggcombinefn"),
        _function_option("SERIALFUNC", "a.aggserialfn"),
        _function_option("DESERIALFUNC", "a.aggdeserialfn"),
        _option("INITCOND", "quote_literal(a.agginitval)"),
        _function_option("MSFUNC", "a.aggmtransfn"),
        _function_option("MINVFUNC", "a.aggminvtransfn"),
        _option("MSTYPE", "format_type(a.aggmtranstype, NULL)", "a.aggmtranstype <> 0"),
        _option("MSSPACE", "a.aggmtransspace", "a.aggmtransspace <> 0"),
        _final_function("MFINALFUNC", "aggmfinal"),
        _option("MINITCOND", "quote_literal(a.aggminitval)"),
        _option("SORTOP", _operator("a.aggsortop")),
        "CASE o.proparallel WHEN 's' THEN 'PARALLEL = SAFE' WHEN 'r' THEN 'PARALLEL = RESTRICTED' END",
        "CASE a.aggkind WHEN 'h' THEN 'HYPOTHETICAL' END",
    )
)
_AGGREGATE = f"""(
    SELECT format('CREATE AGGREGATE %I.%I(%s) (%s)', an.nspname, o.proname,
        CASE WHEN o.pronargs = 0 THEN '*' ELSE pg_get_function_arguments(o.oid) END,
        concat_ws(', ', {_AGGREGATE_OPTIONS}))
    FROM pg_aggregate a, pg_namespace an WHERE a.aggfnoid = o.oid AND an.oid = o.pronamespace)"""

_OPERATOR_OPTIONS = ", ".join(
    (
        "'FUNCTION = ' || o.oprcode::regproc::text",
        _option("LEFTARG", "format_type(o.oprleft, NULL)", "o.oprleft <> 0"),
        _option("RIGHTARG", "format_type(o.oprright, NULL)", "o.oprright <> 0"),
        _option("COMMUTATOR", _operator("o.oprcom")),
        _option("NEGATOR", _operator("o.oprnegate")),
        _function_option("RESTRICT", "o.oprrest"),
        _function_option("JOIN", "o.oprjoin"),
        "CASE WHEN o.oprcanmerge THEN 'MERGES' END",
        "CASE WHEN o.oprcanhash THEN 'HASHES' END",
    )
)
_OPERATOR = f"""(
    SELECT format('CREATE OPERATOR %I.%s (%s)', s.nspname, o.oprname, concat_ws(', ', {_OPERATOR_OPTIONS}))
    FROM pg_namespace s WHERE s.oid = o.oprnamespace)"""


def _members(operators: str, functions: str) -> str:
    """Return the SQL expression of the members of an operator class or family, from FROM items with `a` and `p`."""
    return f"""(
    SELECT string_agg(m.member, ', ' ORDER BY m.kind, m.number, m.member) FROM (
        SELECT 1 AS kind, a.amopstrategy AS number, format('OPERATOR %s %s%s', a.amopstrategy,
            a.amopopr::regoperator, ' FOR ORDER BY ' || {_family("a.amopsortfamily")}) AS member FROM {operators}
        UNION ALL
        SELECT 2, p.amprocnum, format('FUNCTION %s (%s, %s) %s', p.amprocnum, format_type(p.amproclefttype, NULL),
            format_type(p.amprocrighttype, NULL), p.amproc::regprocedure) FROM {functions}) m)"""


def _class_members(catalog: str, member: str) -> str:
    return loose_members(catalog, member).replace("'pg_opfamily'", "'pg_opclass'")


_LOOSE_MEMBERS = _members(loose_members("pg_amop", "a"), loose_members("pg_amproc", "p"))
_OPERATOR_CLASS = f"""(
    SELECT format('CREATE OPERATOR CLASS %I.%I%s FOR TYPE %s USING %I FAMILY %s AS %s', s.nspname, o.opcname,
        CASE WHEN o.opcdefault THEN ' DEFAULT' ELSE '' END, format_type(o.opcintype, NULL), am.amname,
        {_family("o.opcfamily")}, coalesce(nullif(concat_ws(', ',
            'STORAGE ' || format_type(nullif(o.opckeytype, 0), NULL),
            {_members(_class_members("pg_amop", "a"), _class_members("pg_amproc", "p"))}), ''),
            'STORAGE ' || format_type(o.opcintype, NULL)))
    FROM pg_namespace s, pg_am am WHERE s.oid = o.opcnamespace AND am.oid = o.opcmethod)"""

_CAST = f"""format('CREATE CAST %s %s%s', {_LABELS["cast"]},
    CASE o.castmethod WHEN 'b' THEN 'WITHOUT FUNCTION' WHEN 'i' THEN 'WITH INOUT'
        ELSE 'WITH FUNCTION ' || o.castfunc::regprocedure END,
    CASE o.castcontext WHEN 'a' THEN ' AS ASSIGNMENT' WHEN 'i' THEN ' AS IMPLICIT' END)"""

# The columns for locales have other names in other versions of the server.
_LOCALE = "coalesce(to_jsonb(o) ->> 'colllocale', to_jsonb(o) ->> 'colliculocale', o.collcollate)"
_COLLATION_OPTIONS = ", ".join(
    (
        "'provider = ' || CASE o.collprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END",
        "CASE WHEN NOT o.collisdeterministic THEN 'deterministic = false' END",
        _option("locale", f"quote_literal({_LOCALE})", "o.collprovider <> 'c' OR o.collcollate = o.collctype"),
        _option("lc_collate", "quote_literal(o.collcollate)", "o.collprovider = 'c' AND o.collcollate <> o.collctype"),
        _option("lc_ctype", "quote_literal(o.collctype)", "o.collprovider = 'c' AND o.collcollate <> o.collctype"),
        _option("rules", "quote_literal(to_jsonb(o) ->> 'collicurules')"),
    )
)
_COLLATION = f"format('CREATE COLLATION %s (%s)', {_LABELS['collation']}, concat_ws(', ', {_COLLATION_OPTIONS}))"

_PARSER_FUNCTIONS = {"START": "start", "GETTOKEN": "token", "END": "end", "HEADLINE": "headline", "LEXTYPES": "lextype"}
_PARSER_OPTIONS = ", ".join(_function_option(name, f"o.prs{column}") for name, column in _PARSER_FUNCTIONS.items())
_TEMPLATE_OPTIONS = f"{_function_option('INIT', 'o.tmplinit')}, {_function_option('LEXIZE', 'o.tmpllexize')}"
_DICTIONARY = """(
    SELECT format('CREATE TEXT SEARCH DICTIONARY %I.%I (%s)', n.nspname, o.dictname,
        concat_ws(', ', format('TEMPLATE = %I.%I', tn.nspname, t.tmplname), o.dictinitoption))
    FROM pg_ts_template t JOIN pg_namespace tn ON tn.oid = t.tmplnamespace WHERE t.oid = o.dicttemplate)"""
_CONFIGURATION = """(
    SELECT format('CREATE TEXT SEARCH CONFIGURATION %I.%I (PARSER = %I.%I)', n.nspname, o.cfgname, pn.nspname,
        p.prsname)
    FROM pg_ts_parser p JOIN pg_namespace pn ON pn.oid = p.prsnamespace WHERE p.oid = o.cfgparser)"""
_MAPPING = """(
    SELECT format('ALTER TEXT SEARCH CONFIGURATION %I.%I ADD MAPPING FOR %I WITH %s', n.nspname, o.cfgname, t.alias,
        string_agg(format('%I.%I', dn.nspname, d.dictname), ', ' ORDER BY m.mapseqno))
    FROM pg_ts_config_map m JOIN pg_ts_dict d ON d.oid = m.mapdict JOIN pg_namespace dn ON dn.oid = d.dictnamespace
    WHERE m.mapcfg = o.oid AND m.maptokentype = t.tokid)"""

_EXTENSION = """(
    SELECT format('CREATE EXTENSION IF NOT EXISTS %I SCHEMA %I', o.extname, s.nspname)
    FROM pg_namespace s WHERE s.oid = o.extnamespace)"""

_TYPE_OPTIONS = ", ".join(
    (
        "'INPUT = ' || o.typinput::regproc::text",
        "'OUTPUT = ' || o.typoutput::regproc::text",
        _function_option("RECEIVE", "o.typreceive"),
        _function_option("SEND", "o.typsend"),
        _function_option("TYPMOD_IN", "o.typmodin"),
        _function_option("TYPMOD_OUT", "o.typmodout"),
        _function_option("ANALYZE", "o.typanalyze"),
        _function_option("SUBSCRIPT", "o.typsubscript"),
        "'INTERNALLENGTH = ' || CASE o.typlen WHEN -1 THEN 'VARIABLE' ELSE o.typlen::text END",
        "CASE WHEN o.typbyval THEN 'PASSEDBYVALUE' END",
        "'ALIGNMENT = ' || CASE o.typalign WHEN 'c' THEN 'char' WHEN 's' THEN 'int2' WHEN 'i' THEN 'int4'"
        " ELSE 'double' END",
        "'STORAGE = ' || CASE o.typstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main'"
        " ELSE 'extended' END",
        "'CATEGORY = ' || quote_literal(o.typcategory::text)",
        "CASE WHEN o.typispreferred THEN 'PREFERRED = true' END",
        _option("DEFAULT", "quote_literal(o.typdefault)"),
        _option("ELEMENT", "format_type(o.typelem, NULL)", "o.typelem <> 0"),
        _option("DELIMITER", "quote_literal(o.typdelim::text)", "o.typdelim <> ','"),
        "CASE WHEN o.typcollation <> 0 THEN 'COLLATABLE = true' END",
    )
)

_STATES = "WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' WHEN 'A' THEN 'ENABLE ALWAYS'"
_POLICY = """(
    SELECT format('CREATE POLICY %I ON %s%s FOR %s TO %s%s%s', o.polname, o.polrelid::regclass,
        CASE WHEN NOT o.polpermissive THEN ' AS RESTRICTIVE' END,
        CASE o.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
            ELSE 'ALL' END,
        coalesce((SELECT string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) FROM pg_roles r
            WHERE r.oid = ANY (o.polroles)), 'PUBLIC'),
        ' USING (' || pg_get_expr(o.polqual, o.polrelid) || ')',
        ' WITH CHECK (' || pg_get_expr(o.polwithcheck, o.polrelid) || ')'))"""

STATEMENTS: Mapping[str, str] = {
    "extension": _EXTENSION,
    "collation": _COLLATION,
    "shell type": f"'CREATE TYPE ' || {_LABELS['shell type']}",
    "base type": f"format('CREATE TYPE %s (%s)', {_LABELS['base type']}, concat_ws(', ', {_TYPE_OPTIONS}))",
    "function": "pg_get_functiondef(o.oid)",
    "procedure": "pg_get_functiondef(o.oid)",
    "aggregate": _AGGREGATE,
    "operator": _OPERATOR,
    "operator family": f"'CREATE OPERATOR FAMILY ' || {_LABELS['operator family']}",
    "operator family members": f"format('ALTER OPERATOR FAMILY %s ADD %s', {_LABELS['operator family']},"
    f" {_LOOSE_MEMBERS})",
    "operator class": _OPERATOR_CLASS,
    "cast": _CAST,
    "text search parser": f"format('CREATE TEXT SEARCH PARSER %s (%s)', {_LABELS['text search parser']},"
    f" concat_ws(', ', {_PARSER_OPTIONS}))",
    "text search template": f"format('CREATE TEXT SEARCH TEMPLATE %s (%s)', {_LABELS['text search template']},"
    f" concat_ws(', ', {_TEMPLATE_OPTIONS}))",
    "text search dictionary": _DICTIONARY,
    "text search configuration": _CONFIGURATION,
    "text search mapping": _MAPPING,
    "trigger": "pg_get_triggerdef(o.oid)",
    "trigger state": f"format('ALTER TABLE ONLY %s %s TRIGGER %I', o.tgrelid::regclass, CASE o.tgenabled {_STATES} END,"
    " o.tgname)",
    "rule": "pg_get_ruledef(o.oid)",
    "rule state": f"format('ALTER TABLE %s %s RULE %I', o.ev_class::regclass, CASE o.ev_enabled {_STATES} END,"
    " o.rulename)",
    "policy": _POLICY,
}
"""By kind of code."""
