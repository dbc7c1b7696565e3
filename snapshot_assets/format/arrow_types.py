"""Arrow types as text and back: the `arrow_type` of a column in `tables.json`.

The text is Arrow's own, restricted to the types that data files use. Parsing is the exact inverse, so a document never
names a type that a reader has to guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from snapshot_assets.errors import DocumentError

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_SIMPLE: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.null(),
        pa.bool_(),
        *_SIGNED,
        *_UNSIGNED,
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.date32(),
        *(pa.time32(unit) for unit in ("s", "ms")),
        *(pa.time64(unit) for unit in ("us", "ns")),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")),
    )
}
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2}), (-?\d{1,2})\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")
_MAX_DEPTH = 16


def arrow_type_text(arrow_type: pa.DataType) -> str:
    """Return the text of a type; raise a DocumentError if data files do not use it."""
    if pa.types.is_list(arrow_type):
        return f"list<{arrow_type_text(arrow_type.value_type)}>"
    if pa.types.is_map(arrow_type):
        return f"map<{arrow_type_text(arrow_type.key_type)}, {arrow_type_text(arrow_type.item_type)}>"
    if pa.types.is_struct(arrow_type):
        names = ('"' + field.name.replace('"', '""') + '"' for field in arrow_type)
        fields = (f"{name}: {arrow_type_text(field.type)}" for name, field in zip(names, arrow_type, strict=True))
        return f"struct<{', '.join(fields)}>"
    text = str(arrow_type)
    if text in _SIMPLE or _DECIMAL.fullmatch(text) or _FIXED.fullmatch(text):
        return text
    raise DocumentError(f"Data files cannot hold Arrow type {text}.", arrow_type=text)


def parse_arrow_type(text: str) -> pa.DataType:
    """Return the type that `arrow_type_text` wrote as `text`; raise a DocumentError for another text."""
    parser = _Parser(text)
    arrow_type = parser.type(0)
    if parser.rest:
        raise parser.error()
    return arrow_type


class _Parser:
    """Recursive descent over one type text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = text

    def error(self) -> DocumentError:
        return DocumentError(f"{self.text!r} is not the text of an Arrow type (at {self.rest[:20]!r}).")

    def take(self, literal: str) -> bool:
        if self.rest.startswith(literal):
            self.rest = self.rest[len(literal) :]
            return True
        return False

    def need(self, literal: str) -> None:
        if not self.take(literal):
            raise self.error()

    def type(self, depth: int) -> pa.DataType:
        if depth > _MAX_DEPTH:
            raise self.error()
        if self.take("list<"):
            value = self.type(depth + 1)
            self.need(">")
            return pa.list_(value)
        if self.take("map<"):
            key = self.type(depth + 1)
            self.need(", ")
            item = self.type(depth + 1)
            self.need(">")
            return pa.map_(key, item)
        return self.struct(depth) if self.take("struct<") else self.scalar()

    def struct(self, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        while not self.take(">"):
            if fields:
                self.need(", ")
            name = self.name()
            self.need(": ")
            fields.append(pa.field(name, self.type(depth + 1)))
        return pa.struct(fields)

    def name(self) -> str:
        match = re.match(r'"((?:[^"]|"")*)"', self.rest)
        if match is None:
            raise self.error()
        self.rest = self.rest[match.end() :]
        return match.group(1).replace('""', '"')

    def scalar(self) -> pa.DataType:
        try:
            if match := _DECIMAL.match(self.rest):
                self.rest = self.rest[match.end() :]
                kind = pa.decimal128 if match.group(1) == "128" else pa.decimal256
                return kind(int(match.group(2)), int(match.group(3)))
            if match := _FIXED.match(self.rest):
                self.rest = self.rest[match.end() :]
                return pa.binary(int(match.group(1)))
        except (ValueError, pa.ArrowInvalid) as cause:
            raise self.error() from cause
        for name in sorted(_SIMPLE, key=len, reverse=True):
            if self.take(name):
                return _SIMPLE[name]
        raise self.error()


_LADDERS = (
    _SIGNED,
    _UNSIGNED,
    *((_UNSIGNED[step], *_SIGNED[step + 1 :]) for step in range(3)),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
"""Each type in a ladder represents every value of the types before it."""


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which `leaf` replaced every type that is not nested."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, leaf), with_leaves(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(with_leaves(member.type, leaf)) for member in kind])
    return leaf(kind)


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the one of two types that represents every value of both, or None."""
    if one == other:
        return one
    for ladder in _LADDERS:
        if one in ladder and other in ladder:
            return ladder[max(ladder.index(one), ladder.index(other))]
    return None
