"""What the catalog queries found, put together into schema documents."""

from __future__ import annotations

from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.options import column_options, comments, flagged, present, storage
from snapshot_assets.databases.postgresql.introspect.partitions import extension_options, partition_options
from snapshot_assets.databases.postgresql.introspect.query_results import Facts
from snapshot_assets.databases.postgresql.introspect.relations import KINDS, Relation
from snapshot_assets.databases.postgresql.introspect.sequences import identity_sequences
from snapshot_assets.databases.postgresql.types import TIMESTAMPS, carried
from snapshot_assets.databases.selection import carrier_override
from snapshot_assets.databases.source import Selection
from snapshot_assets.databases.time_index import choose_time_index
from snapshot_assets.format import relations as documents
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.relations import Carrier, Column, Table, TableName, View


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
        sequences=tuple(each.document for each in facts.sequences.get(relation.oid, [])),
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
        options=present(
            **storage(relation),
            populated=relation.facts["populated"],
            indexes=[_index(row).model_dump(mode="json") for row in facts.indexes.get(relation.oid, [])],
            statistics=[row["definition"] for row in facts.statistics.get(relation.oid, [])],
            types=[used_type.model_dump(mode="json", by_alias=True) for used_type in used.types],
            **extension_options(relation, facts),
            columns=column_options(facts.columns.get(relation.oid, []), ()),
            clustered_on=flagged(facts.indexes.get(relation.oid, []), "clustered"),
            comments=present(
                indexes=comments(facts.indexes.get(relation.oid, [])),
                statistics=comments(facts.statistics.get(relation.oid, [])),
            ),
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
    sequences = facts.sequences.get(relation.oid, [])
    row = relation.facts
    return present(
        relation=KINDS[relation.kind] if relation.is_view else None,
        hypertable=relation.name in facts.dimensions,
        **storage(relation),
        partition_by=row["partition_by"],
        partitions=[partition_options(part, facts) for part in facts.partitions.get(relation.name, [])],
        inherits=[list(facts.relations[oid].name) for oid in row["parents"] if oid in facts.relations],
        of_type=row["of_type"],
        row_security=row["row_security"],
        replica_identity=row["replica_identity"] or flagged([*constraints, *indexes], "replica_identity"),
        clustered_on=flagged([*constraints, *indexes], "clustered"),
        columns=column_options(columns, constraints, relation.name.table),
        identity_sequences=identity_sequences(sequences),
        constraint_storage=present(**{row["name"]: row["storage_parameters"] for row in constraints}),
        statistics=[row["definition"] for row in statistics],
        **extension_options(relation, facts),
        row_types=[list(name) for name in used.relations],
        comments=present(
            constraints=comments(constraints),
            indexes=comments(indexes),
            statistics=comments(statistics),
            sequences={
                str(TableName(each.document.schema_name, each.document.name)): each.comment
                for each in sequences
                if each.comment is not None
            },
        ),
        not_carried=[row["object"] for row in facts.not_carried.get(relation.oid, [])],
    )
