"""Removes columns that a plan leaves out or masks from relations, and all that PostgreSQL says depends on them.

`pg_depend` names what needs a column, so no SQL text is searched. Types and code that need one are named too: their
text may show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.postgresql.introspect.relations import SourceRelation, root_of
from snapshot_assets.databases.postgresql.introspect.types_and_extensions import TYPE_PARTS
from snapshot_assets.databases.postgresql.session import PostgresqlSession, oid_array
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import Hidden, column_name, excludes, hidden_of, hides, refuse_revealing
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName

_OF_COLUMN = ("", "default of ", "expression of ")
_CONSTRAINTS = ("check", "constraint", "foreign key")
_INDEXES = ("index", "constraint")
_STATISTICS = ("statistics",)

# What needs a column: its kind, the relation it belongs to, its name, and the column.
_NEEDS = """
WITH RECURSIVE used AS (
    SELECT d.classid, d.objid, d.refobjid::int8 AS oid, a.attname::text AS column
    FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.refobjid = ANY ({oids})),
views AS (
    SELECT r.ev_class, u.oid, u.column FROM used u JOIN pg_rewrite r ON u.classid = 'pg_rewrite'::regclass
        AND r.oid = u.objid AND r.rulename = '_RETURN'
    UNION SELECT r.ev_class, v.oid, v.column FROM views v JOIN pg_depend d ON d.refobjid = v.ev_class
        AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
        JOIN pg_rewrite r ON r.oid = d.objid AND r.rulename = '_RETURN')
SELECT 'constraint' AS kind, k.conrelid::int8 AS relation, k.conname::text AS name, u.oid, u.column
FROM used u JOIN pg_constraint k ON u.classid = 'pg_constraint'::regclass AND k.oid = u.objid
UNION ALL SELECT 'index', i.indrelid::int8, x.relname::text, u.oid, u.column
FROM used u JOIN pg_class x ON u.classid = 'pg_class'::regclass AND x.oid = u.objid
    JOIN pg_index i ON i.indexrelid = x.oid
UNION ALL SELECT 'statistics', s.stxrelid::int8, s.stxname::text, u.oid, u.column
FROM used u JOIN pg_statistic_ext s ON u.classid = 'pg_statistic_ext'::regclass AND s.oid = u.objid
UNION ALL SELECT 'generated', f.adrelid::int8, g.attname::text, u.oid, u.column
FROM used u JOIN pg_attrdef f ON u.classid = 'pg_attrdef'::regclass AND f.oid = u.objid
    JOIN pg_attribute g ON g.attrelid = f.adrelid AND g.attnum = f.adnum AND g.attgenerated <> ''
UNION ALL SELECT 'view', v.ev_class::int8, '', v.oid, v.column FROM views v WHERE v.ev_class <> v.oid
UNION ALL SELECT 'partition key', d.objid::int8, '', d.objid::int8, a.attname::text
FROM pg_depend d JOIN pg_partitioned_table p ON p.partrelid = d.objid
    JOIN pg_attribute a ON a.attrelid = d.objid AND a.attnum = d.objsubid
WHERE d.classid = 'pg_class'::regclass AND d.objsubid > 0 AND d.refclassid = 'pg_class'::regclass
    AND d.refobjid = d.objid AND d.refobjsubid = 0 AND d.deptype = 'i' AND d.objid = ANY ({oids})
"""

_UNIQUE = ("p", "u", "x", "c", "f")


@dataclass
class _Needs:
    """What of one relation needs hidden columns: names of objects, each with the reason why it is left out.

    Attributes:
        excluded: Objects that need an excluded column, by kind and name.
        masked: Objects that need a masked column.
        generated: By generated column, the hidden columns that it is computed from.
    """

    excluded: dict[tuple[str, str], str] = field(default_factory=dict)
    masked: dict[tuple[str, str], str] = field(default_factory=dict)
    generated: dict[str, list[str]] = field(default_factory=dict)


def remove_hidden(
    session: PostgresqlSession, selection: Selection, tables: Iterable[SourceRelation], refusals: Refusals
) -> None:
    """Remove hidden columns from tables and their partitions, with what needs them; it becomes `not_carried`.

    Args:
        session: Where to read.
        selection: The plan's selection.
        tables: Relations that are exported as tables.
        refusals: Collects columns that cannot be hidden: a partition key needs them, others inherit them, or a
            generated column would reveal them.
    """
    roots = {each.oid: root for root in tables for each in (root, *root.partitions)}
    relations = {each.oid: each for root in roots.values() for each in (root, *root.partitions)}
    hidden = {oid: hidden_of(selection, root.name) for oid, root in roots.items()}
    if not any(each.names for each in hidden.values()):
        return
    needs = {oid: _Needs() for oid in relations}
    for row in session.rows(_NEEDS.format(oids=oid_array(relations)), "reading what needs columns"):
        with refusals.noting():
            _note(row, hidden, needs, relations)
    for oid, relation in relations.items():
        with refusals.noting():
            _check_inherited(relation, hidden[oid], selection)
            own = {column.name for column in relation.columns if column.row["generated_kind"]}
            masked: dict[str, Sequence[str]] = dict.fromkeys(own & hidden[oid].masks.keys(), ())
            refuse_revealing(relation.name, hidden[oid], None, needs[oid].generated | masked)
    for oid, relation in relations.items():
        _remove(relation, hidden[oid], needs[oid])


def _note(
    row: dict[str, Any], hidden: Mapping[int, Hidden], needs: Mapping[int, _Needs], relations: Mapping[int, Any]
) -> None:
    column, used = row["column"], hidden[row["oid"]]
    if column not in used.names:
        return
    if row["kind"] == "partition key":
        name = relations[row["oid"]].name
        text = f"Column {column_name(name, column)} is in the partition key, which decides where rows go."
        raise PlanError(f"{text} Export it unchanged, or leave the table out.", table=table_text(name), column=column)
    if row["kind"] == "view" or row["relation"] not in relations:  # of no table, or of one that is not exported
        return
    mine = needs[row["relation"]]
    if row["kind"] == "generated":
        mine.generated.setdefault(row["name"], []).append(column)
        return
    of = "" if row["oid"] == row["relation"] else f" of {relations[row['oid']].name}"
    why = f"column {identifier(column)}{of} {'is not exported' if column in used.excluded else 'is masked'}"
    (mine.excluded if column in used.excluded else mine.masked)[row["kind"], row["name"]] = why


def _check_inherited(relation: SourceRelation, hidden: Hidden, selection: Selection) -> None:
    """Refuse to exclude a column of a table and not of those that inherit it, or that it inherits it from."""
    if relation.row["of_type"] and hidden.excluded:
        raise PlanError(
            f"{relation.name} has the columns of type {relation.row['of_type']}, so none of them can be excluded. Mask"
            " it, or leave the table out.",
            table=table_text(relation.name),
        )
    for parent in relation.parents if not relation.row["is_partition"] else ():
        theirs = hidden_of(selection, parent.name)
        shared = {each.name for each in parent.columns} & {each.name for each in relation.columns}
        unmasked = theirs.masks.keys() - hidden.names
        for column in sorted(shared & ((hidden.excluded ^ theirs.excluded) | unmasked)):
            this, other = (relation, parent) if column in hidden.excluded else (parent, relation)
            what, field_name = ("masked", "mask") if column in unmasked else ("excluded", "exclude_columns")
            raise PlanError(
                f"Column {column_name(this.name, column)} is {what}, and {other.name} shares it by inheritance: name"
                f" {column_name(other.name, column)} under {field_name} too.",
                table=table_text(this.name),
                column=column,
            )


def _remove(relation: SourceRelation, hidden: Hidden, needs: _Needs) -> None:
    lost = [] if relation.row["is_partition"] else hidden.not_carried()
    before = _parts(relation)
    relation.columns = [column for column in relation.columns if column.name not in hidden.excluded]
    for column in relation.columns:
        if column.name in hidden.masks:
            if column.row["default"] is not None:  # it may be a value of the source
                lost.append(f"default of column {identifier(column.name)} (the plan masks it)")
            column.row.update(not_null=False, identity=None, default=None)

    def stays(row: dict[str, Any], kind: str, restricts: bool) -> bool:
        """Return whether an object needs no hidden column; if it restricts or quotes values, also no masked one."""
        key = (kind, row["name"])
        why = needs.excluded.get(key) or (needs.masked.get(key) if restricts else None)
        if why is not None and row.get("kind") != "n":
            lost.append(f"{kind} {identifier(row['name'])} ({why})")
        return why is None

    relation.sequences = [each for each in relation.sequences if each.document.column not in hidden.names]
    constraints = [row for row in relation.constraints if stays(row, "constraint", row["kind"] in _UNIQUE)]
    relation.constraints = [row for row in constraints if row["kind"] != "n" or not hidden.names & set(row["columns"])]
    relation.indexes = [row for row in relation.indexes if stays(row, "index", row["unique"] or row["constants"])]
    relation.statistics = [row for row in relation.statistics if stays(row, "statistics", row["constants"])]
    relation.not_carried = [*relation.not_carried, *lost]
    relation.hidden_parts = before - _parts(relation)


def _parts(relation: SourceRelation) -> set[str]:
    """Return the parts of a relation, as `needs` names them."""
    name = relation.name.dotted
    parts = {f"{what}column {name}.{each.name}" for each in relation.columns for what in _OF_COLUMN}
    rows = [(_CONSTRAINTS, relation.constraints), (_INDEXES, relation.indexes), (_STATISTICS, relation.statistics)]
    return parts | {f"{kind} {row['name']} of {name}" for kinds, own in rows for kind in kinds for row in own}


def broken_views(
    session: PostgresqlSession,
    selection: Selection,
    relations: Iterable[SourceRelation],
    views: Iterable[SourceRelation],
) -> dict[TableName, str]:
    """Return the views that read excluded columns or tables, directly or through others, and why each is left out."""
    by_name = {relation.name: relation for relation in relations}
    gone: dict[TableName, str] = {}
    excluded = {(by_name[table].oid, column): table for table, column in selection.exclude_columns if table in by_name}
    names = {relation.oid: relation.name for relation in by_name.values()}
    query = _NEEDS.format(oids=oid_array({oid for oid, _ in excluded}))
    for row in session.rows(query, "reading what needs columns") if excluded else ():
        table = excluded.get((row["oid"], row["column"]))
        if row["kind"] == "view" and table is not None and row["relation"] in names:
            why = f"column {identifier(row['column'])} of {table.dotted} is not exported"
            gone.setdefault(names[row["relation"]], why)
    reads = {view.name: view.query["depends_on"] for view in views}
    changed = True
    while changed:
        changed = False
        for name, relations_read in reads.items():
            read = next((each for each in relations_read if each in gone or excludes(selection, each)), None)
            if name not in gone and read is not None:
                gone[name], changed = f"it reads {read}, which is not exported", True
    return {name: gone[name] for name in reads if name in gone}


_COLUMNS = """
    SELECT a.attrelid AS relation, a.attnum AS number, a.atttypid AS type FROM pg_attribute a
    WHERE a.attnum > 0 AND NOT a.attisdropped
        AND (a.attrelid = ANY ({relations}) OR (a.attrelid::int8, a.attname::text) IN ({columns}))"""

# Tables are no part of this: their own documents record what they need.
_GONE = f"""
WITH RECURSIVE hidden AS ({_COLUMNS}), part (type) AS (
    SELECT h.type FROM hidden h
    UNION SELECT x.type FROM part p CROSS JOIN LATERAL ({TYPE_PARTS.format(type="p.type")}) x (type)
), own (oid) AS (
    SELECT t.oid FROM part p JOIN pg_type t ON t.oid = p.type JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid >= 16384 AND (n.nspname, t.typname) NOT IN ({{used}})
), gone (class, oid) AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN hidden h
    ON d.refclassid = 'pg_class'::regclass AND d.refobjid = h.relation AND d.refobjsubid = h.number
    UNION SELECT d.classid, d.objid FROM pg_depend d
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY ({{relations}})
    UNION SELECT 'pg_type'::regclass, o.oid FROM own o
    UNION SELECT x.class, x.oid FROM gone g CROSS JOIN LATERAL (
        SELECT d.classid, d.objid FROM pg_depend d
        WHERE d.refclassid = g.class AND d.refobjid = g.oid AND d.deptype <> 'e' AND (g.class, d.classid) NOT IN (
            ('pg_class'::regclass, 'pg_type'::regclass), ('pg_extension'::regclass, 'pg_class'::regclass))
        UNION ALL SELECT 'pg_class'::regclass, w.ev_class FROM pg_rewrite w
        WHERE g.class = 'pg_rewrite'::regclass AND w.oid = g.oid AND w.rulename = '_RETURN'
        UNION ALL SELECT 'pg_type'::regclass, c.reltype FROM pg_class c
        WHERE g.class = 'pg_class'::regclass AND c.oid = g.oid) x (class, oid)
    WHERE x.class <> 'pg_class'::regclass
        OR EXISTS (SELECT FROM pg_class c WHERE c.oid = x.oid AND c.relkind IN ('v', 'm', 'c'))
)
SELECT g.class::int8 AS class, g.oid::int8 AS oid, n.nspname::text AS schema, t.typname::text AS type FROM gone g
LEFT JOIN pg_type t ON g.class = 'pg_type'::regclass AND t.oid = g.oid
LEFT JOIN pg_namespace n ON n.oid = t.typnamespace
"""

_OF_MASKED = f"""
WITH hidden AS ({_COLUMNS})
SELECT d.classid::int8 AS class, d.objid::int8 AS oid FROM pg_depend d JOIN hidden h
ON d.refclassid = 'pg_class'::regclass AND d.refobjid = h.relation AND d.refobjsubid = h.number
WHERE d.classid IN ('pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_rewrite'::regclass)
"""


@dataclass(frozen=True)
class HiddenObjects:
    """What needs hidden columns or excluded tables, and is no part of a table.

    Attributes:
        objects: The system table and the oid of each.
        types: The names of the types among them.
    """

    objects: frozenset[tuple[int, int]] = frozenset()
    types: frozenset[TableName] = frozenset()


def read_hidden_objects(
    session: PostgresqlSession, selection: Selection, relations: Iterable[SourceRelation], used: Collection[TableName]
) -> HiddenObjects:
    """Return what needs hidden columns or excluded tables.

    Of what needs a masked column, only triggers, policies and rules, whose conditions may quote its values.

    Args:
        session: Where to read.
        selection: The plan's selection.
        relations: Every relation of the database.
        used: The types that exported relations use, which are carried.
    """
    if not hides(selection):
        return HiddenObjects()
    excluded: list[int] = []
    columns: dict[str, list[str]] = {"excluded": [], "masked": []}
    for relation in relations:
        name = root_of(relation).name
        hidden = hidden_of(selection, name)
        if excludes(selection, name):
            excluded.append(relation.oid)
        columns["excluded"] += [f"({relation.oid}, {literal(each)})" for each in hidden.excluded]
        columns["masked"] += [f"({relation.oid}, {literal(each)})" for each in hidden.masks]
    names = [f"({literal(name.schema)}, {literal(name.table)})" for name in used]
    excluding = _GONE.format(
        relations=oid_array(excluded),
        columns=", ".join(columns["excluded"]) or "(NULL, NULL)",
        used=", ".join(names) or "('', '')",
    )
    masking = _OF_MASKED.format(relations=oid_array([]), columns=", ".join(columns["masked"]) or "(NULL, NULL)")
    rows = session.rows(excluding, "reading what needs hidden columns")
    found = [*rows, *session.rows(masking, "reading what needs masked columns")]
    types = frozenset(TableName(row["schema"], row["type"]) for row in rows if row["type"] is not None)
    return HiddenObjects(frozenset((row["class"], row["oid"]) for row in found), types)
