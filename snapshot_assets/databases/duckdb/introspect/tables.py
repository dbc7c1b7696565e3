"""What DuckDB's catalog says about tables, in the words of the schema documents."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.columns import choose_time_index
from snapshot_assets.databases.duckdb.names import Schemas
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.duckdb.sql import identifier, literal
from snapshot_assets.databases.duckdb.types import TIMESTAMPS, carry
from snapshot_assets.databases.selection import carrier_override
from snapshot_assets.databases.source import Selection
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKey,
    Sequence,
    Table,
    TableName,
    UniqueConstraint,
)

_RELATIONS = """
    SELECT schema_oid, table_name, table_oid, comment, false FROM duckdb_tables()
    WHERE database_name = $1 AND NOT internal
    UNION ALL
    SELECT schema_oid, view_name, view_oid, comment, true FROM duckdb_views()
    WHERE database_name = $1 AND NOT internal
"""
_COLUMNS = """
    SELECT table_oid, column_name, is_nullable, column_default, is_generated, comment
    FROM duckdb_columns() WHERE database_name = $1 AND NOT internal ORDER BY table_oid, column_index
"""
_CONSTRAINTS = """
    SELECT table_oid, constraint_type, constraint_name, constraint_column_names, constraint_text,
        referenced_table, referenced_column_names
    FROM duckdb_constraints() WHERE database_name = $1 ORDER BY table_oid, constraint_index
"""
_INDEXES = """
    SELECT table_oid, index_name, is_unique, expressions, sql FROM duckdb_indexes()
    WHERE database_name = $1 AND NOT is_primary ORDER BY table_oid, index_name
"""
_SEQUENCES = """
    SELECT sequence_oid, schema_oid, sequence_name, start_value, increment_by, min_value, max_value, cycle, last_value
    FROM duckdb_sequences() WHERE database_name = $1 AND NOT temporary ORDER BY schema_oid, sequence_name
"""
_DEPENDENCIES = "SELECT objid, refobjid FROM duckdb_dependencies() ORDER BY refobjid, objid"
_NEXTVAL = re.compile(r"\bnextval\('((?:[^']|'')*)'\)")


@dataclass(frozen=True)
class DuckDBRelation:
    """A table or view that may be exported.

    Attributes:
        oid: DuckDB's object id.
        is_view: Whether it is a view.
    """

    oid: int
    name: TableName
    is_view: bool
    comment: str | None


class TableReader:
    """Describes the tables and views of an open database."""

    def __init__(self, session: DuckDBSession, schemas: Schemas) -> None:
        self._session = session
        self._schemas = schemas
        self._columns = self._by_table(_COLUMNS)
        self._constraints = self._by_table(_CONSTRAINTS)
        self._indexes = self._by_table(_INDEXES)
        self.relations: dict[TableName, DuckDBRelation] = {}
        for schema, name, oid, comment, is_view in session.rows(_RELATIONS, [session.database]):
            table = TableName(schemas.names[schema], name)
            self.relations[table] = DuckDBRelation(oid, table, is_view, comment)
        self._sequences: dict[int, Sequence] = {
            oid: _sequence(schemas.names[schema], name, *facts)
            for oid, schema, name, *facts in session.rows(_SEQUENCES, [session.database])
        }
        self._draws: list[tuple[int, int]] = [
            (sequence, table) for sequence, table in session.rows(_DEPENDENCIES) if sequence in self._sequences
        ]

    def _by_table(self, query: str) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for table, *facts in self._session.rows(query, [self._session.database]):
            found[table].append(tuple(facts))
        return found

    def column_names(self, name: TableName) -> list[str]:
        """Return the names of a relation's columns; none if it is a view that no longer works."""
        return [facts[0] for facts in self._columns[self.relations[name].oid]]

    def types(self, name: TableName) -> dict[str, DuckDBPyType]:
        """Return a relation's columns and their types.

        Raises:
            DatabaseError: It is a view that does not work, or reads files outside the database.
        """
        return self._session.types(f"FROM {self._schemas.relation(name)}", f"looking at {name}")

    def columns(self, name: TableName, selection: Selection) -> tuple[Column, ...]:
        """Describe the columns of a table or view."""
        types = self.types(name)
        facts = {facts[0]: facts for facts in self._columns[self.relations[name].oid]}
        collations = {} if self.relations[name].is_view else self._collations(name)
        return tuple(
            self._column(name, column, kind, facts[column], collations.get(column), selection)
            for column, kind in types.items()
        )

    def _column(
        self,
        name: TableName,
        column: str,
        kind: DuckDBPyType,
        facts: tuple[Any, ...],
        collation: str | None,
        selection: Selection,
    ) -> Column:
        _, nullable, default, generated, comment = facts
        carried = carry(kind, carrier_override(selection, name, column), column_text(ColumnPath(name, column)))
        return Column(
            name=column,
            type=str(kind),
            arrow_type=arrow_type_text(carried.arrow),
            carrier=carried.carrier,
            nullable=nullable,
            default=None if generated else default,
            generated=default if generated else None,
            generated_kind="virtual" if generated else None,
            collation=collation,
            comment=comment,
        )

    def _collations(self, name: TableName) -> dict[str, str]:
        """Return the collations of a table's columns, which only a serialised query plan tells."""
        query = literal(f"FROM {self._schemas.relation(name)}")
        plan = json.loads(self._session.rows(f"SELECT json_serialize_plan({query})")[0][0])
        projection = plan["plans"][0]
        kinds = {each["alias"]: each["return_type"]["type_info"] or {} for each in projection.get("expressions", ())}
        return {column: info["collation"] for column, info in kinds.items() if info.get("collation")}

    def table(self, name: TableName, selection: Selection) -> Table:
        """Describe a table, or a view that is exported as one."""
        relation = self.relations[name]
        columns = self.columns(name, selection)
        kinds = self.types(name)
        time_index = choose_time_index(
            name,
            selection.time_columns,
            timestamps=[column for column, kind in kinds.items() if kind.id in TIMESTAMPS],
            dates=[column for column, kind in kinds.items() if kind.id == "date"],
        )
        constraints = self._constraints[relation.oid]
        return Table(
            schema_name=name.schema,
            name=name.table,
            columns=columns,
            time_index=time_index,
            primary_key=next((_primary_key(facts) for facts in constraints if facts[0] == "PRIMARY KEY"), None),
            unique=tuple(_unique(facts) for facts in constraints if facts[0] == "UNIQUE"),
            checks=tuple(
                CheckConstraint(name=facts[1], definition=facts[3]) for facts in constraints if facts[0] == "CHECK"
            ),
            foreign_keys=tuple(_foreign_key(name.schema, facts) for facts in constraints if facts[0] == "FOREIGN KEY"),
            indexes=tuple(self._index(columns, facts) for facts in self._indexes[relation.oid]),
            sequences=self._drawn(name, columns),
            options={"view": True} if relation.is_view else {},
            comment=relation.comment,
        )

    def _index(self, columns: tuple[Column, ...], facts: tuple[Any, ...]) -> Index:
        name, unique, expressions, definition = facts
        # A list in DuckDB's own text: a column by its name, quoted where need be, an expression in parentheses.
        keys = self._session.rows("SELECT CAST(? AS VARCHAR[])", [expressions])[0][0]
        by_text = {text: column.name for column in columns for text in (column.name, identifier(column.name))}
        return Index(
            name=name,
            columns=tuple(by_text[key] for key in keys if key in by_text),
            unique=unique,
            definition=definition,
        )

    def _drawn(self, name: TableName, columns: tuple[Column, ...]) -> tuple[Sequence, ...]:
        """Return the sequences that the columns' defaults draw from, each with the first such column."""
        owner = self.relations[name].oid
        return tuple(
            self._sequences[sequence].model_copy(update={"column": _drawing_column(self._sequences[sequence], columns)})
            for sequence, table in self._draws
            if table == owner
        )

    def loose_sequences(self, schema: str) -> list[Sequence]:
        """Return a schema's sequences that no table draws from."""
        drawn = {sequence for sequence, _ in self._draws}
        return [each for oid, each in self._sequences.items() if oid not in drawn and each.schema_name == schema]


def _drawing_column(sequence: Sequence, columns: tuple[Column, ...]) -> str | None:
    names = (sequence.name.lower(), identifier(sequence.name).lower())
    for column in columns:
        for text in _NEXTVAL.findall(column.default or ""):
            if text.replace("''", "'").lower().endswith(names):
                return column.name
    return None


def _sequence(schema: str, name: str, *facts: Any) -> Sequence:
    start, increment, minimum, maximum, cycle, last = facts
    return Sequence(
        schema_name=schema,
        name=name,
        start=start,
        increment=increment,
        minimum=minimum,
        maximum=maximum,
        cycle=cycle,
        last_value=last,
    )


def _primary_key(facts: tuple[Any, ...]) -> PrimaryKey:
    return PrimaryKey(name=facts[1], columns=tuple(facts[2]), definition=facts[3])


def _unique(facts: tuple[Any, ...]) -> UniqueConstraint:
    return UniqueConstraint(name=facts[1], columns=tuple(facts[2]), definition=facts[3])


def _foreign_key(schema: str, facts: tuple[Any, ...]) -> ForeignKey:
    return ForeignKey(
        name=facts[1],
        columns=tuple(facts[2]),
        referenced_schema=schema,  # DuckDB has no foreign keys between schemas
        referenced_table=facts[4],
        referenced_columns=tuple(facts[5]),
        definition=facts[3],
    )
