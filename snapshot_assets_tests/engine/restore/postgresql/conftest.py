"""Restores from PostgreSQL into PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer


@pytest.fixture
def place(make_postgresql_database: MakeDatabase, tmp_path: Path) -> Place:
    """An empty database, and an empty location."""
    return Place(make_postgresql_database(), tmp_path / "location")


@pytest.fixture
def into(make_postgresql_database: MakeDatabase) -> Into:
    """Another empty database."""
    return Into(make_postgresql_database())


@pytest.fixture
def role(into: Into, postgresql_server: PostgresqlServer) -> Iterator[tuple[str, Into]]:
    """A role without any right, and the database of `into` as that role opens it."""
    database = into.uri.rsplit("/", 1)[1]
    name = f"role_of_{database}"
    execute(into, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    yield name, Into(postgresql_server.uri(database, name, "x"))
    execute(into, f"REASSIGN OWNED BY {name} TO postgres", f"DROP OWNED BY {name}", f"DROP ROLE {name}")
