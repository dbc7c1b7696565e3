"""Conditions of values that native carriers cannot hold: infinite dates and times, and 24:00, nested ones included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.format.relations import Column, Table

_DAY_END = ("time", "time_ns")


def unfit_conditions(table: Table, kinds: Mapping[str, DuckDBPyType]) -> Iterator[tuple[Column, str, str]]:
    """Yield the columns that may have unfit values: each with the condition, and what such values are called."""
    for column in table.columns:
        if not _has_times(column.arrow_field().type):  # all leaves travel as text
            continue
        kind, mask = kinds[column.name], mask_of(table, column.name)
        condition = unfit_condition(identifier(column.name) if mask is None else masked(mask, str(kind)), kind)
        if condition is not None:
            yield column, condition, "the time 24:00:00" if kind.id in _DAY_END else "an infinite time"


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(_has_times(kind.field(n).type) for n in range(kind.num_fields))


def unfit_condition(value: str, kind: DuckDBPyType, depth: int = 0) -> str | None:
    """Return the condition under which a value does not fit; None for a type all of whose values do.

    Args:
        value: SQL expression of the value.
        kind: Its type.
        depth: Number of lists around it.
    """
    members = (
        [(name, child) for name, child in kind.children if isinstance(child, DuckDBPyType)] if _nested(kind) else []
    )
    match kind.id, members:
        case "list" | "array", [(_, child), *_]:
            return _any(value, child, depth)
        case "map", [(_, key), (_, item)]:
            return _or([_any(f"map_keys({value})", key, depth), _any(f"map_values({value})", item, depth)])
        case "struct", _:
            return _or(
                [unfit_condition(f"struct_extract({value}, {literal(name)})", child, depth) for name, child in members]
            )
    if kind.id in _DAY_END:
        return f"{value} = CAST('24:00:00' AS {kind})"
    if kind.id == "date" or kind.id.startswith("timestamp"):
        return f"{value} IN (CAST('infinity' AS {kind}), CAST('-infinity' AS {kind}))"
    return None


def _nested(kind: DuckDBPyType) -> bool:
    return kind.id in ("list", "array", "map", "struct")


def _any(lists: str, kind: DuckDBPyType, depth: int) -> str | None:
    name = f"x{depth}"
    condition = unfit_condition(name, kind, depth + 1)
    return (
        None
        if condition is None
        else f"coalesce(list_bool_or(list_transform({lists}, lambda {name}: {condition})), false)"
    )


def _or(conditions: list[str | None]) -> str | None:
    present = [each for each in conditions if each is not None]
    return f"({' OR '.join(present)})" if present else None
