"""Values that name what a restore creates after the rows are refused before anything is exported."""

from __future__ import annotations

from snapshot_assets.databases.protocol.source import AllRows
from snapshot_assets.errors import SnapshotError
from snapshot_assets_tests.databases.postgresql.helpers import execute, opened, table_of

MAKE = (
    "CREATE TABLE rt (id int PRIMARY KEY)",
    "CREATE VIEW rv AS SELECT * FROM rt",
    "CREATE DOMAIN named AS regclass",
    "CREATE TABLE t (a regclass, b regclass[], c regtype, d named, e text)",
)


def refused(uri: str) -> list[SnapshotError]:
    with opened(uri) as database:
        return database.unfit(table_of(database), [AllRows()])


def test_a_value_that_names_a_view_or_an_index_is_refused(postgresql_database: str) -> None:
    execute(postgresql_database, *MAKE)
    values = [("a", "'rv'"), ("a", "'rt_pkey'"), ("b", "ARRAY['rt', 'rv']::regclass[]"), ("c", "'rv'"), ("d", "'rv'")]
    for column, value in values:
        execute(postgresql_database, "TRUNCATE t", f"INSERT INTO t ({column}) VALUES (NULL), ({value})")
        [error] = refused(postgresql_database)
        assert f"Column public.t.{column} (" in str(error)
        assert f"`exclude_columns: [public.t.{column}]`" in str(error)


def test_names_that_a_restore_finds_are_exported(postgresql_database: str) -> None:
    rows = (
        "('rt', ARRAY['pg_class', 'pg_class_oid_index', 'rt']::regclass[], 'rt', 'rt', 'rv'),"
        " (4711, '{}', 'int4', NULL, NULL)"
    )
    execute(postgresql_database, *MAKE, f"INSERT INTO t VALUES {rows}")
    assert refused(postgresql_database) == []
