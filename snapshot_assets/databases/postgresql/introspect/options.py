"""Builds the `options` of tables, partitions and views: properties for which documents have no field.

An option that has no value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import recorded_identity_sequences
from snapshot_assets.databases.postgresql.introspect.relations import KINDS, SourceRelation
from snapshot_assets.format.relations import Index

_STORAGE = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")


def table_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the options of a relation that is exported as a table."""
    comments = {str(each.document.table_name): each.comment for each in relation.sequences if each.comment is not None}
    return _present(
        **_shared_options(relation, sequences=comments),
        **_table_properties(relation),
        **_extension_options(relation),
        relation=KINDS[relation.kind] if relation.is_view else None,
        hypertable=relation.dimension is not None,
        partitions=[_partition_options(part, relation) for part in relation.partitions],
        inherits=[list(parent.name) for parent in relation.parents],
        of_type=relation.row["of_type"],
        identity_sequences=recorded_identity_sequences(relation.sequences),
        row_types=[list(name) for name in relation.used.relations],
        needs=relation.needs,
    )


def view_options(relation: SourceRelation, indexes: Iterable[Index]) -> dict[str, Any]:
    """Return the options of a view, with the documents of its indexes."""
    functions = [f"function {name}" for name in relation.query["functions"]]
    return _present(
        **_shared_options(relation) | {"not_carried": [*relation.not_carried, *functions]},
        **_extension_options(relation),
        populated=relation.row["populated"],
        indexes=[index.model_dump(mode="json") for index in indexes],
        types=[kind.model_dump(mode="json", by_alias=True) for kind in relation.used.types],
    )


def _partition_options(relation: SourceRelation, table: SourceRelation) -> dict[str, Any]:
    """Return a partition as an entry of its table's options: its name, parent and bounds, and its differences."""
    own = {column.name: column.row for column in relation.columns}
    inherited = {column.name: column.row for column in table.columns}
    own_default = {name for name, row in own.items() if row["default"] != inherited[name]["default"]}
    generated = {name for name, row in own.items() if row["generated_kind"] is not None}
    return {
        "schema": relation.name.schema,
        "name": relation.name.table,
        "of": list(relation.parents[0].name),
        "bounds": relation.row["bounds"],
        **_present(
            **_shared_options(relation, columns=_comments(own.values())),
            **_table_properties(relation),
            relation=KINDS[relation.kind] if relation.kind == "f" else None,
            column_order=list(own),
            defaults=_present(**{name: row["default"] for name, row in own.items() if name not in generated}),
            generated={name: own[name]["default"] for name in own if name in generated & own_default},
            not_null=[name for name, row in own.items() if row["not_null"] and not inherited[name]["not_null"]],
            constraints=_definitions(row for row in relation.constraints if row["kind"] in "puxcf"),
            indexes=_definitions(relation.indexes),
            sequences=[
                sequence.document.model_dump(mode="json", by_alias=True)
                for sequence in relation.sequences
                if sequence.document.column in own_default
            ],
            comment=relation.row["comment"],
        ),
    }


def _shared_options(relation: SourceRelation, **comments: dict[str, str]) -> dict[str, Any]:
    """Return the options that tables, partitions and views have in common."""
    return {
        **{name: relation.row[name] for name in _STORAGE},
        "columns": _column_options(relation),
        "statistics": [row["definition"] for row in relation.statistics],
        "clustered_on": _flagged(relation, "clustered"),
        "comments": _present(
            constraints=_comments(relation.constraints),
            indexes=_comments(relation.indexes),
            statistics=_comments(relation.statistics),
            **comments,
        ),
        "not_carried": relation.not_carried,
    }


def _table_properties(relation: SourceRelation) -> dict[str, Any]:
    """Return the options that only tables and partitions have."""
    return {
        "partition_by": relation.row["partition_by"],
        "row_security": relation.row["row_security"],
        "replica_identity": relation.row["replica_identity"] or _flagged(relation, "replica_identity"),
        "constraint_storage": _present(**{row["name"]: row["storage_parameters"] for row in relation.constraints}),
    }


def _extension_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the extensions that a relation needs, and the schemas of those that do not lie in `public`."""
    extensions = relation.used.extensions
    schemas = {name: schema for name, schema in extensions.items() if schema != "public"}
    return {"extensions": list(extensions), "extension_schemas": schemas}


def _column_options(relation: SourceRelation) -> dict[str, Any]:
    not_null = {row["columns"][0]: row for row in relation.constraints if row["kind"] == "n"}
    options = {}
    for column in relation.columns:
        row = not_null.get(column.name)
        usual_name = f"{relation.name.table}_{column.name}_not_null"
        options[column.name] = _present(
            **{name: column.row[name] for name in ("storage", "compression", "statistics_target", "options")},
            inherited=column.row["inherited"],
            not_null_name=row["name"] if row and row["name"] != usual_name else None,
            not_null_no_inherit=row["no_inherit"] if row else None,
            not_null_inherited=not row["local"] if row else None,
            not_null_not_valid=row["name"] if row and not row["valid"] else None,
        )
    return _present(**options)


def _definitions(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_present(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in rows]


def _comments(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return comments by the name of the object."""
    return {row["name"]: row["comment"] for row in rows if row["comment"] is not None}


def _flagged(relation: SourceRelation, flag: str) -> str | None:
    """Return the name of the first constraint or index that has a flag."""
    return next((row["name"] for row in (*relation.constraints, *relation.indexes) if row[flag]), None)


def _present(**values: Any) -> dict[str, Any]:
    """Return the values except None, false and empty ones. Zero is a value."""
    return {name: value for name, value in values.items() if not (value is None or value is False or value in ([], {}))}
