"""Snapshots of other kinds of databases in MariaDB, and any value of Arrow as a constant."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.mysql import type_for
from snapshot_assets.databases.mysql.session import MysqlConnection
from snapshot_assets.databases.mysql.write_forms import constants_of, rows_of, unfit_values
from snapshot_assets.databases.open import target_module
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.errors import UnsupportedTypeError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.relations import Column, DatabaseSchema, TableName
from snapshot_assets.testing.restores import copy, definition_of, read_scan, source, target
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import fresh
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.mariadb import MariadbServer

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.decimal128(38, 20): st.decimals(-(10**17), 10**17, places=20),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.binary(16): st.binary(min_size=16, max_size=16),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
}


@pytest.fixture(scope="module")
def connection(second_mariadb_server: MariadbServer) -> Any:
    uri = second_mariadb_server.create_database("shop")
    columns = ", ".join(f"c{number} {type_for(kind)}" for number, kind in enumerate(VALUES))
    second_mariadb_server.sql(f"CREATE TABLE t (n int, {columns})", database="shop")
    with closing(MysqlConnection(DatabaseAddress("shop", uri), {"innodb_lock_wait_timeout": "9"})) as connection:
        connection.uri = uri  # type: ignore[attr-defined]
        yield connection
    second_mariadb_server.drop_databases()


@settings(max_examples=20)
@given(st.lists(st.tuples(*(st.none() | strategy for strategy in VALUES.values())), min_size=1, max_size=8))
def test_any_value_is_read_as_it_was_written(connection: MysqlConnection, rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), VALUES, strict=True)]
    names = [f"c{number}" for number in range(len(VALUES))]
    inserted = rows_of(list(map(constants_of, columns)))
    connection.execute("DELETE FROM t", "emptying")
    connection.execute(b"INSERT INTO t VALUES (" + b"),(".join(
        b"%d,%b" % (number, row) for number, row in enumerate(inserted)) + b")", "loading")  # fmt: skip
    with source(DatabaseAddress("shop", connection.uri)) as database:  # type: ignore[attr-defined]
        [table] = database.extract(Selection(time_columns={TableName("shop", "t"): None})).tables
        read = read_scan(database, Scan(table, AllRows())).sort_by("n")
    for name, values, kind in zip(names, columns, VALUES, strict=True):
        found = read[name].combine_chunks()
        if kind == pa.time64("us"):
            found, values = found, values.cast(pa.string())
        elif kind == pa.timestamp("us", "UTC"):
            values = values.cast(pa.timestamp("us"))
        assert found.to_pylist() == values.cast(found.type).to_pylist()


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.duration("us")])
def test_a_type_that_mysql_lacks_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match="MySQL has no type that holds"):
        type_for(kind)


@pytest.mark.parametrize(
    ("values", "unfit"),
    [
        (pa.array([float("nan"), 1.0, None, float("-inf")]), 2),
        (pa.array([dt.datetime(1, 1, 1), None], pa.timestamp("us")), 0),
        (pa.array([-(1 << 62), 1 << 62, 0], pa.timestamp("us")), 2),
        (pa.array([-800_000, 2_932_896, 2_932_897], pa.date32()), 2),
    ],
)
def test_values_that_mysql_lacks_are_counted(values: pa.Array, unfit: int) -> None:
    column = Column(name="c", type=type_for(values.type), arrow_type=arrow_type_text(values.type))
    found = unfit_values(column)
    assert found is not None
    assert found.count(values) == unfit


def documents(address: DatabaseAddress) -> DatabaseSchema:
    with source(address) as database:
        schema = database.extract(Selection())
        untimed = dict.fromkeys(each.table_name for each in schema.tables)
        return database.extract(Selection(time_columns=untimed))


def test_a_database_of_postgresql_is_restored(
    postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE kinds (id serial PRIMARY KEY, b boolean, n numeric(10,2), s text NOT NULL, at timestamptz,"
        " x bytea)",
        "CREATE TABLE codes (code text PRIMARY KEY, kind int REFERENCES kinds, other text REFERENCES codes,"
        " big bigint REFERENCES kinds)",
        "COMMENT ON TABLE kinds IS 'it''s \\ here'",
        "CREATE INDEX by_text ON kinds (s)",
        "INSERT INTO kinds (b, n, s, at, x) VALUES (true, -1.50, 'it''s \\', '2024-01-01 00:00+01', '\\x00275cff'),"
        " (NULL, NULL, 'größe 🦆', NULL, NULL)",
        "INSERT INTO codes VALUES ('a', 1, 'a'), ('A', 2, 'a'), ('a ', NULL, NULL)",
    )
    origin, into = DatabaseAddress("pg", postgresql_database), DatabaseAddress("into", mariadb_database)
    schema = documents(origin)
    lost = copy(schema, origin, into).lost
    assert "Column public.kinds.at holds instants as local times of UTC." in lost
    assert "Foreign key codes_big_fkey of public.codes is left out: MySQL requires one type on both sides." in lost
    assert "Column public.codes.code has at most 768 characters: it belongs to a key." in lost
    assert mariadb_server.sql("SELECT b, n, s, x FROM public.kinds WHERE id = 2") == "NULL\tNULL\tgröße 🦆\tNULL"
    assert mariadb_server.sql("SELECT b, n, s, at, hex(x) FROM public.kinds WHERE id = 1") == (
        "1\t-1.50\tit's \\\t2023-12-31 23:00:00.000000\t00275CFF"
    )
    assert mariadb_server.sql("INSERT INTO public.kinds (s) VALUES ('') RETURNING id") == "3"
    assert mariadb_server.sql("SELECT count(*) FROM public.codes WHERE code IN ('a', 'A', 'a ')") == "3"
    keys = mariadb_server.sql(
        "SELECT table_name, constraint_name FROM information_schema.table_constraints"
        " WHERE constraint_schema = 'public' AND constraint_type = 'FOREIGN KEY' ORDER BY 2"
    )
    assert keys == "codes\tcodes_kind_fkey\ncodes\tcodes_other_fkey"
    assert mariadb_server.sql(
        "SELECT table_comment FROM information_schema.tables WHERE table_name = 'kinds'"
    ) == "it's \\ here"  # fmt: skip


def test_a_file_of_duckdb_is_restored(tmp_path: Path, mariadb_server: MariadbServer, mariadb_database: str) -> None:
    origin = make_file(tmp_path / "shop.duckdb")
    with duckdb.connect(path_of(origin)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, h HUGEINT, ns TIMESTAMP_NS, u UUID, d DECIMAL(38,37))")
        connection.execute("INSERT INTO t VALUES (1, -5, '2024-01-01 00:00:00.123456789', uuid(), 1.5)")
    schema = documents(origin)
    copy(schema, origin, DatabaseAddress("into", mariadb_database))
    row = mariadb_server.sql("SELECT h, ns, d FROM main.t").split("\t")
    assert (row[:2], Decimal(row[2])) == (["-5", "2024-01-01 00:00:00.123456789"], Decimal("1.5"))


def test_unsigned_numbers_come_back_from_duckdb_as_numbered(
    tmp_path: Path, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    table = "CREATE TABLE t (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, x int)"
    mariadb_server.sql(table, "INSERT INTO t VALUES (41, 1)", database="shop")
    origin, file = DatabaseAddress("shop", mariadb_database), DatabaseAddress("file", f"duckdb://{tmp_path}/f.duckdb")
    copy(documents(origin), origin, file)
    mariadb_server.drop_databases()
    schema, into = documents(file), DatabaseAddress("into", mariadb_server.uri())
    assert not [each for each in copy(schema, file, into).lost if "draws" in each]
    with target(into) as opened:
        assert not opened.differing(schema, definition_of(schema, into))
    mariadb_server.sql("INSERT INTO t (x) VALUES (2)", database="shop")
    assert mariadb_server.sql("SELECT id FROM shop.t") == "41\n42"


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_indexes_of_two_tables_that_share_a_name_are_restored(
    tmp_path: Path, postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str, kind: str
) -> None:
    columns = "(id int PRIMARY KEY, a int, b int NOT NULL, KEY by_a (a), UNIQUE KEY by_b (b))"
    mariadb_server.sql(f"CREATE TABLE t {columns}", f"CREATE TABLE u {columns}", database="shop")
    origin = DatabaseAddress("shop", mariadb_database)
    into = fresh(tmp_path, "into") if kind == "duckdb" else DatabaseAddress("into", postgresql_database)
    lost = copy(documents(origin), origin, into).lost
    assert "Index by_a of shop.u gets the name u_by_a: others have its name." in lost
    with source(into) as database:
        tables = database.extract(Selection(schemas=("shop",), time_columns={})).tables
    assert [[index.name for index in table.indexes] for table in tables] == [["t_by_a"], ["u_by_a"]]
    assert all(key.columns == ("b",) for table in tables for key in table.unique)
    assert sum(len(table.unique) for table in tables) == 2


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_keys_whose_names_others_have_or_that_are_too_long_are_restored(
    tmp_path: Path, postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str, kind: str
) -> None:
    long, table = "l" * 63, "t" * 60  # MySQL has names of 64 characters
    mariadb_server.sql(
        f"CREATE TABLE {table} (id int AUTO_INCREMENT PRIMARY KEY, a int, b int, c int, KEY {long}1 (a),"
        f" UNIQUE KEY {long}2 (b), KEY {table} (c), KEY own (a, b), KEY x (a, c),"
        f" CONSTRAINT {long}3 FOREIGN KEY (a) REFERENCES {table} (id), CONSTRAINT {long}2 FOREIGN KEY (b) REFERENCES"
        f" {table} (id))",
        f"CREATE TABLE u (a int, b int, KEY OWN (a), KEY {table}_own (b))",
        "CREATE VIEW X AS SELECT 1 AS one",
        database="shop",
    )
    origin = DatabaseAddress("shop", mariadb_database)
    into = fresh(tmp_path, "into") if kind == "duckdb" else DatabaseAddress("into", postgresql_database)
    schema = documents(origin)
    assert not [each for each in restore_warnings(schema) if "Views" not in each]
    copy(schema, origin, into)
    with source(into) as database:
        tables = database.extract(Selection(schemas=("shop",), time_columns={})).tables
    made = {table.name: table for table in tables}
    names = [index.name for each in made.values() for index in each.indexes]
    assert len({name.lower() for name in names} | {table, "u", "x"}) == len(names) + 3
    assert all(len(name) <= 63 for name in names)
    assert sorted(each.columns for each in made[table].indexes) == [("a",), ("a", "b"), ("a", "c"), ("c",)]
    assert [each.columns for each in made["u"].indexes] == [("a",), ("b",)]
    assert [key.columns for key in made[table].unique] == [("b",)]
    assert len(made[table].sequences) == 1
    if kind == "postgresql":  # a key of a table to itself is none of DuckDB's
        assert [key.columns for key in made[table].foreign_keys] == [("a",), ("b",)]


def test_actions_of_foreign_keys_of_postgresql_are_kept_as_far_as_mysql_has_them(
    postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE top (id int PRIMARY KEY)",
        "CREATE TABLE t (a int REFERENCES top ON DELETE CASCADE ON UPDATE SET NULL,"
        ' "b ON DELETE CASCADE" int REFERENCES top ON UPDATE RESTRICT,'
        " c int REFERENCES top ON DELETE SET DEFAULT ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED,"
        " d int NOT NULL REFERENCES top ON DELETE SET NULL ON UPDATE CASCADE,"
        " e int REFERENCES top MATCH FULL ON DELETE SET NULL (e), f int REFERENCES top)",
    )
    origin, into = DatabaseAddress("pg", postgresql_database), DatabaseAddress("into", mariadb_database)
    lost = copy(documents(origin), origin, into).lost
    assert [each for each in lost if each.startswith("Foreign key")] == [
        "Foreign key t_c_fkey of public.t is carried over without ON DELETE SET DEFAULT DEFERRABLE INITIALLY DEFERRED.",
        "Foreign key t_d_fkey of public.t is carried over without ON DELETE SET NULL.",
        "Foreign key t_e_fkey of public.t is carried over without MATCH FULL ON DELETE SET NULL (e).",
    ]
    rules = mariadb_server.sql(
        "SELECT update_rule, delete_rule FROM information_schema.referential_constraints"
        " WHERE constraint_schema = 'public' ORDER BY constraint_name"
    )
    assert rules.split("\n") == [
        "SET NULL\tCASCADE", "RESTRICT\tRESTRICT", "CASCADE\tRESTRICT", "CASCADE\tRESTRICT", "RESTRICT\tRESTRICT",
        "RESTRICT\tRESTRICT",
    ]  # fmt: skip


def test_foreign_keys_of_one_name_and_a_default_of_null_are_restored(
    postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    columns = "(a int, name varchar(9) NOT NULL DEFAULT NULL::varchar, CONSTRAINT fk FOREIGN KEY (a) REFERENCES top)"
    tables = (f"CREATE TABLE {name} {columns}" for name in ("orders", "invoices"))
    execute(postgresql_database, "CREATE TABLE top (id int PRIMARY KEY)", *tables)
    origin, into = DatabaseAddress("pg", postgresql_database), DatabaseAddress("into", mariadb_database)
    assert not [each for each in copy(documents(origin), origin, into).lost if each.startswith("Default")]
    keys = "SELECT table_name FROM information_schema.referential_constraints WHERE constraint_schema = 'public'"
    assert mariadb_server.sql(f"{keys} ORDER BY 1") == "invoices\norders"


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_actions_of_foreign_keys_of_mysql_are_kept_as_far_as_the_target_has_them(
    tmp_path: Path, postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str, kind: str
) -> None:
    mariadb_server.sql(
        "CREATE TABLE top (id int PRIMARY KEY)",
        "CREATE TABLE t (a int, `b ON UPDATE CASCADE` int, c int,"
        " CONSTRAINT fa FOREIGN KEY (a) REFERENCES top (id) ON DELETE CASCADE ON UPDATE SET NULL,"
        " CONSTRAINT fb FOREIGN KEY (`b ON UPDATE CASCADE`) REFERENCES top (id) ON DELETE NO ACTION ON UPDATE RESTRICT,"
        " CONSTRAINT fc FOREIGN KEY (c) REFERENCES top (id) ON UPDATE CASCADE)",
        database="shop",
    )
    origin = DatabaseAddress("shop", mariadb_database)
    into = fresh(tmp_path, "into") if kind == "duckdb" else DatabaseAddress("into", postgresql_database)
    schema = documents(origin)
    lost = [each for each in copy(schema, origin, into).lost if each.startswith("Foreign key")]
    if kind == "duckdb":  # it has no actions: rows that others refer to are kept
        assert lost == [
            "Foreign key fa of shop.t is carried over without ON DELETE CASCADE ON UPDATE SET NULL.",
            "Foreign key fc of shop.t is carried over without ON UPDATE CASCADE.",
        ]
        return
    assert lost == []
    with source(into) as database:
        [_, table] = sorted(database.extract(Selection(schemas=("shop",))).tables, key=lambda each: len(each.columns))
    assert [(each.definition or "").partition("top(id)")[2] for each in table.foreign_keys] == [
        " ON UPDATE SET NULL ON DELETE CASCADE",
        "",  # neither database prints an action that is its default
        " ON UPDATE CASCADE",
    ]
    renaming = Renaming.of([("shop", "new")], [])
    renamed, _ = target_module(into).rename(converted(schema, kind, target_module(into))[0], renaming)
    key = renamed.table(TableName("new", "t")).foreign_keys[0]
    ending = 'REFERENCES new.top("id") ON UPDATE SET NULL ON DELETE CASCADE'
    assert (key.definition or "").replace('"new"."top"', "new.top").endswith(ending)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_foreign_keys_that_match_by_a_collation_that_ignores_case_are_left_out_and_named(
    tmp_path: Path, postgresql_database: str, mariadb_server: MariadbServer, mariadb_database: str, kind: str
) -> None:
    mariadb_server.sql(
        "CREATE TABLE a (code varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n int UNIQUE,"
        " exact varchar(9) COLLATE utf8mb4_bin UNIQUE)",
        "CREATE TABLE b (code varchar(9) COLLATE utf8mb4_general_ci, n int, exact varchar(9) COLLATE utf8mb4_bin,"
        " CONSTRAINT loose FOREIGN KEY (code) REFERENCES a (code), CONSTRAINT whole FOREIGN KEY (n) REFERENCES a (n),"
        " CONSTRAINT same FOREIGN KEY (exact) REFERENCES a (exact))",
        "INSERT INTO a VALUES ('x', 1, 'y')",
        "INSERT INTO b VALUES ('X', 1, 'y')",
        database="shop",
    )
    origin = DatabaseAddress("shop", mariadb_database)
    into = fresh(tmp_path, "into") if kind == "duckdb" else DatabaseAddress("into", postgresql_database)
    lost = [each for each in copy(documents(origin), origin, into).lost if each.startswith("Foreign key")]
    assert lost == [
        f"Foreign key loose of shop.b is left out: its texts match by collation utf8mb4_general_ci, and {kind} compares"
        " them exactly; where they are spelled alike, add it by hand."
    ]
    with source(into) as database:
        table = database.extract(Selection(schemas=("shop",), time_columns={})).table(TableName("shop", "b"))
    assert sorted(key.columns for key in table.foreign_keys) == [("exact",), ("n",)]


def test_foreign_keys_that_match_by_a_nondeterministic_collation_are_left_out_and_named(tmp_path: Path) -> None:
    column = Column(name="code", type="text", arrow_type="string", collation="public.folded")
    need = {"kind": "collation", "name": "public.folded", "sql": ["CREATE COLLATION … (deterministic = false)"]}
    key = {"name": "f", "columns": ["code"], "referenced_table": "a", "referenced_schema": "s"}
    parent = {"schema": "s", "name": "a", "columns": [column], "options": {"needs": [need]}}
    child = parent | {"name": "b", "foreign_keys": [key | {"referenced_columns": ["code"]}]}
    schema = DatabaseSchema.model_validate({"database": "postgresql", "tables": [parent, child]})
    for into in (fresh(tmp_path, "into"), DatabaseAddress("into", "mysql://localhost")):
        [lost] = [each for each in definition_of(schema, into).lost if each.startswith("Foreign key")]
        assert lost.startswith("Foreign key f of s.b is left out: its texts match by collation public.folded")


def test_columns_that_differ_only_in_case_are_refused() -> None:
    columns = [Column(name=name, type="integer", arrow_type="int32") for name in ("a", "A", "b")]
    schema = DatabaseSchema.model_validate(
        {"database": "postgresql", "tables": [{"schema": "s", "name": "t", "columns": columns}]}
    )
    [refused] = definition_of(schema, DatabaseAddress("into", "mysql://localhost")).refused
    assert refused.startswith("Columns a and A of s.t would be one in MySQL, which ignores case in their names.")


def test_a_name_that_mysql_cannot_have_is_refused(mariadb_database: str) -> None:
    column = Column(name="c" * 65, type="int(11)", arrow_type="int32")
    schema = DatabaseSchema.model_validate(
        {"database": "mysql", "tables": [{"schema": "shop", "name": "t", "columns": [column]}]}
    )
    refused = definition_of(schema, DatabaseAddress("shop", mariadb_database)).refused
    assert refused == (
        f"Column shop.t.{'c' * 65} has a name of 65 characters; MySQL has at most 64. Rename it in the source, or leave"
        " it out.",
    )
