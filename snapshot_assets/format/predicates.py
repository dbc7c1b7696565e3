"""Predicates on the rows of one table: a closed expression tree (FORMAT.md, section 6).

A predicate is data. Only this package evaluates it, and it never becomes SQL text, so it cannot inject SQL. As in SQL,
comparing NULL gives NULL. A literal has the type of the column that it is compared with: evaluation converts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from snapshot_assets.errors import DocumentError, PlanError

if TYPE_CHECKING:
    import pyarrow as pa


Value = bool | int | float | str | bytes
"""The value by type. Timestamps and times are integers in their unit since 1970 or midnight, and dates in days. A
decimal is text with all digits of its scale."""

DIGITS = Context(prec=1000)
"""Arithmetic that rounds no decimal of any type."""


@dataclass(frozen=True, eq=False)
class Literal:
    """A value of an Arrow type, in the type's storage form; the type is as `arrow_types.arrow_type_text` writes it."""

    type: str
    value: Value

    def __eq__(self, other: object) -> bool:
        # By repr: NaN equals NaN, and 0, -0 and false differ.
        return isinstance(other, Literal) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type."""
        from snapshot_assets.format.arrow_types import parse_arrow_type

        return parse_arrow_type(self.type)

    @property
    def unscaled(self) -> int:
        """A decimal's digits as one integer."""
        return int(Decimal(str(self.value)).scaleb(self.arrow_type.scale, DIGITS))


MAX_DEPTH = 24
"""Greatest nesting depth of a predicate."""
MAX_SIZE = 10_000
"""Greatest number of operators and literals of a predicate."""


class Operator(StrEnum):
    """A comparison operator."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


@dataclass(frozen=True)
class Comparison:
    """Compares a column with a literal of its type; NULL where the column is NULL.

    Text and bytes are compared byte by byte. As in PostgreSQL, NaN equals itself and is greater than any other number,
    and -0 equals 0.
    """

    column: str
    operator: Operator
    value: Literal


@dataclass(frozen=True)
class IsIn:
    """Whether a column equals one of several literals of its type; NULL where the column is NULL."""

    column: str
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class IsNull:
    """Whether a column is NULL."""

    column: str


@dataclass(frozen=True)
class Not:
    """Negates a predicate; NULL where the predicate is NULL."""

    predicate: Predicate


@dataclass(frozen=True)
class And:
    """Whether all predicates are true: false if one is false, true for an empty list."""

    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """Whether at least one predicate is true; false for an empty list."""

    predicates: tuple[Predicate, ...]


Predicate = Comparison | IsIn | IsNull | Not | And | Or


def walk(predicate: Predicate) -> Iterator[tuple[Predicate, int]]:
    """Yield a predicate and all its parts, each with its depth from 1, without recursion."""
    todo = [(predicate, 1)]
    while todo:
        one, depth = todo.pop()
        yield one, depth
        match one:
            case Not():
                todo.append((one.predicate, depth + 1))
            case And() | Or():
                todo += [(part, depth + 1) for part in one.predicates]


def columns_of(predicate: Predicate) -> dict[str, pa.DataType | None]:
    """Return the columns that a predicate uses, with the type of its literals; None where only IS NULL uses them."""
    columns: dict[str, pa.DataType | None] = {}
    for one, _ in walk(predicate):
        match one:
            case Comparison():
                columns[one.column] = one.value.arrow_type
            case IsIn():
                columns[one.column] = one.values[0].arrow_type
            case IsNull():
                columns.setdefault(one.column, None)
    return columns


def check_predicate(predicate: Predicate) -> Predicate:
    """Return a predicate after checking that it is valid without regard to a table; else raise a DocumentError.

    It may be too large or too deep, a literal may not fit its type, or a column be compared with literals of several
    types.
    """
    from snapshot_assets.format.literal_values import scalar_of

    types: dict[str, str] = {}
    size = 0
    for one, depth in walk(predicate):
        match one:
            case Comparison(column, _, literal):
                literals: tuple[Literal, ...] = (literal,)
            case IsIn(column, literals):
                pass
            case _:
                column, literals = "", ()
        size += 1 + len(literals)
        if depth > MAX_DEPTH or size > MAX_SIZE:
            raise DocumentError(
                f"A predicate is nested more than {MAX_DEPTH} deep, or has more than {MAX_SIZE} operators and literals."
            )
        if isinstance(one, IsIn) and not literals:
            raise DocumentError(f"A predicate looks for column {column!r} in an empty list.")
        for literal in literals:
            scalar_of(literal)
            if types.setdefault(column, literal.type) != literal.type:
                raise DocumentError(
                    f"A predicate compares column {column!r} with values of {types[column]} and of {literal.type}."
                )
    return predicate


def check_columns(predicate: Predicate, schema: pa.Schema, table: str) -> None:
    """Check that a table has a predicate's columns in the types of its literals; else raise a PlanError."""
    for column, kind in columns_of(predicate).items():
        field = field_of(column, schema, table)
        if kind is not None and kind != field.type:
            raise PlanError(f"column {table}.{column} is {field.type}, and the predicate compares it with {kind}")


def field_of(column: str, schema: pa.Schema, table: str) -> pa.Field:
    """Return a table's column; raise a PlanError if no column or more than one has that name."""
    names = schema.names
    places = [place for place, name in enumerate(names) if name == column]
    if len(places) > 1:
        raise PlanError(f"table {table} has {len(places)} columns {column!r}, so the name is ambiguous")
    if not places:
        looks = "" if column.isascii() else f" ({column!a})"  # letters of another script may look identical
        raise PlanError(f"table {table} has no column {column!r}{looks}; it has {', '.join(names) or 'none'}")
    return schema.field(places[0])


def predicate_json(predicate: Predicate) -> dict[str, Any]:
    """Return a predicate as the JSON value of the manifest; equal predicates give equal values."""
    match predicate:
        case Comparison():
            literal = predicate.value
            return {
                "column": predicate.column,
                "operator": predicate.operator.value,
                "type": literal.type,
                "value": _to_json(literal.value),
            }
        case IsIn():
            values = [_to_json(literal.value) for literal in predicate.values]
            return {"column": predicate.column, "in": values, "type": predicate.values[0].type}
        case IsNull():
            return {"is_null": predicate.column}
        case Not():
            return {"not": predicate_json(predicate.predicate)}
        case And():
            return {"all": [predicate_json(part) for part in predicate.predicates]}
        case Or():
            return {"any": [predicate_json(part) for part in predicate.predicates]}


def parse_predicate_json(value: Any) -> Predicate:
    """Return the predicate that `predicate_json` wrote; the document's limit also limits its depth."""
    try:
        return check_predicate(_from_json(value))
    except (KeyError, TypeError, ValueError) as cause:
        raise DocumentError(f"{value!r:.200} is not a valid predicate: {cause!r}.") from cause


def _from_json(value: Mapping[str, Any]) -> Predicate:
    match dict(value):
        case {"is_null": str(column), **rest} if not rest:
            return IsNull(column)
        case {"not": part, **rest} if not rest:
            return Not(_from_json(part))
        case {"all": [*parts], **rest} if not rest:
            return And(tuple(map(_from_json, parts)))
        case {"any": [*parts], **rest} if not rest:
            return Or(tuple(map(_from_json, parts)))
        case {"column": str(column), "operator": operator, "type": str(kind), "value": given, **rest} if not rest:
            return Comparison(column, Operator(operator), _literal(kind, given))
        case {"column": str(column), "in": [*values], "type": str(kind), **rest} if not rest:
            return IsIn(column, tuple(_literal(kind, given) for given in values))
    raise ValueError("unknown keys")


def _to_json(value: Value) -> bool | int | float | str:
    """Return a value as JSON: bytes as hex digits, and floats that JSON lacks as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _literal(kind: str, given: Any) -> Literal:
    from snapshot_assets.format.arrow_types import parse_arrow_type
    from snapshot_assets.format.literal_values import storage_of

    storage = storage_of(parse_arrow_type(kind))
    if storage is bytes:
        return Literal(kind, bytes.fromhex(given))
    if storage is float and isinstance(given, str | int) and not isinstance(given, bool):
        return Literal(kind, float(given))
    return Literal(kind, given)
