"""Indexes of partitioned tables are restored with those of all partitions, also if one belongs to a constraint."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.postgresql.sql import fitting
from snapshot_assets_tests.databases.postgresql.restored import extracted, restore, schema_dump
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

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
CASES = [PRIMARY_KEY, UNIQUE, PLAIN, DEEP, DEEP_CONSTRAINT, CONSTRAINT_OF_THE_TABLE, INVALID]


@pytest.mark.parametrize("script", CASES)
def test_every_index_is_attached_as_in_the_source(
    script: str, postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, script)
    schema = extracted(source)
    assert restore(schema, target).lost == ()
    assert postgresql_server.psql(target, INDEXES) == postgresql_server.psql(source, INDEXES)
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
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


def test_a_partition_that_was_a_foreign_table_gets_an_index(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, FOREIGN)
    restore(extracted(source), target)
    valid = (
        "SELECT indrelid::regclass::text, indisvalid FROM pg_index WHERE indrelid::regclass::text !~ '^pg_'"
        " ORDER BY indrelid::regclass::text"
    )
    assert postgresql_server.psql(target, valid).splitlines() == ["deep|t", "f|t", "leaf|t", "mid|t", "p|t"]


LONGEST = 63
"""Bytes to which PostgreSQL truncates a name, even if two names become equal."""


def test_index_names_for_former_foreign_tables_are_unique_and_short(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    index, partition = "i" * 40, "ü" * 20
    cut = f"{index}_{partition}".encode()[:LONGEST].decode(errors="ignore")
    script = f"""
    CREATE FOREIGN DATA WRAPPER w; CREATE SERVER far FOREIGN DATA WRAPPER w;
    CREATE TABLE p (a int) PARTITION BY RANGE (a);
    CREATE INDEX "{index}" ON p (a);
    CREATE TABLE other (a int);
    CREATE INDEX "{cut}" ON other (a);
    CREATE FOREIGN TABLE "{partition}1" PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER far;
    CREATE FOREIGN TABLE "{partition}2" PARTITION OF p FOR VALUES FROM (10) TO (20) SERVER far;
    """
    names = "SELECT relname FROM pg_class WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    source, targets = make_postgresql_database(), [make_postgresql_database() for _ in range(2)]
    postgresql_server.psql_script(source, script)
    for target in targets:
        restore(extracted(source), target)
    created, again = (postgresql_server.psql(target, names).splitlines() for target in targets)
    assert created == again
    parts = [name for name in created if name.startswith(f"{index}_") and name != cut]
    assert len(parts) == 2
    assert all(len(name.encode()) <= LONGEST for name in parts)
    assert "f" not in postgresql_server.psql(targets[0], "SELECT indisvalid FROM pg_index").split()


def test_a_name_is_truncated_between_characters_and_only_if_it_is_too_long() -> None:
    assert fitting("a" * LONGEST) == "a" * LONGEST
    for long in ("ü" * 32, "a" + "ü" * 32, "a" * 64, "日本語" * 20):
        name = fitting(long)
        assert long.startswith(name[:-9])
        assert LONGEST - 4 < len(name.encode()) <= LONGEST
