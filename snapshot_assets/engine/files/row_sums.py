"""Sums of rows: equal for the same rows in any order, whatever reads them and however they are divided into batches.

DuckDB hashes fast, but treats as equal what must differ here: 0.0 and -0.0, a day and 24 hours, and also NULL, an empty
list and a list of NULL. So it gets values as plain bits, and lists and structs with their lengths and NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.engine.files.batches import pieces
from snapshot_assets.errors import DocumentError

HashRows = Callable[[Sequence[pa.RecordBatch]], np.ndarray]
"""Returns the hash of each row of some batches, as unsigned integers of 64 bits."""

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "192MiB",
}
"""Settings of DuckDB in memory. Without external access it would end the process where the working folder is gone."""

_HASHED_BYTES = 1 << 20  # a query costs milliseconds, so small batches share one
_PIECE_BYTES = 8 << 20  # DuckDB converts 2,048 rows of a batch at once, and copies their lists several times
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_MODULUS = 1 << 64


class RowSums(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2 ** 64."""

    rows: int
    total: int


def row_sums(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> RowSums:
    """Count rows and sum their hashes; see `hashing` for which rows are equal. Rows are read as a stream.

    Only sums that the same version of DuckDB computed can be compared.

    Args:
        schema: The types of all batches; names of columns have no influence.
        batches: Rows in any order.

    Raises:
        DocumentError: A type cannot be compared, or a batch has other types.
    """
    rows = total = 0
    with hashing(schema) as hash_rows:
        for group in grouped(batches):
            rows += sum(batch.num_rows for batch in group)
            total += int(hash_rows(group).sum(dtype=np.uint64))
    return RowSums(rows, total % _MODULUS)


@contextmanager
def hashing(schema: pa.Schema) -> Iterator[HashRows]:
    """Yield a function that hashes rows of a schema. Rows have equal hashes exactly if all their values are equal.

    Two different rows have equal hashes by chance only, once in 2 ** 64. Values are equal if all their bits are: 0.0
    differs from -0.0, 1.0 from 1.00 as texts, and a day from 24 hours. Times with a zone are instants. NULL equals only
    NULL, also inside lists and structs; a map is the list of its entries. All NaNs are one value: DuckDB compresses a
    column of them to one, and text files do not keep their bits. How Arrow stores a value has no influence, be it a
    dictionary or a slice.

    Raises:
        DocumentError: A type has no such bits, such as a union.
    """
    import duckdb  # here, because whatever restores would load it, and so would definitions

    if not schema.names:  # PostgreSQL has tables without columns
        yield lambda batches: np.zeros(sum(batch.num_rows for batch in batches), np.uint64)
        return
    kinds = [plain(pa.nulls(0, kind)).type for kind in schema.types]
    # SQL must not take the name of a column for that of the rows.
    numbered = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    columns = ", ".join(_hashed(field.type, field.name) for field in numbered)
    # Without the outer hash, two rows that exchange a value would often keep the sum.
    query = f"SELECT hash(hash({columns})) FROM given"
    with duckdb.connect(config=_CONFIG) as connection:

        def hash_rows(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
            parts = (part for batch in batches for part in pieces(batch, _PIECE_BYTES))
            given = [_plain_batch(part, schema, numbered) for part in parts]
            connection.register("given", pa.RecordBatchReader.from_batches(numbered, given))
            [hashes] = connection.execute(query).fetchnumpy().values()
            return np.asarray(hashes)

        yield hash_rows


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Divide batches into groups that are worth a query; the last one may be empty."""
    group, size = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _HASHED_BYTES:
            yield group
            group, size = [], 0
    yield group


def _hashed(kind: pa.DataType, value: str, depth: int = 0) -> str:
    """Return the SQL expression that stands for a value in `hash`.

    DuckDB's own hash of a list ignores its length and where inner lists end, and that of a struct whether it is NULL.
    """
    if pa.types.is_struct(kind):
        members = (_hashed(member.type, f"struct_extract({value}, '{member.name}')", depth) for member in kind)
        return f"hash(hash({', '.join([f'{value} IS NULL', *members])}))"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _hashed(kind.value_type, f"v{depth}", depth + 1)
        values = f"list_transform({value}, lambda v{depth}: {inner})" if pa.types.is_nested(kind.value_type) else value
        return f"hash(hash(len({value}), {values}))"
    return value


def _plain_batch(batch: pa.RecordBatch, schema: pa.Schema, numbered: pa.Schema) -> pa.RecordBatch:
    if batch.schema.types != schema.types:
        raise DocumentError(f"A batch has the types {batch.schema.types}; expected {schema.types}.")
    return pa.RecordBatch.from_arrays([plain(column) for column in batch.columns], schema=numbered)


def plain(array: pa.Array) -> pa.Array:
    """Return values as integers, booleans and binary, in lists and structs; DuckDB converts none of these.

    Two such arrays equal one another exactly if their values do; see `hashing`.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return plain(array.dictionary_decode())
    if isinstance(array, pa.RunEndEncodedArray):
        return plain(pc.run_end_decode(array))
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.int8())
    if pa.types.is_struct(kind):
        return _plain_struct(array)
    if isinstance(array, (pa.ListArray, pa.LargeListArray, pa.MapArray)):
        return _plain_list(array)
    if isinstance(array, pa.FixedSizeListArray):
        return _plain_list(array.cast(pa.list_(kind.value_field)))
    return _plain_leaf(array)


def _plain_leaf(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return array
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    try:
        width = kind.bit_width
    except ValueError:
        raise DocumentError(f"Values of Arrow type {kind} cannot be compared.") from None
    if pa.types.is_floating(kind):
        array = _with_one_nan(array)
    return array.view(_INTEGERS.get(width, pa.binary(width // 8)))


def _with_one_nan(array: pa.Array) -> pa.Array:
    is_nan = pc.is_nan(array)
    return pc.if_else(is_nan, pa.scalar(float("nan"), array.type), array) if pc.any(is_nan).as_py() else array


def _plain_struct(array: pa.StructArray) -> pa.Array:
    members = [plain(member) for member in array.flatten()]  # a member of NULL is NULL
    if not members:  # DuckDB has no struct without members
        return pa.array(np.ones(len(array), np.int8), mask=np.asarray(array.is_null()))
    names = [f"m{number}" for number in range(len(members))]
    return pa.StructArray.from_arrays(members, names, mask=array.is_null())


def _plain_list(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> pa.Array:
    """Return a list of plain values, without those outside a slice."""
    offsets = np.asarray(array.offsets)
    start, end = int(offsets[0]), int(offsets[-1])
    if isinstance(array, pa.MapArray):
        entries = [plain(part.slice(start, end - start)) for part in (array.keys, array.items)]
        values = pa.StructArray.from_arrays(entries, ["m0", "m1"])
    else:
        values = plain(array.values.slice(start, end - start))
    build = pa.LargeListArray if pa.types.is_large_list(array.type) else pa.ListArray
    return build.from_arrays(pa.array(offsets - start), values, mask=array.is_null())
