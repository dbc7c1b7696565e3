from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.databases.postgresql.types import NATIVE, SourceType, carried, type_for
from snapshot_assets.errors import CarrierError, PlanError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, load, opened, read, table_of, texts
from snapshot_assets_tests.databases.postgresql.values import NEVER_STORED, SYSTEM_VALUES, TYPES
from snapshot_assets_tests.servers.postgresql import PostgresqlServer


def test_every_type_of_the_server_has_a_value_here(postgresql_server: PostgresqlServer, every_type: str) -> None:
    query = """
        SELECT t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE t.typtype IN ('b', 'r', 'm') AND t.typcategory <> 'A' AND n.nspname = 'pg_catalog'"""
    of_server = set(postgresql_server.psql(every_type, query).split("\n"))
    used = """
        SELECT DISTINCT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = 'public.t'::regclass AND a.attnum > 0"""
    here = set(postgresql_server.psql(every_type, used).split("\n"))
    assert of_server - here == {*SYSTEM_VALUES, *NEVER_STORED}


def test_every_value_survives_parquet_and_a_column_of_its_type(every_type: str, tmp_path: Path) -> None:
    with opened(every_type) as database:
        table = table_of(database)
        scanned = read(database, table)
    pq.write_table(scanned, tmp_path / "t.parquet")
    returned = pq.read_table(tmp_path / "t.parquet")
    assert returned.schema.equals(table.arrow_schema())
    execute(every_type, "DROP TABLE IF EXISTS restored", "CREATE TABLE restored (LIKE t)")
    load(every_type, table, returned, "restored")
    assert texts(every_type, "restored") == texts(every_type, "t")


def test_text_is_what_the_server_prints_for_every_type(every_type: str) -> None:
    """This includes types with a native carrier that the plan overrides."""
    carriers = {f"c{number}": Carrier.TEXT for number in range(len(TYPES))}
    with opened(every_type) as database:
        table = table_of(database, carriers=carriers)
        scanned = read(database, table).sort_by("n").drop_columns(["n"])
    assert scanned.schema.types == [pa.string()] * len(TYPES)
    count = len(TYPES)
    expected = [
        [None if row[count + number] else row[number] for number in range(count)] for row in texts(every_type, "t")
    ]
    found = [list(row.values()) for row in scanned.to_pylist()]
    for number, name in enumerate(TYPES):
        assert (name, [row[number] for row in found]) == (name, [row[number] for row in expected])


def test_types_that_the_server_only_prints_are_carried_as_text(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    postgresql_server.psql_script(
        postgresql_database,
        """
        CREATE TABLE s AS SELECT i % 3 AS a, i % 3 AS b FROM generate_series(1, 100) i;
        CREATE STATISTICS public.x ON a, b FROM s;
        ANALYZE s;
        """,
    )
    for name, query in SYSTEM_VALUES.items():
        postgresql_server.psql(postgresql_database, f"CREATE TABLE {name}_values AS SELECT v FROM ({query}) q (v)")
        expected = postgresql_server.psql(postgresql_database, f"SELECT format('%s', v) FROM {name}_values")
        with opened(postgresql_database) as database:
            table = table_of(database, f"{name}_values")
            assert table.columns[0].carrier is Carrier.TEXT
            assert "\n".join(read(database, table)["v"].to_pylist()) == expected


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("timestamptz", "infinity", "infinity"),
        ("timestamp", "infinity", "infinity"),
        ("timestamp", "294276-12-31 23:59:59.999999", "after the year 294246"),
        ("date", "infinity", "infinity"),
        ("time", "24:00:00", "24:00:00"),
        ("numeric(10,2)", "NaN", "NaN"),
        ("moment", "infinity", "infinity"),
    ],
)
def test_a_value_that_its_native_carrier_cannot_hold_fails_and_names_the_override(
    every_type: str, name: str, value: str, found: str
) -> None:
    with client(every_type) as run:
        run("DROP TABLE IF EXISTS bad")
        run(f"CREATE TABLE bad AS SELECT x::{name} AS v FROM (VALUES (NULL), ('{value}')) q (x)")
    override = r"carriers: \{public\.bad\.v: text\}"
    with opened(every_type) as database:
        table = table_of(database, "bad")
        with pytest.raises(CarrierError, match=rf"public\.bad\.v \({table.columns[0].type[:4]}.*{found}.*{override}"):
            read(database, table)
        as_text = table_of(database, "bad", carriers={"v": Carrier.TEXT})
        assert read(database, as_text)["v"].to_pylist() == [None, value]


def source(name: str, kind: str = "b", schema: str = "pg_catalog") -> SourceType:
    return SourceType(name, schema, name, kind, -1, False, ("pg_catalog", f"{name}out"))


def test_only_builtin_types_are_native_and_pseudo_types_are_refused() -> None:
    assert carried(source("int4"), None, "c") == (NATIVE["int4"], Carrier.NATIVE)
    assert carried(source("int4", schema="public"), None, "c") == (pa.string(), Carrier.TEXT)
    with pytest.raises(PlanError, match=r"native carrier for column public\.t\.c, but interval has none"):
        carried(source("interval"), Carrier.NATIVE, "public.t.c")
    with pytest.raises(UnsupportedTypeError, match=r"public\.t\.c is of the pseudo-type anyarray"):
        carried(source("anyarray", "p"), None, "public.t.c")


def test_the_type_for_an_arrow_type_loses_nothing() -> None:
    assert {str(kind): type_for(kind) for kind in (pa.uint8(), pa.uint32(), pa.uint64(), pa.int8())} == {
        "uint8": "smallint",
        "uint32": "bigint",
        "uint64": "numeric(20,0)",
        "int8": "smallint",
    }
    assert type_for(pa.decimal128(38, 10)) == "numeric(38,10)"
    assert type_for(pa.decimal256(76, 0)) == "numeric(76,0)"
    assert type_for(pa.decimal128(3, -2)) == "numeric(5,0)"
    assert type_for(pa.decimal128(2, 5)) == "numeric(5,5)"
    assert type_for(pa.timestamp("ns", "UTC")) == type_for(pa.time64("ns")) == "text"
    assert type_for(pa.timestamp("ms")) == "timestamp without time zone"
    assert (type_for(pa.binary(16)), type_for(pa.binary(4))) == ("uuid", "bytea")
    assert type_for(pa.list_(pa.uint16())) == "integer[]"
    assert type_for(pa.list_(pa.list_(pa.int32()))) == "json"
    assert type_for(pa.struct([("a", pa.int32())])) == type_for(pa.map_(pa.string(), pa.int32())) == "json"
    with pytest.raises(UnsupportedTypeError, match="month_day_nano"):
        type_for(pa.month_day_nano_interval())
