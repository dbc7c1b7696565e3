"""Checks SQL text from documents, which may be hostile, before it becomes part of a statement.

The server refuses several statements in one string, but that is not enough: `1, evil int` as a default would add a
column, and an index's definition could be any other statement. Expressions are accepted only if they cannot end the
clause around them; everything else is parsed and written again.

Every function raises `RestoreError` for text of another form. Its argument `what` names the object in the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName

_NAME = r'(?:[a-z_][a-z0-9_]*|"(?:[^"\0]|"")+")'
_QUALIFIED = rf"(?:{_NAME}\.)?{_NAME}"
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_UNIT = r"(?:year|month|day|hour|minute|second)"
_MODIFIER = r"""(?:-?[A-Za-z0-9_.]+|'(?:[^'\\\0]|'')*'|"(?:[^"\0]|"")+")"""
_TYPE = re.compile(
    r"(?:(?:character|bit) varying(?:\(\d+\))?|double precision|(?:time|timestamp)(?:\(\d\))? with(?:out)? time zone"
    rf"|interval(?: {_UNIT}(?: to {_UNIT})?)?(?:\(\d\))?|{_QUALIFIED}(?:\({_MODIFIER}(?:, ?{_MODIFIER})*\))?)"
    r"(?:\[\])*"
)
TOKEN = re.compile(
    r"(?P<string>E'(?:[^'\\]|''|\\.)*+'|'(?:[^']|'')*+')(?!\s*')"
    r'|(?P<name>"(?:[^"]|"")++")|(?P<word>\w++)(?!\')|(?P<space>\s++)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)'
    r"|(?P<other>(?!--|/\*)[^\s\w'\"()\[\],;$\\])",
    re.DOTALL,
)
_CHECK = re.compile(r"CHECK \((?P<inner>.*)\)(?P<tail>(?: NO INHERIT| NOT VALID| NOT ENFORCED)*)", re.DOTALL)
_DEFERRAL = r"(?: DEFERRABLE)?(?: INITIALLY DEFERRED)?"
_KEY = re.compile(
    rf"(?P<head>(?:PRIMARY KEY|UNIQUE(?: NULLS NOT DISTINCT)?) \({_NAMES}(?: WITHOUT OVERLAPS)?\)"
    rf"(?: INCLUDE \({_NAMES}\))?)(?P<tail>{_DEFERRAL})"
)
_ACTION = rf"(?:CASCADE|RESTRICT|NO ACTION|SET (?:NULL|DEFAULT)(?: \({_NAMES}\))?)"
FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY \({_NAMES}(?:, PERIOD {_NAME})?\) REFERENCES (?P<table>{_QUALIFIED})"
    rf"\({_NAMES}(?:, PERIOD {_NAME})?\)(?: MATCH (?:FULL|SIMPLE|PARTIAL))?(?: ON UPDATE {_ACTION})?"
    rf"(?: ON DELETE {_ACTION})?{_DEFERRAL}(?: NOT ENFORCED)?(?: NOT VALID)?"
)
INDEX = re.compile(
    rf"CREATE (?P<unique>UNIQUE )?INDEX (?P<name>{_NAME}) ON (?P<only>ONLY )?(?P<table>{_QUALIFIED})"
    rf"(?: USING (?P<method>{_NAME}))? (?P<rest>\(.*)",
    re.DOTALL,
)
_INDEX_KEY = rf"{_NAME}(?: COLLATE {_QUALIFIED})?(?: {_QUALIFIED})?(?: DESC)?(?: NULLS (?:FIRST|LAST))?"
_PLAIN_INDEX = re.compile(
    rf"\({_INDEX_KEY}(?:, {_INDEX_KEY})*\)(?: INCLUDE \({_NAMES}\))?(?: NULLS NOT DISTINCT)?"
    r"(?: WITH \([a-z_]+='?[\w.-]+'?(?:, [a-z_]+='?[\w.-]+'?)*\))?"
)
STATISTICS = re.compile(
    rf"CREATE STATISTICS (?P<name>{_QUALIFIED})(?P<kinds> \([a-z_]+(?:, [a-z_]+)*\))? ON (?P<what>.*)"
    rf" FROM (?P<table>{_QUALIFIED})",
    re.DOTALL,
)
_PARTITION_KEY = re.compile(r"(?P<how>RANGE|LIST|HASH) \((?P<what>.*)\)", re.DOTALL)
_CONSTANT = r"(?:B?'(?:[^'\0]|'')*'|E'(?:[^'\\\0]|''|\\\\)*'|-?[0-9][0-9.e+-]*|true|false|NULL|MINVALUE|MAXVALUE)"
_CONSTANTS = rf"\({_CONSTANT}(?:, {_CONSTANT})*\)"
_BOUNDS = re.compile(
    rf"DEFAULT|FOR VALUES (?:FROM {_CONSTANTS} TO {_CONSTANTS}|IN {_CONSTANTS}|WITH \(modulus \d+, remainder \d+\))"
)
_NEXTVAL = re.compile(r"nextval\('(?P<name>(?:[^'\\]|'')+)'(?:::regclass)?\)")


def refusal(what: str, text: object, wanted: str) -> RestoreError:
    """Return the error for text of another form than expected."""
    return RestoreError(
        f"{what} is refused: the snapshot gives {str(text)!r:.300}, which is not {wanted}. Nothing of it was run.",
        object=what,
    )


def _is_closed(text: str, *, commas: bool) -> bool:
    """Return whether text closes all that it opens, so it cannot end the clause around it; `commas` allows commas."""
    depth = place = 0
    if "\0" in text:  # the driver would end the statement there
        return False
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None:
            return False
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth < 0 or (token.lastgroup == "comma" and depth == 0 and not commas):
            return False
        place = token.end()
    return depth == 0


def expression(text: str, what: str) -> str:
    """Return a single expression in parentheses."""
    if not text.strip() or not _is_closed(text, commas=False):
        raise refusal(what, text, "one SQL expression")
    return f"({text})"


def query(text: str, what: str) -> str:
    """Return a view's query without its semicolon."""
    inner = text.strip().removesuffix(";")
    if not inner or not _is_closed(inner, commas=True):
        raise refusal(what, text, "one SQL query")
    return inner


def type_text(text: str, what: str) -> str:
    """Return a type's name with its modifiers and brackets."""
    return _matched(_TYPE, text, what, "a type").group()


def name_text(text: str, what: str) -> str:
    """Return a name, with a schema or without."""
    return _matched(_QUALIFIED, text, what, "a name").group()


def word(text: str, what: str) -> str:
    """Return a keyword in capitals."""
    return _matched(r"[a-z0-9]+", text, what, "one word").group().upper()


def identity_kind(text: str, what: str) -> str:
    """Return the kind of an identity column."""
    return _matched("always|by default", text, what, "a kind of identity").group()


def bounds(text: str, what: str) -> str:
    """Return a partition's bounds, which consist of constants."""
    return _matched(_BOUNDS, text, what, "a partition's bounds").group()


def key(definition: str, storage: str, what: str) -> str:
    """Return the definition of a primary key or unique constraint, with storage parameters (` WITH …`) inserted."""
    match = _matched(_KEY, definition, what, "a primary key or unique constraint")
    return f"{match['head']}{storage}{match['tail']}"


def foreign_key(definition: str, what: str, expected: TableName | None) -> tuple[str, TableName]:
    """Return the definition of a foreign key, and the table that it references: the expected one, if that is given."""
    match = _matched(FOREIGN_KEY, definition, what, "a foreign key")
    referred = TableName(*split_name(match["table"]))
    if expected not in (None, referred):
        raise refusal(what, definition, f"a foreign key to {expected}")
    return definition, referred


def check_parts(definition: str, what: str) -> tuple[str, str]:
    """Return a check constraint's expression, in parentheses, and the rest of its definition."""
    match = _matched(_CHECK, definition, what, "a check constraint")
    return expression(match["inner"], what), match["tail"]


def exclusion(definition: str, what: str) -> str:
    """Return the definition of an exclusion constraint."""
    if not re.match(rf"EXCLUDE (?:USING {_NAME} )?\(", definition) or not _is_closed(definition, commas=False):
        raise refusal(what, definition, "an exclusion constraint")
    return definition


def index(definition: str, name: str, table: TableName, what: str) -> tuple[str, bool]:
    """Return the statement that creates an index, and whether it has neither expressions nor a predicate."""
    match = INDEX.fullmatch(definition.strip().removesuffix(";"))
    if (
        match is None
        or _unquoted(match["name"]) != name
        or split_name(match["table"]) != table
        or not _is_closed(match["rest"], commas=False)
    ):
        raise refusal(what, definition, f"an index {name} of {table}")
    using = f" USING {match['method']}" if match["method"] else ""
    head = f"CREATE {match['unique'] or ''}INDEX {identifier(name)} ON {match['only'] or ''}{qualified(table)}"
    return f"{head}{using} {match['rest']}", _PLAIN_INDEX.fullmatch(match["rest"]) is not None


def statistics(definition: str, table: TableName, what: str) -> tuple[str, TableName, bool]:
    """Return the statement that creates extended statistics, their name, and whether they cover columns alone."""
    match = STATISTICS.fullmatch(definition)
    if match is None or split_name(match["table"]) != table or not _is_closed(match["what"], commas=True):
        raise refusal(what, definition, f"statistics of {table}")
    schema, name = split_name(match["name"])
    full = TableName(schema or table.schema, name)
    sql = f"CREATE STATISTICS {qualified(full)}{match['kinds'] or ''} ON {match['what']} FROM {qualified(table)}"
    return sql, full, re.fullmatch(_NAMES, match["what"]) is not None


def partition_key(text: str, what: str) -> tuple[str, bool]:
    """Return a partition key, and whether it consists of columns alone."""
    match = _PARTITION_KEY.fullmatch(text)
    if match is None or not _is_closed(match["what"], commas=True):
        raise refusal(what, text, "a partition key")
    return text, re.fullmatch(_NAMES, match["what"]) is not None


def parameters(values: Iterable[str], what: str) -> list[str]:
    """Return storage parameters, such as `fillfactor=70`, as a statement has them in parentheses."""
    written = []
    for each in values:
        name, separator, value = each.partition("=")
        if not separator or not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
            raise refusal(what, each, "a storage parameter")
        written.append(f"{name}={literal(value)}")
    return written


def drawn_from(default: str | None) -> TableName | None:
    """Return the sequence of a default that is only `nextval` of a sequence, else None."""
    match = _NEXTVAL.fullmatch(default or "")
    return qualified_name(match["name"].replace("''", "'")) if match else None


def qualified_name(text: str) -> TableName | None:
    """Return the name that a text is, with its schema; None for any other text."""
    return TableName(*split_name(text)) if re.fullmatch(rf"{_NAME}\.{_NAME}", text) else None


def split_name(text: str) -> tuple[str, str]:
    """Return schema ("" for none) and name of a name's text."""
    parts = [_unquoted(part) for part in re.findall(_NAME, text)]
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def _matched(pattern: str | re.Pattern[str], text: str, what: str, wanted: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise refusal(what, text, wanted)
    return match


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
