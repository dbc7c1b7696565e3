"""Tables inherit as in the source: the order of columns, what is a table's own, and which constraints are validated."""

from __future__ import annotations

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets_tests.databases.postgresql.helpers import extracted, in_schemas, restore, restored_alike, run
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

COLUMNS = """
SELECT a.attrelid::regclass, a.attname, a.attislocal, a.attinhcount FROM pg_attribute a JOIN pg_class c
ON c.oid = a.attrelid WHERE c.relkind = 'r' AND c.oid > 16383 AND a.attnum > 0
    AND NOT a.attisdropped ORDER BY a.attrelid::regclass::text, a.attnum
"""
CHECKS = """
SELECT conrelid::regclass, conname, convalidated, conislocal, coninhcount FROM pg_constraint WHERE contype = 'c'
    AND conrelid > 16383 ORDER BY conrelid::regclass::text, 2
"""
NOT_VALID = """
CREATE TABLE par (id int, note text);
ALTER TABLE par ADD CONSTRAINT c CHECK (id > 0) NOT VALID;
CREATE TABLE par_child (id int, note text, CONSTRAINT c CHECK (id > 0));
ALTER TABLE par_child INHERIT par;
"""
LATE = "CREATE TABLE a (x int); CREATE TABLE b (y int) INHERITS (a); ALTER TABLE a ADD z int DEFAULT 3 NOT NULL"
LATE_GENERATED = f"{LATE}; ALTER TABLE a ADD g int GENERATED ALWAYS AS (x + z) STORED; ALTER TABLE b ADD w int"
OWN_GENERATED = """
CREATE TABLE p (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE k (b int GENERATED ALWAYS AS (a * 22) STORED, a int);
ALTER TABLE k INHERIT p; ALTER TABLE p ADD c int;
"""
OWN_LATER = """
CREATE TABLE p (a int); CREATE TABLE k () INHERITS (p);
ALTER TABLE k ADD own int GENERATED ALWAYS AS (a + 1) STORED; ALTER TABLE p ADD later text;
"""
BECAME_LOCAL = """
CREATE TABLE p (a int, b text); CREATE TABLE k (own int) INHERITS (p);
ALTER TABLE ONLY p DROP COLUMN b; ALTER TABLE p ADD c int; CREATE TABLE l (a int) INHERITS (p);
"""
TWO_DEFAULTS = """
CREATE TABLE p (a int DEFAULT 1); CREATE TABLE q (a int DEFAULT 1, b int); CREATE TABLE k () INHERITS (p, q);
ALTER TABLE ONLY p ALTER a SET DEFAULT 2; ALTER TABLE k ALTER a DROP DEFAULT; CREATE TABLE l (c int) INHERITS (k);
"""
IDENTITY = """
CREATE TABLE p (id int NOT NULL); CREATE TABLE k () INHERITS (p);
ALTER TABLE k ALTER id ADD GENERATED ALWAYS AS IDENTITY (START 50); SELECT setval('k_id_seq', 77);
"""
SETTINGS = """
CREATE TABLE p (t text); ALTER TABLE p ALTER t SET STORAGE external, ALTER t SET COMPRESSION pglz;
CREATE TABLE k () INHERITS (p); ALTER TABLE k ALTER t SET STORAGE extended, ALTER t SET COMPRESSION default;
"""


PARTITION = """
CREATE TABLE p (a int) PARTITION BY RANGE (a); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9);
CREATE TABLE p2 PARTITION OF p DEFAULT; ALTER TABLE p ADD CONSTRAINT c CHECK (a <> 5) NOT VALID;
ALTER TABLE p1 VALIDATE CONSTRAINT c;
"""
"""A partition has validated a check that its table has not."""
LATER = "CREATE TABLE base (id int, note text); ALTER TABLE base ADD {}; CREATE TABLE kid (note text, id int);"
LATER += "ALTER TABLE kid ADD {}; ALTER TABLE kid INHERIT base;"
"""A table with another order of columns inherits after its own constraints."""
CHECK = "CONSTRAINT c CHECK (id > 0)"
NOT_NULLS = LATER.format("CONSTRAINT one NOT NULL id NOT VALID", "CONSTRAINT other NOT NULL id NOT VALID")
SCRIPTS = (
    *(NOT_VALID, LATE, LATE_GENERATED, OWN_GENERATED, OWN_LATER, BECAME_LOCAL, TWO_DEFAULTS, IDENTITY, SETTINGS),
    *(PARTITION, LATER.format(CHECK, CHECK), LATER.format(f"{CHECK} NOT VALID", CHECK), NOT_NULLS),
)


def test_a_table_inherits_as_in_the_source(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = in_schemas(*(f"{each};" for each in SCRIPTS))
    source, target, schema = restored_alike(postgresql_server, make_postgresql_database, script)
    for query in (COLUMNS, CHECKS):
        assert postgresql_server.psql(target, query) == postgresql_server.psql(source, query)
    assert extracted(target) == schema


def test_documents_without_what_later_versions_record_are_restored(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    postgresql_server.psql_script(
        source, "CREATE TABLE p (a int NOT NULL); CREATE TABLE k (a int NOT NULL) INHERITS (p)"
    )
    schema = extracted(source)
    tables = []
    for table in schema.tables:
        options = {name: value for name, value in table.options.items() if name != "columns"}
        tables.append(table.model_copy(update={"options": options}))
    restore(schema.model_copy(update={"tables": tuple(tables)}), target)
    assert postgresql_server.psql(target, COLUMNS) == postgresql_server.psql(source, COLUMNS)


def test_rows_are_loaded_into_a_table_with_inherited_columns_in_another_order(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    postgresql_server.psql_script(source, LATE_GENERATED)
    definition = define(extracted(source))
    run(target, definition.before)
    postgresql_server.psql(target, "INSERT INTO b (x, y) VALUES (1, 2)")
    run(target, definition.after)
    assert postgresql_server.psql(target, "SELECT * FROM b; SELECT * FROM a") == "1|2|3|4|\n1|3|4"
