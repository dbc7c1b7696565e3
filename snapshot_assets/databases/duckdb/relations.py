"""Which relations a query of DuckDB reads, by the parser's own tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from snapshot_assets.format.relations import TableName


def base_tables(node: Any, hidden: Collection[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the relations that a part of a serialised query reads.

    Args:
        node: The part.
        hidden: Names of the expressions (WITH) that it may read in place of relations, in lower case.
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


def calls(node: Any, macros: Collection[str]) -> Iterator[str]:
    """Yield the functions of a part of a serialised query that may read relations it does not name.

    Args:
        node: The part.
        macros: The macros of users, in lower case.
    """
    members = node if isinstance(node, list) else node.values() if isinstance(node, dict) else ()
    for member in members:
        yield from calls(member, macros)
    if not isinstance(node, dict):
        return
    if node.get("type") == "TABLE_FUNCTION":
        yield str((node.get("function") or {}).get("function_name", "a table function"))
    elif str(node.get("function_name", "")).lower() in macros:
        yield str(node["function_name"])


def resolved(
    path: Sequence[str], view: TableName, relations: Mapping[tuple[str, str], TableName], database: str
) -> TableName | None:
    """Return the relation that a name in a view's query means; None if it is none of those given.

    Args:
        path: The parts of the name.
        view: The view, in whose schema names are looked up first.
        relations: The relations by schema and name, in lower case.
        database: Name of the database.
    """
    *_, inside, table = map(str.lower, ["", *path])
    candidates = [inside] if inside else [view.schema.lower(), "main"]
    if inside == database.lower():
        candidates.append("main")
    return next((relations[each, table] for each in candidates if (each, table) in relations), None)


def by_folded_name(names: Collection[TableName]) -> dict[tuple[str, str], TableName]:
    """Return relations by schema and name in lower case: DuckDB ignores case in names."""
    return {(name.schema.lower(), name.table.lower()): name for name in names}
