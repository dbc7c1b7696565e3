"""Encodings: each column gets the one that suits its values, whatever its type and name."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.engine.files.parquet.writer import SAMPLE_BYTES, Encodings, choose_encodings

ROWS = 20_000
_RANDOM = random.Random(7)
_NOISE = [_RANDOM.random() for _ in range(ROWS)]


def chosen(values: pa.Array) -> str:
    encodings = choose_encodings(pa.table({"c": values}))
    if "c" in encodings.dictionary:
        return "dictionary"
    return encodings.others.get("c", "plain")


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        ("DELTA_BINARY_PACKED", pa.array([i * 1000 + i % 3 for i in range(ROWS)], pa.timestamp("us", "UTC"))),
        ("DELTA_BINARY_PACKED", pa.array(range(ROWS), pa.int32())),
        ("dictionary", pa.array([int(noise * 40) ** 5 for noise in _NOISE], pa.int64())),
        ("BYTE_STREAM_SPLIT", pa.array(_NOISE, pa.float64())),
        ("BYTE_STREAM_SPLIT", pa.array(_NOISE, pa.float32())),
        ("dictionary", pa.array([round(20 + noise, 2) for noise in _NOISE], pa.float64())),
        ("dictionary", pa.array([f"device-{int(noise * 500)}" for noise in _NOISE])),
        ("DELTA_LENGTH_BYTE_ARRAY", pa.array([str(noise) for noise in _NOISE])),
        ("DELTA_LENGTH_BYTE_ARRAY", pa.array([str(noise).encode() for noise in _NOISE], pa.large_binary())),
        ("DELTA_BINARY_PACKED", pa.array([round(Decimal(noise * 10**5), 2) for noise in _NOISE], pa.decimal128(15, 2))),
        ("DELTA_BINARY_PACKED", pa.array([round(Decimal(noise * 10**5), 2) for noise in _NOISE], pa.decimal128(9, 2))),
        ("dictionary", pa.array([int(noise * 9) * 10**20 for noise in _NOISE], pa.decimal128(38, 0))),
        ("plain", pa.array([int(noise * 10**30) for noise in _NOISE], pa.decimal128(38, 0))),
    ],
)
def test_the_smallest_encoding_is_chosen(expected: str, values: pa.Array) -> None:
    assert chosen(values) == expected


def test_a_few_wide_rows_are_sample_enough() -> None:
    rows = pa.table({"c": ["x" * SAMPLE_BYTES] * 3})
    assert choose_encodings(rows).options()["compression"] == "zstd"


def test_columns_that_dots_make_alike_are_left_plain_and_written() -> None:
    table = pa.table({"a": [{"b": 1.5}] * 10, "a.b": pa.array(["text"] * 10), "n": pa.array(range(10))})
    encodings = choose_encodings(table)
    assert "a.b" not in (*encodings.dictionary, *encodings.others)
    assert _written(table, encodings).equals(table)


def test_leaves_of_nested_columns_are_encoded_too() -> None:
    table = pa.table({"l": pa.array([[noise, noise + 1] for noise in _NOISE], pa.list_(pa.float64()))})
    encodings = choose_encodings(table)
    assert encodings.others == {"l.list.element": "BYTE_STREAM_SPLIT"}
    assert _written(table, encodings).equals(table)


@pytest.mark.parametrize("arrow_type", [pa.null(), pa.int64(), pa.string(), pa.bool_(), pa.float64()])
def test_columns_without_values_are_written(arrow_type: pa.DataType) -> None:
    table = pa.table({"c": pa.nulls(5, arrow_type)})
    assert _written(table, choose_encodings(table)).equals(table)


def _written(table: pa.Table, encodings: Encodings) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **encodings.options()) as writer:
        writer.write_table(table)
    return pq.read_table(pa.BufferReader(sink.getvalue()))
