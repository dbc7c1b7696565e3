"""Kinds of schema objects, and counts by kind: a person reads `12 views, 3 indexes`, not 15 lines.

Documents list what a snapshot lacks by texts that begin with the kind: `default privileges of role r on tables`. Every
sentence about something that is lost begins so, too: `View public.v is left out: …`. This module reads it from there,
and groups by kind what schema documents have and a restore does not create by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from snapshot_assets.format.options import CodeEntry, SchemaOptions, TableOptions, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema, TableName

_PHRASES = (
    "access method|column option|comment on|database setting|default privileges|dependency of|earlier versions of rows|"
    "event trigger|"
    "exclusion constraint|foreign data wrapper|foreign key|foreign keys|foreign server|foreign table|grant on|"
    "large objects|materialized view|not null|operator class|operator family|package body|place of extension sequence|"
    "place of sequence|primary key|range of fields|replica identity|row security|rows of extension table|"
    "security label|statistics target|table macro|table option|table property|text search configuration|"
    "text search dictionary|text search parser|text search template|unique constraint|user mapping|"
    "value of sequence"
)
"""Kinds of more than one word."""

_COUNTED_AS = {
    "chunks": "time index",  # whose chunks cannot be replaced
    "comment on": "comment",
    "dependency of": "dependency",
    "foreign keys": "foreign key",
    "grant on": "grant",
    "large objects": "large object",
    "of": "table option",
}
_KIND = re.compile(rf"(?:the )?((?:{_PHRASES})(?![\w-])|\S*)", re.IGNORECASE)
_PLURAL_KINDS = ("default privileges", "earlier versions", "large objects", "rows of")
"""Beginnings of names that stand for several things."""


def kind_words(text: str) -> str:
    """Return the words for the kind of the object with which a text begins, such as `grant on`."""
    match = _KIND.match(text)
    return match.group(1).lower() if match else ""


def kind_of_object(text: str) -> str:
    """Return the kind by which the object with which a text begins is counted, such as `grant`."""
    words = kind_words(text)
    return _COUNTED_AS.get(words, words)


def capital(text: str) -> str:
    """Return text with a capital first letter; names in it do not change."""
    return text[:1].upper() + text[1:]


def not_in_snapshot(what: str, of: str = "") -> str:
    """Return the sentence about an object that no snapshot holds, such as `default privileges of role r on tables`.

    `of` is ` of ` and the relation to which it belongs; "" for none.
    """
    return f"{capital(what)}{of} {'are' if what.lower().startswith(_PLURAL_KINDS) else 'is'} not in a snapshot."


def not_restored(what: str) -> str:
    """Return the sentence about code, such as `function public.f()`, that nobody asked for."""
    return f"{capital(what)} is not restored: it is code of the snapshot. Give --with-code."


def calls_lacking(view: TableName, function: str) -> str:
    """Return the sentence about a view that calls a function, such as `function public.f()`, that is not restored."""
    return (
        f"View {view} calls {function}, which is not restored. If the target does not have it, the view and those that"
        " read it are left out."
    )


def counts_by_kind(kinds: Iterable[str]) -> dict[str, int]:
    """Return how many objects have each kind, the most frequent kind first."""
    counts = Counter(kinds)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts by kind as text, such as `12 views, 1 index`."""
    return ", ".join(f"{count:,} {kind if count == 1 else _plural(kind)}" for kind, count in counts.items())


def _plural(kind: str) -> str:
    if " of " in kind:  # such as place of sequence
        return " of ".join(map(_plural, kind.split(" of ")))
    if kind.endswith(("ss", "x")):
        return f"{kind}es"
    if kind.endswith("y") and kind[-2] not in "aeiou":
        return f"{kind[:-1]}ies"
    return kind if kind.endswith("s") else f"{kind}s"


def code_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return the names of the code in documents by kind: what a restore creates only if the user asks for it."""
    found: dict[str, list[str]] = {}
    for entry in _code(schema):
        if not entry.is_part:
            of = f" of {entry.on}" if entry.on is not None else ""
            found.setdefault(entry.kind, []).append(f"{entry.name}{of}")
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def uncarried_by_kind(schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return by kind the names of what a snapshot does not carry."""
    code = {(entry.key, entry.on) for entry in _code(schema)}
    routines = {f"function {entry.name}" for entry in _code(schema)}  # as views name those that they call
    found: dict[str, set[str]] = {}
    for name, relation in _uncarried(schema):
        if (name, relation) not in code and name not in routines:
            kind = kind_words(name)
            of = f" of {relation}" if relation else ""
            found.setdefault(kind, set()).add(f"{name[len(kind) :]}{of}".lstrip())
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
