"""SQL text out of documents, confined: what a document says stays inside the place that it is written for.

The server refuses several statements in one. That is not enough: `1, evil int` as a default would add a column, and a
whole other statement could stand where an index's should. So an expression is only taken if its parentheses close in
itself, and everything else is parsed and written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.databases.postgresql.sql import identifier, literal, qualified
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName

_NAME = r'(?:[a-z_][a-z0-9_]*|"(?:[^"\0]|"")+")'
_QUALIFIED = rf"(?:{_NAME}\.)?{_NAME}"
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_UNIT = r"(?:year|month|day|hour|minute|second)"
_TYPE = re.compile(
    r"(?:(?:character|bit) varying(?:\(\d+\))?|double precision|(?:time|timestamp)(?:\(\d\))? with(?:out)? time zone"
    rf"|interval(?: {_UNIT}(?: to {_UNIT})?)?(?:\(\d\))?|{_QUALIFIED}(?:\(-?[A-Za-z0-9_.]+(?:, ?-?[A-Za-z0-9_.]+)*\))?)"
    r"(?:\[\])*"
)
_TOKEN = re.compile(
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
_FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY \({_NAMES}(?:, PERIOD {_NAME})?\) REFERENCES (?P<table>{_QUALIFIED})"
    rf"\({_NAMES}(?:, PERIOD {_NAME})?\)(?: MATCH (?:FULL|SIMPLE|PARTIAL))?(?: ON UPDATE {_ACTION})?"
    rf"(?: ON DELETE {_ACTION})?{_DEFERRAL}(?: NOT ENFORCED)?(?: NOT VALID)?"
)
_INDEX = re.compile(
    rf"CREATE (?P<unique>UNIQUE )?INDEX (?P<name>{_NAME}) ON (?P<only>ONLY )?(?P<table>{_QUALIFIED})"
    r"(?: USING (?P<method>[a-z_][a-z0-9_]*))? (?P<rest>\(.*)",
    re.DOTALL,
)
_INDEX_KEY = rf"{_NAME}(?: COLLATE {_QUALIFIED})?(?: {_QUALIFIED})?(?: DESC)?(?: NULLS (?:FIRST|LAST))?"
_PLAIN_INDEX = re.compile(
    rf"\({_INDEX_KEY}(?:, {_INDEX_KEY})*\)(?: INCLUDE \({_NAMES}\))?(?: NULLS NOT DISTINCT)?"
    r"(?: WITH \([a-z_]+='?[\w.-]+'?(?:, [a-z_]+='?[\w.-]+'?)*\))?"
)
_STATISTICS = re.compile(
    rf"CREATE STATISTICS (?P<name>{_QUALIFIED})(?P<kinds> \([a-z_]+(?:, [a-z_]+)*\))? ON (?P<what>.*)"
    rf" FROM (?P<table>{_QUALIFIED})",
    re.DOTALL,
)
_PARTITION_KEY = re.compile(r"(?P<how>RANGE|LIST|HASH) \((?P<what>.*)\)", re.DOTALL)
_CONSTANT = r"(?:[BE]?'(?:[^'\\]|''|\\\\)*'|-?[0-9][0-9.e+-]*|true|false|NULL|MINVALUE|MAXVALUE)"
_CONSTANTS = rf"\({_CONSTANT}(?:, {_CONSTANT})*\)"
_BOUNDS = re.compile(
    rf"DEFAULT|FOR VALUES (?:FROM {_CONSTANTS} TO {_CONSTANTS}|IN {_CONSTANTS}|WITH \(modulus \d+, remainder \d+\))"
)
_NEXTVAL = re.compile(r"nextval\('(?P<name>(?:[^'\\]|'')+)'(?:::regclass)?\)")


def refusal(what: str, text: object, wanted: str) -> RestoreError:
    """Return the error for text that is not what it should be."""
    return RestoreError(
        f"{what} is refused: the snapshot gives {str(text)!r:.300}, which is not {wanted}. Nothing of it was run.",
        object=what,
    )


def is_closed(text: str, *, commas: bool) -> bool:
    """Tell whether SQL text ends nothing that it did not begin: parentheses, strings, comments, the statement.

    Args:
        text: SQL text.
        commas: Whether it may hold commas outside of parentheses.
    """
    depth = place = 0
    if "\0" in text:  # the driver's statement would end there
        return False
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return False
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth < 0 or (token.lastgroup == "comma" and depth == 0 and not commas):
            return False
        place = token.end()
    return depth == 0


def expression(text: str, what: str) -> str:
    """Return an expression in parentheses.

    Raises:
        RestoreError: It is more than one expression.
    """
    if not text.strip() or not is_closed(text, commas=False):
        raise refusal(what, text, "one SQL expression")
    return f"({text})"


def query(text: str, what: str) -> str:
    """Return a view's query without its semicolon.

    Raises:
        RestoreError: It is more than one query.
    """
    inner = text.strip().removesuffix(";")
    if not inner or not is_closed(inner, commas=True):
        raise refusal(what, text, "one SQL query")
    return inner


def type_text(text: str, what: str) -> str:
    """Return a type text that is nothing but a type's name, its modifiers, and brackets.

    Raises:
        RestoreError: It is something else.
    """
    if not _TYPE.fullmatch(text):
        raise refusal(what, text, "a type")
    return text


def name_text(text: str, what: str) -> str:
    """Return the text of a name, with a schema or without.

    Raises:
        RestoreError: It is something else.
    """
    if not re.fullmatch(_QUALIFIED, text):
        raise refusal(what, text, "a name")
    return text


def word(given: str, what: str) -> str:
    """Return a keyword in capitals.

    Raises:
        RestoreError: It is no single word.
    """
    if not re.fullmatch(r"[a-z0-9]+", given):
        raise refusal(what, given, "one word")
    return given.upper()


def split_name(text: str) -> tuple[str, str]:
    """Return schema ("" for none) and name of a name's text; the text must be one."""
    parts = [_unquoted(part) for part in re.findall(_NAME, text)]
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def check_parts(definition: str, what: str) -> tuple[str, str]:
    """Return the expression, in parentheses, and the rest of a check constraint's definition.

    Raises:
        RestoreError: It is no check constraint.
    """
    match = _CHECK.fullmatch(definition)
    if match is None:
        raise refusal(what, definition, "a check constraint")
    return expression(match["inner"], what), match["tail"]


def key(definition: str, storage: str, what: str) -> str:
    """Return the definition of a primary key or unique constraint, with storage parameters (` WITH …`) put in.

    Raises:
        RestoreError: It is neither.
    """
    match = _KEY.fullmatch(definition)
    if match is None:
        raise refusal(what, definition, "a primary key or unique constraint")
    return f"{match['head']}{storage}{match['tail']}"


def foreign_key(definition: str, what: str) -> tuple[str, TableName]:
    """Return the definition of a foreign key, and the table it refers to.

    Raises:
        RestoreError: It is none.
    """
    match = _FOREIGN_KEY.fullmatch(definition)
    if match is None:
        raise refusal(what, definition, "a foreign key")
    return definition, TableName(*split_name(match["table"]))


def exclusion(definition: str, what: str) -> str:
    """Return the definition of an exclusion constraint.

    Raises:
        RestoreError: It is none.
    """
    if not re.match(r"EXCLUDE (?:USING [a-z_]+ )?\(", definition) or not is_closed(definition, commas=False):
        raise refusal(what, definition, "an exclusion constraint")
    return definition


def index(
    definition: str, name: str, table: TableName, what: str, part: tuple[str, TableName] | None = None
) -> tuple[str, bool]:
    """Return the statement that makes an index, and whether it holds neither expression nor predicate.

    Args:
        definition: The source's text.
        name: The index.
        table: Its table.
        what: What it is, for messages.
        part: Name and partition of a part of it, which is made instead; None for the index itself.

    Raises:
        RestoreError: It makes something else.
    """
    match = _INDEX.fullmatch(definition.strip().removesuffix(";"))
    if (
        match is None
        or _unquoted(match["name"]) != name
        or split_name(match["table"]) != table
        or not is_closed(match["rest"], commas=False)
    ):
        raise refusal(what, definition, f"an index {name} of {table}")
    using = f" USING {match['method']}" if match["method"] else ""
    made, on, only = (name, table, match["only"] or "") if part is None else (*part, "")
    head = f"CREATE {match['unique'] or ''}INDEX {identifier(made)} ON {only}{qualified(on)}"
    return f"{head}{using} {match['rest']}", _PLAIN_INDEX.fullmatch(match["rest"]) is not None


def statistics(definition: str, table: TableName, what: str) -> tuple[str, TableName, bool]:
    """Return the statement that makes extended statistics, their name, and whether they are of columns alone.

    Raises:
        RestoreError: It makes something else.
    """
    match = _STATISTICS.fullmatch(definition)
    if match is None or split_name(match["table"]) != table or not is_closed(match["what"], commas=True):
        raise refusal(what, definition, f"statistics of {table}")
    schema, name = split_name(match["name"])
    full = TableName(schema or table.schema, name)
    sql = f"CREATE STATISTICS {qualified(full)}{match['kinds'] or ''} ON {match['what']} FROM {qualified(table)}"
    return sql, full, re.fullmatch(_NAMES, match["what"]) is not None


def partition_key(text: str, what: str) -> tuple[str, bool]:
    """Return a partition key, and whether it is of columns alone.

    Raises:
        RestoreError: It is none.
    """
    match = _PARTITION_KEY.fullmatch(text)
    if match is None or not is_closed(match["what"], commas=True):
        raise refusal(what, text, "a partition key")
    return text, re.fullmatch(_NAMES, match["what"]) is not None


def bounds(text: str, what: str) -> str:
    """Return a partition's bounds, which hold constants alone.

    Raises:
        RestoreError: They are none.
    """
    if not _BOUNDS.fullmatch(text):
        raise refusal(what, text, "a partition's bounds")
    return text


def drawn_from(default: str | None) -> TableName | None:
    """Return the sequence of a default that is the sequence's next number and nothing else."""
    match = _NEXTVAL.fullmatch(default or "")
    name = match["name"].replace("''", "'") if match else ""
    return TableName(*split_name(name)) if re.fullmatch(rf"{_NAME}\.{_NAME}", name) else None


def parameters(given: object, what: str) -> str:
    """Return storage parameters, such as `fillfactor=70`, as what stands between the parentheses; "" for none.

    Raises:
        RestoreError: They are no list of `name=value`.
    """
    return ", ".join(_parameters(given, what))


def relation_parameters(options: Mapping[str, Any], what: str) -> str:
    """Return the storage parameters of a relation and of its TOAST table, as `parameters` does."""
    own = _parameters(options.get("storage_parameters"), what)
    toast = _parameters(options.get("toast_storage_parameters"), what)
    return ", ".join([*own, *(f"toast.{each}" for each in toast)])


def _parameters(given: object, what: str) -> Iterator[str]:
    for parameter in given if isinstance(given, list | tuple) else ():
        name, found, value = str(parameter).partition("=")
        if not found or not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
            raise refusal(what, parameter, "a storage parameter")
        yield f"{name}={literal(value).strip()}"


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
