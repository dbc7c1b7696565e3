import shutil

import pytest

from snapshot_assets_tests.engine.exports import Place
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
