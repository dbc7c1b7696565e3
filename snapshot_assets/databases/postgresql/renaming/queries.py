"""Writes new names into the queries of views, as ALTER TABLE … RENAME would make the server write them.

In a query `a.b` may be a relation, a type, or a column of the table with the alias `a`. A relation is only in a FROM
clause, at the start of an item; a type follows `::` or the name of a column. If a table's own name changes, it gets the
old one as its alias, so that references to its columns stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from snapshot_assets.databases.postgresql.renaming.names import Names
from snapshot_assets.databases.postgresql.renaming.texts import (
    Edit,
    Token,
    edited,
    pair_at,
    reference_at,
    reference_text,
    tokens,
)
from snapshot_assets.databases.sql import identifier, qualified
from snapshot_assets.format.relations import TableName

_ENDS_FROM = frozenset(
    ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "FETCH", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "FOR")
)
_BEFORE_ITEM = frozenset(("FROM", "JOIN", "ONLY", ",", "("))
_AFTER_ITEM = _ENDS_FROM | {"JOIN", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "INNER", "ON", "USING", "TABLESAMPLE"}


def renamed_query(text: str, names: Names, reads: Collection[TableName]) -> str | None:
    """Return a view's query with new names.

    Args:
        text: The query, as the server writes it with an empty search path.
        names: New names.
        reads: The relations that the server says the view reads.

    Returns:
        The query; None if the relations that it is found to name are not those that it reads.
    """
    inner = text.strip().removesuffix(";")
    query = _Query(inner)
    changed = {old: new for old, new in names.objects.items() if old != new}
    named, found = query.relations(), query.found()
    missed = changed.keys() & set(reads) & query.pairs() - found
    if missed or named & names.relations.keys() - set(reads) or not query.is_understood:
        return None
    return edited(inner, query.edits(changed))


class _Query:
    """The tokens of a query, and which of them name relations."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._items = _from_items(self._tokens)

    @property
    def is_understood(self) -> bool:
        """Whether it is SQL as the server writes it."""
        return bool(self._tokens)

    def pairs(self) -> set[TableName]:
        """Return everything of the form `a.b` that may name a relation or type."""
        return self._pairs(range(len(self._tokens)))

    def relations(self) -> set[TableName]:
        """Return the relations of its FROM clauses."""
        return self._pairs(self._items)

    def found(self) -> set[TableName]:
        """Return everything that is known to name a relation or type."""
        every = range(len(self._tokens))
        references = {name for index in every if (name := reference_at(self._tokens, index)) is not None}
        return self.relations() | references | self._pairs(index for index in every if self._is_cast(index))

    def _pairs(self, indexes: Iterable[int]) -> set[TableName]:
        return {pair for index in indexes if (pair := pair_at(self._tokens, index)) is not None}

    def edits(self, names: Mapping[TableName, TableName]) -> Iterator[Edit]:
        """Yield the replacements that write new names."""
        for index, token in enumerate(self._tokens):
            pair, reference = pair_at(self._tokens, index), reference_at(self._tokens, index)
            if reference is not None and reference in names:
                yield Edit(token.start, token.end, reference_text(names[reference]))
            elif pair is not None and pair in names and (index in self._items or self._is_type(index)):
                new = qualified(names[pair])
                if index in self._items and names[pair].table != pair.table and not self._has_alias(index + 3):
                    new += f" {identifier(pair.table)}"
                yield Edit(token.start, self._tokens[index + 2].end, new)

    def _is_cast(self, index: int) -> bool:
        return [part.text for part in self._tokens[max(index - 2, 0) : index]] == [":", ":"]

    def _is_type(self, index: int) -> bool:
        before = self._tokens[index - 1] if index else None
        follows_name = before is not None and (before.name is not None or before.text in ("AS", "RETURNING"))
        return follows_name or self._is_cast(index)

    def _has_alias(self, index: int) -> bool:
        after = self._tokens[index] if index < len(self._tokens) else None
        return after is not None and after.text not in _AFTER_ITEM and after.kind in ("word", "name")


def _from_items(parts: list[Token]) -> set[int]:
    """Return the indexes of the tokens that begin an item of a FROM clause.

    Each level of parentheses is a list of a SELECT's results, a FROM clause, or anything else.
    """
    items: set[int] = set()
    levels = [""]
    for index, part in enumerate(parts):
        before = parts[index - 1].text if index else ""
        if levels[-1] == "from" and before in _BEFORE_ITEM:
            items.add(index)
        if part.text in ("(", "["):
            levels.append("from" if levels[-1] == "from" and before in _BEFORE_ITEM else "")
        elif part.text in (")", "]") and len(levels) > 1:
            levels.pop()
        elif part.text == "SELECT":
            levels[-1] = "select"
        elif part.text == "FROM" and levels[-1] == "select" and not _is_distinct_from(parts, index):
            levels[-1] = "from"
        elif part.text in _ENDS_FROM and levels[-1] == "from":  # not the GROUP of `WITHIN GROUP`
            levels[-1] = ""
    return items


def _is_distinct_from(parts: list[Token], index: int) -> bool:
    """Return whether a FROM is that of `IS DISTINCT FROM`."""
    return [part.text for part in parts[max(index - 2, 0) : index]] in (["IS", "DISTINCT"], ["NOT", "DISTINCT"])
