"""New names for schemas and tables of a restore, `--map-schema` and `--map-table`, and names that a target cannot have.

`TargetModule.rename` applies a renaming to schema documents, with everything in them that names a renamed object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeVar

from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.name_texts import printed_name, shell_word, written_name
from snapshot_assets.format.names import ColumnPath, NameRule, table_text
from snapshot_assets.format.options import PartitionPlaces
from snapshot_assets.format.relations import DatabaseSchema, ForeignKey, Schema, Table, TableName, View
from snapshot_assets.format.units import counted

_Name = TypeVar("_Name", str, TableName)
_OF_PUBLIC = "standard public schema"
"""PostgreSQL's own comment on the schema `public`."""

LONGEST = 63
"""Bytes of the longest name in PostgreSQL, which cuts longer ones."""


@dataclass(frozen=True)
class Renaming:
    """Which schemas and tables get which new names; empty renames nothing. A table's own rule precedes its schema's.

    Attributes:
        schemas: Old and new name of each renamed schema, sorted.
        tables: Old and new name of each renamed table or view, sorted.
    """

    schemas: tuple[tuple[str, str], ...] = ()
    tables: tuple[tuple[TableName, TableName], ...] = ()

    @classmethod
    def of(
        cls, schemas: Iterable[tuple[str, str]] = (), tables: Iterable[tuple[TableName, TableName]] = ()
    ) -> Renaming:
        """Return the renaming of pairs of an old and a new name.

        Raises:
            PlanError: An old name has two new ones, or a new name has two old ones.
        """
        return cls(tuple(_one_to_one(schemas, "schema")), tuple(_one_to_one(tables, "table")))

    def __bool__(self) -> bool:
        """Return whether anything is renamed."""
        return bool(self.schemas or self.tables)

    def schema(self, name: str) -> str:
        """Return the new name of a schema."""
        return self._new_schemas.get(name, name)

    def table(self, name: TableName) -> TableName:
        """Return the new name of a table, a view, or anything else in a schema."""
        return self._new_tables.get(name) or TableName(self.schema(name.schema), name.table)

    @cached_property
    def _new_schemas(self) -> Mapping[str, str]:
        return dict(self.schemas)

    @cached_property
    def _new_tables(self) -> Mapping[TableName, TableName]:
        return dict(self.tables)

    def values(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "schemas": [list(pair) for pair in self.schemas],
            "tables": [[list(name) for name in pair] for pair in self.tables],
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Renaming:
        """Return the renaming that `values` wrote."""
        tables = tuple((TableName(*old), TableName(*new)) for old, new in values.get("tables", ()))
        return cls(tuple((old, new) for old, new in values.get("schemas", ())), tables)

    def __str__(self) -> str:
        """Return it for a message."""
        tables = (f"{old} as {new}" for old, new in self.tables)
        return ", ".join([*(f"schema {old} as {new}" for old, new in self.schemas), *tables])


def _one_to_one(pairs: Iterable[tuple[_Name, _Name]], what: str) -> list[tuple[_Name, _Name]]:
    by_old: dict[_Name, _Name] = {}
    by_new: dict[_Name, _Name] = {}
    for old, new in pairs:
        if by_old.setdefault(old, new) != new:
            raise PlanError(f"The {what} {old} is mapped to both {by_old[old]} and {new}; map it once.")
        if by_new.setdefault(new, old) != old:
            raise PlanError(
                f"The {what}s {by_new[new]} and {old} are both mapped to {new}; give each a new name of its own."
            )
    return sorted((old, new) for old, new in by_old.items() if old != new)


def check_renaming(renaming: Renaming, schema: DatabaseSchema, restored: Collection[TableName]) -> None:
    """Refuse a renaming of what a snapshot does not have, or that gives two relations one name.

    `schema` has all documents of the snapshot, and `restored` the tables and views that are restored.

    Raises:
        UnknownRelationError: An old name is not in the snapshot; the message lists similar names.
        PlanError: An old name is not selected, or two relations would have one name.
    """
    relations = {item.table_name for item in (*schema.tables, *schema.views)}
    schemas = {item.name for item in schema.schemas} | {name.schema for name in relations}
    for old, _ in renaming.schemas:
        if old not in schemas:
            raise UnknownRelationError(
                f"Schema {old!r} is mapped, but is not in the snapshot. {suggestion(old, schemas)}", schema=old
            )
    partitions = {
        part.table_name: table.table_name for table in schema.tables for part in PartitionPlaces.of(table).partitions
    }
    for name, _ in renaming.tables:
        if name in partitions:
            raise PlanError(
                f"{name} is a partition and follows its table; map {partitions[name]}.",
                table=table_text(name),
            )
        if name not in relations:
            known = suggestion(str(name), [str(each) for each in relations])
            message = f"Table '{name}' is mapped, but is not in the snapshot. {known}"
            raise UnknownRelationError(message, table=table_text(name))
        if name not in restored:
            raise PlanError(f"Table {name} is mapped, but is not among the selected tables.", table=table_text(name))
    for table in schema.tables:
        if "large_objects" in table.options and renaming.table(table.table_name) != table.table_name:
            raise PlanError(f"{table.table_name} holds large objects, which keep their place: do not map it.")
    if reserved := [name for name in sorted(restored) if renaming.table(name).schema == LEDGER_SCHEMA]:
        raise PlanError(f"{reserved[0]} cannot be mapped into {LEDGER_SCHEMA}, which is the schema of the ledger.")
    check_distinct((f"table {name}", renaming.table(name)) for name in sorted(restored))


def check_distinct(named: Iterable[tuple[str, TableName]]) -> None:
    """Refuse names that two objects would have, given by what each is in the snapshot, and its new name.

    Raises:
        PlanError: Two objects would have one name; names them.
    """
    by_new: dict[TableName, str] = {}
    for what, new in named:
        if (other := by_new.setdefault(new, what)) != what:
            raise PlanError(
                f"{capital(other)} and {what} would both be {new} in the target. Map one of their tables"
                " to another name.",
                name=str(new),
            )


def derived_name(name: str, old: str, new: str) -> str:
    """Return the name of an object that belongs to a table which is renamed: `orders_pkey` becomes `sales_pkey`.

    The old table may be in the target too, and indexes, sequences and partitions share its namespace.
    """
    if old == new:
        return name
    own = name[len(old) :] if name.startswith(f"{old}_") else f"_{name}"
    return fitting_name(f"{new}{own}")


def fitting_name(name: str) -> str:
    """Return a name, or one of `LONGEST` bytes in its place that no other long name gets."""
    if len(name.encode()) <= LONGEST:
        return name
    short = name.encode()[: LONGEST - 9].decode(errors="ignore")
    return f"{short}_{sha256(name.encode()).hexdigest()[:8]}"


def renamed_foreign_keys(keys: Sequence[ForeignKey], names: Mapping[TableName, TableName]) -> Iterator[ForeignKey]:
    """Yield foreign keys to the new names of the tables that they refer to; their definitions do not change."""
    for key in keys:
        new = names.get(key.referenced, key.referenced)
        yield key.model_copy(update={"referenced_schema": new.schema, "referenced_table": new.table})


def renamed_schemas(
    schema: DatabaseSchema,
    renaming: Renaming,
    options: Callable[[Schema], Mapping[str, Any]] = lambda each: each.options,
) -> tuple[Schema, ...]:
    """Return the documents of schemas by their new names, without those whose tables and views all moved elsewhere.

    `options` returns the options of a schema with new names.
    """
    items: list[Table | View] = [*schema.tables, *schema.views]
    before = {item.schema_name for item in items}
    after = {renaming.table(item.table_name).schema for item in items}
    renamed: dict[str, Schema] = {}
    for each in sorted(schema.schemas, key=lambda each: renaming.schema(each.name) != each.name):
        new = renaming.schema(each.name)
        if new == each.name and new in before - after and not each.options:
            continue
        first = renamed.get(new, Schema(name=new, comment=None if each.comment == _OF_PUBLIC else each.comment))
        renamed[new] = first.model_copy(update={"options": _together(first.options, options(each))})
    return tuple(renamed[name] for name in sorted(renamed))


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of two schemas that become one."""
    both = dict(one)
    for key, value in other.items():
        if isinstance(value, list):
            both[key] = [*both.get(key, ()), *value]
        elif isinstance(value, dict):
            both[key] = _together(both.get(key, {}), value)
        else:
            both[key] = value
    return both


def renamed_tables(schema: DatabaseSchema, renaming: Renaming) -> DatabaseSchema:
    """Return documents whose tables have their new names, where nothing else in them names a table but foreign keys."""
    names = {table.table_name: renaming.table(table.table_name) for table in schema.tables}
    tables = []
    for table in schema.tables:
        new, keys = names[table.table_name], tuple(renamed_foreign_keys(table.foreign_keys, names))
        update = {"schema_name": new.schema, "name": new.table, "foreign_keys": keys}
        tables.append(table.model_copy(update=update))
    return schema.model_copy(update={"schemas": renamed_schemas(schema, renaming), "tables": tuple(tables)})


def clashes(schema: DatabaseSchema, title: str, rule: NameRule) -> Iterator[str]:
    """Yield a sentence for each group of names that one kind of database, by its title and rule, cannot tell apart."""
    relations = [(each.schema_name, each.name) for each in (*schema.tables, *schema.views)]
    for group in _alike(((name,) for name, _ in relations), rule):
        yield (
            f"Schemas {_listed(group)} would be one in {title}, which ignores case in names. Give --map-schema"
            f" {shell_word(written_name(*group[0]))}=<other name>, or choose one with --schemas."
        )
    for group in _alike(relations, rule):
        if len({name for name, _ in group}) == 1:  # else their schemas clash
            yield (
                f"Tables {_listed(group)} would be one in {title}, which ignores case in names. Give --map-table"
                f" {shell_word(written_name(*group[0]))}=<schema>.<other name>, or leave one out with --tables."
            )
    yield from alike_columns(schema, title, rule)


def alike_columns(schema: DatabaseSchema, title: str, rule: NameRule) -> Iterator[str]:
    """Yield a sentence for each group of a table's columns that one kind of database cannot tell apart."""
    for table in schema.tables:
        for columns in _alike(((column.name,) for column in table.columns), rule):
            yield (
                f"Columns {_listed(columns)} of {table.table_name} would be one in {title}, which ignores case in"
                " their names. Rename one in the source, or export a view with another name for it."
            )


def _listed(group: Iterable[tuple[str, ...]]) -> str:
    return " and ".join(printed_name(*each) for each in group)


def _alike(names: Iterable[tuple[str, ...]], rule: NameRule) -> Iterator[list[tuple[str, ...]]]:
    """Yield the groups of different names that a rule takes for equal."""
    groups: dict[tuple[str, ...], dict[tuple[str, ...], None]] = defaultdict(dict)
    for name in names:
        groups[rule.key(name)][name] = None
    yield from (list(group) for group in groups.values() if len(group) > 1)


def too_long(schema: DatabaseSchema, title: str, longest: int, unit: str = "byte") -> tuple[str, ...]:
    """Return a sentence for each name that a kind of database cuts or refuses: an import would not find it again.

    Args:
        schema: The documents.
        title: What messages call the kind.
        longest: The greatest length of a name.
        unit: What the length counts: `byte` or `character`.
    """
    names = [("Schema", printed_name(each.name), each.name) for each in schema.schemas]
    relations: list[Table | View] = [*schema.tables, *schema.views]
    for relation in relations:
        name = relation.table_name
        names.append(("Table", str(name), relation.name))
        names += [("Column", str(ColumnPath(name, column.name)), column.name) for column in relation.columns]
    lengths = {each: len(each[2].encode() if unit == "byte" else each[2]) for each in names}
    return tuple(
        f"{what} {shown} has a name of {counted(length, unit)}; {title} has at most {longest}."
        " Rename it in the source, or leave it out."
        for (what, shown, _), length in lengths.items()
        if length > longest
    )
