from __future__ import annotations

from typing import Any

import pytest

from snapshot_assets.databases.source import Selection
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Sequence, Table, TableName, View
from snapshot_assets_tests.databases.postgresql.helpers import client, opened, read, table_of
from snapshot_assets_tests.databases.postgresql.shop import SHOP
from snapshot_assets_tests.servers.postgresql import PostgresqlServer


@pytest.fixture(scope="module")
def shop_uri(postgresql_server: PostgresqlServer, postgresql_module_database: str) -> str:
    postgresql_server.psql_script(postgresql_module_database, SHOP)
    return postgresql_module_database


@pytest.fixture(scope="module")
def shop(shop_uri: str) -> DatabaseSchema:
    with opened(shop_uri) as database:
        return database.extract(Selection())


@pytest.fixture(scope="module")
def orders(shop: DatabaseSchema) -> Table:
    return shop.table(TableName("public", "orders"))


def view(shop: DatabaseSchema, schema: str, name: str) -> View:
    return next(found for found in shop.views if (found.schema_name, found.name) == (schema, name))


def dumped(document: Any, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = document.model_dump(exclude_defaults=True)
    return {name: value for name, value in found.items() if not names or name in names}


def test_documents_are_sorted_and_survive_json(shop: DatabaseSchema) -> None:
    assert [str(table.table_name) for table in shop.tables] == [
        "public.orders",
        "public.parted",
        "public.zones",
        "sales.base",
        "sales.heir",
        "sales.log",
    ]
    assert [f"{found.schema_name}.{found.name}" for found in shop.views] == [
        "public.a_view",
        "public.z_view",
        "sales.mat",
    ]
    assert DatabaseSchema.model_validate_json(shop.model_dump_json()) == shop


def test_schemas_say_what_is_not_carried(shop: DatabaseSchema) -> None:
    assert [dumped(schema) for schema in shop.schemas] == [
        {
            "name": "public",
            "comment": "shop",
            "options": {
                "not_carried": [
                    "function public.f(integer)",
                    "function public.trg()",
                    "sequence public.lonely",
                    "type public.unused",
                ]
            },
        },
        {"name": "sales"},
    ]


def test_columns_hold_everything_a_definition_says(orders: Table) -> None:
    columns = {column.name: dumped(column) for column in orders.columns}
    assert list(columns)[:5] == ["id", "parent", "serial_no", "shared_no", "zone"]
    assert columns["id"] == {
        "name": "id",
        "type": "bigint",
        "arrow_type": "int64",
        "nullable": False,
        "identity": "always",
    }
    assert columns["serial_no"]["default"] == "nextval('public.orders_serial_no_seq'::regclass)"
    assert columns["amount"] == {
        "name": "amount",
        "type": "numeric(10,2)",
        "arrow_type": "decimal128(10, 2)",
        "default": "0.00",
        "comment": "money",
    }
    assert columns["taxed"] == {
        "name": "taxed",
        "type": "numeric",
        "arrow_type": "string",
        "carrier": Carrier.TEXT,
        "generated": "(amount * 1.21)",
        "generated_kind": "stored",
    }
    assert columns["doubled"]["generated_kind"] == "virtual"
    assert columns["label"]["collation"] == 'pg_catalog."C"'


def test_constraints_keep_their_names_and_definitions(orders: Table) -> None:
    assert dumped(orders.primary_key) == {
        "name": "orders_key",
        "columns": ("id",),
        "definition": "PRIMARY KEY (id)",
    }
    assert [dumped(unique) for unique in orders.unique] == [
        {
            "name": "label_once",
            "columns": ("label", "zone"),
            "definition": "UNIQUE NULLS NOT DISTINCT (label, zone) INCLUDE (amount)",
        }
    ]
    assert [(check.name, check.definition) for check in orders.checks] == [
        ("apart", "EXCLUDE USING gist (during WITH &&)"),
        ("later_check", "CHECK ((amount < (1000)::numeric)) NOT VALID"),
        ("orders_amount_check", "CHECK ((amount >= (0)::numeric))"),
    ]
    assert [dumped(key) for key in orders.foreign_keys] == [
        {
            "name": "orders_zone_fkey",
            "columns": ("zone",),
            "referenced_schema": "public",
            "referenced_table": "zones",
            "referenced_columns": ("code",),
            "definition": "FOREIGN KEY (zone) REFERENCES public.zones(code) ON DELETE CASCADE"
            " DEFERRABLE INITIALLY DEFERRED",
        },
        {
            "name": "parent_fk",
            "columns": ("parent",),
            "referenced_schema": "public",
            "referenced_table": "orders",
            "referenced_columns": ("id",),
            "definition": "FOREIGN KEY (parent) REFERENCES public.orders(id)",
        },
    ]


def test_indexes_that_back_no_constraint_are_kept(orders: Table) -> None:
    assert [index.definition for index in orders.indexes] == [
        "CREATE UNIQUE INDEX by_at ON public.orders USING btree (at, id)",
        "CREATE INDEX by_lower ON public.orders USING btree (lower(label), at DESC) WHERE (amount > (1)::numeric)",
    ]
    assert (orders.indexes[0].columns, orders.indexes[0].unique) == (("at", "id"), True)


def test_sequences_are_kept_with_their_place(orders: Table) -> None:
    largest = 2**63 - 1
    common = {"schema_name": "public", "minimum": 1}
    assert orders.sequences == (
        Sequence(
            **common,
            name="orders_id_seq",
            type="bigint",
            column="id",
            owned=True,
            start=10,
            increment=2,
            maximum=largest,
            last_value=12,
        ),
        Sequence(
            **common,
            name="orders_serial_no_seq",
            type="integer",
            column="serial_no",
            owned=True,
            start=1,
            increment=1,
            maximum=2**31 - 1,
            last_value=2,
        ),
        Sequence(
            **common,
            name="shared",
            type="bigint",
            column="shared_no",
            start=100,
            increment=5,
            maximum=1000,
            cache=3,
            cycle=True,
            last_value=210,
        ),
    )


def test_a_sequence_never_used_or_restarted_stands_before_its_next_value(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE TABLE t (a serial, b serial, c serial)")
        run("ALTER SEQUENCE t_b_seq RESTART WITH 50")
        run("SELECT setval('t_c_seq', 7)")
    with opened(postgresql_database) as database:
        assert [sequence.last_value for sequence in table_of(database).sequences] == [None, 49, 7]


def test_types_come_in_the_order_of_their_making(orders: Table) -> None:
    assert [dumped(kind) for kind in orders.types] == [
        {"schema_name": "public", "name": "mood", "kind": "enum", "labels": ("sad", "meh", "ok"), "comment": "how"},
        {
            "schema_name": "public",
            "name": "feeling",
            "kind": "domain",
            "definition": {
                "base": "public.mood",
                "not_null": True,
                "default": "'ok'::public.mood",
                "constraints": [{"name": "not_sad", "definition": "CHECK ((VALUE <> 'sad'::public.mood))"}],
            },
        },
        {
            "schema_name": "public",
            "name": "earlier",
            "kind": "composite",
            "definition": {
                "attributes": [
                    {"name": "x", "type": "text", "collation": 'pg_catalog."C"'},
                    {"name": "f", "type": "public.feeling[]"},
                ]
            },
        },
        {
            "schema_name": "public",
            "name": "later",
            "kind": "composite",
            "definition": {"attributes": [{"name": "a", "type": "integer"}, {"name": "e", "type": "public.earlier"}]},
        },
        {
            "schema_name": "public",
            "name": "float_range",
            "kind": "range",
            "definition": {
                "subtype": "double precision",
                "subtype_diff": "float8mi",
                "multirange": "public.float_multirange",
            },
        },
    ]


def test_options_hold_the_rest_of_what_pg_dump_prints(orders: Table) -> None:
    assert orders.comment == "all orders"
    assert orders.options == {
        "storage_parameters": ["fillfactor=80"],
        "toast_storage_parameters": ["autovacuum_enabled=false"],
        "replica_identity": "orders_key",
        "clustered_on": "by_at",
        "columns": {
            "amount": {"options": ["n_distinct=5"]},
            "label": {
                "storage": "external",
                "compression": "pglz",
                "statistics_target": 500,
                "not_null_name": "label_there",
            },
        },
        "constraint_storage": {"label_once": ["fillfactor=70"]},
        "statistics": ["CREATE STATISTICS public.st ON zone, amount FROM public.orders"],
        "extensions": ["vector"],
        "row_types": [["public", "zones"]],
        "comments": {
            "constraints": {"parent_fk": "up"},
            "indexes": {"by_lower": "idx"},
            "sequences": {"public.orders_serial_no_seq": "seq"},
        },
        "not_carried": ["policy pol", "rule ru", "trigger tr"],
    }


def test_a_partitioned_table_is_one_table_that_knows_its_partitions(shop: DatabaseSchema) -> None:
    parted = shop.table(TableName("public", "parted"))
    assert parted.time_index == "at"
    assert parted.options["partition_by"] == "RANGE (at)"
    partitions = parted.options["partitions"]
    assert [(part["name"], part["of"][1], part["bounds"]) for part in partitions] == [
        ("p1", "parted", "FOR VALUES FROM ('2025-01-01 00:00:00') TO ('2025-02-01 00:00:00')"),
        ("p2", "parted", "DEFAULT"),
        ("p2a", "p2", "DEFAULT"),
    ]
    assert partitions[1]["partition_by"] == "LIST (k)"
    assert partitions[0]["constraints"] == [
        {"name": "p1_pkey", "definition": "PRIMARY KEY (at, id, k)", "parent": "parted_pkey"}
    ]
    assert partitions[0]["indexes"] == [
        {"name": "own", "definition": "CREATE INDEX own ON public.p1 USING btree (id)"},
        {
            "name": "p1_at_idx",
            "definition": "CREATE INDEX p1_at_idx ON public.p1 USING btree (at)",
            "parent": "parted_at",
        },
    ]


def test_an_heir_is_a_table_of_its_own(shop_uri: str, shop: DatabaseSchema) -> None:
    heir = shop.table(TableName("sales", "heir"))
    assert heir.options == {"inherits": [["sales", "base"]], "columns": {"a": {"inherited": True}}}
    assert shop.table(TableName("sales", "log")).options == {"persistence": "unlogged"}
    with client(shop_uri) as run:
        run("INSERT INTO sales.heir VALUES (1, 2, 3)")
    with opened(shop_uri) as database:
        assert read(database, shop.table(TableName("sales", "base"))).num_rows == 0
        assert read(database, heir).to_pylist() == [{"a": 1, "b": 2, "c": 3}]


def test_views_say_what_must_exist_before_them(shop: DatabaseSchema) -> None:
    """Also of a view later by name."""
    a_view, z_view = view(shop, "public", "a_view"), view(shop, "public", "z_view")
    assert a_view.depends_on == (TableName("public", "z_view"),)
    assert a_view.definition == " SELECT (id)::integer AS one\n   FROM public.z_view;"
    assert z_view.depends_on == (TableName("public", "orders"),)
    assert z_view.options == {"not_carried": ["function public.f(integer)"]}
    assert z_view.comment == "zzz"


def test_a_materialized_view_keeps_its_indexes_and_types(shop: DatabaseSchema) -> None:
    mat = view(shop, "sales", "mat")
    assert mat.materialized
    assert mat.options["storage_parameters"] == ["fillfactor=50"]
    assert [index["definition"] for index in mat.options["indexes"]] == [
        "CREATE UNIQUE INDEX mat_i ON sales.mat USING btree (i)"
    ]
    assert [kind["name"] for kind in mat.options["types"]] == ["mood"]
    assert "populated" not in mat.options


def test_a_view_named_as_a_table_is_exported_as_its_rows(shop_uri: str) -> None:
    name = TableName("public", "z_view")
    with opened(shop_uri) as database:
        document = database.extract(Selection(tables=(name,)))
        table = document.table(name)
        assert sorted(read(database, table)["id"].to_pylist()) == [10, 12]
    assert document.views == ()
    assert table.options["relation"] == "view"


def test_a_selection_of_schemas_takes_their_tables_and_views(shop_uri: str) -> None:
    with opened(shop_uri) as database:
        document = database.extract(Selection(schemas=("sales",)))
    assert [schema.name for schema in document.schemas] == ["sales"]
    assert {table.schema_name for table in document.tables} == {"sales"}
    assert [found.name for found in document.views] == ["mat"]


def test_generated_and_identity_columns_are_read_as_values(shop_uri: str, orders: Table) -> None:
    with opened(shop_uri) as database:
        rows = read(database, orders)
    assert sorted(rows["id"].to_pylist()) == [10, 12]
    assert set(rows["doubled"].to_pylist()) == {"0.00"}


def test_an_empty_database_and_an_empty_schema_are_described(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE SCHEMA bare")
    with opened(postgresql_database) as database:
        document = database.extract(Selection())
        assert [schema.name for schema in document.schemas] == ["bare", "public"]
        assert (document.tables, document.views) == ((), ())


def test_extensions_keep_their_tables_to_themselves(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE EXTENSION vector")
        run("CREATE TABLE theirs (id int)")
        run("ALTER EXTENSION vector ADD TABLE theirs")
    with opened(postgresql_database) as database:
        document = database.extract(Selection())
    assert document.tables == ()
    assert dict(document.schemas[0].options) == {}
