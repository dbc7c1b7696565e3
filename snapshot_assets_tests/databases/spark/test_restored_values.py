"""Values that a restore into a Spark catalog brings back, and the types that they have there."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.spark.conftest import Lake
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.faults.source import CHUNKS


def test_values_of_other_types_come_back_in_the_nearest_type_and_what_is_lost_is_told(
    lake: Lake, tmp_path: Path
) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("""
            CREATE TABLE kinds (id INTEGER PRIMARY KEY, whole UBIGINT DEFAULT 5, exact DECIMAL(30, 4), clock TIME,
                day DATE, bytes BLOB, items STRUCT("a b" TINYINT, c VARCHAR)[], facts MAP(VARCHAR, DOUBLE),
                huge HUGEINT, local TIMESTAMP, span INTERVAL, truth BOOLEAN);
            CREATE VIEW few AS SELECT id FROM kinds;
            INSERT INTO kinds VALUES (1, 18446744073709551615, -12345678901234567890123456.7891, '23:59:59.999999',
                '1582-10-10', '\\x00\\xff'::BLOB, [{'a b': -128, 'c': 'ü'}, NULL], MAP {'x': 0.1, 'y': NULL},
                -170141183460469231731687303715884105727, '0001-01-01 00:00:00', INTERVAL 1 MONTH, true);
            INSERT INTO kinds (id, whole) VALUES (2, NULL);
        """)
    place = Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location")
    place.export(time_columns={"main.kinds": None}, chunks=CHUNKS)
    run = lake.run(place)
    assert [outcome.rows for outcome in run.restore() if outcome.status == "loaded"] == [2]
    assert run.check_counts() == {TableName("main", "kinds"): (2, 2)}
    first, second = sorted(lake.spark.table("restored.kinds").collect(), key=lambda row: row["id"])
    assert first.asDict(recursive=True) == {
        "id": 1,
        "whole": Decimal(18446744073709551615),
        "exact": Decimal("-12345678901234567890123456.7891"),
        "clock": "23:59:59.999999",
        "day": date(1582, 10, 10),
        "bytes": b"\x00\xff",
        "items": [{"a b": -128, "c": "ü"}, None],
        "facts": {"x": 0.1, "y": None},
        "huge": "-170141183460469231731687303715884105727",
        "local": datetime(1, 1, 1),
        "span": "1 month",
        "truth": True,
    }
    assert set(second.asDict().values()) == {2, None}
    lost = "\n".join(run.begin().lost)
    for sentence in ("View main.few", "Primary key", "Default 5", "main.kinds.clock of type TIME becomes string"):
        assert sentence in lost


@pytest.mark.slow
def test_tables_of_spark_come_back_as_the_types_they_were(lake: Lake, tmp_path: Path) -> None:
    spark = lake.spark
    spark.sql("CREATE DATABASE kept")
    try:
        spark.sql("""CREATE TABLE kept.kinds (id BIGINT COMMENT 'its id', code CHAR(3), note VARCHAR(5), clock TIME(6),
            span INTERVAL DAY TO SECOND, months INTERVAL YEAR TO MONTH, exact DECIMAL(38, 10), local TIMESTAMP_NTZ,
            nested STRUCT<`x y`: ARRAY<MAP<STRING, INTERVAL YEAR>>>, at TIMESTAMP) USING parquet
            COMMENT 'it\\'s all'""")
        spark.sql("""INSERT INTO kept.kinds VALUES (1, 'a', 'b', TIME '01:02:03.000004', INTERVAL '-1 2:3:4.5' DAY TO
            SECOND, INTERVAL '2-3' YEAR TO MONTH, 0.1, TIMESTAMP_NTZ '0001-01-01', named_struct('x y',
            array(map('k', INTERVAL '3' YEAR))), TIMESTAMP '2025-01-01 01:00:00 UTC'), (2, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL)""")
        place = Place("spark:spark_catalog.kept", tmp_path / "location")
        settings = {"session": lambda: spark}
        place.export(SparkRunner(lambda: spark), settings=settings, time_columns={"kept.kinds": "at"})
        back = lake.run(place)
        list(back.restore())
        assert back.finish()
        before, after = spark.table("kept.kinds"), spark.table("restored.kinds")
        assert before.schema == after.schema
        texts = [
            [row[0] for row in frame.orderBy("id").selectExpr("CAST(struct(*) AS STRING)").collect()]
            for frame in (before, after)
        ]
        assert texts[0] == texts[1]
        assert texts[1][0].startswith("{1, a  , b, 01:02:03.000004, ")
    finally:
        spark.sql("DROP DATABASE kept CASCADE")
