from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.duckdb import define
from snapshot_assets.databases.duckdb.types import LEAVES, REFUSED, carry
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import CarrierError, PlanError, UnsupportedTypeError
from snapshot_assets.format.arrow_types import parse_arrow_type
from snapshot_assets.format.relations import Carrier, Column, DatabaseSchema, Table, TableName
from snapshot_assets.testing.restores import entry, make, record_of, target
from snapshot_assets_tests.databases.duckdb.files import MAIN_T, documented, make_file, opened, path_of, rows_of
from snapshot_assets_tests.databases.duckdb.shop import fresh

NATIVE, TEXT = Carrier.NATIVE, Carrier.TEXT

STAMPS = [
    "1970-01-01",
    "1969-12-31 23:59:59",
    "0001-01-01",
    "9999-12-31 23:59:59",
    "44-03-15 (BC)",
    "290309-12-22 (BC)",
]
FLOATS = ["0", "-0.0", "1.5", "0.1", "'nan'", "'inf'", "'-inf'"]
TEXTS = ["''", "'NULL'", "'null'", "'a''b\"c\\d'", "'[1, 2]'", "' x '", "chr(0)", "'héé 🦆'", "repeat('x', 70000)"]

CASES: dict[str, tuple[Carrier, str, list[str]]] = {
    "BOOLEAN": (NATIVE, "bool", ["true", "false"]),
    "TINYINT": (NATIVE, "int8", ["-128", "127"]),
    "SMALLINT": (NATIVE, "int16", ["-32768", "32767"]),
    "INTEGER": (NATIVE, "int32", ["-2147483648", "2147483647"]),
    "BIGINT": (NATIVE, "int64", ["-9223372036854775808", "9223372036854775807"]),
    "UTINYINT": (NATIVE, "uint8", ["0", "255"]),
    "USMALLINT": (NATIVE, "uint16", ["65535"]),
    "UINTEGER": (NATIVE, "uint32", ["4294967295"]),
    "UBIGINT": (NATIVE, "uint64", ["18446744073709551615"]),
    "HUGEINT": (TEXT, "string", [f"'{-(2**127)}'", f"'{2**127 - 1}'", "0"]),
    "UHUGEINT": (TEXT, "string", [f"'{2**128 - 1}'", "0"]),
    "BIGNUM": (TEXT, "string", [f"'{10**300 + 7}'", f"'-{10**300 + 7}'", "0"]),
    "FLOAT": (NATIVE, "float", [*FLOATS, "'3.4028235e38'", "'1e-45'"]),
    "DOUBLE": (NATIVE, "double", [*FLOATS, "'1.7976931348623157e308'", "'5e-324'"]),
    "DECIMAL(4,1)": (NATIVE, "decimal128(4, 1)", ["999.9", "-999.9", "0"]),
    "DECIMAL(18,3)": (NATIVE, "decimal128(18, 3)", ["999999999999999.999", "-0.001"]),
    "DECIMAL(38,0)": (NATIVE, "decimal128(38, 0)", [f"'{10**38 - 1}'", f"'{1 - 10**38}'"]),
    "DECIMAL(38,38)": (NATIVE, "decimal128(38, 38)", ["'0." + "9" * 38 + "'", "'-0." + "0" * 37 + "1'"]),
    "VARCHAR": (NATIVE, "string", TEXTS),
    "JSON": (NATIVE, "string", ['\'{"b" : 1,  "a": [null, 1e400]}\'', "'null'", "'\"x\"'"]),
    "BLOB": (NATIVE, "binary", ["''", "'\\x00\\xFF\\x5C'", "'abc'"]),
    "BIT": (TEXT, "string", ["'0'", "'0001'", "'1'", f"'{'10' * 500}'"]),
    "UUID": (TEXT, "string", ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"]),
    "DATE": (NATIVE, "date32[day]", ["'1970-01-01'", "'5877642-06-25 (BC)'", "'5881580-07-10'", "'0001-01-01'"]),
    "TIME": (NATIVE, "time64[us]", ["'00:00:00'", "'23:59:59.999999'"]),
    "TIME_NS": (NATIVE, "time64[ns]", ["'00:00:00'", "'23:59:59.999999999'"]),
    "TIME WITH TIME ZONE": (
        TEXT,
        "string",
        ["'00:00:00+15:59:59'", "'23:59:59.999999-15:59:59'", "'24:00:00+00'", "'12:00:00+05:30'"],
    ),
    "TIMESTAMP_S": (NATIVE, "timestamp[ms]", [f"'{stamp}'" for stamp in STAMPS]),
    "TIMESTAMP_MS": (NATIVE, "timestamp[ms]", [*(f"'{stamp}'" for stamp in STAMPS), "'2024-01-01 00:00:00.999'"]),
    "TIMESTAMP": (
        NATIVE,
        "timestamp[us]",
        [*(f"'{stamp}'" for stamp in STAMPS), "'2024-01-01 00:00:00.999999'", "'294247-01-10 04:00:54.775806'"],
    ),
    "TIMESTAMP_NS": (NATIVE, "timestamp[ns]", ["'1677-09-22'", "'2262-04-11 23:47:16.854775806'", "'1970-01-01'"]),
    "TIMESTAMP WITH TIME ZONE": (
        NATIVE,
        "timestamp[us, tz=UTC]",
        [*(f"'{stamp}'" for stamp in STAMPS), "'2024-01-01 00:00:00.999999+05:30'"],
    ),
    "TIMESTAMPTZ_NS": (NATIVE, "timestamp[ns, tz=UTC]", ["'1677-09-22'", "'2262-04-11 23:47:16.854775806'"]),
    "INTERVAL": (
        TEXT,
        "string",
        [
            "'0 days'",
            "to_months(14) + to_days(-40) + to_microseconds(-90061000001)",
            "to_months(2147483647)",
            "to_days(-2147483648)",
            "to_microseconds(9223372036854775807)",
            "to_days(31)",
            "to_months(1)",
            "to_hours(25)",
        ],
    ),
    "ENUM('a', 'it''s', '')": (NATIVE, "string", ["'a'", "'it''s'", "''"]),
    "GEOMETRY": (
        NATIVE,
        "binary",
        ["'POINT (0.1 1e300)'", "'POINT EMPTY'", "'POINT ZM (1 2 3 -0.0)'", "'MULTIPOINT ((1 2), (3 4))'"],
    ),
    "GEOMETRY('OGC:CRS84')": (NATIVE, "binary", ["'POINT (7.0123456789012345 51)'"]),
    '"NULL"': (NATIVE, "null", ["NULL"]),
    "INTEGER[]": (NATIVE, "list<int32>", ["[]", "[1, NULL, 3]"]),
    "VARCHAR[][]": (NATIVE, "list<list<string>>", ["[[], NULL, ['', NULL, 'NULL', '[a, b]']]"]),
    "INTEGER[3]": (NATIVE, "list<int32>", ["[1, NULL, 3]"]),
    "DOUBLE[2][2]": (NATIVE, "list<list<double>>", ["[['nan', '-0.0'], ['inf', '0.1']]"]),
    "UUID[]": (TEXT, "list<string>", ["[uuid(), NULL]", "[]"]),
    'STRUCT(a INTEGER, "b ""c, d" VARCHAR)': (
        NATIVE,
        'struct<"a": int32, "b ""c, d": string>',
        ["row(1, 'x, y: z')", "row(NULL, NULL)"],
    ),
    "STRUCT(u UUID, l STRUCT(h HUGEINT, s TIMESTAMP_S)[])": (
        TEXT,
        'struct<"u": string, "l": list<struct<"h": string, "s": timestamp[ms]>>>',
        [f"row(uuid(), [row({2**126}, '2024-01-01'), NULL])", "row(NULL, [])"],
    ),
    "TUPLE(INTEGER, UUID)": (
        TEXT,
        'struct<"element1": int32, "element2": string>',
        ["row(1, uuid())", "row(NULL, NULL)"],
    ),
    "MAP(VARCHAR, INTEGER)": (NATIVE, "map<string, int32>", ["MAP {'': 1, 'b=c': NULL}", "MAP {}"]),
    "MAP(INTEGER, STRUCT(t TIME, e ENUM('x', 'y'))[])": (
        NATIVE,
        'map<int32, list<struct<"t": time64[us], "e": string>>>',
        ["MAP {2: [row('12:00:00.000001', 'y')], 1: NULL}"],
    ),
    "UNION(i INTEGER, s VARCHAR)": (
        TEXT,
        "string",
        [
            "union_value(i := 1)",
            "union_value(s := '1')",
            "union_value(s := NULL::VARCHAR)",
            "union_value(i := NULL::INTEGER)",
        ],
    ),
    "UNION(b BLOB, d DOUBLE, t TIMESTAMP, n VARCHAR, l UUID[], g GEOMETRY)[]": (
        TEXT,
        "string",
        [
            "[union_value(b := '\\x00\\xFF\\x22'::BLOB)]",
            "[union_value(d := 'nan'::DOUBLE), union_value(d := 0.1::DOUBLE), union_value(d := '-inf'::DOUBLE)]",
            "[union_value(t := 'infinity'::TIMESTAMP), NULL]",
            "[union_value(n := 'q\"\\'), union_value(n := chr(0)), union_value(n := 'null')]",
            "[union_value(l := [uuid(), NULL])]",
            "[union_value(g := 'POINT (1 2.3333333333333335)'::GEOMETRY)]",
        ],
    ),
}


VALUES = {kind: values for kind, (_, _, values) in CASES.items()}
UNTIMED = {MAIN_T: None}


def make_table(path: Path, cases: dict[str, list[str]]) -> DatabaseAddress:
    """Make a table `t` with an id and a column c0, c1, … for each type; short columns are filled up with NULL."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(cases))
    rows = [*zip_longest(*cases.values(), fillvalue="NULL"), ["NULL"] * len(cases)]
    inserts = [f"INSERT INTO t VALUES ({id_}, {', '.join(row)})" for id_, row in enumerate(rows)]
    return make_file(path, "BEGIN", f"CREATE TABLE t (id INTEGER, {columns})", *inserts, "COMMIT")


def round_trip(origin: DatabaseAddress, folder: Path, override: Carrier | None = None) -> tuple[Table, list[str]]:
    """Return the document of `t`, and its columns that changed on the way through Parquet into a new file."""
    path, again = folder / "t.parquet", fresh(folder, f"copy_{override}")
    with opened(origin) as database:
        columns = documented(database, time_columns=UNTIMED).columns[1:]
        carriers = {(MAIN_T, column.name): override for column in columns if override}
        table = documented(database, time_columns=UNTIMED, carriers=carriers)
        pq.write_table(rows_of(database, table), path)
    definition = define(DatabaseSchema(database="duckdb", tables=(table,)))
    with target(again) as into:
        record = into.begin(record_of(definition), "")
        make(into, record, definition.before)
        into.load(entry(MAIN_T, record), definition.tables[0], pq.read_table(path).to_batches())
    with opened(again) as database:
        assert documented(database, time_columns=UNTIMED, carriers=carriers) == table
    return table, changed(origin, again, columns)


def changed(one: DatabaseAddress, other: DatabaseAddress, columns: Sequence[Column]) -> list[str]:
    """Return the columns of which a value, its text, or its member of a union differs between two files."""
    found = []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for side, address in (("one", one), ("other", other)):
            connection.execute(f"ATTACH '{path_of(address)}' AS {side} (READ_ONLY)")
        for column in columns:
            forms = [column.name, f"CAST({column.name} AS VARCHAR)"]
            if column.type.startswith("UNION") and not column.type.endswith("]"):
                forms.append(f"union_tag({column.name})")
            left, right = (f"SELECT id, {', '.join(forms)} FROM {side}.main.t" for side in ("one", "other"))
            query = f"(({left}) EXCEPT ALL ({right})) UNION ALL (({right}) EXCEPT ALL ({left}))"
            if connection.sql(query).fetchall():
                found.append(column.name)
    return found


@pytest.mark.parametrize("override", [None, TEXT])
def test_every_value_of_every_type_comes_back_exactly_in_either_carrier(
    tmp_path: Path, override: Carrier | None
) -> None:
    table, differing = round_trip(make_table(tmp_path / "t.duckdb", VALUES), tmp_path, override)
    assert differing == []
    for column, (kind, (carrier, arrow, _)) in zip(table.columns[1:], CASES.items(), strict=True):
        assert column.carrier is (override or carrier), kind
        assert override or column.arrow_type == arrow, kind


def test_every_type_of_duckdb_is_mapped_or_refused() -> None:
    with duckdb.connect() as connection:
        names = [name for (name,) in connection.sql("SELECT DISTINCT type_name FROM duckdb_types()").fetchall()]
        known = set(LEAVES) | set(REFUSED) | {"decimal"}
        nested = {"array", "enum", "list", "map", "row", "struct", "tuple", "union"}
        unknown = {
            name
            for name in names
            if name.lower() not in nested and connection.sql(f'SELECT NULL::"{name}" AS x').types[0].id not in known
        }
    assert unknown == set()


@pytest.mark.parametrize("kind", ["VARIANT", "STRUCT(a VARIANT)[]"])
def test_types_without_an_exact_carrier_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedTypeError, match="Parquet's variant") as caught, duckdb.connect() as connection:
        carry(connection.type(kind), None, "main.t.x")
    assert caught.value.attributes["column"] == "main.t.x"


def test_types_nested_deeper_than_documents_allow_are_refused() -> None:
    with duckdb.connect() as connection:
        deepest = carry(connection.type("INTEGER" + "[]" * 16), None, "main.t.x")
        assert str(deepest.arrow).count("list") == 16
        parse_arrow_type("list<" * 16 + "int32" + ">" * 16)
        with pytest.raises(UnsupportedTypeError, match="nested more than 16 deep"):
            carry(connection.type("INTEGER" + "[]" * 17), None, "main.t.x")


def test_a_native_carrier_cannot_be_asked_for_where_only_text_is_exact() -> None:
    with pytest.raises(PlanError, match=r"main\.t\.x of type HUGEINT"), duckdb.connect() as connection:
        carry(connection.type("HUGEINT"), NATIVE, "main.t.x")


UNFIT = [
    ("DATE", "'infinity'"),
    ("DATE", "'-infinity'"),
    *((kind, f"'{sign}infinity'") for kind in ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP") for sign in ("", "-")),
    ("TIMESTAMP_NS", "'infinity'"),
    ("TIMESTAMP WITH TIME ZONE", "'-infinity'"),
    ("TIMESTAMPTZ_NS", "'infinity'"),
    ("TIME", "'24:00:00'"),
    ("TIME_NS", "'24:00:00'"),
    ("DATE[]", "['2024-01-01', 'infinity']"),
    ("MAP(INTEGER, STRUCT(a TIMESTAMP[2]))", "MAP {1: row(['2024-01-01', '-infinity'])}"),
    ("MAP(DATE, INTEGER)", "MAP {DATE 'infinity': 1}"),
]


def test_values_that_arrow_cannot_hold_fail_and_travel_as_text_by_the_override(tmp_path: Path) -> None:
    statements = []
    for number, (kind, value) in enumerate(UNFIT):
        statements += [f"CREATE TABLE t{number} (x {kind})", f"INSERT INTO t{number} VALUES ({value})"]
    with opened(make_file(tmp_path / "each.duckdb", *statements)) as database:
        for number in range(len(UNFIT)):
            name = TableName("main", f"t{number}")
            table = documented(database, name, tables=(name,), time_columns={name: None})
            with pytest.raises(CarrierError, match=rf"`carriers: \{{main\.t{number}\.x: text\}}`"):
                rows_of(database, table)
    cases = {kind: [value for each, value in UNFIT if each == kind] for kind, _ in UNFIT}
    assert round_trip(make_table(tmp_path / "t.duckdb", cases), tmp_path, TEXT)[1] == []


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS: dict[str, st.SearchStrategy[object]] = {
    "VARCHAR": ANY_TEXT,
    "BLOB": st.binary(max_size=20),
    "DOUBLE": st.floats(),
    "HUGEINT": st.integers(-(2**127), 2**127 - 1).map(str),
    "BIGNUM": st.integers(-(10**200), 10**200).map(str),
    "DECIMAL(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "TIMESTAMP": st.datetimes(),
    "TIMESTAMP WITH TIME ZONE": st.datetimes(timezones=st.just(dt.UTC)),
    "DATE": st.dates(),
    "TIME": st.times(),
    "INTERVAL": st.builds(
        "{} months {} days {} microseconds".format,
        st.integers(-(2**31) + 1, 2**31 - 1),
        st.integers(-(2**31) + 1, 2**31 - 1),
        st.integers(-(2**62), 2**62),
    ),
    "BIT": st.text("01", min_size=1),
    "UUID": st.uuids(),
    "UNION(s VARCHAR, b BLOB)": ANY_TEXT,
    "VARCHAR[]": st.lists(st.none() | ANY_TEXT, max_size=4),
    "STRUCT(a VARCHAR, b UNION(i INTEGER, s VARCHAR))": st.fixed_dictionaries({"a": ANY_TEXT, "b": ANY_TEXT}),
}


@settings(max_examples=3)
@given(rows=st.lists(st.tuples(*SCALARS.values()), max_size=10))
def test_any_value_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    origin = make_table(folder / "t.duckdb", {kind: [] for kind in SCALARS})
    with duckdb.connect(path_of(origin)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        values = ", ".join(f"CAST(? AS {kind})" for kind in SCALARS)
        for id_, row in enumerate(rows, 1):
            connection.execute(f"INSERT INTO t VALUES ({id_}, {values})", row)
    for override in (None, TEXT):
        assert round_trip(origin, folder, override)[1] == []
