from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.databases import postgresql as postgresql_module
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan
from snapshot_assets.errors import SnapshotError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier, Table, TableName
from snapshot_assets.testing.restores import copy, extracted, source
from snapshot_assets_tests.databases.duckdb.files import MAIN_T, make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, differences, fresh
from snapshot_assets_tests.databases.duckdb.test_types import CASES, make_table
from snapshot_assets_tests.databases.postgresql.conftest import every_type
from snapshot_assets_tests.databases.postgresql.values import TYPES
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

__all__ = ["every_type"]


def postgresql(uri: str) -> DatabaseAddress:
    return DatabaseAddress("server", uri)


FLAT = {
    kind: [value for value in values if not any(part in value for part in ("chr(0)", "5877642", "5881580", "290309"))]
    for kind, (_, arrow, values) in CASES.items()
    if not arrow.startswith(("list", "struct", "map")) and not kind.startswith("UNION")
}
"""Types that are not nested, and their values that PostgreSQL's types can hold."""


def test_duckdb_to_postgresql_and_back_keeps_every_value(
    tmp_path: Path, make_postgresql_database: Callable[[], str]
) -> None:
    origin = make_table(tmp_path / "origin.duckdb", FLAT)
    server, back = postgresql(make_postgresql_database()), fresh(tmp_path, "back")
    copy(extracted(origin, MAIN_T), origin, server)
    copy(extracted(server, MAIN_T), server, back)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{path_of(origin)}' AS a (READ_ONLY); ATTACH '{path_of(back)}' AS b (READ_ONLY)")
        assert connection.sql(
            "SELECT (SELECT count(*) FROM a.main.t) = (SELECT count(*) FROM b.main.t)"
        ).fetchall() == [(True,)]
        for number, kind in enumerate(FLAT):
            value, restored = f"a.c{number}", f"CAST(b.c{number} AS {kind})"
            differing = connection.sql(
                f"SELECT {value}, {restored} FROM a.main.t a LEFT JOIN b.main.t b USING (id)"
                f" WHERE b.id IS NULL OR {value} IS DISTINCT FROM {restored}"
                f" OR CAST({value} AS VARCHAR) IS DISTINCT FROM CAST({restored} AS VARCHAR)"
            ).fetchall()
            assert differing == [], kind


def test_nested_values_of_duckdb_become_arrays_and_json_in_postgresql(
    tmp_path: Path, postgresql_database: str, postgresql_server: PostgresqlServer
) -> None:
    columns = {
        "i": ("INTEGER[]", "[1, NULL, 3]", "integer[]", [1, None, 3]),
        "e": ("INTEGER[]", "[]", "integer[]", []),
        "s": ("VARCHAR[]", "['', NULL, 'NULL', 'q\"\\,{}', 'ü']", "text[]", ["", None, "NULL", 'q"\\,{}', "ü"]),
        "d": ("DECIMAL(10,2)[]", "[1.50, -0.01]", "numeric(10,2)[]", [1.50, -0.01]),
        "u": ("UBIGINT[]", "[18446744073709551615]", "numeric(20,0)[]", [18446744073709551615]),
        "f": ("DOUBLE[]", "['nan'::DOUBLE, '-inf'::DOUBLE, 0.1]", "double precision[]", ["NaN", "-Infinity", 0.1]),
        "b": ("BLOB[]", "['\\x00\\xFF'::BLOB]", "bytea[]", ["\\x00ff"]),
        "t": (
            "TIMESTAMP[]",
            "['2024-01-01 00:00:00.000001']",
            "timestamp without time zone[]",
            ["2024-01-01T00:00:00.000001"],
        ),
        "n": ("INTEGER[][]", "[[1], NULL, []]", "json", [[1], None, []]),
        "r": (
            "STRUCT(a DATE, b DOUBLE, c STRUCT(d VARCHAR)[])",
            "row('2024-01-01', 'nan', [row('x')])",
            "json",
            {"a": "2024-01-01", "b": "NaN", "c": [{"d": "x"}]},
        ),
        "m": (
            "MAP(INTEGER, TIMESTAMP_NS)",
            "MAP {2: '2024-01-01 00:00:00.000000001'}",
            "json",
            [[2, "2024-01-01 00:00:00.000000001"]],
        ),
        "z": ("INTEGER[]", "NULL", "integer[]", None),
    }
    origin = make_file(
        tmp_path / "origin.duckdb",
        f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, *_) in columns.items())})",
        f"INSERT INTO t VALUES ({', '.join(value for _, value, *_ in columns.values())})",
    )
    made = copy(extracted(origin), origin, postgresql(postgresql_database)).tables[0]
    found = json.loads(postgresql_server.psql(postgresql_database, "SELECT row_to_json(whole) FROM main.t AS whole"))
    for name, (_, _, kind, value) in columns.items():
        assert (made.column(name).type, found[name]) == (kind, value)


@pytest.mark.parametrize("value", ["'290309-12-22 (BC)'", "'infinity'"])
def test_a_time_that_postgresql_cannot_hold_fails_and_loads_nothing(
    tmp_path: Path, postgresql_database: str, postgresql_server: PostgresqlServer, value: str
) -> None:
    origin = make_file(tmp_path / "o.duckdb", "CREATE TABLE t (x TIMESTAMP)", f"INSERT INTO t VALUES ({value})")
    with pytest.raises(SnapshotError):
        copy(extracted(origin), origin, postgresql(postgresql_database))
    assert postgresql_server.psql(postgresql_database, "SELECT count(*) FROM main.t") == "0"


@pytest.mark.slow
@pytest.mark.usefixtures("every_type")
def test_postgresql_to_duckdb_keeps_every_value(tmp_path: Path, postgresql_module_database: str) -> None:
    server, again, name = postgresql(postgresql_module_database), fresh(tmp_path), TableName("public", "t")
    schema = extracted(server, name)
    definition = copy(schema, server, again)
    before, after = values_of(server, schema.table(name)), values_of(again, extracted(again, name).table(name))
    for number, kind in enumerate(TYPES):
        assert after[f"c{number}"] == before[f"c{number}"], kind
    uuid = f"c{list(TYPES).index('uuid')}"
    assert definition.tables[0].column(uuid).type == "UUID"
    with duckdb.connect(path_of(again), read_only=True) as connection:
        texts = connection.sql(f"SELECT CAST({uuid} AS VARCHAR) FROM public.t WHERE {uuid} IS NOT NULL ORDER BY n")
        assert texts.fetchall() == [(value,) for value in TYPES["uuid"]]


def values_of(address: DatabaseAddress, table: Table) -> dict[str, list[Any]]:
    """Return a table's values by column, times as numbers, because Python cannot hold them all."""
    with source(address) as database, database.scan(Scan(table, AllRows())) as batches:
        rows = pa.Table.from_batches(list(batches), table.arrow_schema()).sort_by("n").combine_chunks()
    return {name: _comparable(rows.column(name).combine_chunks()) for name in rows.column_names}


def _comparable(values: pa.Array) -> list[Any]:
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    if pa.types.is_fixed_size_binary(values.type):
        return [value and str(UUID(bytes=value)) for value in values.to_pylist()]
    return [repr(value) if isinstance(value, float) else value for value in values.to_pylist()]


def test_keys_comments_indexes_and_sequences_are_converted_and_the_rest_is_reported(tmp_path: Path) -> None:
    origin = make_file(tmp_path / "shop.duckdb", *SHOP)
    schema = extracted(origin)
    mapped, lost = converted(schema, "postgresql", postgresql_module)
    child = mapped.table(TableName("main", "child"))
    assert child.primary_key is not None
    assert (child.primary_key.columns, child.primary_key.definition) == (("id",), None)
    assert [(key.columns, key.referenced_table, key.definition) for key in child.foreign_keys] == [
        (("parent",), "z_parent", None)
    ]
    assert [index.definition for index in child.indexes] == ['CREATE UNIQUE INDEX "by_day" ON "main"."child" ("day")']
    assert [(sequence.name, sequence.type, sequence.last_value) for sequence in child.sequences] == [
        ("down", None, 3),
        ("numbers", None, 11),
    ]
    assert child.column("id").default == """nextval('"main"."numbers"')"""
    assert (child.comment, child.column("name").comment, child.column("name").nullable) == (
        "a 'child'",
        "its name",
        False,
    )
    assert {column.carrier for table in mapped.tables for column in table.columns} == {Carrier.NATIVE}
    assert child.column("price").default == "1.5"
    assert mapped.views == ()
    text = "\n".join(lost)
    for words in (
        "Check child_price_check of main.child is left out",
        "Column main.child.twice holds the values",
        "Column main.child.m of type ENUM('sad', 'it''s', 'größe') becomes text",
        "Collation NOCASE of column main.child.name",
        "Index by_name of main.child is left out",
        "View main.a_second is left out",
        "Type main.mood is left out",
        "Sequence main.unused is left out",
    ):
        assert words in text


def test_a_whole_database_survives_postgresql(
    tmp_path: Path, postgresql_database: str, postgresql_server: PostgresqlServer
) -> None:
    origin = make_file(tmp_path / "shop.duckdb", *SHOP)
    server, back = postgresql(postgresql_database), fresh(tmp_path, "back")
    copy(extracted(origin), origin, server)
    assert postgresql_server.psql(postgresql_database, "SELECT nextval('main.numbers')") == "14"
    copy(extracted(server), server, back)
    found = extracted(back)
    child = found.table(TableName("main", "child"))
    assert child.primary_key is not None
    assert (child.primary_key.columns, child.foreign_keys[0].referenced_table) == (("id",), "z_parent")
    assert differences(origin, back, found) == {}


def test_a_type_without_an_equivalent_is_refused_with_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = make_file(tmp_path / "o.duckdb", "CREATE TABLE t (x INTEGER)")

    def refuses(arrow_type: pa.DataType) -> str:
        if arrow_type == pa.string():
            return "text"
        raise UnsupportedTypeError("No such type.")

    monkeypatch.setattr(postgresql_module, "type_for", refuses)
    with pytest.raises(UnsupportedTypeError, match=r"main\.t\.x of type INTEGER: No such type"):
        converted(extracted(origin), "postgresql", postgresql_module)


def test_identity_and_serial_columns_of_postgresql_draw_from_a_sequence_in_duckdb(
    tmp_path: Path, postgresql_database: str, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql(
        postgresql_database,
        "CREATE TABLE t (a serial, b int GENERATED BY DEFAULT AS IDENTITY (START 7), c int DEFAULT 1, d text UNIQUE)",
        "INSERT INTO t (d) VALUES ('x'), ('y')",
        "CREATE INDEX plain ON t (c, d)",
        "CREATE INDEX partial ON t (c) WHERE c > 0",
    )
    server, again = postgresql(postgresql_database), fresh(tmp_path)
    definition = copy(extracted(server), server, again)
    with duckdb.connect(path_of(again)) as connection:
        connection.execute("INSERT INTO public.t (d) VALUES ('z')")
        assert connection.sql("FROM public.t ORDER BY a").fetchall() == [
            (1, 7, 1, "x"),
            (2, 8, 1, "y"),
            (3, 9, 1, "z"),
        ]
        assert connection.sql("SELECT index_name FROM duckdb_indexes()").fetchall() == [("plain",)]
    text = "\n".join(definition.lost)
    assert "Index partial of public.t is left out" in text
    assert "Column public.t.b is no longer an identity column" in text


def test_a_foreign_key_of_a_table_to_itself_is_left_out_in_duckdb(
    tmp_path: Path, postgresql_database: str, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql(
        postgresql_database,
        "CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t)",
        "INSERT INTO t VALUES (1, 1), (2, 3), (3, 2)",
        "CREATE TABLE child (t int REFERENCES t ON DELETE CASCADE, n int)",
        "INSERT INTO child VALUES (1, 0), (NULL, 1)",
        "ALTER TABLE child ADD CONSTRAINT unchecked FOREIGN KEY (n) REFERENCES t NOT VALID",
    )
    server, again = postgresql(postgresql_database), fresh(tmp_path)
    definition = copy(extracted(server), server, again)
    lost = "\n".join(definition.lost)
    for words in (
        "Foreign key t_boss_fkey of public.t is left out: DuckDB accepts no row that refers to itself",
        "Foreign key unchecked of public.child is left out: postgresql has not checked it (NOT VALID)",
        "Foreign key child_t_fkey of public.child is carried over without ON DELETE CASCADE",
    ):
        assert words in lost
    found = extracted(again)
    assert [key.columns for key in found.table(TableName("public", "child")).foreign_keys] == [("t",)]
    with duckdb.connect(path_of(again), read_only=True) as connection:
        assert connection.sql("FROM public.t ORDER BY id").fetchall() == [(1, 1), (2, 3), (3, 2)]
