"""pg_dump prints the same for a schema and for the one restored from its documents."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets_tests.databases.postgresql.helpers import (
    EVERYTHING,
    ROWS,
    extracted,
    in_schemas,
    opened,
    restore,
    restored_alike,
    run,
)
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
    _, target, schema = restored_alike(postgresql_server, make_postgresql_database, EVERYTHING)
    assert documents(extracted(target)) == documents(schema)


def test_rows_are_loaded_between_the_statements_before_and_after(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
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
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    script = f"{DEFINITIONS} CREATE TABLE t ({columns});"
    untimed = Selection(time_columns={TableName("public", "t"): None})
    _, target, schema = restored_alike(postgresql_server, make_postgresql_database, script, untimed)
    assert documents(extracted(target, untimed)) == documents(schema)


# Indexes of partitioned tables are restored with those of all partitions, also if one belongs to a constraint.

INDEXES = """
SELECT i.indexrelid::regclass, i.indrelid::regclass, i.indisvalid, i.indisready, h.inhparent::regclass
FROM pg_index i LEFT JOIN pg_inherits h ON h.inhrelid = i.indexrelid
WHERE i.indrelid::regclass::text !~ '^pg_' ORDER BY i.indexrelid::regclass::text
"""
PRIMARY_KEY = """
CREATE TABLE p (a int) PARTITION BY RANGE (a);
CREATE TABLE p1 (a int PRIMARY KEY);
CREATE UNIQUE INDEX p_u ON p (a);
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10);
"""
UNIQUE = """
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 (a int, b int, CONSTRAINT "Once" UNIQUE (a, b));
CREATE TABLE p2 (a int, b int);
CREATE UNIQUE INDEX p_u ON p (a, b);
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
"""
PLAIN = """
CREATE TABLE p (a int) PARTITION BY RANGE (a);
CREATE TABLE p1 (a int PRIMARY KEY);
CREATE INDEX p_i ON ONLY p (a);
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10);
"""
DEEP = """
CREATE SCHEMA s;
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE s.mid (a int, b int) PARTITION BY RANGE (b);
CREATE TABLE leaf (b int, a int, UNIQUE (a, b));
CREATE TABLE s.other (a int, b int);
CREATE UNIQUE INDEX p_u ON p (a, b);
ALTER TABLE s.mid ATTACH PARTITION leaf FOR VALUES FROM (0) TO (10);
ALTER TABLE s.mid ATTACH PARTITION s.other FOR VALUES FROM (10) TO (20);
ALTER TABLE p ATTACH PARTITION s.mid FOR VALUES FROM (0) TO (10);
"""
DEEP_CONSTRAINT = """
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE mid (a int, b int, CONSTRAINT mid_key PRIMARY KEY (a, b)) PARTITION BY RANGE (b);
CREATE TABLE leaf PARTITION OF mid FOR VALUES FROM (0) TO (10);
CREATE UNIQUE INDEX p_u ON p (a, b);
ALTER TABLE p ATTACH PARTITION mid FOR VALUES FROM (0) TO (10);
"""
CONSTRAINT_OF_THE_TABLE = """
CREATE TABLE p (a int, b int, PRIMARY KEY (a), UNIQUE (a, b)) PARTITION BY RANGE (a);
CREATE TABLE p1 (a int, b int, CONSTRAINT named UNIQUE (a, b), CONSTRAINT odd PRIMARY KEY (a));
CREATE UNIQUE INDEX more ON p1 (a);
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (a);
CREATE TABLE p2a PARTITION OF p2 DEFAULT;
"""
INVALID = """
CREATE TABLE p (a int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE INDEX never_whole ON ONLY p (a);
"""


def test_every_index_is_attached_as_in_the_source(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = in_schemas(PRIMARY_KEY, UNIQUE, PLAIN, DEEP, DEEP_CONSTRAINT, CONSTRAINT_OF_THE_TABLE, INVALID)
    source, target, schema = restored_alike(postgresql_server, make_postgresql_database, script)
    assert postgresql_server.psql(target, INDEXES) == postgresql_server.psql(source, INDEXES)
    assert extracted(target) == schema


FOREIGN = """
CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE mid PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY LIST (b);
CREATE TABLE leaf PARTITION OF mid FOR VALUES IN (1);
CREATE INDEX p_i ON p (a, b);
CREATE FOREIGN TABLE f PARTITION OF p FOR VALUES FROM (10) TO (20) SERVER far;
CREATE FOREIGN TABLE deep PARTITION OF mid FOR VALUES IN (2) SERVER far;
"""


def test_indexes_over_a_former_foreign_table_are_left_out_and_those_of_other_partitions_are_valid(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    postgresql_server.psql_script(source, FOREIGN)
    lost = restore(extracted(source), target).lost
    for index in ("p_i of public.p", "mid_a_b_idx of public.mid"):
        assert f"Index {index} is left out: a partition was a foreign table. Create the index again." in lost
    indexes = "SELECT indexrelid::regclass, indisvalid FROM pg_index WHERE indrelid::regclass::text !~ '^pg_'"
    assert postgresql_server.psql(target, indexes) == "leaf_a_b_idx|t"
    postgresql_server.psql(target, "CREATE INDEX p_i ON p (a, b)")
    assert "f" not in postgresql_server.psql(target, "SELECT indisvalid FROM pg_index").split()


def test_the_tablespace_of_each_index_is_named(postgresql_server: PostgresqlServer, pair: tuple[str, str]) -> None:
    source, target = pair
    place = "SET allow_in_place_tablespaces = on"
    postgresql_server.psql(source, place, "CREATE TABLESPACE fidelity_place LOCATION ''")
    table = "CREATE TABLE t (id int, n int, CONSTRAINT k PRIMARY KEY (id) USING INDEX TABLESPACE fidelity_place)"
    try:
        postgresql_server.psql(source, table, "CREATE INDEX i ON t (n) TABLESPACE fidelity_place")
        assert restore(extracted(source), target).lost == (
            "Index k of public.t was in tablespace fidelity_place and is created in the default one.",
            "Index i of public.t was in tablespace fidelity_place and is created in the default one.",
        )
    finally:
        postgresql_server.psql(source, "DROP TABLE IF EXISTS t", "DROP TABLESPACE fidelity_place")
