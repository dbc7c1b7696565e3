from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.databases.postgresql.helpers import execute


@pytest.fixture
def numbers(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with the numbers 0 to 99, an hour apart: DuckDB unless a test names others (`on_both`)."""
    statement = (
        "CREATE TABLE numbers AS"
        " SELECT i::int AS n, TIMESTAMPTZ '2025-01-01 00:00:00Z' + i * INTERVAL '1 hour' AS moment"
        " FROM generate_series(0, 99) AS g(i)"
    )
    if getattr(request, "param", "duckdb") == "postgresql":
        uri: str = request.getfixturevalue("postgresql_database")
        execute(uri, statement)
        return uri
    with duckdb.connect(str(tmp_path / "numbers.duckdb")) as connection:
        connection.execute(f"SET TimeZone = 'UTC'; {statement}")
    return f"duckdb://{tmp_path}/numbers.duckdb"
