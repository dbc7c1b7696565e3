"""Predicates as the command line takes them, for people to read."""

from __future__ import annotations

import pyarrow as pa

from snapshot_assets.format.literals import Literal
from snapshot_assets.format.predicates import And, Comparison, IsIn, IsNull, Not, Or, Predicate


def predicate_words(predicate: Predicate) -> str:
    """Return a predicate's text; every column is quoted, and everything that has parts stands in parentheses."""
    match predicate:
        case Comparison():
            return f"{_name(predicate.column)} {predicate.operator} {_literal(predicate.value)}"
        case IsIn():
            return f"{_name(predicate.column)} in ({', '.join(map(_literal, predicate.values))})"
        case IsNull():
            return f"{_name(predicate.column)} is null"
        case Not():
            return f"not ({predicate_words(predicate.predicate)})"
        case And():
            return _joined(" and ", predicate.predicates) or "true"
        case Or():
            return _joined(" or ", predicate.predicates) or "false"


def _joined(word: str, parts: tuple[Predicate, ...]) -> str:
    return word.join(f"({predicate_words(part)})" for part in parts)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal(literal: Literal) -> str:
    kind, value = literal.arrow_type, literal.value
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if pa.types.is_boolean(kind):
        return str(value).lower()
    if pa.types.is_temporal(kind):
        text = str(literal.scalar().cast(pa.string()).as_py())
        return "'" + (text.replace(" ", "T") if pa.types.is_timestamp(kind) else text) + "'"
    if isinstance(value, str) and not pa.types.is_decimal(kind):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
