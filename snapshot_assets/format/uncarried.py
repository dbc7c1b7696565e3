"""What a database has and a restore does not create by itself, grouped by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_assets.format.kinds import kind_words
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.relations import DatabaseSchema, Table, View

PARTS = frozenset(("shell type", "operator family members", "text search mapping", "trigger state", "rule state"))
"""Kinds of code that are parts of other objects, which have sentences of their own."""


def code_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return the names of the code in documents by kind: what a restore creates only if the user asks for it."""
    found: dict[str, list[str]] = {}
    for entry in _code(schema):
        of = f" of {printed_name(*entry['on'])}" if "on" in entry else ""
        if entry["kind"] not in PARTS:
            found.setdefault(str(entry["kind"]), []).append(f"{entry['name']}{of}")
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def uncarried_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return by kind the names of what a snapshot does not carry."""
    code = {(f"{entry['kind']} {entry['name']}", tuple(entry.get("on", ()))) for entry in _code(schema)}
    routines = {f"function {entry['name']}" for entry in _code(schema)}  # as views name those that they call
    found: dict[str, set[str]] = {}
    for name, relation in _uncarried(schema):
        if (name, relation) not in code and name not in routines:
            kind = kind_words(name)
            of = f" of {printed_name(*relation)}" if relation else ""
            found.setdefault(kind, set()).add(f"{name[len(kind) :].lstrip()}{of}")
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def _code(schema: DatabaseSchema) -> Iterator[Mapping[str, Any]]:
    """Yield the entries for code; options have no model, so what has another form is left out."""
    for each in schema.schemas:
        entries = each.options.get("code", ())
        for entry in entries if isinstance(entries, list | tuple) else ():
            texts = [entry.get("kind"), entry.get("name"), *entry.get("on", ())] if isinstance(entry, dict) else [None]
            if all(isinstance(text, str) for text in texts):
                yield entry


def _uncarried(schema: DatabaseSchema) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the names in `not_carried`, each with schema and name of the relation that it belongs to, if any."""
    for each in schema.schemas:
        for name in each.options.get("not_carried", ()):
            yield str(name), ()
    relations: tuple[Table | View, ...] = (*schema.tables, *schema.views)
    for relation in relations:
        parts = relation.options.get("partitions", ())
        every = [(relation.table_name, relation.options), *(((p["schema"], p["name"]), p) for p in parts)]
        for table_name, options in every:
            for name in options.get("not_carried", ()):
                yield str(name), tuple(table_name)


def kinds_text(by_kind: Mapping[str, list[str]], most: int = 5) -> str:
    """Return kinds with their counts and first names, such as `publication (2): a, b; event trigger (1): c`."""
    return "; ".join(
        f"{kind} ({len(names)}): {', '.join(names[:most])}{', …' if len(names) > most else ''}"
        for kind, names in by_kind.items()
    )
