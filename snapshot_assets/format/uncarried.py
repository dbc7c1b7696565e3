"""What a database has and a restore does not create by itself, grouped by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from snapshot_assets.format.kinds import kind_words
from snapshot_assets.format.options import CodeEntry, SchemaOptions, TableOptions, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema, TableName


def code_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return the names of the code in documents by kind: what a restore creates only if the user asks for it.

    Raises:
        DocumentError: The documents are malformed.
    """
    found: dict[str, list[str]] = {}
    for entry in _code(schema):
        if not entry.is_part:
            of = f" of {entry.on}" if entry.on is not None else ""
            found.setdefault(entry.kind, []).append(f"{entry.name}{of}")
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def uncarried_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return by kind the names of what a snapshot does not carry.

    Raises:
        DocumentError: The documents are malformed.
    """
    code = {(entry.key, entry.on) for entry in _code(schema)}
    routines = {f"function {entry.name}" for entry in _code(schema)}  # as views name those that they call
    found: dict[str, set[str]] = {}
    for name, relation in _uncarried(schema):
        if (name, relation) not in code and name not in routines:
            kind = kind_words(name)
            of = f" of {relation}" if relation else ""
            found.setdefault(kind, set()).add(f"{name[len(kind) :].lstrip()}{of}")
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def _code(schema: DatabaseSchema) -> list[CodeEntry]:
    return [entry for each in schema.schemas for entry in SchemaOptions.of(each).code]


def _uncarried(schema: DatabaseSchema) -> Iterator[tuple[str, TableName | None]]:
    """Yield the names in `not_carried`, each with the relation that it belongs to, if any."""
    for each in schema.schemas:
        yield from ((name, None) for name in SchemaOptions.of(each).not_carried)
    for table in schema.tables:
        options = TableOptions.of(table)
        yield from ((name, table.table_name) for name in options.not_carried)
        yield from ((name, part.table_name) for part in options.partitions for name in part.not_carried)
    for view in schema.views:
        yield from ((name, view.table_name) for name in ViewOptions.of(view).not_carried)


def kinds_text(by_kind: Mapping[str, list[str]], most: int = 5) -> str:
    """Return kinds with their counts and first names, such as `publication (2): a, b; event trigger (1): c`."""
    return "; ".join(
        f"{kind} ({len(names)}): {', '.join(names[:most])}{', …' if len(names) > most else ''}"
        for kind, names in by_kind.items()
    )
