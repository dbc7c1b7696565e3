import pytest

from snapshot_assets.databases.sql import literal
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.servers.postgresql import PostgresqlServer


@pytest.fixture(scope="module")
def every_type(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    """A database with one table, `t`, that has a column of every type and rows of all values, and NULL."""
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    rows = max(map(len, TYPES.values())) + 1
    script = [DEFINITIONS, 'CREATE TABLE "odd \'name" ();', f"CREATE TABLE t (n int4, {columns});"]
    for row in range(rows):
        values = [literal(values[row]) if row < len(values) else "NULL" for values in TYPES.values()]
        script.append(f"INSERT INTO t VALUES ({row}, {', '.join(values)});")
    postgresql_server.psql_script(postgresql_module_database, "\n".join(script))
    return postgresql_module_database
