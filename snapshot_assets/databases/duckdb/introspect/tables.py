"""Reads the tables of DuckDB's catalog into schema documents."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.time_predicates import TIMESTAMPS
from snapshot_assets.databases.duckdb.types import carry
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import Carried
from snapshot_assets.databases.selection.hidden import hidden_of
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import (
    CheckConstraint,
    Column,
    Document,
    ForeignKey,
    Index,
    PrimaryKey,
    Sequence,
    Table,
    TableName,
    UniqueConstraint,
)

# A query names its columns as the documents' fields, and those that are no fields in capitals.
_RELATIONS = """
    SELECT schema_oid, table_name, table_oid, comment, NULL FROM duckdb_tables()
    WHERE database_name = $1 AND NOT internal
    UNION ALL
    SELECT schema_oid, view_name, view_oid, comment, sql FROM duckdb_views()
    WHERE database_name = $1 AND NOT internal
"""
_COLUMNS = """
    SELECT table_oid AS OWNER, column_name AS name, is_nullable AS nullable, comment, is_generated AS IS_GENERATED,
        column_default AS EXPRESSION
    FROM duckdb_columns() WHERE database_name = $1 AND NOT internal ORDER BY table_oid, column_index
"""
_CONSTRAINTS = """
    SELECT table_oid AS OWNER, constraint_type AS KIND, constraint_name AS name, constraint_text AS definition,
        constraint_column_names AS columns, referenced_table, referenced_column_names AS referenced_columns
    FROM duckdb_constraints() WHERE database_name = $1 ORDER BY table_oid, constraint_index
"""
_INDEXES = """
    SELECT table_oid AS OWNER, index_name AS name, is_unique AS unique, sql AS definition, expressions AS KEYS
    FROM duckdb_indexes() WHERE database_name = $1 AND NOT is_primary ORDER BY table_oid, index_name
"""
_SEQUENCES = """
    SELECT sequence_oid AS OID, schema_oid AS SCHEMA_OID, sequence_name AS name, start_value AS start,
        increment_by AS increment, min_value AS minimum, max_value AS maximum, cycle, last_value
    FROM duckdb_sequences() WHERE database_name = $1 AND NOT temporary ORDER BY schema_oid, sequence_name
"""
_DEPENDENCIES = "SELECT objid, refobjid FROM duckdb_dependencies() ORDER BY refobjid, objid"
_NEXTVAL = re.compile(r"\bnextval\('((?:[^']|'')*)'\)")

_Records = list[dict[str, Any]]
_Part = TypeVar("_Part", bound=Document)


@dataclass(frozen=True)
class _Relation:
    """A table or view that may be exported, with DuckDB's object id."""

    oid: int
    comment: str | None
    view: str | None  # the statement that creates a view


class TableReader:
    """Describes the tables and views of an open database, by the names of its schemas by object id.

    Attributes:
        sequences: By object id.
        draws: Object ids of a sequence and of a table that draws from it.
    """

    def __init__(self, session: DuckDBSession, schemas: Mapping[int, str]) -> None:
        self._session = session
        self._columns = self._by_owner(_COLUMNS)
        self._constraints = self._by_owner(_CONSTRAINTS)
        self._indexes = self._by_owner(_INDEXES)
        self.relations: dict[TableName, _Relation] = {}
        for schema, name, *properties in session.rows(_RELATIONS, [session.database]):
            self.relations[TableName(schemas[schema], name)] = _Relation(*properties)
        self.sequences: dict[int, Sequence] = {}
        for record in session.records(_SEQUENCES, [session.database]):
            oid, schema_oid = record.pop("OID"), record.pop("SCHEMA_OID")
            self.sequences[oid] = Sequence(schema_name=schemas[schema_oid], **record)
        self.draws: list[tuple[int, int]] = [
            (sequence, table) for sequence, table in session.rows(_DEPENDENCIES) if sequence in self.sequences
        ]

    def _by_owner(self, query: str) -> dict[int, _Records]:
        by_owner: dict[int, _Records] = defaultdict(list)
        for record in self._session.records(query, [self._session.database]):
            by_owner[record.pop("OWNER")].append(record)
        return by_owner

    def column_names(self, name: TableName) -> list[str]:
        """Return the names of a relation's columns; none if it is a view that no longer works."""
        return [record["name"] for record in self._columns[self.relations[name].oid]]

    def columns(self, name: TableName, selection: Selection, refusals: Refusals) -> tuple[Column, ...]:
        """Describe the columns of a table or view; see `DuckDBConnection.column_types` for errors."""
        types = self._session.column_types(name)
        records = {record["name"]: record for record in self._columns[self.relations[name].oid]}
        collations: dict[str, str | None] = {}
        if not self.relations[name].view:  # only a serialised query plan contains them
            query = literal(f"FROM {self._session.relation(name)}")
            plan = json.loads(self._session.rows(f"SELECT json_serialize_plan({query})")[0][0])
            for each in plan["plans"][0].get("expressions", ()):
                collations[each["alias"]] = (each["return_type"]["type_info"] or {}).get("collation") or None
        columns, hidden = [], hidden_of(selection, name)
        for column, kind in types.items():
            if column in hidden.excluded:
                continue
            with refusals.noting():
                carried = carry(kind, selection.carriers.get((name, column)), column_text(ColumnPath(name, column)))
                columns.append(_column(records[column], kind, carried, collations.get(column)))
        return tuple(columns)

    def table(self, name: TableName, selection: Selection, refusals: Refusals) -> Table:
        """Describe a table, or a view that is exported as one."""
        relation = self.relations[name]
        columns, time_index = self.columns(name, selection, refusals), None
        with refusals.noting():
            time_index = choose_time_index(
                name,
                selection.time_columns,
                timestamps=[column.name for column in columns if column.type in TIMESTAMPS],
                dates=[column.name for column in columns if column.type == "DATE"],
            )
        by_kind: dict[str, _Records] = defaultdict(list)
        for record in self._constraints[relation.oid]:
            # DuckDB has no foreign keys between schemas.
            by_kind[record["KIND"]].append(record | {"referenced_schema": name.schema})
        by_text = {text: column.name for column in columns for text in (column.name, identifier(column.name))}
        indexes = []
        for record in self._indexes[relation.oid]:
            # A list in DuckDB's own text: a column by its name, quoted if necessary, an expression in parentheses.
            keys = self._session.rows("SELECT CAST(? AS VARCHAR[])", [record["KEYS"]])[0][0]
            indexes.append(record | {"columns": tuple(by_text[key] for key in keys if key in by_text)})
        drawn = (self.sequences[sequence] for sequence, drawer in self.draws if drawer == relation.oid)
        return Table(
            schema_name=name.schema,
            name=name.table,
            columns=columns,
            time_index=time_index,
            primary_key=next(iter(_parts(PrimaryKey, by_kind["PRIMARY KEY"])), None),
            unique=_parts(UniqueConstraint, by_kind["UNIQUE"]),
            checks=_parts(CheckConstraint, by_kind["CHECK"]),
            foreign_keys=_parts(ForeignKey, by_kind["FOREIGN KEY"]),
            indexes=_parts(Index, indexes),
            sequences=tuple(each.model_copy(update={"column": _drawing_column(each, columns)}) for each in drawn),
            options={"view": True} if relation.view else {},
            comment=relation.comment,
        )


def _parts(model: type[_Part], records: _Records) -> tuple[_Part, ...]:
    return tuple(model(**{field: record[field] for field in model.model_fields}) for record in records)


def _column(record: dict[str, Any], kind: DuckDBPyType, carried: Carried, collation: str | None) -> Column:
    generated = record["IS_GENERATED"]
    return Column(
        name=record["name"],
        type=str(kind),
        arrow_type=arrow_type_text(carried.arrow),
        carrier=carried.carrier,
        nullable=record["nullable"],
        default=None if generated else record["EXPRESSION"],
        generated=record["EXPRESSION"] if generated else None,
        generated_kind="virtual" if generated else None,
        collation=collation,
        comment=record["comment"],
    )


def _drawing_column(sequence: Sequence, columns: tuple[Column, ...]) -> str | None:
    """Return the first column whose default draws from a sequence."""
    names = (sequence.name.lower(), identifier(sequence.name).lower())
    for column in columns:
        for text in _NEXTVAL.findall(column.default or ""):
            if text.replace("''", "'").lower().endswith(names):
                return column.name
    return None
