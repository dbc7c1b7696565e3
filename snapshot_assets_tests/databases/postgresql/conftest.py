from collections.abc import Iterator

import pytest

from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql


@pytest.fixture(scope="module")
def every_type(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    """A database with the table of every type."""
    postgresql_server.psql_script(postgresql_module_database, every_type_script())
    return postgresql_module_database


@pytest.fixture(scope="session")
def older_postgresql_server() -> Iterator[PostgresqlServer]:
    """A server of version 16."""
    with start_postgresql(16) as server:
        yield server
