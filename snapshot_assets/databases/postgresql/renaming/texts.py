"""Writes new names into SQL text of PostgreSQL: expressions, types, and definitions of keys and indexes.

The server writes such text with an empty search path, so every name of a user's object has its schema. An expression
has no aliases: a qualified name in it is a type, a function, a collation or an operator class, and a string that is
cast to `regclass` or passed to `nextval` names a relation. Text of another form is left as it is, and is refused when
statements are built from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.databases.postgresql.renaming.names import Names
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.format.relations import TableName

_CASTS = tuple(
    [*before, ":", ":", kind] for before in ([], [":", ":", "text", ")"]) for kind in ("regclass", "regtype")
)
"""What follows a string that names a relation or type: `'s.t'::regclass`, and `('s.t'::text)::regclass`."""

_WORDS = re.compile(r"[a-z_][a-z0-9_]*")


_ENDS_FROM = frozenset(
    ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "FETCH", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "FOR")
)
_BEFORE_ITEM = frozenset(("FROM", "JOIN", "ONLY", ",", "("))
_AFTER_ITEM = _ENDS_FROM | {"JOIN", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "INNER", "ON", "USING", "TABLESAMPLE"}


class Token(NamedTuple):
    """A part of a text; `kind` is a group of `checked_sql.TOKEN`."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str | None:
        """The identifier that it is; None for anything else. A keyword is in capitals, an unquoted name is not."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text if self.kind == "word" and _WORDS.fullmatch(self.text) else None


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text without its spaces; none if it is not SQL as the server writes it."""
    found, place = [], 0
    while place < len(text):
        match = checked_sql.TOKEN.match(text, place)
        if match is None:
            return []
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match.group(), place, match.end()))
        place = match.end()
    return found


def _apply(text: str, edits: Iterable[_Edit]) -> str:
    """Return a text with replacements, which are in order."""
    parts, place = [], 0
    for edit in edits:
        parts += [text[place : edit.start], edit.text]
        place = edit.end
    return "".join([*parts, text[place:]])


def _replaced(match: re.Match[str], **groups: str) -> str:
    """Return the text of a match with other texts in place of some groups, given in order."""
    return _apply(match.string, [_Edit(*match.span(group), text) for group, text in groups.items()])


def _pair_at(parts: list[Token], index: int) -> TableName | None:
    """Return the qualified name that begins at a token; None if it is anything else, also a function."""
    if index + 2 >= len(parts) or parts[index + 1].text != "." or (index and parts[index - 1].text == "."):
        return None
    schema, name = parts[index].name, parts[index + 2].name
    called = index + 3 < len(parts) and parts[index + 3].text == "("
    collation = index > 0 and parts[index - 1].text == "COLLATE"
    return None if schema is None or name is None or called or collation else TableName(schema, name)


def _reference_at(parts: list[Token], index: int) -> TableName | None:
    """Return the relation or type that a string names by a cast, or `nextval('s.t')`; None if it names none."""
    if parts[index].kind != "string":
        return None
    after = [part.text for part in parts[index + 1 : index + 8]]
    before = [part.text for part in parts[max(index - 2, 0) : index]]
    cast = any(after[: len(each)] == each and after[len(each) :][:1] != ["["] for each in _CASTS)
    if not cast and before != ["nextval", "("]:
        return None
    constant = parts[index].text
    content = constant[1:-1] if constant.startswith("'") else constant[2:-1].replace("\\\\", "\\")
    return checked_sql.qualified_name(content.replace("''", "'"))


class Texts:
    """Writes new names into texts."""

    def __init__(self, names: Names) -> None:
        self._names = {old: new for old, new in names.objects.items() if old != new}
        self._follower = names.follower

    def renamed(self, text: str, relation: TableName | None) -> str:
        """Return an expression, a type, or the definition of a constraint, index or statistics, with new names.

        It may belong to a relation, whose whole rows are written `table.*`, or to a type.
        """
        if match := checked_sql.FOREIGN_KEY.fullmatch(text):
            return self._foreign_key(match)
        if relation and (match := checked_sql.INDEX.fullmatch(text.strip().removesuffix(";"))):
            return self._index(match, relation)
        if relation and (match := checked_sql.STATISTICS.fullmatch(text)):
            return self._statistics(match, relation)
        parts, edits = tokens(text), list[_Edit]()
        row = self._names.get(relation) if relation is not None else None
        for index, part in enumerate(parts):
            pair, reference = _pair_at(parts, index), _reference_at(parts, index)
            after = [each.text for each in parts[index + 1 : index + 3]]
            whole_row = after == [".", "*"] and (index == 0 or parts[index - 1].text != ".")  # `table.*`
            if pair is not None and pair in self._names:
                edits.append(_Edit(part.start, parts[index + 2].end, qualified(self._names[pair])))
            elif reference is not None and reference in self._names:
                edits.append(_Edit(part.start, part.end, literal(qualified(self._names[reference]))))
            elif row and relation and whole_row and part.name == relation.table:
                edits.append(_Edit(part.start, part.end, identifier(row.table)))
        return _apply(text, edits)

    def _foreign_key(self, match: re.Match[str]) -> str:
        """Return the definition of a foreign key, whose REFERENCES a parenthesis follows."""
        old = TableName(*checked_sql.split_name(match["table"]))
        return _replaced(match, table=qualified(self._names.get(old, old))) if old in self._names else match.string

    def _index(self, match: re.Match[str], table: TableName) -> str:
        """Return the definition of an index of a table, with new names of both."""
        if TableName(*checked_sql.split_name(match["table"])) != table:
            return match.string
        own = self._follower(TableName(table.schema, checked_sql.split_name(match["name"])[1]), table)
        new, rest = self._names.get(table, table), self.renamed(match["rest"], table)
        return _replaced(match, name=identifier(own.table), table=qualified(new), rest=rest)

    def _statistics(self, match: re.Match[str], table: TableName) -> str:
        """Return the definition of extended statistics of a table, with new names of both."""
        schema, name = checked_sql.split_name(match["name"])
        own = self._follower(TableName(schema or table.schema, name), table)
        new, what = self._names.get(table, table), self.renamed(match["what"], table)
        return _replaced(match, name=qualified(own), what=what, table=qualified(new))


def renamed_query(text: str, names: Names, reads: Collection[TableName]) -> str | None:
    """Return a view's query, as the server writes it with an empty search path, with new names.

    None means that the relations that it is found to name are not those that the view reads by the server's record.
    """
    inner = text.strip().removesuffix(";")
    changed = {old: new for old, new in names.objects.items() if old != new}
    parts, pairs, found, edits = tokens(inner), set[TableName](), set[TableName](), list[_Edit]()
    items = _from_items(parts)
    relations = {pair for index in items if (pair := _pair_at(parts, index)) is not None}
    for index, part in enumerate(parts):
        pair, reference = _pair_at(parts, index), _reference_at(parts, index)
        is_cast = [each.text for each in parts[max(index - 2, 0) : index]] == [":", ":"]
        if reference is not None:
            found.add(reference)
            if reference in changed:
                edits.append(_Edit(part.start, part.end, literal(qualified(changed[reference]))))
        if pair is None:
            continue
        pairs.add(pair)
        if is_cast or index in items:
            found.add(pair)
        before = parts[index - 1] if index else None
        follows_name = before is not None and (before.name is not None or before.text in ("AS", "RETURNING"))
        if pair in changed and (index in items or is_cast or follows_name):
            after = parts[index + 3] if index + 3 < len(parts) else None
            has_alias = after is not None and after.text not in _AFTER_ITEM and after.kind in ("word", "name")
            kept_name = index in items and changed[pair].table != pair.table and not has_alias
            alias = f" {identifier(pair.table)}" if kept_name else ""
            edits.append(_Edit(part.start, parts[index + 2].end, qualified(changed[pair]) + alias))
    missed = changed.keys() & set(reads) & pairs - found
    if missed or relations & names.relations.keys() - set(reads) or not parts:
        return None
    return _apply(inner, edits)


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
        elif part.text == "FROM" and levels[-1] == "select" and before != "DISTINCT":  # of IS [NOT] DISTINCT FROM
            levels[-1] = "from"
        elif part.text in _ENDS_FROM and levels[-1] == "from":  # not the GROUP of `WITHIN GROUP`
            levels[-1] = ""
    return items
