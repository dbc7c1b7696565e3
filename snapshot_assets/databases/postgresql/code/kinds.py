"""The kinds of code, and how the system tables name an object of each: alike in a source and in a target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from snapshot_assets.databases.sql import literal, qualified
from snapshot_assets.format.relations import TableName

_BARE_NAME = re.compile(r'(?:(?:"(?:[^"]|"")+"|[^".(]+)\.)?("(?:[^"]|"")+"|[^".(]+)\(')
"""The name of a function without its schema, at the beginning of its label."""


@dataclass(frozen=True)
class CodeKind:
    """A kind of code.

    Attributes:
        catalog: The system table of its objects, whose row is `o`.
        label: SQL expression of an object's name, as COMMENT ON takes it.
        where: SQL condition of its objects among the rows.
        joins: What `label` and `where` need beside the system table.
        relation: Column with the table or view to which an object belongs; "" for none. Such objects are created after
            the rows, on which they must not act.
        namespace: SQL expression of the schema that an object lies in, or if it lies in none, belongs to most likely.
        lies_in_none: Whether objects lie in no schema.
        own_comment: SQL expression of the comment that an object has when it is created; "" for none.
        indexed: Column with the bare name of a function, by which the server finds it faster; "" for other kinds.
        part: Whether it is a part of another object, which users need not see.
    """

    catalog: str
    label: str
    where: str = "true"
    joins: str = ""
    relation: str = ""
    namespace: str = "NULL::oid"
    lies_in_none: bool = False
    own_comment: str = ""
    indexed: str = ""
    part: bool = False

    @property
    def source(self) -> str:
        """The FROM item of its objects."""
        return f"pg_catalog.{self.catalog} o {self.joins}"

    def exists(self, name: str, on: TableName | None, condition: str = "true") -> str:
        """Return a query that yields a row if an object of that name exists, on a relation or in the database."""
        of = f" AND o.{self.relation} = pg_catalog.to_regclass({literal(qualified(on))})" if on is not None else ""
        named = f"{self.label} = {literal(name)}"
        if self.indexed and (match := _BARE_NAME.match(name)):
            bare = match[1][1:-1].replace('""', '"') if match[1].startswith('"') else match[1]
            named = f"o.{self.indexed} = {literal(bare)} AND {named}"
        where = f"{self.where}{of} AND {named} AND {condition}"
        return f"SELECT 1 AS one FROM {self.source} WHERE {where}"

    def is_described(self, name: str, on: TableName | None) -> str:
        """Return a query that yields a row if an object has a comment."""
        return self.exists(name, on, f"{self.comment} IS NOT NULL")

    @property
    def comment(self) -> str:
        """SQL expression of the comment that a user gave an object; NULL for none."""
        present = f"pg_catalog.obj_description(o.oid, {literal(self.catalog)})"
        return f"nullif({present}, {self.own_comment})" if self.own_comment else present


def _routine(kinds: str) -> CodeKind:
    label, where = "o.oid::regprocedure::text", f"o.prokind IN ({kinds})"
    return CodeKind("pg_proc", label, where, namespace="o.pronamespace", indexed="proname")


def _in_schema(catalog: str, prefix: str, *, using: str = "") -> CodeKind:
    """Return a kind whose objects are named by their schema, and with `using` by their access method."""
    method = f"JOIN pg_catalog.pg_am m ON m.oid = o.{using}" if using else ""
    label = (
        "format('%I.%I USING %I', n.nspname, o.{0}name, m.amname)" if using else "format('%I.%I', n.nspname, o.{0}name)"
    )
    return CodeKind(
        catalog,
        label.format(prefix),
        joins=f"JOIN pg_catalog.pg_namespace n ON n.oid = o.{prefix}namespace {method}",
        namespace=f"o.{prefix}namespace",
    )


def loose_members(catalog: str, member: str) -> str:
    """Return the FROM item of an operator family's members that belong to no operator class."""
    return (
        f"pg_catalog.{catalog} {member} JOIN pg_catalog.pg_depend d ON d.classid = '{catalog}'::regclass"
        f" AND d.objid = {member}.oid AND d.refclassid = 'pg_opfamily'::regclass AND d.refobjid = o.oid"
    )


# Triggers of TimescaleDB keep rows out of hypertables, which are restored as plain tables.
_NOT_OF_TIMESCALEDB = r"""NOT EXISTS (
    SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
    WHERE p.oid = o.tgfoid AND s.nspname LIKE '\_timescaledb%')"""

_SCHEMA_OF_CAST = """(
    SELECT n.oid FROM pg_namespace n JOIN (
        SELECT 1 AS place, p.pronamespace AS oid FROM pg_proc p WHERE p.oid = o.castfunc
        UNION ALL SELECT 2, t.typnamespace FROM pg_type t WHERE t.oid = o.castsource
        UNION ALL SELECT 3, t.typnamespace FROM pg_type t WHERE t.oid = o.casttarget) c ON c.oid = n.oid
    WHERE n.nspname !~ '^pg_' ORDER BY c.place LIMIT 1)"""

_FAMILY = _in_schema("pg_opfamily", "opf", using="opfmethod")
_CONFIGURATION = _in_schema("pg_ts_config", "cfg")

# The functions of a base type need the type, and it needs them: an empty type of its name, a shell, comes first.
_BASE_TYPE = "o.typtype IN ('b'{shells}) AND NOT EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.typarray = o.oid)"


def _base_type(where: str, *, part: bool = False) -> CodeKind:
    kind = _in_schema("pg_type", "typ")
    return CodeKind("pg_type", kind.label, where, kind.joins, namespace=kind.namespace, part=part)


CODE_KINDS: Mapping[str, CodeKind] = {
    "extension": CodeKind(
        "pg_extension",
        "quote_ident(o.extname)",
        namespace="o.extnamespace",
        lies_in_none=True,
        own_comment="(SELECT a.comment FROM pg_catalog.pg_available_extensions a WHERE a.name = o.extname)",
    ),
    "collation": CodeKind("pg_collation", "o.oid::regcollation::text", namespace="o.collnamespace"),
    "shell type": _base_type(_BASE_TYPE.format(shells=", 'p'"), part=True),
    "base type": _base_type(f"{_BASE_TYPE.format(shells='')} AND o.typisdefined"),
    "function": _routine("'f', 'w'"),
    "procedure": _routine("'p'"),
    "aggregate": _routine("'a'"),
    # The commutator of an operator may exist without a function before it is created itself.
    "operator": CodeKind("pg_operator", "o.oid::regoperator::text", "o.oprcode <> 0", namespace="o.oprnamespace"),
    "operator family": _FAMILY,
    "operator family members": CodeKind(
        "pg_opfamily",
        _FAMILY.label,
        f"(EXISTS (SELECT FROM {loose_members('pg_amop', 'a')}) OR EXISTS (SELECT FROM"
        f" {loose_members('pg_amproc', 'p')}))",
        _FAMILY.joins,
        namespace=_FAMILY.namespace,
        part=True,
    ),
    "operator class": _in_schema("pg_opclass", "opc", using="opcmethod"),
    "cast": CodeKind(
        "pg_cast",
        "format('(%s AS %s)', format_type(o.castsource, NULL), format_type(o.casttarget, NULL))",
        namespace=_SCHEMA_OF_CAST,
        lies_in_none=True,
    ),
    "text search parser": _in_schema("pg_ts_parser", "prs"),
    "text search template": _in_schema("pg_ts_template", "tmpl"),
    "text search dictionary": _in_schema("pg_ts_dict", "dict"),
    "text search configuration": _CONFIGURATION,
    "text search mapping": CodeKind(
        "pg_ts_config",
        "format('%I.%I FOR %I', n.nspname, o.cfgname, t.alias)",
        "EXISTS (SELECT FROM pg_catalog.pg_ts_config_map m WHERE m.mapcfg = o.oid AND m.maptokentype = t.tokid)",
        f"{_CONFIGURATION.joins} CROSS JOIN LATERAL pg_catalog.ts_token_type(o.cfgparser) t",
        namespace=_CONFIGURATION.namespace,
        part=True,
    ),
    "trigger": CodeKind(
        "pg_trigger",
        "quote_ident(o.tgname)",
        f"NOT o.tgisinternal AND o.tgparentid = 0 AND {_NOT_OF_TIMESCALEDB}",
        relation="tgrelid",
    ),
    # Partitions have copies of their table's triggers, which may have a state of their own.
    "trigger state": CodeKind(
        "pg_trigger",
        "format('%I %s', o.tgname, o.tgenabled)",
        "(NOT o.tgisinternal OR o.tgparentid <> 0) AND o.tgenabled <> 'O' AND NOT EXISTS (SELECT FROM"
        f" pg_catalog.pg_constraint k WHERE k.oid = o.tgconstraint AND k.contype = 'f') AND {_NOT_OF_TIMESCALEDB}",
        relation="tgrelid",
        part=True,
    ),
    "rule": CodeKind("pg_rewrite", "quote_ident(o.rulename)", "o.rulename <> '_RETURN'", relation="ev_class"),
    "rule state": CodeKind(
        "pg_rewrite",
        "format('%I %s', o.rulename, o.ev_enabled)",
        "o.rulename <> '_RETURN' AND o.ev_enabled <> 'O'",
        relation="ev_class",
        part=True,
    ),
    "policy": CodeKind("pg_policy", "quote_ident(o.polname)", relation="polrelid"),
}
"""By the word for an object, in the order in which objects without mutual needs are created."""
