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


@pytest.fixture(scope="session")
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


@pytest.fixture
def exported(place: Place, exported_place: Place) -> Place:
    shutil.copytree(exported_place.folder, place.folder)
    return place


@pytest.fixture(scope="session")
def scattered_place(exported_place: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An export whose chunks are many small files; tests copy it."""
    place = Place(exported_place.source, tmp_path_factory.mktemp("scattered") / "location")
    shutil.copytree(exported_place.folder, place.folder)
    scatter(place.store)
    return place


@pytest.fixture
def scattered(place: Place, scattered_place: Place) -> Place:
    shutil.copytree(scattered_place.folder, place.folder)
    return place


@pytest.fixture(scope="session")
def imported_place(scattered_place: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A scattered export with a DuckDB file beside it, into which all of it was imported; tests copy both."""
    place = Place(scattered_place.source, tmp_path_factory.mktemp("imported") / "location")
    shutil.copytree(scattered_place.folder, place.folder)
    assert Into(f"duckdb://{place.folder.parent}/target.duckdb").restore(place.store).finished
    return place


@pytest.fixture
def imported(place: Place, imported_place: Place) -> Place:
    """A scattered export that was imported into `duck`."""
    shutil.copytree(imported_place.folder, place.folder)
    shutil.copy(imported_place.folder.parent / "target.duckdb", place.folder.parent / "target.duckdb")
    return place
