"""Documents with new names make what ALTER … RENAME and SET SCHEMA make of the original, as pg_dump prints it."""

from __future__ import annotations

import difflib
import re

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.postgresql import define, rename
from snapshot_assets.databases.postgresql.renaming.names import Names
from snapshot_assets.databases.postgresql.renaming.texts import Texts
from snapshot_assets.errors import PlanError, RestoreError
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, extracted, restore, run, schema_dump
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

pytestmark = pytest.mark.slow

PUBLIC = """
CREATE SCHEMA public AUTHORIZATION pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC;
COMMENT ON SCHEMA public IS 'standard public schema';
"""
"""Creates the schema that every new database has."""


def tables(**names: str) -> Renaming:
    """Return the renaming of tables of schema `public`, to a table of it or to `schema.table`."""
    pairs = ((old, new if "." in new else f"public.{new}") for old, new in names.items())
    return Renaming.of((), ((TableName("public", old), TableName(*new.split("."))) for old, new in pairs))


def renamed(source: str, target: str, renaming: Renaming) -> tuple[str, ...]:
    """Restore a database's schema under other names; return what is lost."""
    schema, lost = rename(extracted(source), renaming)
    return (*lost, *restore(DatabaseSchema.model_validate_json(schema.model_dump_json()), target).lost)


def assert_alike(
    server: PostgresqlServer, make: MakeDatabase, script: str, renaming: Renaming, alterations: str
) -> str:
    """Compare a renamed restore with the original after alterations; return the target."""
    source, target = make(), make()
    server.psql_script(source, script)
    assert renamed(source, target, renaming) == ()
    server.psql_script(source, alterations)
    found, wanted = (comparable(schema_dump(server, each), renaming).splitlines() for each in (target, source))
    assert list(difflib.unified_diff(wanted, found, lineterm="", n=1)) == []
    return target


def comparable(dump: str, renaming: Renaming) -> str:
    """Return a dump whose renamed tables have no alias, and whose NOT NULL has no name.

    A restored view calls a table by its old name, `FROM sold orders`; in an altered one the server names its columns
    by the new name. An altered table keeps the names that the server gave to its NOT NULL.
    """
    dump = re.sub(r"CONSTRAINT \w+_not_null NOT NULL", "NOT NULL", dump)
    names = {old.table: new.table for old, new in renaming.tables}
    if "events" in names:
        names["rest"] = "happened_rest"  # its partition
    for old, new in names.items():
        dump = re.sub(rf"(\w+\.{new}) {old}\b", r"\1", dump)
        dump = re.sub(rf"(?<![.\w]){old}\.(?=[\w*])", f"{new}.", dump)
    return dump


def test_everything_of_renamed_schemas_is_restored_as_the_server_renames_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    renaming = Renaming.of([("public", "Its shop"), ("sales", "trade"), ('Größe "X"', "x")])
    alterations = (
        'ALTER SCHEMA public RENAME TO "Its shop"; ALTER SCHEMA sales RENAME TO trade;'
        'ALTER SCHEMA "Größe ""X""" RENAME TO x;'
    )
    target = assert_alike(postgresql_server, make_postgresql_database, EVERYTHING, renaming, alterations + PUBLIC)
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    assert postgresql_server.psql(target, left) == "0"


SHOP = """
CREATE SCHEMA sales;
CREATE TABLE customers (id serial PRIMARY KEY, name text);
CREATE TABLE orders (
    id int GENERATED ALWAYS AS IDENTITY CONSTRAINT orders_pkey PRIMARY KEY, no bigserial,
    customer int REFERENCES customers, parent int REFERENCES orders, buyer customers,
    amount numeric CHECK (amount > 0), during tstzrange, code text UNIQUE DEFAULT 'orders',
    CONSTRAINT whole CHECK (orders IS NOT NULL) NO INHERIT, EXCLUDE USING gist (during WITH &&));
CREATE INDEX orders_amount ON orders (amount);
CREATE INDEX by_code ON orders (lower(code));
CREATE STATISTICS orders_stat ON customer, amount FROM orders;
ALTER TABLE orders CLUSTER ON orders_amount;
ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_pkey;
COMMENT ON INDEX by_code IS 'code'; COMMENT ON CONSTRAINT orders_pkey ON orders IS 'key';
COMMENT ON CONSTRAINT whole ON orders IS 'row'; COMMENT ON STATISTICS orders_stat IS 'stat';
COMMENT ON SEQUENCE orders_no_seq IS 'numbers'; COMMENT ON SEQUENCE orders_id_seq IS 'identity';
CREATE TABLE items (
    id int PRIMARY KEY, "order" int REFERENCES orders (id) ON DELETE CASCADE, was orders, wases orders[]);
CREATE TABLE z_numbered (id int DEFAULT nextval('orders_no_seq'), kind regclass DEFAULT 'orders_no_seq'::regclass);
CREATE TABLE old_orders (note text) INHERITS (orders);
CREATE TABLE events (id int, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_2024 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE rest PARTITION OF events DEFAULT;
CREATE INDEX events_at ON events (at);
CREATE VIEW plain AS SELECT id, amount FROM orders;
CREATE VIEW aliased AS SELECT o.id, orders.name FROM orders o JOIN customers orders ON o.customer = orders.id;
CREATE VIEW joined AS
    SELECT orders.id, items.id AS item FROM (orders LEFT JOIN items ON items."order" = orders.id), customers
    WHERE orders.customer = customers.id AND EXISTS (SELECT FROM orders parents WHERE parents.id = orders.parent);
CREATE VIEW rows AS
    SELECT orders, (orders).amount AS amount, NULL::orders AS none, 'orders'::regclass AS class FROM orders;
CREATE VIEW counted AS
    WITH orders AS (SELECT customer, count(*) AS n FROM ONLY public.orders GROUP BY customer)
    SELECT customers.name, extract(year FROM now()) AS year, percentile_cont(0.5) WITHIN GROUP (ORDER BY orders.n) AS n
    FROM orders JOIN customers ON customers.id = orders.customer
    WHERE orders.n IS DISTINCT FROM 5 GROUP BY customers.name
    UNION ALL SELECT code, 1, 2 FROM public.orders TABLESAMPLE SYSTEM (50) WHERE code LIKE 'public.orders';
CREATE VIEW listed AS SELECT t.at FROM events_2024 t UNION SELECT rest.at FROM rest;
CREATE VIEW over_it AS SELECT plain.id FROM plain;
CREATE MATERIALIZED VIEW sales.total AS SELECT orders.customer, sum(orders.amount) AS sum FROM orders GROUP BY customer;
CREATE UNIQUE INDEX total_customer ON sales.total (customer);
"""

ALTERED = """
ALTER TABLE orders RENAME TO sold; ALTER INDEX orders_pkey RENAME TO sold_pkey;
ALTER INDEX orders_amount RENAME TO sold_amount; ALTER INDEX by_code RENAME TO sold_by_code;
ALTER INDEX orders_code_key RENAME TO sold_code_key; ALTER INDEX orders_during_excl RENAME TO sold_during_excl;
ALTER STATISTICS orders_stat RENAME TO sold_stat;
ALTER SEQUENCE orders_no_seq RENAME TO sold_no_seq; ALTER SEQUENCE orders_id_seq RENAME TO sold_id_seq;
"""


@pytest.mark.parametrize(
    ("renaming", "alterations"),
    [
        (tables(orders="sold"), ALTERED),
        (
            tables(orders="archive.sold"),
            ALTERED + "CREATE SCHEMA archive; ALTER TABLE sold SET SCHEMA archive;"
            "ALTER STATISTICS sold_stat SET SCHEMA archive;",
        ),
        (
            tables(orders="archive.orders"),
            "CREATE SCHEMA archive; ALTER TABLE orders SET SCHEMA archive;"
            "ALTER STATISTICS orders_stat SET SCHEMA archive;",
        ),
        (tables(plain="flat"), "ALTER VIEW plain RENAME TO flat;"),
        (
            tables(events="happened"),
            "ALTER TABLE events RENAME TO happened; ALTER TABLE events_2024 RENAME TO happened_2024;"
            "ALTER TABLE rest RENAME TO happened_rest; ALTER INDEX events_pkey RENAME TO happened_pkey;"
            "ALTER INDEX events_at RENAME TO happened_at; ALTER INDEX events_2024_pkey RENAME TO happened_2024_pkey;"
            "ALTER INDEX events_2024_at_idx RENAME TO happened_2024_at_idx;"
            "ALTER INDEX rest_pkey RENAME TO happened_rest_pkey;"
            "ALTER INDEX rest_at_idx RENAME TO happened_rest_at_idx;",
        ),
        (
            Renaming.of([("public", "s")], [(TableName("sales", "total"), TableName("sales", "sums"))]),
            "ALTER SCHEMA public RENAME TO s; COMMENT ON SCHEMA s IS NULL;"
            "ALTER MATERIALIZED VIEW sales.total RENAME TO sums;"
            "ALTER INDEX sales.total_customer RENAME TO sums_customer;" + PUBLIC,
        ),
    ],
    ids=lambda given: str(given) if isinstance(given, Renaming) else "",
)
def test_what_names_a_renamed_table_names_the_new_one(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, renaming: Renaming, alterations: str
) -> None:
    assert_alike(
        postgresql_server, make_postgresql_database, SHOP, renaming, f"SET search_path = public; {alterations}"
    )


def test_a_renamed_copy_stands_beside_the_original_and_leaves_it_as_it_is(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(source, SHOP)
    before = schema_dump(postgresql_server, source)
    relations = [item.table_name for item in (*extracted(source).tables, *extracted(source).views)]
    every = Renaming.of((), [(name, TableName(name.schema, f"copy_{name.table}")) for name in relations])
    assert renamed(source, source, every) == ()
    for name in relations:
        kind = "MATERIALIZED VIEW" if name.table == "total" else "VIEW" if name.table in VIEWS else "TABLE"
        postgresql_server.psql(source, f'DROP {kind} IF EXISTS {name.schema}."copy_{name.table}" CASCADE')
    assert schema_dump(postgresql_server, source) == before


VIEWS = ("plain", "aliased", "joined", "rows", "counted", "listed", "over_it")


def test_an_alias_of_the_name_of_a_schema_is_not_taken_for_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    script = """
        CREATE SCHEMA film; CREATE TABLE film.film (film int, actor int); CREATE TABLE film.actor (actor int);
        CREATE VIEW film.v AS SELECT film.film, film.actor AS a, coalesce(film.film, film.actor) AS c
            FROM film.film JOIN film.actor ON film.actor = actor.actor WHERE extract(year FROM now()) > film.film;
    """
    renaming = Renaming.of([("film", "cinema")], [(TableName("film", "film"), TableName("cinema", "movie"))])
    altered = "ALTER SCHEMA film RENAME TO cinema; ALTER TABLE cinema.film RENAME TO movie;"
    assert_alike(postgresql_server, make_postgresql_database, script, renaming, altered)


def test_a_view_whose_names_cannot_be_told_apart_is_left_out_with_those_that_read_it(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source = make_postgresql_database()
    script = "CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT a FROM v;"
    postgresql_server.psql_script(source, script)
    schema = extracted(source)
    views = (schema.views[0].model_copy(update={"definition": "select a from public.t"}), schema.views[1])
    forged, lost = rename(schema.model_copy(update={"views": views}), tables(t="u"))
    assert [view.name for view in forged.views] == ["w"]
    assert "View public.v is left out" in lost[0]
    assert define(forged).lost == ("View public.w is left out: it reads public.v, which is not restored.",)


def test_two_objects_of_one_name_are_refused_and_so_is_a_name_that_the_server_would_cut(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(
        source, "CREATE TABLE a (i int PRIMARY KEY); CREATE TABLE b_x (i int); CREATE INDEX b_pkey ON b_x (i);"
    )
    schema = extracted(source)
    with pytest.raises(PlanError, match=r"index b_pkey of public\.b_x would both be public\.b_pkey"):
        rename(schema, tables(a="b"))
    with pytest.raises(RestoreError, match="up to 63 bytes"):
        rename(schema, tables(a="é" * 32))
    longest, _ = rename(schema, tables(a="a" * 63))
    run(make_postgresql_database(), define(longest).before)


@pytest.mark.parametrize(
    ("text", "renamed_text"),
    [
        ("nextval(('public.s'::text)::regclass)", 'nextval((\'"x"."s"\'::text)::regclass)'),
        ("nextval('public.s'::regclass)", 'nextval(\'"x"."s"\'::regclass)'),
        ("public.s(1) || 'public.s'::text", "public.s(1) || 'public.s'::text"),
        ("('a'::text COLLATE public.s)", "('a'::text COLLATE public.s)"),
        ("ARRAY[NULL::public.s, (1)::public.s]", 'ARRAY[NULL::"x"."s", (1)::"x"."s"]'),
        ("'{public.s}'::regclass[]", "'{public.s}'::regclass[]"),
        ("(s.* IS NOT NULL)", "(s.* IS NOT NULL)"),
        ("(t.* IS NOT NULL) AND (1 OPERATOR(public.+) 2)", '("u".* IS NOT NULL) AND (1 OPERATOR(public.+) 2)'),
        ('"public"."s" \'', '"public"."s" \''),
    ],
)
def test_only_names_of_objects_are_renamed_in_an_expression(text: str, renamed_text: str) -> None:
    documents = [{"schema": "public", "name": name, "columns": []} for name in ("s", "t")]
    schema = DatabaseSchema.model_validate({"database": "postgresql", "tables": documents})
    texts = Texts(Names(schema, tables(s="x.s", t="x.u")))
    assert texts.renamed(text, TableName("public", "t")) == renamed_text


def test_not_null_constraints_that_the_server_named_follow_their_table() -> None:
    columns = [{"name": "a", "type": "integer", "arrow_type": "int32", "nullable": False}]
    options = {
        "columns": {"a": {"not_null_not_valid": "t_a_not_null"}},
        "comments": {"constraints": {"t_a_not_null": "x", "t_b_not_null": "a check"}},
    }
    check = {"name": "t_b_not_null", "definition": "CHECK ((a > 0))"}
    table = {"schema": "public", "name": "t", "columns": columns, "checks": [check], "options": options}
    schema, _ = rename(DatabaseSchema.model_validate({"database": "postgresql", "tables": [table]}), tables(t="u"))
    assert schema.tables[0].options == {
        "columns": {"a": {"not_null_not_valid": "u_a_not_null"}},
        "comments": {"constraints": {"u_a_not_null": "x", "t_b_not_null": "a check"}},
    }
    assert schema.tables[0].checks[0].name == "t_b_not_null"
