"""What the catalog queries found, put together into schema documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.base import Selection
from snapshot_assets.databases.postgresql.catalog.columns import SourceColumn
from snapshot_assets.databases.postgresql.catalog.constraints import Rows
from snapshot_assets.databases.postgresql.catalog.relations import KINDS, Relation
from snapshot_assets.databases.postgresql.catalog.user_types import UsedTypes
from snapshot_assets.databases.postgresql.types import TIMESTAMPS, carried
from snapshot_assets.databases.selection import carrier_override
from snapshot_assets.databases.time_index import choose_time_index
from snapshot_assets.format import relations as documents
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.relations import Carrier, Column, Table, TableName, View


@dataclass(frozen=True)
class Facts:
    """All that was read, each by the relation's oid unless a name is its key."""

    relations: Mapping[int, Relation]
    partitions: Mapping[TableName, Sequence[Relation]]
    columns: Mapping[int, list[SourceColumn]]
    constraints: Rows
    indexes: Rows
    statistics: Rows
    not_carried: Rows
    sequences: Mapping[int, list[tuple[documents.Sequence, str | None]]]
    types: Mapping[int, UsedTypes]
    views: Mapping[int, dict[str, Any]]
    dimensions: Mapping[TableName, str]


def table_document(relation: Relation, facts: Facts, selection: Selection) -> Table:
    """Return the document of a relation that is exported as a table."""
    columns = facts.columns.get(relation.oid, [])
    constraints = facts.constraints.get(relation.oid, [])
    indexes = facts.indexes.get(relation.oid, [])
    timestamps = [column.name for column in columns if column.type.builtin in TIMESTAMPS]
    dates = [column.name for column in columns if column.type.builtin == "date"]
    dimension = facts.dimensions.get(relation.name)
    return Table(
        schema_name=relation.name.schema,
        name=relation.name.table,
        columns=tuple(_column(relation, column, selection) for column in columns),
        time_index=choose_time_index(
            relation.name,
            selection.time_columns,
            timestamps=timestamps,
            dates=dates,
            dimension=dimension if dimension in (*timestamps, *dates) else None,
        ),
        primary_key=_primary_key(constraints),
        unique=tuple(
            documents.UniqueConstraint(name=row["name"], columns=row["columns"], definition=row["definition"])
            for row in constraints
            if row["kind"] == "u"
        ),
        checks=tuple(
            documents.CheckConstraint(name=row["name"], definition=row["definition"])
            for row in constraints
            if row["kind"] in "cx"
        ),
        foreign_keys=tuple(_foreign_key(row) for row in constraints if row["kind"] == "f"),
        indexes=tuple(_index(row) for row in indexes),
        sequences=tuple(sequence for sequence, _ in facts.sequences.get(relation.oid, [])),
        types=facts.types[relation.oid].types,
        options=_table_options(relation, facts),
        comment=relation.facts["comment"],
    )


def view_document(relation: Relation, facts: Facts) -> View:
    """Return the document of a view that is carried as its query."""
    query = facts.views[relation.oid]
    used = facts.types[relation.oid]
    carried_no_further = [f"function {name}" for name in query["functions"]]
    return View(
        schema_name=relation.name.schema,
        name=relation.name.table,
        definition=query["definition"],
        columns=tuple(_column(relation, column, Selection()) for column in facts.columns.get(relation.oid, [])),
        depends_on=tuple(sorted(facts.relations[oid].name for oid in query["depends_on"] if oid in facts.relations)),
        materialized=relation.kind == "m",
        options=_present(
            **_storage(relation),
            populated=relation.facts["populated"],
            indexes=[_index(row).model_dump(mode="json") for row in facts.indexes.get(relation.oid, [])],
            statistics=[row["definition"] for row in facts.statistics.get(relation.oid, [])],
            types=[used_type.model_dump(mode="json", by_alias=True) for used_type in used.types],
            extensions=list(used.extensions),
            columns=_column_options(facts.columns.get(relation.oid, []), ()),
            comments=_present(indexes=_comments(facts.indexes.get(relation.oid, []))),
            not_carried=[*(row["object"] for row in facts.not_carried.get(relation.oid, [])), *carried_no_further],
        ),
        comment=relation.facts["comment"],
    )


def _column(relation: Relation, column: SourceColumn, selection: Selection) -> Column:
    facts = column.facts
    override = carrier_override(selection, relation.name, column.name)
    arrow_type, carrier = carried(column.type, override, f"{relation.name}.{column.name}")
    generated = facts["generated_kind"]
    return Column(
        name=column.name,
        type=column.type.text,
        arrow_type=arrow_type_text(arrow_type),
        carrier=Carrier(carrier),
        nullable=not facts["not_null"],
        default=None if generated else facts["default"],
        generated=facts["default"] if generated else None,
        generated_kind=generated,
        identity=facts["identity"],
        collation=facts["collation"],
        comment=facts["comment"],
    )


def _primary_key(constraints: list[dict[str, Any]]) -> documents.PrimaryKey | None:
    for row in constraints:
        if row["kind"] == "p":
            return documents.PrimaryKey(name=row["name"], columns=row["columns"], definition=row["definition"])
    return None


def _foreign_key(row: dict[str, Any]) -> documents.ForeignKey:
    return documents.ForeignKey(
        **{
            name: row[name]
            for name in ("name", "columns", "referenced_schema", "referenced_table", "referenced_columns", "definition")
        }
    )


def _index(row: dict[str, Any]) -> documents.Index:
    return documents.Index(**{name: row[name] for name in ("name", "columns", "unique", "definition")})


def _table_options(relation: Relation, facts: Facts) -> dict[str, Any]:
    used = facts.types[relation.oid]
    constraints = facts.constraints.get(relation.oid, [])
    indexes = facts.indexes.get(relation.oid, [])
    statistics = facts.statistics.get(relation.oid, [])
    columns = facts.columns.get(relation.oid, [])
    row = relation.facts
    return _present(
        relation=KINDS[relation.kind] if relation.is_view else None,
        hypertable=relation.name in facts.dimensions,
        **_storage(relation),
        partition_by=row["partition_by"],
        partitions=[_partition(part, facts) for part in facts.partitions.get(relation.name, [])],
        inherits=[list(facts.relations[oid].name) for oid in row["parents"] if oid in facts.relations],
        of_type=row["of_type"],
        row_security=row["row_security"],
        replica_identity=row["replica_identity"] or _flagged([*constraints, *indexes], "replica_identity"),
        clustered_on=_flagged([*constraints, *indexes], "clustered"),
        columns=_column_options(columns, constraints, relation.name.table),
        constraint_storage=_present(**{row["name"]: row["storage_parameters"] for row in constraints}),
        statistics=[row["definition"] for row in statistics],
        extensions=list(used.extensions),
        row_types=[list(name) for name in used.relations],
        comments=_present(
            constraints=_comments(constraints),
            indexes=_comments(indexes),
            statistics=_comments(statistics),
            sequences={
                str(TableName(sequence.schema_name, sequence.name)): comment
                for sequence, comment in facts.sequences.get(relation.oid, [])
                if comment is not None
            },
        ),
        not_carried=[row["object"] for row in facts.not_carried.get(relation.oid, [])],
    )


def _partition(relation: Relation, facts: Facts) -> dict[str, Any]:
    """Return a partition as its table's options hold it: where it hangs, and what is its own."""
    constraints = facts.constraints.get(relation.oid, [])
    columns = facts.columns.get(relation.oid, [])
    indexes = facts.indexes.get(relation.oid, [])
    return {
        "schema": relation.name.schema,
        "name": relation.name.table,
        "of": list(facts.relations[relation.facts["parents"][0]].name),
        "bounds": relation.facts["bounds"],
        **_present(
            relation=KINDS[relation.kind] if relation.kind == "f" else None,
            partition_by=relation.facts["partition_by"],
            **_storage(relation),
            column_order=[column.name for column in columns],
            defaults={
                column.name: column.facts["default"]
                for column in columns
                if column.facts["default"] is not None and column.facts["generated_kind"] is None
            },
            columns=_column_options(columns, constraints, relation.name.table),
            constraints=[
                _present(name=row["name"], definition=row["definition"], parent=row["parent"])
                for row in constraints
                if row["kind"] in "puxcf"
            ],
            indexes=[_present(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in indexes],
            comment=relation.facts["comment"],
            not_carried=[row["object"] for row in facts.not_carried.get(relation.oid, [])],
        ),
    }


def _storage(relation: Relation) -> dict[str, Any]:
    names = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")
    return {name: relation.facts[name] for name in names}


def _column_options(
    columns: Sequence[SourceColumn], constraints: Sequence[dict[str, Any]], table: str = ""
) -> dict[str, Any]:
    """Return, by column, what its document has no field for."""
    not_null = {row["columns"][0]: row for row in constraints if row["kind"] == "n"}
    found = {}
    for column in columns:
        row = not_null.get(column.name)
        found[column.name] = _present(
            **{name: column.facts[name] for name in ("storage", "compression", "statistics_target", "options")},
            inherited=column.facts["inherited"],
            not_null_name=row["name"] if row and row["name"] != f"{table}_{column.name}_not_null" else None,
            not_null_no_inherit=row["no_inherit"] if row else None,
        )
    return _present(**found)


def _comments(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["comment"] for row in rows if row["comment"] is not None}


def _flagged(rows: Sequence[dict[str, Any]], flag: str) -> str | None:
    return next((row["name"] for row in rows if row[flag]), None)


def _present(**values: Any) -> dict[str, Any]:
    """Return what is there: no None, no false, nothing empty. Zero is a value."""
    return {name: value for name, value in values.items() if not (value is None or value is False or value in ([], {}))}
