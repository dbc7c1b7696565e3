"""Predicates as text: `level < 3 and (name = 'x' or name is null)`.

Column names may be in double quotes. Text literals are in single quotes, and a quote inside is doubled. Bytes are
written `x'00ff'`. Keywords ignore case. `not` binds closest, then `and`, then `or`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa

from snapshot_assets.errors import DocumentError, PlanError
from snapshot_assets.format.literal_values import Given, scalar_of, to_literal
from snapshot_assets.format.names import NameRule, Spellings
from snapshot_assets.format.predicates import (
    MAX_DEPTH,
    And,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    check_predicate,
    field_of,
)

MAX_TEXT = 1 << 20
"""Longest text of a predicate, in characters."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<bytes>[xX]'(?:[0-9a-fA-F]{2})*')
    |(?P<number>[+-]?(?:\d{1,400}(?:\.\d{1,400})?)(?:[eE][+-]?\d{1,3})?(?![\w.]))
    |(?P<word>[^\W\d]\w*)
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<text>'(?:[^']|'')*')
    |(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)
    |(?P<end>$)
    )""",
    re.VERBOSE,
)
_T = TypeVar("_T")
_WORDS = {"and", "or", "not", "in", "is", "null", "true", "false"}
_OPERATORS = {operator.value: operator for operator in Operator} | {"<>": Operator.NOT_EQUAL}


@dataclass(frozen=True)
class _Token:
    """A token of the text: a `name`, `word` (a keyword, in lower case), `sign`, `value` or `end`, and its offset."""

    kind: str
    text: str
    at: int
    value: Given | None = None


def parse_predicate(text: str, schema: pa.Schema, table: str, names: NameRule = NameRule.EXACT) -> Predicate:
    """Parse a predicate, and convert its literals to the types of the table's columns.

    Raises:
        PlanError: The text is invalid, a column does not exist, or a literal does not fit its column's type. The
            message names the position, from 1.
    """
    if len(text) > MAX_TEXT:
        raise PlanError(f"the predicate has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    parser = _Parser(list(_tokens(text)), schema, table, names)
    predicate = parser.alternatives(1)
    if parser.next.kind != "end":
        raise parser.expected("'and', 'or' or the end")
    try:
        return check_predicate(predicate)
    except DocumentError as error:
        raise PlanError(str(error)) from None


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise PlanError(
                f"the predicate cannot be read at position {at + 1}: {text[at : at + 20]!r} is not a name, number, text"
                " in single quotes or operator"
            )
        kind = match.lastgroup or "end"
        at = match.end()
        yield _token(kind, match[kind], match.start(kind))
        if kind == "end":
            return


def _token(kind: str, text: str, at: int) -> _Token:
    word = text.lower()
    match kind:
        case "number":
            return _Token("value", text, at, Decimal(text))
        case "text":
            return _Token("value", text, at, text[1:-1].replace("''", "'"))
        case "bytes":
            return _Token("value", text, at, bytes.fromhex(text[2:-1]))
        case "quoted":
            return _Token("name", text[1:-1].replace('""', '"'), at)
        case "word" if word in ("true", "false"):
            return _Token("value", text, at, word == "true")
        case "word":
            return _Token("word", word, at) if word in _WORDS else _Token("name", text, at)
    return _Token(kind, text, at)


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, tokens: list[_Token], schema: pa.Schema, table: str, names: NameRule) -> None:
        self._tokens = iter(tokens)
        self._schema = schema
        self._columns = Spellings(names, schema.names)
        self._table = table
        self.next = next(self._tokens)

    def expected(self, what: str) -> PlanError:
        kind, text = self.next.kind, self.next.text
        found = "the text ends" if kind == "end" else f"found the name {text}" if kind == "name" else f"found {text!r}"
        return PlanError(f"the predicate cannot be read at position {self.next.at + 1}: expected {what}, {found}")

    def alternatives(self, depth: int) -> Predicate:
        return self._join("or", Or, self._all, depth)

    def _all(self, depth: int) -> Predicate:
        return self._join("and", And, self._one, depth)

    def _join(self, word: str, kind: type[And] | type[Or], part: Callable[[int], Predicate], depth: int) -> Predicate:
        parts = [part(depth)]
        while self._take("word", word):
            parts.append(part(depth))
        return kind(tuple(parts)) if len(parts) > 1 else parts[0]

    def _one(self, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise PlanError(
                f"the predicate cannot be read at position {self.next.at + 1}: it is nested more than {MAX_DEPTH} deep;"
                " write it flatter"
            )
        if self._take("word", "not"):
            return Not(self._one(depth + 1))
        if self._take("sign", "("):
            inner = self.alternatives(depth + 1)
            self._need("sign", ")")
            return inner
        return self._condition()

    def _condition(self) -> Predicate:
        if self.next.kind != "name":
            raise self.expected("a column, 'not' or '('")
        name = self.next
        column = self._columns.of(name.text)
        field = self._name_position(name, lambda: field_of(column, self._schema, self._table))
        self._advance()
        if self._take("word", "is"):
            negated = self._take("word", "not")
            self._need("word", "null")
            return Not(IsNull(column)) if negated else IsNull(column)
        if self._take("word", "not"):
            self._need("word", "in")
            return Not(IsIn(column, self._list(field)))
        if self._take("word", "in"):
            return IsIn(column, self._list(field))
        operator = _OPERATORS.get(self.next.text) if self.next.kind == "sign" else None
        if operator is None:
            raise self.expected("one of = != < <= > >=, 'in', 'is null' or 'is not null'")
        self._advance()
        return Comparison(column, operator, self._literal(field))

    def _list(self, field: pa.Field) -> tuple[Literal, ...]:
        self._need("sign", "(")
        literals = [self._literal(field)]
        while self._take("sign", ","):
            literals.append(self._literal(field))
        self._need("sign", ")")
        return tuple(literals)

    def _literal(self, field: pa.Field) -> Literal:
        token = self.next
        if token.kind != "value" or token.value is None:
            null = token.kind == "word" and token.text == "null"
            hint = "to look for NULL write 'is null'" if null else "put text in single quotes"
            raise self.expected(f"a value ({hint})")
        value = token.value
        self._advance()
        return self._name_position(token, lambda: to_literal(value, field.type, f"{self._table}.{field.name}"))

    def _name_position(self, token: _Token, make: Callable[[], _T]) -> _T:
        try:
            return make()
        except PlanError as error:
            raise PlanError(f"the predicate is wrong at position {token.at + 1}: {error}") from None

    def _take(self, kind: str, text: str) -> bool:
        if (self.next.kind, self.next.text) != (kind, text):
            return False
        self._advance()
        return True

    def _need(self, kind: str, text: str) -> None:
        if not self._take(kind, text):
            raise self.expected(repr(text))

    def _advance(self) -> None:
        self.next = next(self._tokens, self.next)


def predicate_text(predicate: Predicate) -> str:
    """Return the text that `parse_predicate` reads; it quotes every column and puts every operand in parentheses."""
    match predicate:
        case Comparison():
            return f"{_quote(predicate.column)} {predicate.operator} {_literal_text(predicate.value)}"
        case IsIn():
            return f"{_quote(predicate.column)} in ({', '.join(map(_literal_text, predicate.values))})"
        case IsNull():
            return f"{_quote(predicate.column)} is null"
        case Not():
            return f"not ({predicate_text(predicate.predicate)})"
        case And():
            return _join_texts(" and ", predicate.predicates) or "true"
        case Or():
            return _join_texts(" or ", predicate.predicates) or "false"


def _join_texts(word: str, parts: tuple[Predicate, ...]) -> str:
    return word.join(f"({predicate_text(part)})" for part in parts)


def _quote(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal_text(literal: Literal) -> str:
    kind, value = literal.arrow_type, literal.value
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if pa.types.is_boolean(kind):
        return str(value).lower()
    if pa.types.is_temporal(kind):
        text = str(scalar_of(literal).cast(pa.string()).as_py())
        return "'" + (text.replace(" ", "T") if pa.types.is_timestamp(kind) else text) + "'"
    if isinstance(value, str) and not pa.types.is_decimal(kind):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
