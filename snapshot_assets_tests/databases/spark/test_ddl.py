"""The types and statements of tables in a Spark catalog; needs no Spark session."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_assets.databases.spark.ddl import define, type_for
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.relations import Column, DatabaseSchema, Table

TYPES = {
    pa.uint64(): "decimal(20,0)",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("ms"): "timestamp_ntz",
    pa.time64("us"): "string",
    pa.decimal128(12, 3): "decimal(12,3)",
    pa.list_(pa.struct([("a b", pa.int8())])): "array<struct<`a b`:tinyint>>",
    pa.map_(pa.string(), pa.float32()): "map<string,float>",
    pa.null(): "string",
}


@pytest.mark.parametrize(("arrow", "expected"), TYPES.items(), ids=str)
def test_every_arrow_type_has_a_type_that_a_definition_takes(arrow: pa.DataType, expected: str) -> None:
    assert type_for(arrow) == expected
    assert expected in definition_of(expected)


def definition_of(kind: str) -> str:
    table = Table(schema_name="s", name="t", columns=(Column(name="c", type=kind, arrow_type="int32"),))
    (statement,) = define(DatabaseSchema(database="spark", tables=(table,))).before
    return statement.sql


@pytest.mark.parametrize(
    "kind",
    [
        "char(3)",
        "varchar(5)",
        "string collate UTF8_LCASE",
        "interval day to second",
        "time(6)",
        "struct<`x``) LOCATION`:array<map<string,decimal(10,2)>>>",
    ],
)
def test_types_that_spark_documents_are_taken(kind: str) -> None:
    assert f"`c` {kind})" in definition_of(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "int) LOCATION 's3://bucket/x' --",
        "int, d int",
        "int DEFAULT now()",
        "int COMMENT 'x'",
        "int /* */",
        "`x`",
        "collate UTF8_LCASE int",
        "struct<a:int>>",
        "struct<",
        "x",
        "",
    ],
)
def test_a_type_text_that_is_more_than_a_type_is_refused(kind: str) -> None:
    with pytest.raises(DocumentError, match=r"Column s\.t\.c has .* no type of Spark"):
        definition_of(kind)
