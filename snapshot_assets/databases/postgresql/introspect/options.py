"""Builds the `options` of tables, partitions and views: properties for which documents have no field."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from snapshot_assets.databases.postgresql.introspect.relations import KINDS, SourceRelation
from snapshot_assets.databases.postgresql.introspect.sequences import (
    SourceSequence,
    recorded_identity_sequences,
    recorded_states,
)
from snapshot_assets.format.options import (
    ColumnOptions,
    ColumnSettings,
    Comments,
    PartitionOptions,
    PartitionPart,
    TableOptions,
    ViewOptions,
)
from snapshot_assets.format.relations import Index

_STORAGE = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")


def table_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the options of a relation that is exported as a table."""
    return TableOptions(
        **_shared_options(relation, sequences=sequence_comments(relation.sequences)),
        **_table_properties(relation, relation.sequences),
        **_extension_options(relation),
        not_carried=relation.not_carried,
        relation=KINDS[relation.kind] if relation.is_view else None,
        hypertable=relation.dimension is not None,
        partitions=[_partition_options(part, relation) for part in relation.partitions],
        inherits=[parent.name for parent in relation.parents],
        of_type=relation.row["of_type"],
        identity_sequences=recorded_identity_sequences(relation.sequences),
        row_types=relation.used.relations,
        needs=relation.needs,
    ).values()


def view_options(relation: SourceRelation, indexes: Iterable[Index]) -> dict[str, Any]:
    """Return the options of a view, with the documents of its indexes."""
    functions = [f"function {name}" for name in relation.query["functions"]]
    return ViewOptions(
        **_shared_options(relation),
        **_extension_options(relation),
        not_carried=[*relation.not_carried, *functions],
        populated=bool(relation.row["populated"]),
        indexes=indexes,
        types=relation.used.types,
    ).values()


def _partition_options(relation: SourceRelation, table: SourceRelation) -> PartitionOptions:
    """Return a partition as an entry of its table's options: its name, parent and bounds, and its differences."""
    own = {column.name: column.row for column in relation.columns}
    inherited = {column.name: column.row for column in table.columns}
    own_default = {name for name, row in own.items() if row["default"] != inherited[name]["default"]}
    generated = {name for name, row in own.items() if row["generated_kind"] is not None}
    defaults = {name: row["default"] for name, row in own.items() if name not in generated}
    own_identities = {each.document.column for each in relation.sequences if each.internal}
    sequences = [each for each in relation.sequences if each.document.owned or each.document.column in own_default]
    return PartitionOptions(
        schema_name=relation.name.schema,
        name=relation.name.table,
        of=relation.parents[0].name,
        bounds=relation.row["bounds"],
        **_shared_options(relation, columns=_comments(own.values()), sequences=sequence_comments(sequences)),
        **_table_properties(relation, sequences),
        not_carried=relation.not_carried,
        relation=KINDS[relation.kind] if relation.kind == "f" else None,
        column_order=list(own),
        defaults={name: default for name, default in defaults.items() if default is not None},
        generated={name: own[name]["default"] for name in own if name in generated & own_default},
        not_null=[name for name, row in own.items() if row["not_null"] and not inherited[name]["not_null"]],
        # PostgreSQL 16 allowed identities with a sequence of the partition's own.
        identities={name: own[name]["identity"] for name in own if name in own_identities},
        identity_sequences=recorded_identity_sequences(sequences),
        constraints=_parts(
            row for row in relation.constraints if row["kind"] in "puxf" or (row["kind"] == "c" and row["local"])
        ),
        inherited_checks=_parts(row for row in relation.constraints if row["kind"] == "c" and not row["local"]),
        indexes=_parts(relation.indexes),
        sequences=[each.document for each in sequences],
        comment=relation.row["comment"],
    )


def _shared_options(relation: SourceRelation, **comments: dict[str, str]) -> dict[str, Any]:
    """Return the options that tables, partitions and views have in common."""
    with_index = (*relation.constraints, *relation.indexes)
    return {
        **{name: relation.row[name] for name in _STORAGE if relation.row[name] is not None},
        "columns": _column_options(relation),
        "statistics": [row["definition"] for row in relation.statistics],
        "statistics_targets": {row["name"]: row["target"] for row in relation.statistics if row["target"] is not None},
        "index_statistics_targets": {
            row["name"]: json.loads(row["statistics_targets"]) for row in relation.indexes if row["statistics_targets"]
        },
        "index_tablespaces": {row["name"]: row["tablespace"] for row in with_index if row["tablespace"]},
        "clustered_on": _flagged(relation, "clustered"),
        "comments": Comments(
            constraints=_comments(relation.constraints),
            indexes=_comments(relation.indexes) | _comments(relation.constraints, "index_comment"),
            statistics=_comments(relation.statistics),
            **comments,
        ),
    }


def _table_properties(relation: SourceRelation, sequences: Collection[SourceSequence]) -> dict[str, Any]:
    """Return the options that only tables and partitions have."""
    unlogged = relation.row["persistence"] == "unlogged"
    return {
        "partition_by": relation.row["partition_by"],
        "row_security": relation.row["row_security"],
        "replica_identity": relation.row["replica_identity"] or _flagged(relation, "replica_identity"),
        "constraint_storage": {
            row["name"]: row["storage_parameters"] for row in relation.constraints if row["storage_parameters"]
        },
        **recorded_states(sequences, unlogged=unlogged),
    }


def _extension_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the extensions that a relation needs, and the schemas of those that do not lie in `public`."""
    extensions = relation.used.extensions
    schemas = {name: schema for name, schema in extensions.items() if schema != "public"}
    return {"extensions": list(extensions), "extension_schemas": schemas}


def _column_options(relation: SourceRelation) -> dict[str, ColumnOptions]:
    not_null = {row["columns"][0]: row for row in relation.constraints if row["kind"] == "n"}
    options, is_partition = {}, relation.row["is_partition"]
    for column in relation.columns:
        row = not_null.get(column.name)
        usual_name = f"{relation.name.table}_{column.name}_not_null"
        found = ColumnOptions(
            **{name: column.row[name] for name in ColumnSettings.model_fields if column.row[name] is not None},
            inherited=column.row["inherited"],
            not_null_name=row["name"] if row and row["name"] != usual_name else None,
            not_null_no_inherit=bool(row and row["no_inherit"]),
            not_null_inherited=bool(row and not row["local"]),
            not_null_local=bool(row and row["local"] and relation.parents and not is_partition),
            not_null_not_valid=row["name"] if row and not row["valid"] else None,
        )
        if found.values():
            options[column.name] = found
    return options


def _parts(rows: Iterable[dict[str, Any]]) -> list[PartitionPart]:
    return [PartitionPart(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in rows]


def _comments(rows: Iterable[dict[str, Any]], of: str = "comment") -> dict[str, str]:
    """Return comments, which rows have under the key `of`, by the name of the object."""
    return {row["name"]: row[of] for row in rows if row[of] is not None}


def sequence_comments(sequences: Iterable[SourceSequence]) -> dict[str, str]:
    """Return the comments of sequences by their full names."""
    return {each.document.table_name.dotted: each.comment for each in sequences if each.comment is not None}


def _flagged(relation: SourceRelation, flag: str) -> str | None:
    """Return the name of the first constraint or index that has a flag."""
    return next((row["name"] for row in (*relation.constraints, *relation.indexes) if row[flag]), None)
