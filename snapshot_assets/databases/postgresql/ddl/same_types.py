"""Compares a type of the target, which an import keeps, with that of the snapshot: all that its definition records."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.databases.sql import literal
from snapshot_assets.format.options import TypeDefinition
from snapshot_assets.format.relations import UserType

_LABELS = """ARRAY(
    SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder)"""
_COLLATION = """(SELECT pg_catalog.quote_ident(ln.nspname) || '.' || pg_catalog.quote_ident(l.collname)
    FROM pg_catalog.pg_collation l JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace
    WHERE l.oid = {collation} AND l.oid <> (SELECT b.typcollation FROM pg_catalog.pg_type b WHERE b.oid = {of}))"""
_CHECKS = """ARRAY(
    SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
    WHERE k.contypid = t.oid AND k.contype = 'c')"""
_RANGE = """EXISTS (
    SELECT FROM pg_catalog.pg_range r JOIN pg_catalog.pg_opclass o ON o.oid = r.rngsubopc
    JOIN pg_catalog.pg_namespace s ON s.oid = o.opcnamespace
    WHERE r.rngtypid = t.oid AND {collation} IS NOT DISTINCT FROM {wanted_collation} AND CASE WHEN NOT o.opcdefault
        THEN pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(o.opcname)
        END IS NOT DISTINCT FROM {wanted_class})"""


def same_type(kind: UserType, there: str) -> str:
    """Return the query that yields a row if a type of the target is that of the snapshot; "" for a composite type.

    A composite type with other attributes is refused before; see `existing_types`.

    Args:
        kind: The document of the type.
        there: The query that yields a row if a type `t` of its name exists.
    """
    fields = TypeDefinition.of_type(kind)
    if kind.kind == "enum":
        return f"{there} AND {_LABELS} = {_texts(kind.labels)}"
    if kind.kind == "domain":
        checks = _texts([each.definition for each in fields.constraints])
        collation = _COLLATION.format(collation="t.typcollation", of="t.typbasetype")
        default = "coalesce(pg_catalog.pg_get_expr(t.typdefaultbin, 0), t.typdefault)"
        return (
            f"{there} AND {_CHECKS} @> {checks} AND {checks} @> {_CHECKS}"
            f" AND t.typnotnull = {'true' if fields.not_null else 'false'}"
            f" AND {default} IS NOT DISTINCT FROM {_text(fields.default)}"
            f" AND {collation} IS NOT DISTINCT FROM {_text(fields.collation)}"
        )
    if kind.kind == "range":
        same = _RANGE.format(
            collation=_COLLATION.format(collation="r.rngcollation", of="r.rngsubtype"),
            wanted_collation=_text(fields.collation),
            wanted_class=_text(fields.subtype_opclass),
        )
        return f"{there} AND {same}"
    return ""


def _text(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


def _texts(values: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(map(literal, values))}]::pg_catalog.text[]"
