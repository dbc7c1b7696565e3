"""Kinds of schema objects, and counts by kind: a person reads `12 views, 3 indexes`, not 15 lines.

Every sentence about something that is lost begins with the kind of its object: `View public.v is left out: …`. This
module reads it from there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_PLURALS = {
    "access method": "",
    "aggregate": "",
    "attribute": "",
    "bucketing": "bucketings",
    "cast": "",
    "check": "",
    "clustering": "clusterings",
    "collation": "",
    "column": "",
    "column option": "",
    "comment": "",
    "compression": "compressions",
    "constraint": "",
    "conversion": "",
    "database setting": "",
    "default": "",
    "default privileges": "default privileges",
    "domain": "",
    "event trigger": "",
    "exclusion constraint": "",
    "extension": "",
    "foreign data wrapper": "",
    "foreign key": "",
    "foreign server": "",
    "foreign table": "",
    "function": "",
    "grant": "",
    "index": "indexes",
    "inheritance": "inheritances",
    "language": "",
    "length": "",
    "macro": "",
    "large object": "",
    "materialized view": "",
    "not null": "not nulls",
    "operator": "",
    "operator class": "operator classes",
    "operator family": "operator families",
    "owner": "",
    "partition": "",
    "partitioning": "partitionings",
    "place of sequence": "places of sequences",
    "policy": "policies",
    "precision": "",
    "primary key": "",
    "procedure": "",
    "publication": "",
    "range of fields": "ranges of fields",
    "replica identity": "replica identities",
    "role": "",
    "row security": "row securities",
    "rule": "",
    "schema": "",
    "sequence": "",
    "statistics": "statistics",
    "statistics target": "",
    "storage": "storages",
    "subscription": "",
    "table": "",
    "table macro": "",
    "table option": "",
    "table property": "table properties",
    "tablespace": "",
    "text search configuration": "",
    "text search dictionary": "text search dictionaries",
    "text search parser": "",
    "text search template": "",
    "time index": "time indexes",
    "transform": "",
    "trigger": "",
    "type": "",
    "unique constraint": "",
    "user mapping": "",
    "value of sequence": "values of sequences",
    "view": "",
}
"""The kinds, each with its plural; "" for one that only adds an s."""

OTHER = "other object"
"""The kind of an object whose kind is none of these."""

_ALIASES = {
    "chunks of": "time index",  # whose chunks cannot be replaced
    "foreign keys": "foreign key",
    "large objects": "large object",
    "of": "table option",
    "options of column": "column option",
}
_WORDS = sorted({*_PLURALS, *_ALIASES}, key=len, reverse=True)
_KIND = re.compile(rf"(?:the )?({'|'.join(_WORDS)})(?![\w-])", re.IGNORECASE)
_SETTING = re.compile(rf"(?:\w+ ){{1,3}}of ({'|'.join(_WORDS)})(?![\w-])", re.IGNORECASE)
"""A property of an object that is no kind of its own, such as `persistence of sequence`."""

_PLURAL_KINDS = ("default privileges", "large objects", "rows of")
"""Beginnings of names that stand for several things."""


def kind_of_object(text: str) -> str:
    """Return the kind of the object with which a text begins, such as `primary key`."""
    if match := _KIND.match(text):
        found = match.group(1).lower()
        return _ALIASES.get(found, found)
    setting = _SETTING.match(text)
    return f"{setting.group(1).lower()} setting" if setting else OTHER


def capital(text: str) -> str:
    """Return text with a capital first letter; names in it do not change."""
    return text[:1].upper() + text[1:]


def not_in_snapshot(what: str, of: str = "") -> str:
    """Return the sentence about an object that no snapshot holds.

    Args:
        what: Kind and name of the object, such as `default privileges of role r on tables`.
        of: ` of ` and the relation to which it belongs; "" for none.
    """
    return f"{capital(what)}{of} {'are' if what.lower().startswith(_PLURAL_KINDS) else 'is'} not in a snapshot."


def counts_by_kind(kinds: Iterable[str]) -> dict[str, int]:
    """Return how many objects have each kind, the most frequent kind first."""
    counts = Counter(kinds)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts by kind as text, such as `12 views, 1 index`."""
    return ", ".join(f"{count:,} {kind if count == 1 else _plural(kind)}" for kind, count in counts.items())


def _plural(kind: str) -> str:
    return _PLURALS.get(kind) or f"{kind}s"
