"""Foreign keys of a target: the order of tables in a replacement, and the refusal to delete referenced rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Reference:
    """A foreign key in the target.

    Attributes:
        child: Referencing relation: `table`, or a partition of it with a foreign key of its own.
        table: Table to which the referencing rows belong.
        referred: Referenced relation: `parent`, or a partition of it.
        parent: Table to which the referenced rows belong.
        match: SQL condition of row `c` of `child` referring to row `p` of `referred`.
    """

    name: str
    child: TableName
    table: TableName
    referred: TableName
    parent: TableName
    match: str


def parents_first(tables: Sequence[TableName], references: Sequence[Reference]) -> list[TableName]:
    """Return tables in an order that lets foreign keys accept their rows; tables in a circle keep their order."""
    parents: dict[TableName, set[TableName]] = {name: set() for name in tables}
    for each in references:
        if each.table in parents and each.parent in parents:
            parents[each.table].add(each.parent)
    order: dict[TableName, None] = {}

    def place(name: TableName, above: frozenset[TableName]) -> None:
        if name not in order:
            for parent in sorted(parents[name] - above - {name}):
                place(parent, above | {name})
            order.setdefault(name)

    for name in tables:
        place(name, frozenset())
    return list(order)


def refusal(chunk: int, reference: Reference, *, with_children: bool) -> str:
    """Return the message that refuses to delete rows to which other rows refer.

    Args:
        chunk: The chunk of the rows.
        reference: The foreign key.
        with_children: Whether the database can delete them after the referencing rows, in the same transaction.
    """
    reason = "and DuckDB cannot delete them, not even together with the rows that refer to them"
    remedy = "Restore into a new file"
    if with_children:
        reason = "from rows that are not replaced with them"
        remedy = "Drop that foreign key, replace the chunk, and add the key again; or restore into an empty database"
    return (
        f"Chunk {chunk} cannot be replaced: foreign key {reference.name} of {reference.table} refers to rows of"
        f" {reference.parent} that would be deleted, {reason}. Nothing was changed. {remedy}."
    )
