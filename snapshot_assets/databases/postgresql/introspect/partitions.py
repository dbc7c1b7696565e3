"""Partitions as their table's options hold them, and what tables, partitions and views have in common there."""

from __future__ import annotations

from typing import Any

from snapshot_assets.databases.postgresql.introspect.options import column_options, comments, flagged, present, storage
from snapshot_assets.databases.postgresql.introspect.query_results import Facts
from snapshot_assets.databases.postgresql.introspect.relations import KINDS, Relation


def partition_options(relation: Relation, facts: Facts) -> dict[str, Any]:
    """Return a partition as its table's options hold it: where it hangs, and what is its own."""
    constraints = facts.constraints.get(relation.oid, [])
    columns = facts.columns.get(relation.oid, [])
    indexes = facts.indexes.get(relation.oid, [])
    statistics = facts.statistics.get(relation.oid, [])
    row = relation.facts
    table = {column.name: column.facts for column in facts.columns.get(_table(relation, facts), [])}
    return {
        "schema": relation.name.schema,
        "name": relation.name.table,
        "of": list(facts.relations[row["parents"][0]].name),
        "bounds": row["bounds"],
        **present(
            relation=KINDS[relation.kind] if relation.kind == "f" else None,
            partition_by=row["partition_by"],
            **storage(relation),
            column_order=[column.name for column in columns],
            defaults={
                column.name: column.facts["default"]
                for column in columns
                if column.facts["default"] is not None and column.facts["generated_kind"] is None
            },
            generated={
                column.name: column.facts["default"]
                for column in columns
                if column.facts["generated_kind"] and column.facts["default"] != table[column.name]["default"]
            },
            not_null=[
                column.name for column in columns if column.facts["not_null"] and not table[column.name]["not_null"]
            ],
            columns=column_options(columns, constraints, relation.name.table),
            constraints=[
                present(name=row["name"], definition=row["definition"], parent=row["parent"])
                for row in constraints
                if row["kind"] in "puxcf"
            ],
            constraint_storage=present(**{row["name"]: row["storage_parameters"] for row in constraints}),
            indexes=[present(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in indexes],
            sequences=[
                sequence.document.model_dump(mode="json", by_alias=True)
                for sequence in facts.sequences.get(relation.oid, [])
                if any(
                    column.name == sequence.document.column and column.facts["default"] != table[column.name]["default"]
                    for column in columns
                )
            ],
            statistics=[row["definition"] for row in statistics],
            row_security=row["row_security"],
            replica_identity=row["replica_identity"] or flagged([*constraints, *indexes], "replica_identity"),
            clustered_on=flagged([*constraints, *indexes], "clustered"),
            comment=row["comment"],
            comments=present(
                columns={
                    column.name: column.facts["comment"] for column in columns if column.facts["comment"] is not None
                },
                constraints=comments(constraints),
                indexes=comments(indexes),
                statistics=comments(statistics),
            ),
            not_carried=[row["object"] for row in facts.not_carried.get(relation.oid, [])],
        ),
    }


def _table(partition: Relation, facts: Facts) -> int:
    """Return the oid of the table that a partition of any level is a part of."""
    while partition.facts["is_partition"]:
        partition = facts.relations[partition.facts["parents"][0]]
    return partition.oid


def extension_options(relation: Relation, facts: Facts) -> dict[str, Any]:
    """Return the extensions that a relation needs, and the schemas of those that do not lie in `public`."""
    extensions = facts.extensions
    names = sorted({*facts.types[relation.oid].extensions, *extensions.used.get(relation.oid, ())})
    places = {name: extensions.schemas[name] for name in names if extensions.schemas[name] != "public"}
    return {"extensions": names, "extension_schemas": places}
