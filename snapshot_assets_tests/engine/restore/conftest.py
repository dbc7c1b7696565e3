"""Restores between databases of one kind."""

from pathlib import Path

import pytest

from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into


@pytest.fixture(params=["duckdb", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the databases of `pair`; a test of a rule for all kinds sets it by `only_duckdb`."""
    return request.param


@pytest.fixture
def pair(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Into]:
    """An empty source with an empty location, and an empty target of its kind."""
    if kind == "duckdb":
        source, target = (f"duckdb://{tmp_path}/{name}.duckdb" for name in ("source", "target"))
    else:
        make = request.getfixturevalue("make_postgresql_database")
        source, target = make(), make()
    return Place(source, tmp_path / "location"), Into(target)
