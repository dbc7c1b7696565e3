"""Builds the `options` of tables, partitions and views: properties for which documents have no field.

An option that has no value is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from snapshot_assets.databases.postgresql.introspect.relations import KINDS, SourceRelation
from snapshot_assets.databases.postgresql.introspect.sequences import (
    SourceSequence,
    recorded_identity_sequences,
    recorded_persistence,
    recorded_restarts,
)
from snapshot_assets.format.relations import Index

_STORAGE = ("persistence", "access_method", "tablespace", "storage_parameters", "toast_storage_parameters")


def table_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the options of a relation that is exported as a table."""
    return _present(
        **_shared_options(relation, sequences=sequence_comments(relation.sequences)),
        **_table_properties(relation, relation.sequences),
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
    sequences = [each for each in relation.sequences if each.document.owned or each.document.column in own_default]
    return {
        "schema": relation.name.schema,
        "name": relation.name.table,
        "of": list(relation.parents[0].name),
        "bounds": relation.row["bounds"],
        **_present(
            **_shared_options(relation, columns=_comments(own.values()), sequences=sequence_comments(sequences)),
            **_table_properties(relation, sequences),
            relation=KINDS[relation.kind] if relation.kind == "f" else None,
            column_order=list(own),
            defaults=_present(**{name: row["default"] for name, row in own.items() if name not in generated}),
            generated={name: own[name]["default"] for name in own if name in generated & own_default},
            not_null=[name for name, row in own.items() if row["not_null"] and not inherited[name]["not_null"]],
            identities=_own_identities(relation),
            identity_sequences=recorded_identity_sequences(sequences),
            constraints=_definitions(row for row in relation.constraints if row["kind"] in "puxf" or _is_local(row)),
            inherited_checks=_definitions(
                row for row in relation.constraints if row["kind"] == "c" and not row["local"]
            ),
            indexes=_definitions(relation.indexes),
            sequences=[each.document.model_dump(mode="json", by_alias=True) for each in sequences],
            comment=relation.row["comment"],
        ),
    }


def _shared_options(relation: SourceRelation, **comments: dict[str, str]) -> dict[str, Any]:
    """Return the options that tables, partitions and views have in common."""
    return {
        **{name: relation.row[name] for name in _STORAGE},
        "columns": _column_options(relation),
        "statistics": [row["definition"] for row in relation.statistics],
        "statistics_targets": _present(**{row["name"]: row["target"] for row in relation.statistics}),
        "index_statistics_targets": {
            row["name"]: json.loads(row["statistics_targets"]) for row in relation.indexes if row["statistics_targets"]
        },
        "index_tablespaces": _present(**{row["name"]: row["tablespace"] for row in _with_index(relation)}),
        "clustered_on": _flagged(relation, "clustered"),
        "comments": _present(
            constraints=_comments(relation.constraints),
            indexes=_comments(relation.indexes) | _comments(relation.constraints, "index_comment"),
            statistics=_comments(relation.statistics),
            **comments,
        ),
        "not_carried": relation.not_carried,
    }


def _table_properties(relation: SourceRelation, sequences: Iterable[SourceSequence]) -> dict[str, Any]:
    """Return the options that only tables and partitions have."""
    unlogged = relation.row["persistence"] == "unlogged"
    return {
        "partition_by": relation.row["partition_by"],
        "row_security": relation.row["row_security"],
        "replica_identity": relation.row["replica_identity"] or _flagged(relation, "replica_identity"),
        "constraint_storage": _present(**{row["name"]: row["storage_parameters"] for row in relation.constraints}),
        "sequence_persistence": recorded_persistence(sequences, unlogged=unlogged),
        "sequence_restarts": recorded_restarts(sequences),
    }


def _extension_options(relation: SourceRelation) -> dict[str, Any]:
    """Return the extensions that a relation needs, and the schemas of those that do not lie in `public`."""
    extensions = relation.used.extensions
    schemas = {name: schema for name, schema in extensions.items() if schema != "public"}
    return {"extensions": list(extensions), "extension_schemas": schemas}


def _column_options(relation: SourceRelation) -> dict[str, Any]:
    not_null = {row["columns"][0]: row for row in relation.constraints if row["kind"] == "n"}
    options, is_partition = {}, relation.row["is_partition"]
    for column in relation.columns:
        row = not_null.get(column.name)
        usual_name = f"{relation.name.table}_{column.name}_not_null"
        options[column.name] = _present(
            **{name: column.row[name] for name in ("storage", "compression", "statistics_target", "options")},
            inherited=column.row["inherited"],
            not_null_name=row["name"] if row and row["name"] != usual_name else None,
            not_null_no_inherit=row["no_inherit"] if row else None,
            not_null_inherited=not row["local"] if row else None,
            not_null_local=row["local"] and bool(relation.parents) and not is_partition if row else None,
            not_null_not_valid=row["name"] if row and not row["valid"] else None,
        )
    return _present(**options)


def _definitions(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_present(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in rows]


def _comments(rows: Iterable[dict[str, Any]], of: str = "comment") -> dict[str, str]:
    """Return comments, which rows have under the key `of`, by the name of the object."""
    return {row["name"]: row[of] for row in rows if row[of] is not None}


def sequence_comments(sequences: Iterable[SourceSequence]) -> dict[str, str]:
    """Return the comments of sequences by their full names."""
    return {each.document.table_name.dotted: each.comment for each in sequences if each.comment is not None}


def _own_identities(part: SourceRelation) -> dict[str, str]:
    """Return the identity of the columns of a partition that have their own sequence, as PostgreSQL 16 allowed."""
    own = {each.document.column for each in part.sequences if each.internal}
    return {column.name: column.row["identity"] for column in part.columns if column.name in own}


def _is_local(row: dict[str, Any]) -> bool:
    return row["kind"] == "c" and bool(row["local"])


def _with_index(relation: SourceRelation) -> Iterable[dict[str, Any]]:
    return (*relation.constraints, *relation.indexes)


def _flagged(relation: SourceRelation, flag: str) -> str | None:
    """Return the name of the first constraint or index that has a flag."""
    return next((row["name"] for row in _with_index(relation) if row[flag]), None)


def _present(**values: Any) -> dict[str, Any]:
    """Return the values except None, false and empty ones. Zero is a value."""
    return {name: value for name, value in values.items() if not (value is None or value is False or value in ([], {}))}
