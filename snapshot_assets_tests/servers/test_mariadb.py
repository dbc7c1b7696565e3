"""The test server of MariaDB is started, has databases, and drops them."""

from __future__ import annotations

from snapshot_assets_tests.servers.mariadb import MariadbServer


def test_a_database_of_the_server_is_made_and_dropped(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    assert mariadb_database.endswith(f"@127.0.0.1:{mariadb_server.port}/shop")
    assert (
        mariadb_server.sql("CREATE TABLE t (c TEXT)", "INSERT INTO t VALUES ('🦆')", "SELECT * FROM t", database="shop")
        == "🦆"
    )
    assert (mariadb_server.databases(), second_mariadb_server.databases()) == (["shop"], [])
    mariadb_server.drop_databases()
    assert mariadb_server.databases() == []
