import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import snapshot_assets
from snapshot_assets_tests.engine.compact.compactions import scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import Load, Read, read
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.faults.source import make_source


@pytest.fixture(scope="session")
def prepared_source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    make_source(folder / "source.duckdb")
    return folder / "source.duckdb"


@pytest.fixture
def place(prepared_source, tmp_path) -> Place:
    shutil.copy(prepared_source, tmp_path / "source.duckdb")
    return Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location")


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    snapshot_assets.register(spark)
    return spark


@pytest.fixture
def load(registered: SparkSession) -> Load:
    """Load a table of a location."""

    def load(uri: str, table: str, **options: Any) -> DataFrame:
        return registered.read.format("snapshot").options(table=table, **options).load(uri)

    return load


@pytest.fixture(scope="module")
def exported_place(prepared_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A sealed export that tests only read."""
    place = Place(f"duckdb://{prepared_source}", tmp_path_factory.mktemp("exported") / "location")
    place.export()
    return place


@pytest.fixture
def readings(exported_place: Place) -> Read:
    return partial(read, exported_place.store.uri, "main.readings")


@pytest.fixture(params=["duckdb", "postgresql"])
def into(request: pytest.FixtureRequest, tmp_path) -> Into:
    if request.param == "duckdb":
        return Into(f"duckdb://{tmp_path}/target.duckdb")
    return Into(request.getfixturevalue("postgresql_database"))


@pytest.fixture
def duck(tmp_path) -> Into:
    return Into(f"duckdb://{tmp_path}/target.duckdb")


@pytest.fixture(scope="module")
def snapshot(prepared_source, tmp_path_factory) -> Path:
    """The source's snapshot, made once and copied by every test that wants it."""
    folder = tmp_path_factory.mktemp("snapshot") / "location"
    Place(f"duckdb://{prepared_source}", folder).export()
    return folder


@pytest.fixture
def exported(place: Place, snapshot: Path) -> Place:
    shutil.copytree(snapshot, place.folder)
    return place


@pytest.fixture
def scattered(exported: Place) -> Place:
    """An export whose chunks are many small files."""
    scatter(exported.store)
    return exported
