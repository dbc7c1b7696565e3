"""Reads SQL text with DuckDB's own parser: which relations a query reads, and whether a document's text may be used.

Documents may come from anyone, and DuckDB runs all statements of a string. So a text must be exactly one type, one
expression or one query. Nothing is run here. For any other text, `Texts` and the functions beside it raise
`DocumentError`; their argument `what` or `where` names the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.duckdb.session import CONFIG
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.relations import TableName

_COLLATION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_CHECK = re.compile(r"CHECK\s*\((.*)\)", re.DOTALL)
_INDEX = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?:\"(?:[^\"]|\"\")*\"|[^\s\"]+)\s+ON\s+"
    r"(?:\"(?:[^\"]|\"\")*\"|[^\s\".()]+)(?:\.(?:\"(?:[^\"]|\"\")*\"|[^\s\".()]+))*\s*(\(.*\))\s*;?",
    re.DOTALL | re.IGNORECASE,
)
_EMPTY = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")
_KINDS = {
    "CREATE": duckdb.StatementType.CREATE,
    "ALTER": duckdb.StatementType.ALTER,
    "COMMENT": duckdb.StatementType.ALTER,
    "INSERT": duckdb.StatementType.INSERT,
    "DELETE": duckdb.StatementType.DELETE,
    "UPDATE": duckdb.StatementType.UPDATE,
    "DROP": duckdb.StatementType.DROP,
    "SELECT": duckdb.StatementType.SELECT,
}


class Texts:
    """Checks texts with the parser of `connection`, a database in memory that opens no files; by default, a new one."""

    def __init__(self, connection: duckdb.DuckDBPyConnection | None = None) -> None:
        self.connection = connection or duckdb.connect(config=CONFIG)

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def type(self, text: str, where: str) -> DuckDBPyType:
        """Return the type that a text names."""
        with _refusing(f"The type of {where}", text):
            kind = self.connection.type(text)
        if _squeezed(str(kind)) != _squeezed(text):
            raise _refused(f"The type of {where}", text, f"DuckDB reads it as {kind}")
        return kind

    def expression(self, text: str, what: str) -> str:
        """Return a single expression in parentheses."""
        with _refusing(what, text):
            row = self.connection.execute("SELECT json_serialize_sql(?)", [f"SELECT ({text}) AS x"]).fetchone()
        assert row is not None
        tree: dict[str, Any] = json.loads(row[0])
        if tree["error"] or len(tree["statements"]) != 1:
            raise _refused(what, text, str(tree.get("error_message") or "it is not exactly one statement"))
        node = tree["statements"][0]["node"]
        plain = node["type"] == "SELECT_NODE" and len(node["select_list"]) == 1
        if not plain or node["from_table"]["type"] != "EMPTY" or any(node[part] for part in _EMPTY):
            raise _refused(what, text, "it is not exactly one expression")
        return f"({text})"

    def generated(self, text: str, type_text: str, what: str) -> str:
        """Return a generated column's `expression` without the cast to its type, which DuckDB always adds."""
        end = f" AS {type_text})"
        if text.startswith("CAST(") and text.endswith(end):
            with suppress(DocumentError):  # then the two ends belong to different casts
                return self.expression(text.removeprefix("CAST(").removesuffix(end), what)
        return self.expression(text, what)

    def check(self, definition: str, what: str) -> str:
        """Return a check constraint's definition; see `expression`."""
        match = _CHECK.fullmatch(definition.strip())
        if match is None:
            raise _refused(what, definition, "it is not a check")
        return f"CHECK {self.expression(match.group(1), what)}"

    def index_keys(self, definition: str, what: str) -> str:
        """Return the text of an index from its first parenthesis on; check the statement that it becomes a part of."""
        match = _INDEX.fullmatch(definition.strip())
        if match is None:
            raise _refused(what, definition, "it creates no index")
        return match.group(1)


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str, what: str) -> None:
    """Check that a text is exactly one statement of the kind that its first word names."""
    with _refusing(what, sql):
        found = [statement.type for statement in connection.extract_statements(sql)]
    if found != [_KINDS.get(sql.split(None, 1)[0])]:
        kinds = ", ".join(kind.name for kind in found) or "nothing"
        raise _refused(what, sql, f"it is {kinds}, where one statement was expected")


def collation(text: str, where: str) -> str:
    """Return the clause of a column's collation, which must be a name."""
    if not _COLLATION.fullmatch(text):
        raise _refused(f"The collation of {where}", text, "it is not a name")
    return " COLLATE " + ".".join(map(identifier, text.split(".")))


@contextmanager
def _refusing(what: str, text: str) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise _refused(what, text, " ".join(str(error).split())) from error


def _refused(what: str, text: str, reason: str) -> DocumentError:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return DocumentError(
        f"{what} in the snapshot's documents, {shown!r}, is refused: {reason}. Nothing of it was run.", what=what
    )


def _squeezed(text: str) -> str:
    return re.sub(r'[\s"]', "", text).casefold()


def base_tables(node: Any, hidden: Collection[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the relations that a part of a serialised query reads.

    `hidden` are the names of the expressions (WITH) that it may read in place of relations, in lower case.
    """
    if isinstance(node, list):
        for member in node:
            yield from base_tables(member, hidden)
    if not isinstance(node, dict):
        return
    if node.get("type") == "BASE_TABLE":
        path = node["qualified_name"]["path"]
        if len(path) > 1 or path[0].lower() not in hidden:
            yield node
    for entry in (node.get("cte_map") or {}).get("map", ()):
        # An expression can name those before it, and itself only if it is recursive.
        with_itself = {*hidden, entry["key"].lower()}
        recursive = entry["value"]["query_node"]["type"] == "RECURSIVE_CTE_NODE"
        yield from base_tables(entry["value"], with_itself if recursive else hidden)
        hidden = with_itself
    for key, member in node.items():
        if key != "cte_map":
            yield from base_tables(member, hidden)


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a serialised statement."""
    if isinstance(tree, dict):
        yield tree
    for member in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(member)


def calls(tree: Any, macros: Collection[str]) -> Iterator[str]:
    """Yield the calls that may read relations without naming them: of table functions, and of users' macros."""
    for node in nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            yield str((node.get("function") or {}).get("function_name", "a table function"))
        elif str(node.get("function_name", "")).lower() in macros:
            yield str(node["function_name"])


def resolve(
    path: Sequence[str], view: TableName, relations: Mapping[tuple[str, str], TableName], database: str
) -> TableName | None:
    """Return which of the relations, by names in lower case, a name in a view's query means; None for others.

    Names are looked up in the view's schema first.
    """
    *_, inside, table = map(str.lower, ["", *path])
    candidates = [inside] if inside else [view.schema.lower(), "main"]
    if inside == database.lower():
        candidates.append("main")
    return next((relations[each, table] for each in candidates if (each, table) in relations), None)


def by_folded_name(names: Collection[TableName]) -> dict[tuple[str, str], TableName]:
    """Return relations by schema and name in lower case: DuckDB ignores case in names."""
    return {(name.schema.lower(), name.table.lower()): name for name in names}
