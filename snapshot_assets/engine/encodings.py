"""Which Parquet encoding each column gets, decided on the file's first row group.

The rule: a dictionary where values repeat (at most one distinct value in four rows of a sample); else
BYTE_STREAM_SPLIT for floats, DELTA_BINARY_PACKED for integers, dates and times, and plain for the rest. Leaves of nested columns get a
dictionary, from which Parquet falls back by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE = 8_192
_REPEATS = 4


@dataclass(frozen=True)
class Encodings:
    """Arguments of the Parquet writer, by leaf path.

    Attributes:
        dictionary: Leaves with a dictionary.
        columns: Encodings of the others, where it is not plain.
    """

    dictionary: list[str]
    columns: dict[str, str]


def choose_encodings(group: pa.Table) -> Encodings:
    """Return the encodings for a file whose first row group this is."""
    dictionary: list[str] = []
    columns: dict[str, str] = {}
    for field, column in zip(group.schema, group.columns, strict=True):
        if pa.types.is_nested(field.type):
            dictionary += _leaves(field.name, field.type)
        elif _repeats(column):
            dictionary.append(field.name)
        elif pa.types.is_floating(field.type):
            columns[field.name] = "BYTE_STREAM_SPLIT"
        elif pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            columns[field.name] = "DELTA_BINARY_PACKED"
    return Encodings(dictionary, columns)


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return False
    sample = column.slice(0, _SAMPLE)
    distinct: int = pc.count_distinct(sample, mode="all").as_py()
    return distinct * _REPEATS <= len(sample)


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of a column's leaves, as Parquet names them."""
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    else:
        yield path
