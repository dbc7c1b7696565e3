from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.types
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, IntegerType, StructType

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.spark.introspect import exact_frame, schema_table
from snapshot_assets.databases.spark.types import NATIVE, REFUSED, TEXT, carry, type_text
from snapshot_assets.errors import DatabaseError, PlanError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier, Table, TableName

NAME = TableName("sales", "t")
STAMPS = [
    "'1970-01-01'",
    "'0001-01-01'",
    "'1582-10-10 12:00:00'",
    "'2024-03-31 02:30:00.999999'",
    "'+294247-01-10 04:00:54.775807'",
    "'-290308-12-22'",
]
FLOATS = ["0", "'-0.0'", "'NaN'", "'Infinity'", "'-Infinity'", "0.1"]

CASES: dict[str, tuple[Carrier, str, list[str]]] = {
    "boolean": (Carrier.NATIVE, "bool", ["true", "false"]),
    "tinyint": (Carrier.NATIVE, "int8", ["-128", "127"]),
    "smallint": (Carrier.NATIVE, "int16", ["-32768", "32767"]),
    "int": (Carrier.NATIVE, "int32", ["-2147483648", "2147483647"]),
    "bigint": (Carrier.NATIVE, "int64", ["-9223372036854775808", "9223372036854775807"]),
    "float": (Carrier.NATIVE, "float", [*FLOATS, "'3.4028235E38'", "'1.4E-45'"]),
    "double": (Carrier.NATIVE, "double", [*FLOATS, "'1.7976931348623157E308'", "'4.9E-324'"]),
    "decimal(38,0)": (Carrier.NATIVE, "decimal128(38, 0)", [f"'{10**38 - 1}'", f"'{1 - 10**38}'"]),
    "decimal(10,10)": (Carrier.NATIVE, "decimal128(10, 10)", ["'0.9999999999'", "'-0.0000000001'"]),
    "string": (Carrier.NATIVE, "string", ["''", "'null'", "'a\\0b'", "'héé 🦆'", "' x '"]),
    "string collate UTF8_LCASE": (Carrier.NATIVE, "string", ["'aB'"]),
    "binary": (Carrier.NATIVE, "binary", ["X''", "X'00FF5C'"]),
    "date": (Carrier.NATIVE, "date32[day]", ["'0001-01-01'", "'1582-10-10'", "'-5877641-06-23'", "'+5881580-07-11'"]),
    "timestamp": (Carrier.NATIVE, "timestamp[us, tz=UTC]", STAMPS),
    "timestamp_ntz": (Carrier.NATIVE, "timestamp[us]", STAMPS),
    "time(6)": (Carrier.NATIVE, "time64[ns]", ["'00:00:00'", "'23:59:59.999999'"]),
    "void": (Carrier.NATIVE, "null", ["NULL"]),
    "interval day to second": (
        Carrier.TEXT,
        "string",
        ["INTERVAL '-1 02:03:04.000005' DAY TO SECOND", "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND"],
    ),
    "interval hour": (Carrier.TEXT, "string", ["INTERVAL '25' HOUR"]),
    "interval year to month": (
        Carrier.TEXT,
        "string",
        ["INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '178956970-7' YEAR TO MONTH"],
    ),
    "array<array<string>>": (Carrier.NATIVE, "list<list<string>>", ["array(array(), NULL, array('', NULL))"]),
    "map<string,int>": (Carrier.NATIVE, "map<string, int32>", ["map('b', 1, 'a', NULL)", "map()"]),
    "struct<`x y`:int,`c,:d`:struct<e:date>>": (
        Carrier.NATIVE,
        'struct<"x y": int32, "c,:d": struct<"e": date32[day]>>',
        [
            "named_struct('x y', 1, 'c,:d', named_struct('e', DATE '2024-01-01'))",
            "named_struct('x y', NULL, 'c,:d', NULL)",
        ],
    ),
    "array<struct<`a b`:interval year to month,`n`:binary>>": (
        Carrier.TEXT,
        'list<struct<"a b": string, "n": binary>>',
        ["array(named_struct('a b', INTERVAL '1-1' YEAR TO MONTH, 'n', X'FF'), NULL)"],
    ),
    "map<int,interval day to second>": (
        Carrier.TEXT,
        "map<int32, string>",
        ["map(1, INTERVAL '1 00:00:00' DAY TO SECOND, 2, NULL)"],
    ),
}

ROWS = max(len(values) for _, _, values in CASES.values()) + 1


def carried_rows(frame: DataFrame, table: Table) -> pa.Table:
    """Return the rows exactly in the document's schema, as tasks cast them."""
    schema = table.arrow_schema()
    columns = zip(exact_frame(frame, table).toArrow().columns, schema.types, strict=True)
    return pa.table([column.cast(kind) for column, kind in columns], schema=schema)


@pytest.fixture(scope="module")
def everything(spark: SparkSession) -> DataFrame:
    """One column for each type, filled up with NULL, so that one job carries them all."""
    columns = ["id"]
    for number, (kind, (_, _, values)) in enumerate(CASES.items()):
        cases = " ".join(f"WHEN id = {id_} THEN CAST({value} AS {kind})" for id_, value in enumerate(values))
        columns.append(f"CASE {cases} END AS c{number}")
    return spark.range(0, ROWS, numPartitions=1).selectExpr(*columns)


@pytest.fixture(scope="module")
def trip(
    everything: DataFrame, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Table, list[str]]:
    """The document of all types, and the columns in which a value came back otherwise."""
    table = schema_table(NAME, everything.schema, Selection(time_columns={NAME: None}))
    path = tmp_path_factory.mktemp("types") / "t.parquet"
    pq.write_table(carried_rows(everything, table), path)
    read = pq.read_table(path)
    assert read.schema.equals(table.arrow_schema())
    back = spark.createDataFrame(
        read.select([name for name in read.column_names if read.schema.field(name).type != pa.null()])
    )
    kinds = {field.name: type_text(field.dataType) for field in everything.schema}
    restored = back.selectExpr(*(f"CAST(`{name}` AS {kinds[name]}) AS `{name}`" for name in back.columns))
    unequal = (
        f"count_if(NOT ({comparable('a', name, kinds)} <=> {comparable('b', name, kinds)})) AS `{name}`"
        for name in back.columns
    )
    joined = everything.alias("a").join(restored.alias("b"), "id")
    counts = joined.selectExpr("count(*) AS rows", *unequal).first()
    assert counts is not None
    differing = {name: count for name, count in counts.asDict().items() if count}
    assert differing.pop("rows") == ROWS
    return table, list(differing)


def comparable(side: str, name: str, kinds: dict[str, str]) -> str:
    """Return an expression that differs for all values of a column, also for maps and signed zeros."""
    if kinds[name].startswith("map<"):
        return f"map_entries({side}.`{name}`)"
    if kinds[name] in ("float", "double"):
        return f"CAST({side}.`{name}` AS string)"
    return f"{side}.`{name}`"


@pytest.mark.parametrize("kind", CASES)
def test_every_value_of_a_type_comes_back_exactly(kind: str, trip: tuple[Table, list[str]]) -> None:
    table, differing = trip
    carrier, arrow, _ = CASES[kind]
    column = table.column(f"c{list(CASES).index(kind)}")
    assert (column.carrier, column.arrow_type) == (carrier, arrow)
    assert column.name not in differing


def test_an_override_carries_whole_trees_as_text(spark: SparkSession) -> None:
    frame = spark.sql("SELECT array(named_struct('a b', TIMESTAMP '2024-01-01 00:00:00 UTC'), NULL) AS x")
    table = schema_table(NAME, frame.schema, Selection(carriers={(NAME, "x"): Carrier.TEXT}))
    assert table.column("x").arrow_type == 'list<struct<"a b": string>>'
    assert carried_rows(frame, table).column("x").to_pylist() == [[{"a b": "2024-01-01 00:00:00"}, None]]


def test_no_type_that_pyspark_knows_is_forgotten() -> None:
    kinds = {
        name
        for name, kind in vars(pyspark.sql.types).items()
        if isinstance(kind, type) and issubclass(kind, DataType) and not name.startswith("_")
    }
    abstract = {
        *("DataType", "AtomicType", "NumericType", "IntegralType", "FractionalType", "DatetimeType"),
        *("AnyTimeType", "AnsiIntervalType", "SpatialType", "StructField", "UserDefinedType"),
    }
    nested = {"ArrayType", "MapType", "StructType", "DecimalType"}
    assert kinds - set(NATIVE) - TEXT - set(REFUSED) - abstract - nested == set()


@pytest.mark.parametrize("kind", ["variant", "array<variant>", "geometry(4326)"])
def test_types_without_an_exact_carrier_are_refused(kind: str, spark: SparkSession) -> None:
    schema = spark.sql(f"SELECT CAST(NULL AS {kind}) AS x").schema
    with pytest.raises(UnsupportedTypeError, match="export a view"):
        carry(schema["x"].dataType, None, "sales.t.x")


def test_empty_structs_and_the_deepest_nests_are_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="without members"):
        carry(StructType(), None, "sales.t.x")
    deep: DataType = IntegerType()
    for _ in range(17):
        deep = ArrayType(deep)
    with pytest.raises(UnsupportedTypeError, match="nested more than 16"):
        carry(deep, None, "sales.t.x")


def test_wrong_overrides_are_refused(spark: SparkSession) -> None:
    schema = spark.sql("SELECT X'FF' AS b, INTERVAL '1' DAY AS i").schema
    with pytest.raises(PlanError, match="loses bytes"):
        carry(schema["b"].dataType, Carrier.TEXT, "sales.t.b")
    with pytest.raises(PlanError, match="only text holds"):
        carry(schema["i"].dataType, Carrier.NATIVE, "sales.t.i")


def test_a_frame_of_other_columns_than_the_document_is_refused(spark: SparkSession) -> None:
    table = schema_table(NAME, spark.sql("SELECT 1 AS a, 2 AS b").schema, Selection())
    with pytest.raises(DatabaseError, match=r"sales\.t\.b was int.*now string"):
        exact_frame(spark.sql("SELECT 1 AS a, '2' AS b"), table)
    with pytest.raises(DatabaseError, match=r"sales\.t\.b was int.*now gone"):
        exact_frame(spark.sql("SELECT 1 AS a"), table)


def test_a_frame_keeps_the_documents_order_and_strange_names(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS `a.b`, 2 AS `c``d e`, 3 AS extra")
    table = schema_table(NAME, frame.select("`c``d e`", "`a.b`").schema, Selection())
    assert [tuple(row) for row in exact_frame(frame, table).collect()] == [(2, 1)]
