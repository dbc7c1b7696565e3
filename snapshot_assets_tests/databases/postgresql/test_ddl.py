"""pg_dump prints the same for a schema and for the one restored from its documents."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets_tests.databases.postgresql.helpers import opened
from snapshot_assets_tests.databases.postgresql.restored import EVERYTHING, ROWS, extracted, restore, run, schema_dump
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer


def documents(schema: DatabaseSchema) -> dict[str, Any]:
    """Return documents with sorted types: several orders of creation are correct."""
    dumped = schema.model_dump(mode="json")
    for table in dumped["tables"]:
        table["types"].sort(key=lambda kind: (kind["schema_name"], kind["name"]))
    return dumped


def test_everything_is_restored_as_pg_dump_prints_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, EVERYTHING)
    schema = extracted(source)
    assert restore(schema, target).lost == ()
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
    assert documents(extracted(target)) == documents(schema)


def test_rows_are_loaded_between_the_statements_before_and_after(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, EVERYTHING + ROWS)
    definition = define(extracted(source))
    run(target, definition.before)
    with opened(source) as database, closing(PostgresqlTarget(DatabaseAddress("target", target))) as loading:
        for table in filter(lambda each: each.columns, definition.tables):  # COPY refuses an empty list of columns
            with loading._transaction(), database.scan(Scan(table, AllRows())) as batches:
                loading._insert(table, batches)
    run(target, definition.after)
    options = ("--no-owner", "--no-privileges", "--inserts", "--restrict-key=x")
    assert postgresql_server.pg_dump(target, *options) == postgresql_server.pg_dump(source, *options)
    filled = "SELECT (SELECT count(*) FROM sales.mat), (SELECT sum(n) FROM sales.a_filled)"
    assert postgresql_server.psql(target, filled) == "1|1"


def test_every_type_is_restored_as_pg_dump_prints_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    postgresql_server.psql_script(source, f"{DEFINITIONS} CREATE TABLE t ({columns});")
    untimed = Selection(time_columns={TableName("public", "t"): None})
    schema = extracted(source, untimed)
    assert restore(schema, target).lost == ()
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
    assert documents(extracted(target, untimed)) == documents(schema)


@pytest.mark.parametrize("options", [(), ("--foreign-keys", "--partitions=3"), ("--unlogged-tables",)])
def test_pgbench_is_restored_as_pg_dump_prints_it(
    options: tuple[str, ...], postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.run("pgbench", "-i", "-q", *options, source)
    assert restore(extracted(source), target).lost == ()
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
