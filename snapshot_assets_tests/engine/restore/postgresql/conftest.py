"""Restores from PostgreSQL into PostgreSQL."""

from pathlib import Path

import pytest

from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import MakeDatabase


@pytest.fixture
def place(make_postgresql_database: MakeDatabase, tmp_path: Path) -> Place:
    """An empty database, and an empty location."""
    return Place(make_postgresql_database(), tmp_path / "location")


@pytest.fixture
def into(make_postgresql_database: MakeDatabase) -> Into:
    """Another empty database."""
    return Into(make_postgresql_database())
