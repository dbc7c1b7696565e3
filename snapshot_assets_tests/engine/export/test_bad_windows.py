"""A window that the source cannot read fails its own chunk; all others are committed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseUnavailableError,
    ExportFailedError,
    SnapshotError,
    UnknownRelationError,
)
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.faults.source import CHUNKS

BAD = 3
WINDOWS = [chunk for chunk in CHUNKS if chunk]
VIEW = """
CREATE VIEW bad AS SELECT t, CASE WHEN t >= '2025-01-03 00:00:00Z' AND t < '2025-01-04 00:00:00Z'
    THEN {fails} ELSE 1 END AS v FROM readings
"""


def failed(run: ExportRun, chunks: Sequence[int] = WINDOWS) -> dict[int, str]:
    """Export a view; returns the errors by chunk, of which all others must be committed."""
    with run.open() as export, pytest.raises(ExportFailedError) as raised:
        list(export.export(chunks))
    errors: dict[int, str] = raised.value.attributes["chunks"]
    state = read_state(run.store)
    assert [chunk for chunk in chunks if not state.completed(chunk)] == sorted(errors)
    return errors


def test_of_a_duckdb_view(place: Place) -> None:
    place.sql(VIEW.format(fails="CAST(sensor AS INTEGER)"))
    errors = failed(place.run(tables=["main.bad"]))
    assert list(errors) == [BAD]
    assert "Could not convert string 's" in errors[BAD]


@pytest.fixture
def postgresql_place(postgresql_server, postgresql_database, tmp_path) -> Place:
    postgresql_server.psql(
        postgresql_database,
        "CREATE TABLE readings AS SELECT '2025-01-01Z'::timestamptz + i * interval '2 hours' t, i FROM"
        " generate_series(0, 71) i",
    )
    return Place(postgresql_database, tmp_path / "location")


def test_of_a_postgresql_view(postgresql_server, postgresql_place: Place) -> None:
    postgresql_server.psql(postgresql_place.source, VIEW.format(fails="1 / (i - i)"))
    errors = failed(postgresql_place.run(tables=["public.bad"]))
    assert list(errors) == [BAD]
    assert "division by zero" in errors[BAD]


def raising_view(server, place: Place, error: str, *, constant: bool) -> None:
    """Make the view `bad`, which calls a function that fails; the planner evaluates what is constant."""
    server.psql(
        place.source,
        f"CREATE FUNCTION no() RETURNS int {'IMMUTABLE' * constant} LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION {error}; END $$",
        "CREATE VIEW bad AS SELECT t, public.no() AS v FROM readings",
    )


def test_of_a_view_that_postgresql_cannot_even_plan(postgresql_server, postgresql_place: Place) -> None:
    """The planner evaluates what is constant: each window fails by itself then, with the server's words."""
    raising_view(postgresql_server, postgresql_place, "'never'", constant=True)
    errors = failed(postgresql_place.run(tables=["public.bad"]))
    assert list(errors) == WINDOWS
    assert all("never" in error for error in errors.values())


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [("42501", DatabaseDeniedError), ("57P01", DatabaseUnavailableError), ("42P01", UnknownRelationError)],
)
def test_what_concerns_the_whole_source_ends_the_planning_at_once(
    sqlstate: str, expected: type[SnapshotError], postgresql_server, postgresql_place: Place
) -> None:
    raising_view(postgresql_server, postgresql_place, f"'not now' USING errcode = '{sqlstate}'", constant=True)
    with postgresql_place.run(tables=["public.bad"]).open() as export, pytest.raises(expected, match="not now"):
        list(export.export(WINDOWS))


@pytest.mark.parametrize(("sqlstate", "passes"), [("40001", True), ("22012", False)])
def test_a_report_has_each_cause_once_and_asks_to_run_again_if_it_passes_by_itself(
    sqlstate: str, passes: bool, postgresql_server, postgresql_place: Place
) -> None:
    """The statements of the windows differ, and are no causes of their own."""
    raising_view(postgresql_server, postgresql_place, f"'not now' USING errcode = '{sqlstate}'", constant=False)
    with postgresql_place.run(tables=["public.bad"]).open() as export, pytest.raises(ExportFailedError) as raised:
        list(export.export(WINDOWS))
    text = str(raised.value)
    assert (text.count("not now"), text.count("reading public.bad failed")) == (1, 1)
    assert f"(SQLSTATE {sqlstate})" in text
    assert ("again" in text.lower()) is passes


@pytest.fixture(scope="module")
def spark_readings(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql("CREATE DATABASE broken")
    spark.sql(
        "CREATE TABLE broken.readings USING parquet AS SELECT id AS i,"
        " timestamp'2025-01-01T00:00:00Z' + make_interval(0, 0, 0, 0, 2 * id) AS t FROM range(72)"
    )
    spark.sql(
        "CREATE VIEW broken.bad AS SELECT t, CASE WHEN date(t) = date'2025-01-03' THEN"
        " raise_error('broken here') ELSE i END AS v FROM broken.readings"
    )
    spark.sql("CREATE VIEW broken.untimed AS SELECT CASE WHEN v >= 0 THEN t END AS t FROM broken.bad")
    yield spark
    spark.sql("DROP DATABASE broken CASCADE")


def spark_run(spark: SparkSession, place: Place, **plan: Any) -> ExportRun:
    run = place.run(SparkRunner(lambda: spark), source="spark:spark_catalog.broken", **plan)
    address = DatabaseAddress("broken", "spark:spark_catalog.broken")
    return replace(run, address=address, session=lambda: spark)


@pytest.mark.slow
def test_of_a_spark_view(spark_readings: SparkSession, place: Place) -> None:
    errors = failed(spark_run(spark_readings, place, tables=["broken.bad"]))
    assert list(errors) == [BAD]
    assert "broken here" in errors[BAD]


def test_of_a_spark_view_whose_rows_without_a_time_cannot_be_looked_for(
    spark_readings: SparkSession, place: Place
) -> None:
    errors = failed(spark_run(spark_readings, place, tables=["broken.untimed"], null_time="fail"), [0])
    assert list(errors) == [0]
    assert "broken here" in errors[0]


def test_of_a_spark_table_that_is_gone_no_window_is_tried(spark_readings: SparkSession, place: Place) -> None:
    spark_readings.sql("CREATE VIEW broken.fleeting AS SELECT * FROM broken.readings")
    with spark_run(spark_readings, place, tables=["broken.fleeting"]).open() as export:
        spark_readings.sql("DROP VIEW broken.fleeting")
        with pytest.raises(UnknownRelationError, match=r"reading broken\.fleeting failed"):
            list(export.export(WINDOWS))


def test_rows_without_a_time_are_looked_for_again_where_a_job_was_lost(
    spark_readings: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Its files come back before the second attempt, as a store does that was away."""
    files = [Path(unquote(urlsplit(uri).path)) for uri in spark_readings.table("broken.readings").inputFiles()]
    aside = tmp_path / "aside"
    aside.mkdir()

    class BringingBack(RetryPolicy):
        def waits(self) -> Iterator[float]:
            yield 0
            for file in files:
                shutil.move(aside / file.name, file)
            yield 0

    run = spark_run(spark_readings, place, tables=["broken.readings"], null_time="fail")
    with replace(run, retry=BringingBack()).open() as export:
        for file in files:
            shutil.move(file, aside / file.name)
        assert [(each.chunk, each.status) for each in export.export([0])] == [(0, "exported")]
