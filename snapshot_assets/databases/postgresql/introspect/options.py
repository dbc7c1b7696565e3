"""Reads the columns of relations, and builds the `options` of tables, partitions and views.

Options are properties for which documents have no field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.introspect.relations import KINDS, SourceRelation
from snapshot_assets.databases.postgresql.introspect.sequences import (
    SourceSequence,
    recorded_identity_sequences,
    recorded_persistence,
    recorded_restarts,
)
from snapshot_assets.databases.postgresql.session import PostgresqlConnection, oid_array
from snapshot_assets.databases.postgresql.types import SourceType
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
        identities=_own_identities(relation),
        identity_sequences=recorded_identity_sequences(sequences),
        constraints=_parts(row for row in relation.constraints if row["kind"] in "puxf" or _is_check(row, local=True)),
        inherited_checks=_parts(row for row in relation.constraints if _is_check(row, local=False)),
        indexes=_parts(relation.indexes),
        sequences=[each.document for each in sequences],
        comment=relation.row["comment"],
    )


def _shared_options(relation: SourceRelation, **comments: dict[str, str]) -> dict[str, Any]:
    """Return the options that tables, partitions and views have in common."""
    with_index = (*relation.constraints, *relation.indexes)
    return {
        **_given(relation.row, _STORAGE),
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


def _table_properties(relation: SourceRelation, sequences: Iterable[SourceSequence]) -> dict[str, Any]:
    """Return the options that only tables and partitions have."""
    unlogged = relation.row["persistence"] == "unlogged"
    return {
        "partition_by": relation.row["partition_by"],
        "row_security": relation.row["row_security"],
        "replica_identity": relation.row["replica_identity"] or _flagged(relation, "replica_identity"),
        "constraint_storage": {
            row["name"]: row["storage_parameters"] for row in relation.constraints if row["storage_parameters"]
        },
        "sequence_persistence": recorded_persistence(sequences, unlogged=unlogged),
        "sequence_restarts": recorded_restarts(sequences),
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
            **_given(column.row, ColumnSettings.model_fields),
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


def _given(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if row[name] is not None}


def _parts(rows: Iterable[dict[str, Any]]) -> list[PartitionPart]:
    return [PartitionPart(name=row["name"], definition=row["definition"], parent=row["parent"]) for row in rows]


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


def _is_check(row: dict[str, Any], *, local: bool) -> bool:
    return row["kind"] == "c" and row["local"] is local


def _flagged(relation: SourceRelation, flag: str) -> str | None:
    """Return the name of the first constraint or index that has a flag."""
    return next((row["name"] for row in (*relation.constraints, *relation.indexes) if row[flag]), None)


# The base type of each type, after all domains.
_BASE = """
WITH RECURSIVE base (declared, oid, kind, next, modifier) AS (
    SELECT t.oid, t.oid, t.typtype, t.typbasetype, t.typtypmod FROM pg_type t WHERE t.oid IN ({types})
    UNION ALL
    SELECT b.declared, t.oid, t.typtype, t.typbasetype, CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE b.modifier END
    FROM base b JOIN pg_type t ON t.oid = b.next WHERE b.kind = 'd'
)"""

_BASE_COLUMNS = """
    bn.nspname::text AS base_schema, bt.typname::text AS base_name, bt.typtype::text AS base_kind,
    t.typtype = 'd' AS domain, pn.nspname::text AS output_schema, p.proname::text AS output_name,
    p.proargtypes[0] = bt.oid OR argument.typtype = 'p' AS callable"""

_BASE_JOINS = """
JOIN base b ON b.declared = t.oid AND b.kind <> 'd'
JOIN pg_type bt ON bt.oid = b.oid
JOIN pg_namespace bn ON bn.oid = bt.typnamespace
JOIN pg_proc p ON p.oid = bt.typoutput
JOIN pg_type argument ON argument.oid = p.proargtypes[0]
JOIN pg_namespace pn ON pn.oid = p.pronamespace"""

_TYPES = f"""{_BASE}
SELECT t.oid::int8 AS oid, format_type(t.oid, -1) AS type,
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE -1 END AS modifier, {_BASE_COLUMNS}
FROM pg_type t {_BASE_JOINS}
WHERE t.oid IN ({{types}})
"""

_COLUMNS = f"""{_BASE.format(types="SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = ANY ({oids})")}
SELECT a.attrelid::int8 AS relation, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
    a.atttypid::int8 AS type_oid, a.attnotnull AS not_null,
    CASE WHEN a.atthasdef THEN pg_get_expr(d.adbin, d.adrelid) END AS default,
    CASE a.attgenerated WHEN 's' THEN 'stored' WHEN 'v' THEN 'virtual' END AS generated_kind,
    CASE a.attidentity WHEN 'a' THEN 'always' WHEN 'd' THEN 'by default' END AS identity,
    CASE WHEN a.attcollation <> t.typcollation THEN
        (SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname)
         FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation)
    END AS collation,
    col_description(a.attrelid, a.attnum) AS comment,
    CASE WHEN a.attstorage <> t.typstorage THEN
        CASE a.attstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main' ELSE 'extended' END
    END AS storage,
    CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END AS compression,
    nullif(a.attstattarget, -1)::int AS statistics_target, a.attoptions::text[] AS options,
    NOT a.attislocal AS inherited,
    CASE t.typtype WHEN 'd' THEN b.modifier ELSE a.atttypmod END AS modifier, {_BASE_COLUMNS}
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid {_BASE_JOINS}
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY ({{oids}}) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source; `row` is its row of the query, with all other properties."""

    name: str
    type: SourceType
    row: dict[str, Any]


def read_columns(session: PostgresqlConnection, relations: Iterable[int]) -> dict[int, list[SourceColumn]]:
    """Return the columns of relations in order, by the relation's oid."""
    columns: dict[int, list[SourceColumn]] = {}
    for row in session.rows(_COLUMNS.format(oids=oid_array(relations)), "reading columns"):
        columns.setdefault(row["relation"], []).append(SourceColumn(row["name"], _type_of(row), row))
    return columns


def read_types(session: PostgresqlConnection, oids: Iterable[int]) -> dict[int, SourceType]:
    """Return types by their oid, without a modifier but that of a domain."""
    types = ", ".join(map(str, sorted(set(oids))))
    return {row["oid"]: _type_of(row) for row in session.rows(_TYPES.format(types=types), "reading types")}


def _type_of(row: dict[str, Any]) -> SourceType:
    return SourceType(
        text=row["type"],
        schema=row["base_schema"],
        name=row["base_name"],
        kind=row["base_kind"],
        modifier=row["modifier"],
        domain=row["domain"],
        output=(row["output_schema"], row["output_name"]) if row["callable"] else None,
    )
