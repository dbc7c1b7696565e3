"""What users have in a schema of an extension, or below a table of one, is exported and restored as anything else."""

from __future__ import annotations

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import copy
from snapshot_assets_tests.databases.postgresql.helpers import extracted, restore
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

IN_ITS_SCHEMA = """
CREATE EXTENSION vector; CREATE SCHEMA own; ALTER EXTENSION vector ADD SCHEMA own;
CREATE TABLE own.mine (a int); CREATE TYPE own.m AS ENUM ('a'); CREATE SEQUENCE own.s;
CREATE FUNCTION own.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE TABLE own.member (a int); ALTER EXTENSION vector ADD TABLE own.member;
CREATE TABLE own.root (a int) PARTITION BY LIST (a); CREATE TABLE leaf PARTITION OF own.root DEFAULT;
INSERT INTO own.root VALUES (1); CREATE SCHEMA bare; ALTER EXTENSION vector ADD SCHEMA bare;
"""
THERE = "SELECT to_regclass('own.mine'), to_regtype('own.m'), to_regclass('own.s'), to_regproc('own.f'), a FROM leaf"


def test_a_schema_of_an_extension_is_restored_with_what_users_have_in_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, plain, coded = (make_postgresql_database() for _ in range(3))
    postgresql_server.psql_script(source, IN_ITS_SCHEMA)
    schema = extracted(source)
    assert [each.name for each in schema.schemas] == ["own", "public"]
    copy(schema, DatabaseAddress("from", source), DatabaseAddress("to", plain))
    assert postgresql_server.psql(plain, THERE) == "own.mine|own.m|own.s||1"
    made = [str(each.key) for each in restore(schema, coded, code=True).before]
    assert made.index("extension vector") < made.index("schema own")


BELOW_ITS_TABLES = """
CREATE EXTENSION vector;
CREATE TABLE root (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE leaf PARTITION OF root DEFAULT;
CREATE TABLE parent (a int); CREATE TABLE child (b int) INHERITS (parent);
INSERT INTO root VALUES (1); INSERT INTO child VALUES (2, 3);
ALTER EXTENSION vector ADD TABLE root; ALTER EXTENSION vector ADD TABLE parent;
"""


def test_a_partition_of_a_table_of_an_extension_is_a_table_of_its_own(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, BELOW_ITS_TABLES)
    schema = extracted(source)
    assert uncarried_by_kind(schema) == {
        "attachment": ["to public.root of public.leaf"],
        "inheritance": ["from public.parent of public.child"],
    }
    assert schema.table(TableName("public", "leaf")).primary_key is not None
    copy(schema, DatabaseAddress("from", source), DatabaseAddress("to", target))
    assert postgresql_server.psql(target, "SELECT a FROM leaf", "SELECT a, b FROM child") == "1\n2|3"
