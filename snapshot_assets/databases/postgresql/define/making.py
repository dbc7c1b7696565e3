"""What the parts of a definition share: what is restored, what is lost, and how a statement is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
        relations: Names of all tables, partitions and views.
        lost: What cannot be restored, a sentence each.
    """

    schema: DatabaseSchema
    expressions: bool
    tables: Mapping[TableName, Table] = field(init=False)
    relations: set[TableName] = field(init=False)
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {table.table_name: table for table in self.schema.tables}
        parts = {part_name(part) for table in self.schema.tables for part in partitions(table)}
        self.relations = {*self.tables, *parts, *(view.table_name for view in self.schema.views)}

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


def partitions(table: Table) -> list[dict[str, Any]]:
    """Return the partitions of a table, parents first."""
    found: list[dict[str, Any]] = table.options.get("partitions", [])
    return found


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


def comment(kind: str, name: str, text: str | None, makes: str, of: TableName | None) -> Iterable[Statement]:
    """Yield the statement that comments on something, if there is a comment.

    Args:
        kind: Such as `TABLE`.
        name: Its name in SQL.
        text: The comment.
        makes: The thing, for messages.
        of: Table or view that it belongs to.
    """
    if text is not None:
        yield Statement(f"comment on {makes}", f"COMMENT ON {kind} {name} IS {literal(text)}", of)


def column_comments(comments: Mapping[str, str | None], relation: TableName, of: TableName) -> Iterable[Statement]:
    """Yield the comments of a relation's columns."""
    for column, text in comments.items():
        name = f"{qualified(relation)}.{identifier(column)}"
        yield from comment("COLUMN", name, text, f"column {relation}.{column}", of)


def storage(options: Mapping[str, Any], inner: str) -> str:
    """Return ` USING …` and ` WITH (…)` of a relation.

    Args:
        options: Its options.
        inner: Its storage parameters, as text.
    """
    method = options.get("access_method")
    using = f" USING {identifier(str(method))}" if method else ""
    return f"{using} WITH ({inner})" if inner else using
