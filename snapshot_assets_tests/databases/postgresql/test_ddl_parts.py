"""Documents of schemas, restores of their parts, and restores into databases that have some of the objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets_tests.databases.postgresql.helpers import (
    EVERYTHING,
    ROWS,
    execute,
    extracted,
    restore,
    run,
    schema_dump,
)
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer, start_postgresql

pytestmark = pytest.mark.slow

CHECK = "CONSTRAINT c CHECK (id > 0)"
NOT_CARRIED = """
CREATE TYPE unused AS ENUM ('a');
CREATE SEQUENCE lonely;
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tr BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION trg();
CREATE POLICY pol ON orders;
CREATE RULE ru AS ON DELETE TO orders DO ALSO NOTHING;
CREATE VIEW calls AS SELECT f(1) AS x;
"""


@pytest.fixture(scope="module")
def everything(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> DatabaseSchema:
    postgresql_server.psql_script(postgresql_module_database, EVERYTHING + ROWS)
    return extracted(postgresql_module_database)


def lines(server: PostgresqlServer, uri: str, query: str) -> list[str]:
    return server.psql(uri, query).splitlines()


def only(schema: DatabaseSchema, *names: str) -> DatabaseSchema:
    """Return a schema with some of its tables and views, as a selection does."""
    return schema.model_copy(
        update={
            "tables": tuple(table for table in schema.tables if table.name in names),
            "views": tuple(view for view in schema.views if view.name in names),
        }
    )


# Without SQL text of the snapshot


def test_without_expressions_no_sql_of_the_snapshot_runs_and_all_of_it_is_reported(
    everything: DatabaseSchema, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    definition = restore(everything, postgresql_database, expressions=False)
    [orders] = [table for table in definition.tables if table.name == "orders"]
    assert (orders.column("taxed").generated, orders.column("doubled").generated) == (None, None)
    expressions = lines(
        postgresql_server,
        postgresql_database,
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef UNION SELECT pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE contype IN ('c', 'x') AND connamespace::regnamespace::text IN ('public', 'sales')"
        " UNION SELECT indexprs::text || indpred::text FROM pg_index"
        " UNION SELECT typdefault FROM pg_type WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace",
    )
    assert set(filter(None, expressions)) == {
        "nextval('orders_serial_no_seq'::regclass)",
        "nextval('sales.log_id_seq'::regclass)",
        'nextval(\'"Größe ""X""".select_id_seq\'::regclass)',
        "nextval('shared'::regclass)",
    }
    # Constants and names are restored.
    partitions = "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'listed_a'"
    assert lines(postgresql_server, postgresql_database, partitions) == ["FOR VALUES IN ('a')"]
    keys = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conparentid = 0"
    assert lines(postgresql_server, postgresql_database, keys) == ["8"]
    indexes = "SELECT indexname FROM pg_indexes WHERE indexname IN ('by_at', 'by_vector', 'label_once') ORDER BY 1"
    assert lines(postgresql_server, postgresql_database, indexes) == ["by_at", "by_vector", "label_once"]
    views = "SELECT count(*) FROM pg_views WHERE schemaname IN ('public', 'sales')"
    assert lines(postgresql_server, postgresql_database, views) == ["0"]
    text = "\n".join(definition.lost)
    for sentence in (
        "Default of column public.orders.amount is left out",
        "Column public.orders.taxed is restored with its values and no longer generated",
        "Constraint orders_amount_check of public.orders is left out",
        "Constraint Prüfung of public.orders is left out",
        "Constraint apart of public.orders is left out",
        "Index by_lower of public.orders is left out",
        "Statistics sales.other of public.orders is left out",
        "Table public.parted is restored without partitions",
        "Default of domain public.feeling is left out",
        "Check not_sad of domain public.feeling is left out",
        "View public.a_view is left out",
    ):
        assert sentence in text


# A part of a schema


def test_references_to_tables_outside_the_selection_are_left_out_and_reported(
    everything: DatabaseSchema, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    part = only(everything, "b_second", "inheriting", "child", "z_view", "a_view", "over_mat", "checked", "second")
    assert sorted(restore(part, postgresql_database).lost) == [
        "Foreign key b_second_other_fkey of public.b_second is left out: it refers to public.a_first, which is not"
        " restored.",
        "Table sales.inheriting is restored as a table of its own, with all its columns: it inherits from sales.base,"
        " which is not restored.",
        "View public.a_view is left out: it reads public.z_view, which is not restored.",
        "View public.checked is left out: it reads public.zones, which is not restored.",
        "View public.z_view is left out: it reads public.orders, which is not restored.",
        "View sales.over_mat is left out: it reads sales.a_filled, which is not restored.",
    ]
    columns = (
        "SELECT attname || ' ' || attnotnull FROM pg_attribute"
        " WHERE attrelid = 'sales.inheriting'::regclass AND attnum > 0"
    )
    assert lines(postgresql_server, postgresql_database, columns) == ["a true", "b true", "c true", "d false"]
    parents = "SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = 'sales.child'::regclass ORDER BY inhseqno"
    assert lines(postgresql_server, postgresql_database, parents) == ["sales.inheriting", "sales.second"]


def test_a_view_is_created_only_if_the_target_has_the_functions_that_it_calls(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, without, having = (make_postgresql_database() for _ in range(3))
    function = "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1'"
    views = (
        "CREATE VIEW calls AS SELECT f(1) AS x",
        "CREATE VIEW above AS SELECT x FROM calls",
        "CREATE VIEW z AS SELECT 1",
    )
    postgresql_server.psql(source, function, *views, "COMMENT ON VIEW above IS 'x'")
    postgresql_server.psql(having, function)
    schema = extracted(source)
    assert restore(schema, without).lost == (
        "Function public.f(integer) is not restored: it is code of the snapshot. Give --with-code.",
        "View public.calls calls function public.f(integer), which is not restored. If the target does not have it, the"
        " view and those that read it are left out.",
    )
    restore(schema, having)
    created = "SELECT relname FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    assert lines(postgresql_server, without, created) == ["z"]
    assert lines(postgresql_server, having, created) == ["above", "calls", "z"]


def test_a_view_exported_as_its_rows_is_restored_as_a_table(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    postgresql_server.psql(
        source,
        "CREATE VIEW v WITH (security_barrier) AS SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW m WITH (fillfactor=50) AS SELECT 1 AS a",
        "CREATE INDEX i ON m (a)",
    )
    schema = extracted(source, Selection(tables=(TableName("public", "v"), TableName("public", "m"))))
    assert restore(schema, target).lost == (
        "Materialized view public.m was exported as its rows and is restored as a table.",
        "View public.v was exported as its rows and is restored as a table.",
    )
    created = "SELECT relname, relkind, reloptions FROM pg_class WHERE relname IN ('v', 'm', 'i') ORDER BY 1"
    assert lines(postgresql_server, target, created) == ["i|i|", "m|r|{fillfactor=50}", "v|r|"]


def test_objects_that_a_snapshot_does_not_carry_are_reported(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql(
        postgresql_database,
        "CREATE TABLE t (a int)",
        'CREATE POLICY "Pol" ON t',
        "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
    )
    schema = extracted(postgresql_database)
    hypertable = schema.tables[0].model_copy(update={"options": {**schema.tables[0].options, "hypertable": True}})
    assert define(schema.model_copy(update={"tables": (hypertable,)})).lost == (
        "Function public.f(integer) is not restored: it is code of the snapshot. Give --with-code.",
        'Policy "Pol" of public.t is not restored: it is code of the snapshot. Give --with-code.',
        "Table public.t is a TimescaleDB hypertable and is restored as a plain table. Create the hypertable again.",
    )


def test_the_ledger_of_imports_is_neither_exported_nor_restored(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    ledger = TableName(LEDGER_SCHEMA, "files")
    create = f"CREATE TABLE {ledger} (import_id text)"
    postgresql_server.psql(postgresql_database, f"CREATE SCHEMA {LEDGER_SCHEMA}", create)
    schema = extracted(postgresql_database)
    assert [found.name for found in schema.schemas] == ["public"]
    assert schema.tables == ()
    hostile = Table(schema_name=ledger.schema, name=ledger.table, columns=())
    with pytest.raises(RestoreError, match=f"{ledger} is refused"):
        define(schema.model_copy(update={"tables": (hostile,)}))


def test_tables_whose_parent_got_a_column_later_inherit_its_checks_too(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    create = ["CREATE TABLE a (x int)", "CREATE TABLE b (y int) INHERITS (a)", "CREATE TABLE c (w int) INHERITS (b)"]
    late = ("ALTER TABLE a ADD z int", "ALTER TABLE a ADD CHECK (x > 0)")
    postgresql_server.psql(source, *create, *late)
    assert restore(extracted(source), target).lost == ()
    checks = "SELECT conrelid::regclass, conislocal, coninhcount FROM pg_constraint WHERE conname = 'a_x_check'"
    restored, expected = lines(postgresql_server, target, checks), lines(postgresql_server, source, checks)
    assert sorted(restored) == sorted(expected)
    assert len(expected) == 3


def test_a_new_table_inherits_from_one_that_the_target_has(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    base = f"CREATE TABLE base (id int, note text, {CHECK})"
    kid = (f"CREATE TABLE kid (note text, id int, {CHECK})", "ALTER TABLE kid INHERIT base")
    postgresql_server.psql(source, base, *kid)
    postgresql_server.psql(target, base)
    definition = define(extracted(source))
    new = [each for each in (*definition.before, *definition.after) if each.table == TableName("public", "kid")]
    run(target, tuple(new))
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)


def test_a_domains_check_that_was_never_validated_is_added_after_the_rows(
    postgresql_server: PostgresqlServer, pair: tuple[str, str]
) -> None:
    source, target = pair
    create = ("CREATE DOMAIN pos AS int CHECK (value > 0)", "CREATE TABLE t (n pos)", "INSERT INTO t VALUES (2)")
    late = "ALTER DOMAIN pos ADD CONSTRAINT big CHECK (value < 1) NOT VALID"
    postgresql_server.psql(source, *create, late, "COMMENT ON CONSTRAINT big ON DOMAIN pos IS 'too big'")
    definition = define(extracted(source))
    run(target, definition.before)
    postgresql_server.psql(target, "INSERT INTO t VALUES (2)")
    run(target, definition.after)
    run(target, tuple(each for each in definition.after if each.unless == ""))
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)


# Existing objects


def test_existing_types_schemas_and_extensions_do_not_change(
    everything: DatabaseSchema, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql(
        postgresql_database,
        "CREATE SCHEMA sales",
        "CREATE SCHEMA ext",
        "CREATE EXTENSION vector SCHEMA ext",
        "CREATE TYPE mood AS ENUM ('sad', 'meh', 'ok', 'it''s', E'back\\\\slash', 'größe', 'more')",
        "COMMENT ON TYPE mood IS 'mine'",
        "COMMENT ON SCHEMA public IS 'mine too'",
    )
    restore(everything, postgresql_database)
    query = "SELECT obj_description('mood'::regtype), obj_description('public'::regnamespace), 'more'::mood"
    assert lines(postgresql_server, postgresql_database, query) == ["mine|mine too|more"]


def test_a_database_of_version_16_is_restored_into_16_and_18(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    newer = ("VIRTUAL", "CONSTRAINT unseen", "NO INHERIT, CHECK (b > 0)", "ALTER c SET NOT NULL")
    script = "\n".join(line for line in EVERYTHING.splitlines() if not any(each in line for each in newer))
    base = "CREATE TABLE sales.base (a int NOT NULL, b int DEFAULT 1, c int, CHECK (b > 0));\n"
    script = script.replace("CREATE TABLE sales.inheriting", f"{base}CREATE TABLE sales.inheriting").replace(
        "id int GENERATED ALWAYS AS IDENTITY, at", "id int, at"
    )
    script = script.replace("COMMENT ON CONSTRAINT label_there ON orders IS 'never null';", "")
    with start_postgresql(16) as old:
        source, target = old.create_database(), old.create_database()
        old.psql_script(source, script)
        schema = extracted(source)
        restore(schema, target)
        assert schema_dump(old, target) == schema_dump(old, source)
        restore(schema, postgresql_database)
        created = "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1, 2"
        assert lines(postgresql_server, postgresql_database, created) == lines(old, source, created)


# Documents


def test_the_documents_of_everything_do_not_change(
    everything: DatabaseSchema, postgresql_server: PostgresqlServer, postgresql_module_database: str
) -> None:
    postgresql_server.psql_script(postgresql_module_database, NOT_CARRIED)
    documents = json.loads(extracted(postgresql_module_database).model_dump_json(by_alias=True, exclude_defaults=True))
    assert documents == json.loads(Path(__file__).with_name("everything.json").read_text())


def test_tables_of_extensions_are_not_exported(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE EXTENSION vector",
        "CREATE TABLE theirs (id int)",
        "ALTER EXTENSION vector ADD TABLE theirs",
    )
    document = extracted(postgresql_database)
    assert document.tables == ()
    [extension] = document.schemas[0].options["code"]
    assert set(document.schemas[0].options) == {"code", "database_locale"}
    assert (extension["kind"], extension["name"]) == ("extension", "vector")


def test_quoted_access_methods_are_restored(postgresql_server: PostgresqlServer, pair: tuple[str, str]) -> None:
    by_hand = """
        CREATE ACCESS METHOD "MyAm" TYPE INDEX HANDLER bthandler;
        CREATE OPERATOR CLASS o DEFAULT FOR TYPE int USING "MyAm" AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
            OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
    """
    tables = """
        CREATE TABLE t (a int);
        CREATE INDEX i ON t USING "MyAm" (a);
        CREATE TABLE u (a int, CONSTRAINT x EXCLUDE USING "MyAm" (a WITH =));
    """
    source, target = pair
    postgresql_server.psql_script(source, by_hand + tables)
    postgresql_server.psql_script(target, by_hand)
    restore(extracted(source), target)
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, source)
