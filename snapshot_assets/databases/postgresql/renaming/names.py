"""The new name of everything in a snapshot that a renaming affects.

A table takes along what belongs to it: its partitions, the sequences that its columns own, its indexes and its
statistics. If the table's own name changes, theirs do too, because the old table may be in the target. Types and other
sequences follow their schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.databases.renaming import LONGEST, Renaming, check_distinct, derived_name
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, UserType, View


class Names:
    """New names by old ones.

    Args:
        schema: The documents that are restored.
        renaming: New names of schemas and tables.

    Raises:
        PlanError: Two objects would have one name.

    Attributes:
        relations: New names of tables, views and partitions.
        objects: The same, and those of sequences and types: what SQL text may name.
    """

    def __init__(self, schema: DatabaseSchema, renaming: Renaming) -> None:
        self._renaming = renaming
        self.relations: dict[TableName, TableName] = {}
        self._sequences: dict[TableName, TableName] = {}
        self._indexes: set[tuple[TableName, str]] = set()
        items: list[Table | View] = [*schema.tables, *schema.views]
        for item in items:
            self.relations[item.table_name] = renaming.table(item.table_name)
        for table in schema.tables:
            self._add_table(table)
        for view in schema.views:
            self._add_indexes(view.table_name, [index["name"] for index in view.options.get("indexes", ())])
        kinds = [kind for item in items for kind in _types(item)]
        for each in schema.schemas:  # types and sequences that no table uses
            kinds += map(UserType.model_validate, each.options.get("types", ()))
            for sequence in each.options.get("sequences", ()):
                old = TableName(sequence["schema"], sequence["name"])
                self._sequences.setdefault(old, self.by_schema(old))
        types = {name: self.by_schema(name) for kind in kinds for name in _type_names(kind)}
        self._check(types)
        self.objects: Mapping[TableName, TableName] = {**types, **self._sequences, **self.relations}

    def __getitem__(self, name: TableName) -> TableName:
        """Return the new name of a table, view, partition, sequence or type."""
        return self.objects.get(name, name)

    def by_schema(self, name: TableName) -> TableName:
        """Return the new name of an object that follows its schema."""
        return TableName(self._renaming.schema(name.schema), name.table)

    def follower(self, name: TableName, relation: TableName) -> TableName:
        """Return the new name of an object that belongs to a relation, by the relation's old name."""
        new = self.relations[relation]
        schema = new.schema if name.schema == relation.schema else self._renaming.schema(name.schema)
        return TableName(schema, derived_name(name.table, relation.table, new.table))

    def index(self, relation: TableName, name: str) -> str:
        """Return the new name of an index, or of a constraint that has one, of a relation by its old name."""
        return self.follower(TableName(relation.schema, name), relation).table

    def constraint(self, relation: TableName, name: str) -> str:
        """Return the new name of a constraint or index of a relation; of those without an index only a NOT NULL has."""
        not_null = name.startswith(f"{relation.table}_") and name.endswith("_not_null")  # as the server names it
        return self.index(relation, name) if not_null or (relation, name) in self._indexes else name

    def _add_table(self, table: Table) -> None:
        name = table.table_name
        for part in table.options.get("partitions", ()):
            partition = TableName(part["schema"], part["name"])
            self.relations[partition] = self.follower(partition, name)
            self._add_indexes(partition, [*_index_constraints(part.get("constraints", ())), *_named(part, "indexes")])
            for each in part.get("sequences", ()):
                self._add_sequence(TableName(each["schema"], each["name"]), partition, owned=bool(each.get("owned")))
        for sequence in table.sequences:
            self._add_sequence(sequence.table_name, name, owned=sequence.owned)
        keys = [key.name for key in (table.primary_key, *table.unique) if key is not None and key.name]
        exclusions = [check.name for check in table.checks if check.definition.startswith("EXCLUDE")]
        self._add_indexes(name, [*keys, *exclusions, *(index.name for index in table.indexes)])

    def _add_sequence(self, name: TableName, relation: TableName, *, owned: bool) -> None:
        """Add a sequence that a relation uses; its owner, if it has one, decides its name."""
        if owned:
            self._sequences[name] = self.follower(name, relation)
        else:
            self._sequences.setdefault(name, self.by_schema(name))

    def _add_indexes(self, relation: TableName, names: Sequence[str]) -> None:
        self._indexes.update((relation, name) for name in names)

    def _check(self, types: Mapping[TableName, TableName]) -> None:
        """Refuse two objects of one name: relations share a namespace with indexes and sequences, and with types."""
        relations = [(f"table {old}", new) for old, new in self.relations.items()]
        sequences = [(f"sequence {old}", new) for old, new in self._sequences.items()]
        indexes = [
            (f"index {name} of {relation}", TableName(self.relations[relation].schema, self.index(relation, name)))
            for relation, name in sorted(self._indexes)
        ]
        check_distinct([*relations, *sequences, *indexes])
        check_distinct([*relations, *((f"type {old}", new) for old, new in types.items())])
        for old, new in self.relations.items():
            if max(len(part.encode()) for part in new) > LONGEST:
                message = f"{old} cannot be named {new}: PostgreSQL's names have up to {LONGEST} bytes."
                raise RestoreError(message, name=str(new))


def _types(item: Table | View) -> Sequence[UserType]:
    return item.types if isinstance(item, Table) else [UserType.model_validate(each) for each in types_of(item)]


def _type_names(kind: UserType) -> Iterator[TableName]:
    """Yield the names of a type, and of its multirange."""
    yield kind.table_name
    multirange = kind.definition.get("multirange")
    if kind.kind == "range" and isinstance(multirange, str):
        schema, name = checked_sql.split_name(multirange)
        yield TableName(schema or kind.schema_name, name)


def types_of(view: View) -> Sequence[Mapping[str, Any]]:
    """Return the documents of the types that a view uses."""
    types: Sequence[Mapping[str, Any]] = view.options.get("types", ())
    return types


def _named(part: Mapping[str, Any], option: str) -> list[str]:
    return [each["name"] for each in part.get(option, ())]


def _index_constraints(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names of the constraints that have an index."""
    for row in rows:
        if not row["definition"].startswith(("CHECK", "FOREIGN KEY")):
            yield row["name"]
