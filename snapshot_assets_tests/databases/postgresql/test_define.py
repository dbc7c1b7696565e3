"""A schema goes through its documents into an empty database, and pg_dump sees no difference."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_assets.databases.base import Selection
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets_tests.databases.postgresql.restored import EVERYTHING, extracted, restore, schema_dump
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer


def documents(schema: DatabaseSchema) -> dict[str, Any]:
    """Return documents without the order of types, of which there is more than one that makes them."""
    found = schema.model_dump(mode="json")
    for table in found["tables"]:
        table["types"].sort(key=lambda kind: (kind["schema_name"], kind["name"]))
    return found


def test_everything_comes_back_as_pg_dump_sees_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, EVERYTHING)
    schema = extracted(source)
    assert restore(schema, target).lost == ()
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
    assert documents(extracted(target)) == documents(schema)


def test_every_type_comes_back_as_pg_dump_sees_it(
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
def test_pgbench_comes_back_as_pg_dump_sees_it(
    options: tuple[str, ...], postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.run("pgbench", "-i", "-q", *options, source)
    assert restore(extracted(source), target).lost == ()
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
