"""The data source `snapshot`: wrong calls, sessions, and secrets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import snapshot_assets
from snapshot_assets.errors import (
    LocationUriError,
    NoSnapshotError,
    PlanError,
    SnapshotError,
    StoreDeniedError,
    UnknownRelationError,
    VersionNotFoundError,
)
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import RANGE, Load, source, source_rows, store_options
from snapshot_assets_tests.servers.s3 import S3Server

# Wrong calls


WRONG: list[tuple[dict[str, str], type[SnapshotError], str]] = [
    ({"tabel": "main.readings"}, PlanError, "'tabel' is not an option of the snapshot source. Did you mean 'table'"),
    ({}, PlanError, "the option table is missing"),
    ({"table": "readings"}, PlanError, "'readings' is not a schema and a table"),
    ({"table": "main.reading"}, UnknownRelationError, "'reading' does not exist .* Did you mean 'readings'?"),
    ({"table": "$file"}, PlanError, "there is no metadata table '$file'. Did you mean '$files'?"),
    ({"table": "main.readings", "columns": "t, sensr"}, PlanError, "no column 'sensr'. Did you mean 'sensor'?"),
    ({"table": "main.readings", "columns": "t,"}, PlanError, "columns 't,' is not a list of columns"),
    ({"table": "main.readings", "columns": ""}, PlanError, "columns '' is not a list of columns"),
    ({"table": "main.readings", "columns": "t, t"}, PlanError, "columns 't, t' names 't' twice"),
    ({"table": "main.readings", "version": "rev:7"}, VersionNotFoundError, "Revision 7 is not sealed"),
    ({"table": "main.readings", "start": "yesterday"}, PlanError, "option start: 'yesterday' is not a time"),
    ({"table": "main.readings", "start": RANGE["end"], "end": RANGE["start"]}, PlanError, "time range .* is empty"),
    ({"table": "main.places", "start": RANGE["start"]}, PlanError, "table main.places has no time index"),
    ({"table": "$files", "start": RANGE["start"]}, PlanError, "$files has no rows in time"),
    ({"table": "$diff"}, PlanError, "$diff shows what changed since a version: name it in the option since"),
    ({"table": "main.readings", "since": "rev:7"}, PlanError, "table main.readings shows no changes: leave since"),
    ({"table": "main.readings", "verify": "maybe"}, PlanError, "option verify is 'maybe'; write true or false"),
    ({"table": "main.readings", "retries": "x"}, PlanError, "option retries is 'x'; write a whole number"),
    ({"table": "main.readings", "federation": "yes"}, PlanError, "write true or false"),
    ({"table": "main.readings", "federation": "true", "version": "12"}, PlanError, "write the version of each writer"),
    ({"table": "main.a", "federation": "true", "version": "a=1,a=2"}, PlanError, "write the version of each writer"),
    ({"table": "$files", "federation": "true"}, PlanError, "table of one writer's location"),
    ({"table": "main.readings", "dedupe": "primary_key"}, PlanError, "dedupe is for a read with option federation"),
    ({"table": "main.readings", "path": "/tmp/shop"}, LocationUriError, "/tmp/shop"),
    ({"table": "main.readings", "path": "file:///nowhere/at/all"}, NoSnapshotError, "at file:///nowhere/at/all"),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG, ids=str)
def test_a_wrong_option_is_refused_when_the_schema_is_asked_for(
    exported_place: Place, options: dict[str, str], kind: type[SnapshotError], message: str
) -> None:
    with pytest.raises(kind, match=".*".join(map(re.escape, message.split(".*")))):
        source(exported_place.store.uri, **options).schema()


def test_spark_shows_the_refusal_when_the_dataframe_is_made(load: Load) -> None:
    with pytest.raises(AnalysisException, match="PlanError: the location is missing"):
        load(None, "main.readings")


def test_a_schema_of_the_callers_own_is_refused(exported_place: Place) -> None:
    places = source(exported_place.store.uri, table="main.places")
    assert places.reader(StructType.fromDDL("id INT, name STRING")).partitions()
    with pytest.raises(PlanError, match="The schema struct<id:string> is not the table's"):
        places.reader(StructType.fromDDL("id STRING"))


def test_secrets_are_in_no_plan_and_no_message(
    spark: SparkSession, registered: SparkSession, s3_server: S3Server, s3_location: str, exported_place: Place
) -> None:
    store = open_store(parse_location(s3_location), s3_server.options)
    for file in filter(Path.is_file, exported_place.folder.rglob("*")):
        store.put(file.relative_to(exported_place.folder).as_posix(), file.read_bytes())
    reader = spark.read.format("snapshot").option("table", "main.readings")
    snapshot_assets.register(spark, {"s3": s3_server.options, "gs": None})
    try:
        frame = reader.load(s3_location)
        assert frame.count() == 82
        with pytest.raises(AnalysisException) as raised:
            spark.read.format("snapshot").option("table", "main.nothing").load(s3_location)
    finally:
        snapshot_assets.register(spark)
    given = reader.options(**store_options(s3_server.options)).load(s3_location)
    modes = ("extended", "formatted", "codegen")
    shown = "".join(explained(each, mode) for each in (frame, given) for mode in modes)
    assert "snapshot" in shown
    assert s3_server.options.secret_access_key not in shown + str(raised.value)


def test_options_with_secrets_are_hidden_where_spark_shows_options(registered: SparkSession) -> None:
    secrets = ("secret_access_key", "session_token", "account_key", "service_account")
    options = ", ".join(f"{name} 'shown-{name}'" for name in secrets)
    statement = f"CREATE TEMPORARY VIEW v USING snapshot OPTIONS (path 's3://bucket/shop', table 'a.b', {options})"
    [[text]] = registered.sql(f"EXPLAIN EXTENDED {statement}").collect()
    assert "s3://bucket/shop" in text
    assert "shown-" not in text
    pattern = registered.conf.get("spark.sql.redaction.options.regex")
    snapshot_assets.register(registered)
    assert registered.conf.get("spark.sql.redaction.options.regex") == pattern


def explained(frame: DataFrame, mode: str) -> str:
    jvm = frame.sparkSession._jvm
    text = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), mode)
    return str(text)


def test_refused_credentials_are_said_to_be_refused(s3_server: S3Server, s3_location: str) -> None:
    wrong = store_options(s3_server.as_user("stranger"))
    with pytest.raises(StoreDeniedError):
        source(s3_location, table="main.readings", **wrong).schema()


@pytest.fixture
def zurich(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Zurich")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("zurich")
def test_instants_are_the_same_in_a_session_of_another_time_zone(exported_place: Place, load: Load) -> None:
    frame = load(exported_place.store.uri, "main.readings", **RANGE, columns="t")
    found = frame.toArrow().column("t").cast(pa.timestamp("us", "UTC"))
    wanted = f"SELECT t FROM readings WHERE t >= '{RANGE['start']}' AND t < '{RANGE['end']}'"
    assert sorted(found.to_pylist()) == sorted(time for (time,) in source_rows(exported_place, wanted))


_ELSEWHERE = """
import sys
from pyspark.sql import SparkSession
import snapshot_assets
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name in ("spark.driver.bindAddress", "spark.driver.host"):
    builder = builder.config(name, "127.0.0.1")
spark = builder.getOrCreate()
found = spark.range(1).mapInPandas(lambda _: __import__("snapshot_assets"), "x int")
try:
    found.collect()
except Exception as error:
    assert "No module named 'snapshot_assets'" in str(error), error
else:
    raise AssertionError("the package is there anyway")
snapshot_assets.register(spark)
print(spark.read.format("snapshot").option("table", "main.readings").load(sys.argv[1]).count())
"""


@pytest.mark.slow
def test_workers_that_do_not_have_the_package_get_it(exported_place: Place, tmp_path: Path) -> None:
    root = Path(snapshot_assets.__file__).parents[1]
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.path = [p for p in sys.path if p != {str(root)!r}]\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, exported_place.store.uri],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["82"], done.stderr[-3000:]
