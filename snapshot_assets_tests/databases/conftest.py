import pytest

from snapshot_assets_tests.servers.postgresql import MakeDatabase


@pytest.fixture
def pair(make_postgresql_database: MakeDatabase) -> tuple[str, str]:
    """Two empty databases of PostgreSQL, a source and a target."""
    return make_postgresql_database(), make_postgresql_database()
