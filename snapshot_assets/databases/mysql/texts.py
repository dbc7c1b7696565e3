"""SQL texts of documents, as a server without SQL modes prints them: backticks, and backslashes that escape.

Texts are checked before they become parts of statements: they end their strings and parentheses, and have no comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.relations import TableName

_TOKEN = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|[^\W\d][\w$]*|\d[\w.]*|\s+|/\*|--(?=\s|$)|.", re.DOTALL)
_TYPE = re.compile(
    r"[a-z]\w*(?: precision)?(?:\((?:\d+(?:,\d+)?|'(?:[^']|'')*'(?:,'(?:[^']|'')*')*)\))?(?: unsigned)?(?: zerofill)?"
    r"(?: /\*M?!\d* ?compressed\*/)?",
    re.IGNORECASE,
)
_VERSIONED = re.compile(r"('(?:[^'\\]|\\.|'')*')|/\*!\d+ (.*?) ?\*/", re.DOTALL)
"""Strings; and what a server prints for newer ones only, which is a comment to others."""

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_COLLATION = re.compile(r"\w+")
NAME = r"`(?:[^`]|``)*`"
"""The pattern of a name in backticks."""

_CALLED = re.compile(rf"(?:({NAME})\.)?({NAME})\(")
_STRING = re.compile(
    r"""'(?:[^']++|'')*+'|"(?:[^"]++|"")*+"|`[^`]*+`|(?:--(?=\s|$)|#)[^\n]*+|/\*(?!M?!).*?\*/""", re.DOTALL
)
"""Strings, and what else may have an apostrophe: names, and comments that no server runs."""

_BREAKS = frozenset((";", "#", "/*", "--", '"', "`", "'"))


def quoted(*names: str) -> str:
    """Return a name of several parts in backticks."""
    return ".".join(identifier(name, "`") for name in names)


def unquoted(name: str) -> str:
    """Return a name in backticks without them."""
    return name[1:-1].replace("``", "`")


def called(query: str, schema: str) -> set[TableName]:
    """Return what the query of a view may call; names without a schema are of `schema`."""
    return {TableName(unquoted(of) if of else schema, unquoted(own)) for of, own in _CALLED.findall(query)}


def listed(names: Sequence[str]) -> str:
    """Return a list of names in backticks and parentheses."""
    return f"({', '.join(map(quoted, names))})"


def constant(text: str) -> str:
    """Return a string constant for a session in which backslashes escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def escaped(sql: str) -> str:
    """Return a statement in whose strings a backslash is a backslash, for a session in which backslashes escape."""
    if "\\" not in sql:
        return sql
    return _STRING.sub(lambda match: match[0].replace("\\", "\\\\") if match[0][0] == "'" else match[0], sql)


def tokens(text: str) -> Iterator[str]:
    """Yield the tokens of a text, which joined are the text."""
    return (match[0] for match in _TOKEN.finditer(text))


def readable(statement: bytes) -> str:
    """Return a statement that SHOW CREATE prints; constants whose bytes are no UTF-8 become hexadecimal ones."""
    return "".join(map(_readable, tokens(statement.decode(errors="surrogateescape"))))


def _readable(token: str) -> str:
    try:
        token.encode()
    except UnicodeEncodeError:
        value = _unescaped(token[1:-1].replace("''", "'")).encode(errors="surrogateescape")
        return f" x'{value.hex().upper()}'"
    return token


def found_in(view: str, **values: str) -> str:
    """Return the query that yields a row if a view of information_schema has one of these values, by column."""
    where = " AND ".join(f"{column} = {literal(value)}" for column, value in values.items())
    return f"SELECT 1 AS found FROM information_schema.{view} WHERE {where} LIMIT 1"


def check_text(text: str, where: str, *, commas: bool = False) -> str:
    """Return a text that can be a part of a statement; what is for newer servers only is for all.

    The information_schema of MySQL escapes generated columns and defaults that are expressions a second time.

    Args:
        text: The text.
        where: What it is, for a message.
        commas: Whether it may have commas outside of parentheses.

    Raises:
        DocumentError: It has no such form.
    """
    if "\\" in tokens(text):  # outside of a string
        text = _unescaped(text)
    text = _VERSIONED.sub(r"\1\2", text)
    depth, found = 0, ""
    for token in tokens(text):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token in _BREAKS or depth < 0 or (token == "," and depth == 0 and not commas):
            found = f"has {token!r}"
            break
    if depth > 0:
        found = "lacks a closing parenthesis"
    if found or not text.strip():
        raise DocumentError(
            f"The snapshot's documents are malformed: {where} {found or 'is empty'}, which no text that a server of"
            f" MySQL prints has there: {text[:200]}. Restore without its table or view, or without expressions.",
            field=where,
        )
    return text


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def check_type(text: str, where: str) -> str:
    """Return the text of a column's type; see `check_text` for its error."""
    return _check_form(_TYPE, text, f"type {text[:200]!r} of column {where} is no type of MySQL")


def check_collation(name: str, where: str) -> str:
    """Return the name of a collation; see `check_text` for its error."""
    return _check_form(_COLLATION, name, f"collation {name[:200]!r} of {where} is no name of a collation")


def _check_form(form: re.Pattern[str], text: str, otherwise: str) -> str:
    if form.fullmatch(text) is None:
        raise DocumentError(
            f"The snapshot's documents are malformed: {otherwise}. Restore without it.", text=text[:200]
        )
    return text
