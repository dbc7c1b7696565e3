"""Documents of MySQL 8 with its own collations come into MariaDB with the nearest ones."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.mysql import define
from snapshot_assets.databases.mysql.collations import nearest
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.testing.restores import make, record_of, target
from snapshot_assets_tests.databases.mysql.helpers import described
from snapshot_assets_tests.servers.mariadb import MariadbServer


@pytest.mark.parametrize(
    ("of_mysql", "of_mariadb"),
    [
        ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci"),
        ("utf8mb4_de_pb_0900_as_ci", "utf8mb4_uca1400_nopad_as_ci"),
        ("utf8mb4_ja_0900_as_cs_ks", "utf8mb4_uca1400_nopad_as_cs"),
        ("utf8mb4_0900_bin", "utf8mb4_nopad_bin"),
        ("latin1_swedish_ci", "latin1_swedish_ci"),
    ],
)
def test_the_server_has_the_nearest_collations(mariadb_server: MariadbServer, of_mysql: str, of_mariadb: str) -> None:
    assert nearest(of_mysql) == of_mariadb
    mariadb_server.sql(f"SELECT _{of_mariadb.partition('_')[0]} 'a' COLLATE {of_mariadb}")


def test_tables_of_mysql_are_made_and_their_collations_are_named_first(
    mariadb_server: MariadbServer, mariadb_database: str, second_mariadb_server: MariadbServer
) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (id int, x varchar(30) COLLATE utf8mb4_unicode_ci DEFAULT 'utf8mb4_unicode_ci')"
        " COLLATE utf8mb4_unicode_ci",
        "CREATE VIEW v AS SELECT id FROM t WHERE x = 'a' COLLATE utf8mb4_unicode_ci",
        "SET NAMES utf8mb4 COLLATE utf8mb4_unicode_ci",
        "CREATE FUNCTION f() RETURNS int RETURN 'a' = 'A' COLLATE utf8mb4_unicode_ci",
        database="shop",
    )
    text = described(mariadb_database).model_dump_json().replace("utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci")
    schema = DatabaseSchema.model_validate_json(text)
    definition = define(schema, code=True)
    try:
        with target(DatabaseAddress("into", second_mariadb_server.uri())) as opened:
            found = "utf8mb4_0900_ai_ci of {} becomes utf8mb4_uca1400_nopad_ai_ci, the nearest of MariaDB"
            listed = "\n".join(opened.differing(schema, definition))
            for each in ("table shop.t", "view shop.v", "function shop.f"):
                assert listed.count(found.format(each)) == 1
            assert "function" not in "".join(opened.differing(schema, define(schema)))
            opened.begin(record_of(definition), "")
            make(opened, record_of(definition), [*definition.before, *definition.after])
        printed = second_mariadb_server.sql("SHOW CREATE TABLE shop.t")
        assert "COLLATE=utf8mb4_uca1400_nopad_ai_ci" in printed
        assert "DEFAULT 'utf8mb4_0900_ai_ci'" in printed
        assert second_mariadb_server.sql("SELECT COUNT(*) FROM shop.v") == "0"
        printed = second_mariadb_server.sql("SHOW CREATE FUNCTION shop.f")
        assert "COLLATE utf8mb4_uca1400_nopad_ai_ci" in printed
        assert "\tutf8mb4_uca1400_nopad_ai_ci\t" in printed  # of the session that made it
    finally:
        second_mariadb_server.drop_databases()
