"""The new name of everything in a snapshot that a renaming affects.

A table takes along what belongs to it: its partitions, the sequences that its columns own, its indexes and its
statistics. If the table's own name changes, theirs do too, because the old table may be in the target. Types and other
sequences follow their schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot_assets.databases.convert.renaming import LONGEST, Renaming, check_distinct, derived_name
from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.options import RelationOptions, SchemaOptions, TableOptions, TypeDefinition, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName


class Names:
    """New names by old ones.

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
        self._checks: set[tuple[TableName, str]] = set()
        self._statistics: dict[tuple[TableName, str], str] = {}
        for item in (*schema.tables, *schema.views):
            self.relations[item.table_name] = renaming.table(item.table_name)
        kinds = [kind for table in schema.tables for kind in table.types]
        for table in schema.tables:
            self._add_table(table)
        for view in schema.views:
            of_view = ViewOptions.of(view)
            self._add_options(view.table_name, of_view)
            self._add_indexes(view.table_name, [index.name for index in of_view.indexes])
            kinds += of_view.types
        for options in map(SchemaOptions.of, schema.schemas):  # types and sequences that no table uses
            kinds += options.types
            for sequence in options.sequences:
                self._sequences.setdefault(sequence.table_name, self.by_schema(sequence.table_name))
        types: dict[TableName, TableName] = {}
        for kind in kinds:
            types[kind.table_name] = self.by_schema(kind.table_name)
            if multirange := TypeDefinition.of_type(kind).multirange:
                checked_sql.name_text(multirange, f"multirange of {kind.table_name}")
                name = _full_name(multirange, kind.table_name)
                types[name] = self.by_schema(name)
        self._check(types)
        self.objects: Mapping[TableName, TableName] = {**types, **self._sequences, **self.relations}
        self._dotted = {old.dotted: new.dotted for old, new in self.objects.items()}

    def __getitem__(self, name: TableName) -> TableName:
        """Return the new name of a table, view, partition, sequence or type."""
        return self.objects.get(name, name)

    def by_schema(self, name: TableName) -> TableName:
        """Return the new name of an object that follows its schema."""
        return TableName(self._renaming.schema(name.schema), name.table)

    def follower(self, name: TableName, relation: TableName) -> TableName:
        """Return the new name of an object that belongs to a relation, by the relation's old name."""
        new = self.relations.get(relation, relation)
        schema = new.schema if name.schema == relation.schema else self._renaming.schema(name.schema)
        return TableName(schema, derived_name(name.table, relation.table, new.table))

    def index(self, relation: TableName, name: str) -> str:
        """Return the new name of an index, or of a constraint that has one, of a relation by its old name."""
        return self.follower(TableName(relation.schema, name), relation).table

    def constraint(self, relation: TableName, name: str) -> str:
        """Return the new name of a constraint or index of a relation; of those without an index only a NOT NULL has."""
        not_null = name.startswith(f"{relation.table}_") and name.endswith("_not_null")  # as the server names it
        named_so = not_null and (relation, name) not in self._checks
        return self.index(relation, name) if named_so or (relation, name) in self._indexes else name

    def statistics(self, relation: TableName, name: str) -> str:
        """Return the new name of a relation's statistics, both without a schema if it is the relation's."""
        return self._statistics.get((relation, name), name)

    def sequence(self, name: str) -> str:
        """Return the new `schema.name` of a sequence."""
        return self._dotted.get(name, name)

    def multirange(self, kind: TableName, name: str) -> str:
        """Return the new name of a type's multirange, in SQL."""
        return qualified(self[_full_name(name, kind)])

    def _add_options(self, relation: TableName, options: RelationOptions) -> None:
        for definition in options.statistics:
            if match := checked_sql.STATISTICS.fullmatch(definition):
                old = _full_name(match["name"], relation)
                new = self.follower(old, relation)
                self._statistics |= {(relation, old.dotted): new.dotted, (relation, old.table): new.table}

    def _add_table(self, table: Table) -> None:
        name, options = table.table_name, TableOptions.of(table)
        self._add_options(name, options)
        for part in options.partitions:
            partition = part.table_name
            self.relations[partition] = self.follower(partition, name)
            self._add_options(partition, part)
            self._add_indexes(partition, [each.name for each in (*part.keys, *part.indexes)])
            checks = (*part.constraints, *part.inherited_checks)
            self._checks.update((partition, each.name) for each in checks if not each.is_key)
            for each in part.sequences:
                self._add_sequence(each.table_name, partition, owned=each.owned)
        for sequence in table.sequences:
            self._add_sequence(sequence.table_name, name, owned=sequence.owned)
        keys = [key.name for key in (table.primary_key, *table.unique) if key is not None and key.name]
        exclusions = [check.name for check in table.checks if check.definition.startswith("EXCLUDE")]
        self._add_indexes(name, [*keys, *exclusions, *(index.name for index in table.indexes)])
        self._checks.update((name, check.name) for check in table.checks)

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


def _full_name(text: str, beside: TableName) -> TableName:
    """Return the name that a text is, without a schema in that of another object."""
    schema, name = checked_sql.split_name(text)
    return TableName(schema or beside.schema, name)
