"""Builds the `options` of tables, partitions and views: properties for which documents have no field.

An option that has no value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.query_results import QueryResults
from snapshot_assets.databases.postgresql.introspect.relations import KINDS, SourceRelation
from snapshot_assets.databases.postgresql.introspect.sequences import recorded_identity_sequences
from snapshot_assets.format.relations import TableName

_STORAGE = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")


def table_options(relation: SourceRelation, results: QueryResults) -> dict[str, Any]:
    """Return the options of a relation that is exported as a table."""
    used = results.types[relation.oid]
    sequences = results.sequences.get(relation.oid, [])
    row = relation.row
    comments = {
        str(TableName(each.document.schema_name, each.document.name)): each.comment
        for each in sequences
        if each.comment is not None
    }
    return present(
        **_shared_options(relation, results, sequences=comments),
        **_table_properties(relation, results),
        **_extension_options(relation, results),
        relation=KINDS[relation.kind] if relation.is_view else None,
        hypertable=relation.name in results.hypertables,
        partitions=[_partition_options(part, results) for part in results.partitions.get(relation.name, [])],
        inherits=[list(results.relations[oid].name) for oid in row["parents"] if oid in results.relations],
        of_type=row["of_type"],
        identity_sequences=recorded_identity_sequences(sequences),
        row_types=[list(name) for name in used.relations],
    )


def view_options(relation: SourceRelation, results: QueryResults, indexes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the options of a view.

    Args:
        relation: The view.
        results: What the queries returned.
        indexes: Documents of its indexes.
    """
    options = _shared_options(relation, results)
    functions = [f"function {name}" for name in results.views[relation.oid]["functions"]]
    return present(
        **options | {"not_carried": [*options["not_carried"], *functions]},
        **_extension_options(relation, results),
        populated=relation.row["populated"],
        indexes=indexes,
        types=[kind.model_dump(mode="json", by_alias=True) for kind in results.types[relation.oid].types],
    )


def _partition_options(relation: SourceRelation, results: QueryResults) -> dict[str, Any]:
    """Return a partition as an entry of its table's options: its name, parent and bounds, and its differences."""
    columns = results.columns.get(relation.oid, [])
    constraints = results.constraints.get(relation.oid, [])
    row = relation.row
    table = {column.name: column.row for column in results.columns.get(_table_oid(relation, results), [])}
    comments = {column.name: column.row["comment"] for column in columns if column.row["comment"] is not None}
    own_default = {column.name for column in columns if column.row["default"] != table[column.name]["default"]}
    return {
        "schema": relation.name.schema,
        "name": relation.name.table,
        "of": list(results.relations[row["parents"][0]].name),
        "bounds": row["bounds"],
        **present(
            **_shared_options(relation, results, columns=comments),
            **_table_properties(relation, results),
            relation=KINDS[relation.kind] if relation.kind == "f" else None,
            column_order=[column.name for column in columns],
            defaults={
                column.name: column.row["default"]
                for column in columns
                if column.row["default"] is not None and column.row["generated_kind"] is None
            },
            generated={
                column.name: column.row["default"]
                for column in columns
                if column.row["generated_kind"] and column.name in own_default
            },
            not_null=[
                column.name for column in columns if column.row["not_null"] and not table[column.name]["not_null"]
            ],
            constraints=_definitions(each for each in constraints if each["kind"] in "puxcf"),
            indexes=_definitions(results.indexes.get(relation.oid, [])),
            sequences=[
                sequence.document.model_dump(mode="json", by_alias=True)
                for sequence in results.sequences.get(relation.oid, [])
                if sequence.document.column in own_default
            ],
            comment=row["comment"],
        ),
    }


def _shared_options(relation: SourceRelation, results: QueryResults, **comments: dict[str, str]) -> dict[str, Any]:
    """Return the options that tables, partitions and views have in common."""
    constraints = results.constraints.get(relation.oid, [])
    indexes = results.indexes.get(relation.oid, [])
    statistics = results.statistics.get(relation.oid, [])
    return {
        **{name: relation.row[name] for name in _STORAGE},
        "columns": _column_options(results.columns.get(relation.oid, []), constraints, relation.name.table),
        "statistics": [row["definition"] for row in statistics],
        "clustered_on": _flagged([*constraints, *indexes], "clustered"),
        "comments": present(
            constraints=_comments(constraints),
            indexes=_comments(indexes),
            statistics=_comments(statistics),
            **comments,
        ),
        "not_carried": [row["object"] for row in results.not_carried.get(relation.oid, [])],
    }


def _table_properties(relation: SourceRelation, results: QueryResults) -> dict[str, Any]:
    """Return the options that only tables and partitions have."""
    constraints = results.constraints.get(relation.oid, [])
    indexes = results.indexes.get(relation.oid, [])
    identity = relation.row["replica_identity"] or _flagged([*constraints, *indexes], "replica_identity")
    return {
        "partition_by": relation.row["partition_by"],
        "row_security": relation.row["row_security"],
        "replica_identity": identity,
        "constraint_storage": present(**{row["name"]: row["storage_parameters"] for row in constraints}),
    }


def _extension_options(relation: SourceRelation, results: QueryResults) -> dict[str, Any]:
    """Return the extensions that a relation needs, and the schemas of those that do not lie in `public`."""
    extensions = results.extensions
    names = sorted({*results.types[relation.oid].extensions, *extensions.used.get(relation.oid, ())})
    schemas = {name: extensions.schemas[name] for name in names if extensions.schemas[name] != "public"}
    return {"extensions": names, "extension_schemas": schemas}


def _column_options(
    columns: Sequence[SourceColumn], constraints: Sequence[dict[str, Any]], table: str
) -> dict[str, Any]:
    not_null = {row["columns"][0]: row for row in constraints if row["kind"] == "n"}
    options = {}
    for column in columns:
        row = not_null.get(column.name)
        options[column.name] = present(
            **{name: column.row[name] for name in ("storage", "compression", "statistics_target", "options")},
            inherited=column.row["inherited"],
            not_null_name=row["name"] if row and row["name"] != f"{table}_{column.name}_not_null" else None,
            not_null_no_inherit=row["no_inherit"] if row else None,
            not_null_inherited=not row["local"] if row else None,
            not_null_not_valid=row["name"] if row and not row["valid"] else None,
        )
    return present(**options)


def _definitions(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [present(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in rows]


def _table_oid(partition: SourceRelation, results: QueryResults) -> int:
    """Return the oid of the table to which a partition of any level belongs."""
    while partition.row["is_partition"]:
        partition = results.relations[partition.row["parents"][0]]
    return partition.oid


def _comments(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return comments by the name of the object."""
    return {row["name"]: row["comment"] for row in rows if row["comment"] is not None}


def _flagged(rows: Sequence[dict[str, Any]], flag: str) -> str | None:
    """Return the name of the first row that has a flag."""
    return next((row["name"] for row in rows if row[flag]), None)


def present(**values: Any) -> dict[str, Any]:
    """Return the values except None, false and empty ones. Zero is a value."""
    return {name: value for name, value in values.items() if not (value is None or value is False or value in ([], {}))}
