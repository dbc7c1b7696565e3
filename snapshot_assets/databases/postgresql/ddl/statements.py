"""Shared by all modules that build statements: the context of a restore, and common statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.sql import literal
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName


@dataclass
class RestoreContext:
    """The schema that is restored, and what the statements built so far leave out.

    Attributes:
        schema: What is restored.
        expressions: Whether SQL text of the documents is restored.
        tables: The tables by name.
        partition_keys: Partition keys of the tables that are restored with their partitions.
        relations: Names of all tables, partitions and views.
        over_foreign_tables: Partitioned relations with a partition, at any level, that was a foreign table.
        left_out: Constraints and indexes that are not restored, by relation.
        lost: What is not restored, a sentence each.
    """

    schema: DatabaseSchema
    expressions: bool
    tables: Mapping[TableName, Table] = field(init=False)
    partition_keys: dict[TableName, str] = field(default_factory=dict)
    relations: set[TableName] = field(init=False)
    over_foreign_tables: set[TableName] = field(default_factory=set)
    left_out: set[tuple[TableName, str]] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {table.table_name: table for table in self.schema.tables}
        for table in self.schema.tables:
            self._note_partition_key(table)
            self._note_foreign_tables(self.partitions(table))
        parts = {part_name(part) for table in self.schema.tables for part in self.partitions(table)}
        self.relations = {*self.tables, *parts, *(view.table_name for view in self.schema.views)}

    def _note_foreign_tables(self, partitions: list[dict[str, Any]]) -> None:
        for part in reversed(partitions):  # parents come first in the list
            if part.get("relation") == "foreign table" or part_name(part) in self.over_foreign_tables:
                self.over_foreign_tables.add(TableName(*part["of"]))

    def _note_partition_key(self, table: Table) -> None:
        name, options = table.table_name, table.options
        keys = [options.get("partition_by"), *(part.get("partition_by") for part in options.get("partitions", ()))]
        if keys[0] is None:
            return
        parsed = [text.partition_key(key, f"partition key of {name}") for key in keys if key is not None]
        if self.expressions or all(plain for _, plain in parsed):
            self.partition_keys[name] = parsed[0][0]
        else:
            self.lose(f"Table {name} is restored without partitions: its partition key is SQL text of the snapshot.")

    def partitions(self, table: Table) -> list[dict[str, Any]]:
        """Return the partitions that a table is restored with, parents first."""
        partitions: list[dict[str, Any]] = table.options.get("partitions", [])
        return partitions if table.table_name in self.partition_keys else []

    def lose(self, sentence: str) -> None:
        """Record a sentence about something that is not restored."""
        if sentence not in self.lost:
            self.lost.append(sentence)

    def lose_uncarried(self, options: Mapping[str, Any], relation: TableName | None = None) -> None:
        """Record the objects of a relation or schema that a snapshot does not carry."""
        of = f" of {relation}" if relation else ""
        for name in options.get("not_carried", ()):
            self.lose(f"{capital(str(name))}{of} is not in a snapshot.")

    def allows(self, what: str, plain: bool = False) -> bool:
        """Return whether an object is restored that may consist of SQL text; if not, record it as lost.

        Args:
            what: The object, for the beginning of a sentence.
            plain: Whether it consists of names and constants only; then it is always restored.
        """
        if not (plain or self.expressions):
            self.lose(f"{what} is left out: it is SQL text of the snapshot.")
        return plain or self.expressions


def capital(text: str) -> str:
    """Return text with a capital first letter; names in it do not change."""
    return text[:1].upper() + text[1:]


def part_name(part: Mapping[str, Any]) -> TableName:
    """Return a partition's name."""
    return TableName(part["schema"], part["name"])


def alter(table: TableName, action: str, *, makes: str, of: TableName | None = None, only: bool = True) -> Statement:
    """Return an ALTER TABLE.

    Args:
        table: The table or partition to alter.
        action: The action in SQL.
        makes: The object that the action creates, for messages.
        of: Table or view to which `table` belongs, if it is a partition.
        only: Whether tables that inherit from it, and partitions, stay as they are.
    """
    return Statement(makes, f"ALTER TABLE {'ONLY ' if only else ''}{qualified(table)} {action}", of or table)


def comment(
    kind: str, name: str, content: str | None, makes: str, of: TableName | None, unless: str = ""
) -> Iterable[Statement]:
    """Yield the statement that comments on an object, if there is a comment.

    Args:
        kind: Such as `TABLE`.
        name: The object in SQL.
        content: The comment.
        makes: The object, for messages.
        of: Table or view to which the object belongs.
        unless: See `Statement`.
    """
    if content is not None:
        yield Statement(f"comment on {makes}", f"COMMENT ON {kind} {name} IS {literal(content)}", of, unless)


def column_comments(comments: Mapping[str, str | None], relation: TableName, of: TableName) -> Iterable[Statement]:
    """Yield the comments of a relation's columns."""
    for column, content in comments.items():
        name = f"{qualified(relation)}.{identifier(column)}"
        yield from comment("COLUMN", name, content, f"column {relation}.{column}", of)


def storage(options: Mapping[str, Any], parameters: str) -> str:
    """Return ` USING …` and ` WITH (…)` of a relation.

    Args:
        options: Its options.
        parameters: Its storage parameters in SQL.
    """
    method = options.get("access_method")
    using = f" USING {identifier(str(method))}" if method else ""
    return f"{using} WITH ({parameters})" if parameters else using


def unlogged(options: Mapping[str, Any]) -> str:
    """Return `UNLOGGED ` for an unlogged table, else nothing."""
    return "UNLOGGED " if options.get("persistence") == "unlogged" else ""
