"""Refuses exclusions that would let rows out by another way: partitions by pattern, and contents of large objects."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation, root_of
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import column_name, excludes, hidden_of, hides
from snapshot_assets.databases.selection.selection import selects
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import table_text

_OIDS = f"""
WITH RECURSIVE held (relation, "column", type) AS (
    SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
    UNION SELECT h.relation, h."column", x.type
    FROM held h CROSS JOIN LATERAL ({TYPE_PARTS.format(type="h.type")}) x (type)
)
SELECT h.relation::int8 AS relation, h."column"::text AS "column" FROM held h
WHERE h.type = 'pg_catalog.oid'::regtype ORDER BY 1, 2
"""


def refuse_excluded_partitions(selection: Selection, relations: Iterable[SourceRelation], refusals: Refusals) -> None:
    """Note partitions that `exclude_tables` matches and that are exported with their table."""
    for relation in relations:
        root = root_of(relation)
        if root is not relation and excludes(selection, relation.name) and selects(selection, root.name):
            error = PlanError(
                f"exclude_tables matches {relation.name}, a partition of {root.name}, with which its rows are exported."
                f" Exclude {root.name} too, or write patterns that do not match its partitions.",
                table=table_text(relation.name),
            )
            refusals.note(error)


def refuse_referred_large_objects(
    session: PostgresqlSession, selection: Selection, relations: Iterable[SourceRelation]
) -> None:
    """Refuse to export large objects that a hidden column may refer to, unless the plan asks for them.

    Args:
        session: Where to read.
        selection: The plan's selection.
        relations: Every relation of the database.

    Raises:
        PlanError: A column for their oids is hidden, or its table excluded.
    """
    if selection.large_objects is not None or not hides(selection):
        return
    by_oid = {each.oid: each for each in relations}
    for row in session.rows(_OIDS.format(oids=oid_array(by_oid)), "reading columns for large objects"):
        name = root_of(by_oid[row["relation"]]).name
        if excludes(selection, name) or row["column"] in hidden_of(selection, name).names:
            raise PlanError(
                f"The plan hides {column_name(name, row['column'])}, which may hold the oids of large objects, and"
                " their contents would be exported. Write `large_objects: skip` in the plan (--skip-large-objects), or"
                " `large_objects: export` to export all of them.",
                table=table_text(name),
                column=row["column"],
            )
