"""Foreign keys in a target: in which order a replaced chunk's rows go and come, and which rows must not go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Reference:
    """One foreign key that is in the target.

    Attributes:
        name: Its name.
        child: Relation whose rows refer: `table` itself, or a partition that has a foreign key of its own.
        table: Table that those rows belong to.
        referred: Relation that they refer to: `parent` itself, or a partition.
        parent: Table that the rows belong to that they refer to.
        match: SQL condition that holds where row `c` of `child` refers to row `p` of `referred`.
    """

    name: str
    child: TableName
    table: TableName
    referred: TableName
    parent: TableName
    match: str


def parents_first(tables: Sequence[TableName], references: Sequence[Reference]) -> list[TableName]:
    """Return tables in the order in which foreign keys let rows in, those of a circle as they come."""
    parents = {
        name: {each.parent for each in references if each.table == name and each.parent in tables} for name in tables
    }
    order: list[TableName] = []

    def place(name: TableName, above: frozenset[TableName]) -> None:
        if name not in order:
            for parent in sorted(parents[name] - above - {name}):
                place(parent, above | {name})
            if name not in order:
                order.append(name)

    for name in tables:
        place(name, frozenset())
    return order


def refusal(chunk: int, reference: Reference, *, with_children: bool) -> str:
    """Return the sentences that say why rows are not deleted that others refer to.

    Args:
        chunk: The chunk whose rows would be.
        reference: By which foreign key.
        with_children: Whether the database deletes them once the rows are deleted that refer to them.
    """
    says = f"Chunk {chunk} cannot be replaced: foreign key {reference.name} of {reference.table} refers to"
    if with_children:
        return (
            f"{says} rows of {reference.parent} that would be deleted, from rows that are not replaced with them."
            " Nothing was changed. Drop that foreign key, replace the chunk, and add the key again; or restore into an"
            " empty database."
        )
    return (
        f"{says} rows of {reference.parent} that would be deleted, and DuckDB deletes no such row, not even together"
        " with those that refer to it. Nothing was changed. Restore into a new file."
    )
