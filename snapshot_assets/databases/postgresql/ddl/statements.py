"""What the parts of a definition share: what is restored, what is lost, and how a statement is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.databases.target import Statement
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName


@dataclass
class Making:
    """One definition while it is made.

    Attributes:
        schema: What is restored.
        expressions: Whether SQL text of the documents is restored.
        tables: The tables by name.
        partition_keys: How those tables are cut that are restored with their partitions.
        relations: Names of all tables, partitions and views.
        left_out: Indexes that are not restored, by table.
        lost: What cannot be restored, a sentence each.
    """

    schema: DatabaseSchema
    expressions: bool
    tables: Mapping[TableName, Table] = field(init=False)
    partition_keys: dict[TableName, str] = field(default_factory=dict)
    relations: set[TableName] = field(init=False)
    left_out: set[tuple[TableName, str]] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {table.table_name: table for table in self.schema.tables}
        for table in self.schema.tables:
            self._note_partition_key(table)
        parts = {part_name(part) for table in self.schema.tables for part in self.partitions(table)}
        self.relations = {*self.tables, *parts, *(view.table_name for view in self.schema.views)}

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
        found: list[dict[str, Any]] = table.options.get("partitions", [])
        return found if table.table_name in self.partition_keys else []

    def lose(self, sentence: str) -> None:
        """Note what is not restored."""
        if sentence not in self.lost:
            self.lost.append(sentence)

    def allows(self, what: str, plain: bool = False) -> bool:
        """Tell whether something that holds SQL text is restored, and note it if not.

        Args:
            what: What it is, as a sentence begins.
            plain: Whether it holds names and constants only, which are restored in any case.
        """
        if not (plain or self.expressions):
            self.lose(f"{what} is left out: it is SQL text of the snapshot.")
        return plain or self.expressions


def capital(words: str) -> str:
    """Return text as a sentence begins, the names in it left as they are."""
    return words[:1].upper() + words[1:]


def part_name(part: Mapping[str, Any]) -> TableName:
    """Return a partition's name."""
    return TableName(part["schema"], part["name"])


def alter(table: TableName, action: str, *, makes: str, of: TableName | None = None, only: bool = True) -> Statement:
    """Return an ALTER TABLE.

    Args:
        table: What is altered.
        action: What is done.
        makes: What it makes, for messages.
        of: Table or view that `table` belongs to, if it is a partition.
        only: Whether its heirs and partitions are left alone.
    """
    return Statement(makes, f"ALTER TABLE {'ONLY ' if only else ''}{qualified(table)} {action}", of or table)


def comment(kind: str, name: str, told: str | None, makes: str, of: TableName | None) -> Iterable[Statement]:
    """Yield the statement that comments on something, if there is a comment.

    Args:
        kind: Such as `TABLE`.
        name: Its name in SQL.
        told: The comment.
        makes: The thing, for messages.
        of: Table or view that it belongs to.
    """
    if told is not None:
        yield Statement(f"comment on {makes}", f"COMMENT ON {kind} {name} IS {literal(told)}", of)


def column_comments(comments: Mapping[str, str | None], relation: TableName, of: TableName) -> Iterable[Statement]:
    """Yield the comments of a relation's columns."""
    for column, told in comments.items():
        name = f"{qualified(relation)}.{identifier(column)}"
        yield from comment("COLUMN", name, told, f"column {relation}.{column}", of)


def storage(options: Mapping[str, Any], inner: str) -> str:
    """Return ` USING …` and ` WITH (…)` of a relation.

    Args:
        options: Its options.
        inner: Its storage parameters, as text.
    """
    method = options.get("access_method")
    using = f" USING {identifier(str(method))}" if method else ""
    return f"{using} WITH ({inner})" if inner else using


def unlogged(options: Mapping[str, Any]) -> str:
    """Return `UNLOGGED ` for an unlogged table."""
    return "UNLOGGED " if options.get("persistence") == "unlogged" else ""
