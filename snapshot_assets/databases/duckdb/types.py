"""Which Arrow type carries which DuckDB type: the one table of the mapping.

A column's type is a tree; its leaves decide. Tests prove that a native leaf's values are exact through Arrow and
Parquet and back. Every other leaf travels as DuckDB's own text, restored by a cast. Nested types stay nested in Arrow,
because a cast from a nested type to text cannot always be undone. Only a union, which Parquet does not have, turns its
whole column into JSON text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.selection.columns import Carried, recorded_carrier, refused_carrier, unsupported_type
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError, UnsupportedTypeError
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, TableName

_TEXT = Carried(pa.string(), Carrier.TEXT, "VARCHAR")

LEAVES: dict[str, Carried] = {
    "boolean": Carried(pa.bool_()),
    "tinyint": Carried(pa.int8()),
    "smallint": Carried(pa.int16()),
    "integer": Carried(pa.int32()),
    "bigint": Carried(pa.int64()),
    "utinyint": Carried(pa.uint8()),
    "usmallint": Carried(pa.uint16()),
    "uinteger": Carried(pa.uint32()),
    "ubigint": Carried(pa.uint64()),
    "float": Carried(pa.float32()),
    "double": Carried(pa.float64()),
    "varchar": Carried(pa.string(), via="VARCHAR"),  # JSON too
    "enum": Carried(pa.string(), via="VARCHAR"),
    "blob": Carried(pa.binary()),
    "geometry": Carried(pa.binary(), via="BLOB"),  # well-known binary
    "date": Carried(pa.date32()),
    "time": Carried(pa.time64("us")),
    "time_ns": Carried(pa.time64("ns")),
    "timestamp_s": Carried(pa.timestamp("ms"), via="TIMESTAMP_MS"),  # Parquet has no seconds
    "timestamp_ms": Carried(pa.timestamp("ms")),
    "timestamp": Carried(pa.timestamp("us")),
    "timestamp_ns": Carried(pa.timestamp("ns")),
    "timestamp with time zone": Carried(pa.timestamp("us", "UTC")),
    "timestamptz_ns": Carried(pa.timestamp("ns", "UTC")),
    "null": Carried(pa.null()),
    # Wider than decimal128's 38 digits
    "hugeint": _TEXT,
    "uhugeint": _TEXT,
    "bignum": _TEXT,
    # Arrow or Parquet drop the offset, the length, or the months
    "time with time zone": _TEXT,
    "bit": _TEXT,
    "interval": _TEXT,
    "uuid": _TEXT,
}
"""By DuckDB's type id; cast to `via` where DuckDB's Arrow output is not `arrow`.

The others are DECIMAL, as decimal128, and the nested types.
"""

REFUSED: dict[str, str] = {
    "variant": "DuckDB can export it only as Parquet's variant, which changes unsigned and 128-bit integers and has no"
    " intervals; export a view that casts it to the type or to JSON",
    "type": "it is a pseudo-type",
}

_TEXT_LEAVES = frozenset(identity for identity, leaf in LEAVES.items() if leaf is _TEXT)
_DEEPEST = 16
RANGED = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "UUID"),
)
"""Types by whose ranges a query is divided."""
_WIDEST_DECIMAL = 38
_NESTED = frozenset(("list", "array", "struct", "tuple", "map", "union"))


def carry(kind: DuckDBPyType, wanted: Carrier | None, where: str) -> Carried:
    """Choose how a column of a type travels: as the plan wants, or else as the type does.

    Raises:
        UnsupportedTypeError: The type has no exact carrier.
        PlanError: The plan wants a native carrier, and the type has only text.
    """
    _refuse(kind, kind, where)
    union = contains(kind, ("union",))
    own_text = union or contains(kind, _TEXT_LEAVES)
    if wanted is Carrier.NATIVE and own_text:
        raise refused_carrier(where, str(kind), wanted, "only text holds all its values")
    text = union or (wanted is Carrier.TEXT and not own_text)
    arrow_type = pa.string() if union else _arrow(kind, text)
    carrier = Carrier.TEXT if own_text or text else Carrier.NATIVE
    return Carried(arrow_type, carrier, _via(kind, text), json=union)


def ingest(table: TableName, column: Column, kind: DuckDBPyType) -> tuple[pa.DataType, str]:
    """Return how a column is loaded: the Arrow type of the stream, and the SQL expression of the value.

    The column's document has the carrier and Arrow type of the file, which casts to that of the stream without loss;
    `kind` is its type in the target. The expression names the streamed column as the table does.

    Raises:
        DatabaseError: Values of that carrier do not fit the type.
    """
    arrow_type, quoted, type_text = column.arrow_field().type, identifier(column.name), str(kind)
    where = column_text(ColumnPath(table, column.name))
    carried = recorded_carrier(column, where, lambda override, name: carry(kind, override, name))
    if carried is not None:
        return (arrow_type, carried.restore(quoted, type_text))
    if column.carrier is Carrier.TEXT:
        raise DatabaseError(
            f"Column {where} is {type_text} in the target; its values travelled as {column.arrow_type}, which cannot be"
            " read back into that type. Drop the table and let the import create it.",
            column=column.name,
        )
    # From another kind of database
    if pa.types.is_fixed_size_binary(arrow_type) and type_text == "UUID":
        return (pa.binary(), f"CAST(lower(hex({quoted})) AS UUID)")
    if type_text == "VARCHAR" and not pa.types.is_nested(arrow_type):
        return (pa.string(), quoted)
    return (arrow_type, f"CAST({quoted} AS {type_text})")


@cache
def type_for(arrow_type: pa.DataType) -> str:
    """Return the DuckDB type that holds an Arrow type's values exactly; see `TargetModule.type_for`."""
    if pa.types.is_list(arrow_type):
        return f"{type_for(arrow_type.value_type)}[]"
    if pa.types.is_map(arrow_type):
        return f"MAP({type_for(arrow_type.key_type)}, {type_for(arrow_type.item_type)})"
    if pa.types.is_struct(arrow_type) and arrow_type.num_fields:
        members = (f"{identifier(member.name)} {type_for(member.type)}" for member in arrow_type)
        return f"STRUCT({', '.join(members)})"
    if pa.types.is_decimal(arrow_type):
        fits = 0 <= arrow_type.scale <= arrow_type.precision <= _WIDEST_DECIMAL
        return f"DECIMAL({arrow_type.precision},{arrow_type.scale})" if fits else "VARCHAR"
    if arrow_type == pa.binary(16):
        return "UUID"  # the only type of 16 bytes
    try:
        if arrow_type in (pa.duration("ns"), pa.struct([])):
            raise duckdb.NotImplementedException("intervals have microseconds, and a struct has members")
        with duckdb.connect() as connection:
            return str(connection.from_arrow(pa.schema([("value", arrow_type)]).empty_table()).types[0])
    except duckdb.Error as error:
        raise UnsupportedTypeError(f"DuckDB has no type that holds {arrow_type} exactly: {error}") from None


def _children(kind: DuckDBPyType) -> Sequence[tuple[str, DuckDBPyType]]:
    """Return the named member types of a nested type; other types have none."""
    if kind.id not in _NESTED:
        return ()
    # An array's size is among its children, a union's tag is the first of them.
    members = [(name, child) for name, child in kind.children if isinstance(child, DuckDBPyType)]
    if kind.id == "tuple":
        return [(f"element{position}", member) for position, (_, member) in enumerate(members, 1)]
    return members[1:] if kind.id == "union" else members


def contains(kind: DuckDBPyType, identities: Collection[str]) -> bool:
    """Return whether a type has a part of some type ids, or is one."""
    return kind.id in identities or any(contains(child, identities) for _, child in _children(kind))


def _refuse(kind: DuckDBPyType, column: DuckDBPyType, where: str, depth: int = 0) -> None:
    reason = REFUSED.get(kind.id)
    if kind.id in ("struct", "tuple") and str(kind) == kind.id.upper():
        reason = "a file cannot hold values of a struct without members"
    elif depth > _DEEPEST:
        reason = f"documents have no text for types nested more than {_DEEPEST} deep"
    elif reason is None and kind.id not in LEAVES and kind.id not in _NESTED and kind.id != "decimal":
        reason = "this version of the package does not know it"
    if reason is not None:
        raise unsupported_type(where, str(column), kind.id.upper(), reason)
    for _, child in _children(kind):
        _refuse(child, column, where, depth + 1)


def _leaf(kind: DuckDBPyType, text: bool) -> Carried:
    """Return how a leaf travels: by its own carrier, or as text."""
    if text:
        return _TEXT
    if kind.id == "decimal":
        precision, scale = (size for _, size in kind.children if isinstance(size, int))
        return Carried(pa.decimal128(precision, scale))
    return LEAVES[kind.id]


def _via(kind: DuckDBPyType, text: bool) -> str:
    """Return the DuckDB type to cast to."""
    members = [(name, _via(child, text)) for name, child in _children(kind)]
    match kind.id:
        case "list" | "array":
            return f"{members[0][1]}[]"
        case "map":
            return f"MAP({members[0][1]}, {members[1][1]})"
        case "struct" | "union":
            return f"{kind.id.upper()}({', '.join(f'{identifier(name)} {member}' for name, member in members)})"
        case "tuple":
            return f"TUPLE({', '.join(member for _, member in members)})"
    return _leaf(kind, text).via or str(kind)


def _arrow(kind: DuckDBPyType, text: bool) -> pa.DataType:
    """Return the Arrow type of the cast value."""
    members = [(name, _arrow(child, text)) for name, child in _children(kind)]
    match kind.id:
        case "list" | "array":
            return pa.list_(members[0][1])
        case "map":
            return pa.map_(members[0][1], members[1][1])
        case "struct" | "tuple":
            return pa.struct([pa.field(name, member) for name, member in members])
    return _leaf(kind, text).arrow
