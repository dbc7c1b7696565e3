"""Values that are encoded for COPY are those that the server printed, whatever the type."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.postgresql.driver import refused, refused_types
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.postgresql.wire.arrays import arrays
from snapshot_assets.databases.postgresql.wire.texts import ENCODERS
from snapshot_assets.databases.postgresql.write_forms import Receiver
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, load, opened, read, table_of
from snapshot_assets_tests.databases.postgresql.values import TYPES

SCRIPT = """
CREATE SCHEMA IF NOT EXISTS "my types";
CREATE TYPE "my types".mood AS ENUM ('sad', 'größe', 'it''s, "so" {so}', 'NULL');
CREATE DOMAIN "my types".price AS numeric(12,4) CHECK (VALUE IS NULL OR VALUE > -1000000);
CREATE DOMAIN "my types".prices AS "my types".price[];
CREATE DOMAIN "my types".address AS inet NOT NULL DEFAULT '::1';
"""
TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=12)
NASTY = st.sampled_from(
    ["", "NULL", "null", " ", '"', "\\", '\\"', "\\\\", "{", "}", "{}", ",", "a b", '","', "[1:2]="]
)
DIGITS = st.integers(0, 10**45).map(str)


def numerics(whole: int, scale: int) -> st.SearchStrategy[str]:
    return st.integers(-(10 ** (whole + scale)) + 1, 10 ** (whole + scale) - 1).map(
        lambda value: (
            f"{'-' if value < 0 else ''}{abs(value) // 10**scale}.{abs(value) % 10**scale:0{scale}}"
            if scale
            else str(value)
        )
    )


def any_numerics() -> st.SearchStrategy[str]:
    exact = st.tuples(st.sampled_from(["", "-"]), DIGITS, st.none() | DIGITS.map(lambda digits: digits[::-1]))
    return st.sampled_from(["NaN", "Infinity", "-Infinity", "0", "0.000", "1e-30", "-1e70", "10000", "0.0001"]) | (
        exact.map(lambda each: each[0] + each[1] + (f".{each[2]}" if each[2] is not None else ""))
    )


INTERVALS = st.sampled_from(["infinity", "-infinity", "0", "-178000000 years", "1 mon -2 days +03:04:05.000006"]) | (
    st.tuples(*(st.integers(-(10**6), 10**6) for _ in range(3)), st.integers(-(10**15), 10**15)).map(
        lambda each: f"{each[0]} years {each[1]} mons {each[2]} days {each[3]} microseconds"
    )
)
INET = st.tuples(st.ip_addresses(v=4), st.integers(0, 32)) | st.tuples(st.ip_addresses(v=6), st.integers(0, 128))
JSON = st.sampled_from(['{"a": [1.10, null, "x, \\"y\\""], "b": {}}', "null", '"\\u00e9"', "[]", "1e3"])
CLOCK = st.times().map(str)
ZONES = st.tuples(st.sampled_from("+-"), st.integers(0, 15), st.integers(0, 59), st.integers(0, 59)).map(
    lambda each: f"{each[0]}{each[1]:02}:{each[2]:02}:{each[3]:02}"
)
MOODS = st.sampled_from(["sad", "größe", 'it\'s, "so" {so}', "NULL"])


def hexadecimal(count: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=count, max_size=count).map(bytes.hex)


SCALARS: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["t", "f"]),
    "smallint": st.integers(-(2**15), 2**15 - 1).map(str),
    "integer": st.integers(-(2**31), 2**31 - 1).map(str),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "real": st.floats(width=32).map(repr),
    "double precision": st.floats().map(repr),
    "numeric": any_numerics(),
    "numeric(15,2)": numerics(13, 2),
    "numeric(38,7)": numerics(31, 7),
    "numeric(38,0)": numerics(38, 0),
    "numeric(4,4)": numerics(0, 4),
    "numeric(60,20)": numerics(40, 20),
    "money": numerics(16, 2) | st.sampled_from(["-92233720368547758.08", "92233720368547758.07"]),
    "bit(11)": st.text("01", min_size=11, max_size=11),
    "bit varying": st.text("01", max_size=40),
    "text": TEXT | NASTY,
    "character varying(20)": TEXT | NASTY,
    "character(20)": TEXT | NASTY,
    "name": TEXT,
    "json": JSON,
    "jsonb": JSON,
    "jsonpath": st.sampled_from(["$", '$."a, b"[*] ? (@ > 1)']),
    "uuid": hexadecimal(16),
    "macaddr": hexadecimal(6),
    "macaddr8": hexadecimal(8),
    "inet": INET.map(lambda each: f"{each[0]}/{each[1]}"),
    "cidr": INET.map(lambda each: str(ipaddress.ip_network((each[0], each[1]), strict=False))),
    "interval": INTERVALS,
    "interval(0)": INTERVALS,
    "time without time zone": CLOCK,
    "time with time zone": st.tuples(CLOCK, ZONES).map("".join),
    '"my types".mood': MOODS,
    '"my types".price': numerics(5, 4),
    '"my types".address': st.ip_addresses().map(str),
}
ELEMENTS = {
    name: values
    for name, values in SCALARS.items()
    if name not in ("numeric(4,4)", "interval(0)", '"my types".address', "time without time zone")
}


def array_texts(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return arrays of up to three dimensions, some with lower bounds, some with NULLs."""
    element = st.none() | elements
    shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)
    filled = shapes.flatmap(
        lambda shape: st.tuples(
            st.just(shape),
            st.lists(element, min_size=product(shape), max_size=product(shape)),
            st.none() | st.lists(st.integers(-5, 5), min_size=len(shape), max_size=len(shape)),
        )
    )
    return st.just("{}") | filled.map(lambda each: bounded(each[0], each[2]) + nested(each[0], list(each[1])))


def product(shape: list[int]) -> int:
    total = 1
    for each in shape:
        total *= each
    return total


def bounded(shape: list[int], lower: list[int] | None) -> str:
    if lower is None:
        return ""
    return "".join(f"[{low}:{low + size - 1}]" for low, size in zip(lower, shape, strict=True)) + "="


def nested(shape: list[int], elements: list[str | None]) -> str:
    if len(shape) == 1:
        return "{" + ",".join(map(quoted, elements)) + "}"
    step = len(elements) // shape[0]
    return "{" + ",".join(nested(shape[1:], elements[at : at + step]) for at in range(0, len(elements), step)) + "}"


def quoted(element: str | None) -> str:
    if element is None:
        return "NULL"
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


COLUMNS = SCALARS | {f"{name}[]": array_texts(values) for name, values in ELEMENTS.items()}
COLUMNS['"my types".prices'] = array_texts(numerics(5, 4))


@pytest.fixture(scope="module")
def columns(postgresql_module_database: str) -> dict[str, str]:
    """The types by column of a table, `printed`, and of an equal one, `loaded`."""
    names = {f"c{number}": name for number, name in enumerate(COLUMNS)}
    definitions = ", ".join(f"{column} {name}" for column, name in names.items())
    statements = [each for each in SCRIPT.split("\n") if each]
    execute(
        postgresql_module_database,
        *statements,
        *(f"CREATE TABLE {t} (n int, {definitions})" for t in ("printed", "loaded")),
    )
    return names


# Shrinking seventy columns takes minutes.
@pytest.mark.slow
@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_each_value_is_loaded_as_the_server_printed_it(
    postgresql_module_database: str, columns: dict[str, str], data: st.DataObject
) -> None:
    uri = postgresql_module_database
    rows = data.draw(st.integers(1, 6))
    values = []
    for name in columns.values():
        missing = st.nothing() if "address" in name else st.none()
        values.append(data.draw(st.lists(missing | COLUMNS[name], min_size=rows, max_size=rows), label=name))
    cells = [["NULL" if value[row] is None else literal(value[row]) for value in values] for row in range(rows)]
    lines = ", ".join(f"({row}, {', '.join(each)})" for row, each in enumerate(cells))
    execute(uri, "TRUNCATE printed", f"INSERT INTO printed VALUES {lines}")
    expected = printed(uri, "printed", columns)
    for carriers in ({}, dict.fromkeys(columns, Carrier.TEXT)):
        with opened(uri) as database:
            table = table_of(database, "printed", carriers=carriers)
            scanned = read(database, table)
        execute(uri, "TRUNCATE loaded")
        load(uri, table, scanned, "loaded")
        found = printed(uri, "loaded", columns)
        differing = {name: (f, e) for name, f, e in zip(columns.values(), found, expected, strict=True) if f != e}
        assert not differing


def printed(uri: str, relation: str, columns: Iterable[str]) -> list[list[Any]]:
    """Return, for each column, the values as the server prints them."""
    names = list(columns)
    outputs = (f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END" for name in names)
    with client(uri) as run:
        run("SET search_path = ''")
        rows = run(f"SELECT {', '.join(outputs)} FROM public.{relation} ORDER BY n")
    return [[row[number] for row in rows] for number in range(len(names))]


def numeric_is_refused(uri: str) -> bool:
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        return "numeric" in refused_types(target)


def staged(uri: str, table: Table) -> set[str]:
    """Return the types of the columns that go through a staging table."""
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        forms = target._write_forms(table)
    return {column.type for column in table.columns if forms[column.name].value != identifier(column.name)}


def test_only_types_without_an_encoder_are_staged(every_type: str) -> None:
    with opened(every_type) as database:
        found = staged(every_type, table_of(database))
        as_text = staged(every_type, table_of(database, carriers={f"c{n}": Carrier.TEXT for n in range(len(TYPES))}))
    ranges = ("int4", "int8", "num", "date", "ts", "tstz")
    other = """
        "char" xid xid8 cid tid regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
        regprocedure regrole regtype aclitem pg_lsn pg_snapshot txid_snapshot tsvector tsquery point line lseg
        box path polygon circle public.pair public.pair[] public.good_pair public.float_range public.float_multirange
        public.vector(3)"""
    expected = {f"{name}{kind}" for name in ranges for kind in ("range", "multirange")} | set(other.split())
    expected.add("timestamp with time zone[]")
    if numeric_is_refused(every_type):
        expected |= {each for each in found if each.startswith("numeric") and not each.endswith("[]")}
        expected |= {"public.price", "public.dear"}
    assert found == expected
    times = {"date", "timestamp with time zone", "timestamp without time zone", "public.moment", "bytea"}
    assert as_text == expected | times | {"time without time zone", "time(0) without time zone"}


@pytest.fixture
def transaction(postgresql_database: str) -> Iterator[PostgresqlTarget]:
    target = PostgresqlTarget(DatabaseAddress("target", postgresql_database))
    with closing(target), target._transaction():
        yield target


def test_only_numeric_is_refused_and_only_by_newer_drivers(transaction: PostgresqlTarget) -> None:
    newer = tuple(map(int, version("adbc-driver-postgresql").split("."))) >= (1, 12)
    assert refused_types(transaction) == (["numeric"] if newer else [])


def test_what_the_driver_cannot_copy_is_refused_by_column_and_the_transaction_goes_on(
    transaction: PostgresqlTarget,
) -> None:
    nested = pa.struct([("a", pa.int32())])
    kinds = (pa.string(), nested, pa.binary(), nested)
    pairs = {name: (kind, Receiver("text")) for name, kind in zip("abcd", kinds, strict=True)}
    assert refused(transaction, pairs) == {"b", "d"}
    assert transaction.rows("SELECT 1 AS one", "going on") == [{"one": 1}]


def test_an_error_of_the_server_is_no_refusal_of_the_driver(postgresql_database: str) -> None:
    target = PostgresqlTarget(DatabaseAddress("target", postgresql_database))
    with closing(target), pytest.raises(DatabaseError, match="aclitem"), target._transaction():
        refused(target, {"a": (pa.binary(), Receiver("aclitem"))})


def test_extensions_types_are_received_as_their_function_says(postgresql_database: str) -> None:
    """The type has the function of text, as citext has, and a name that says nothing."""
    uri = postgresql_database
    execute(
        uri,
        "CREATE TYPE public.word",
        *(
            f"CREATE FUNCTION public.word_{name}({argument}) RETURNS {result} LANGUAGE internal IMMUTABLE STRICT"
            f" AS '{function}'"
            for name, argument, result, function in (
                ("in", "cstring", "public.word", "textin"),
                ("out", "public.word", "cstring", "textout"),
                ("recv", "internal", "public.word", "textrecv"),
                ("send", "public.word", "bytea", "textsend"),
            )
        ),
        "CREATE TYPE public.word (INPUT = public.word_in, OUTPUT = public.word_out, RECEIVE = public.word_recv,"
        " SEND = public.word_send, STORAGE = extended)",
        *(f"CREATE TABLE {name} (n int, w public.word, ws public.word[])" for name in "tu"),
        """INSERT INTO t VALUES (1, 'a "b"', '{x,"y z",NULL}'), (2, NULL, '{}')""",
    )
    with opened(uri) as database:
        table = table_of(database)
        scanned = read(database, table)
    assert staged(uri, table) == set()
    load(uri, table, scanned, "u")
    assert printed(uri, "u", ("w", "ws")) == printed(uri, "t", ("w", "ws"))


def test_a_column_that_the_target_lacks_is_named_by_the_server(postgresql_database: str) -> None:
    execute(postgresql_database, "CREATE TABLE t (a int, b inet)")
    with opened(postgresql_database) as database:
        table = table_of(database)
    execute(postgresql_database, "ALTER TABLE t DROP COLUMN b")
    with pytest.raises(Exception, match='column "b"'):
        load(postgresql_database, table, pa.table([[1], ["::1"]], schema=table.arrow_schema()), "t")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("inet_recv", "10.0.0"),
        ("inet_recv", "10.0.0.256"),
        ("inet_recv", "::x"),
        ("numeric_recv", "1x"),
        ("numeric_recv", "1.2.3"),
        ("interval_recv", "P1D"),
        ("interval_recv", "1 week"),
        ("uuid_recv", "00000000-0000-0000-0000-00000000000g"),
        ("macaddr_recv", "08:00:2b:01:02"),
        ("timetz_recv", "noon"),
        ("int4recv", "1.5"),
        *(("numeric_recv", text) for text in ("", "-", ".", "1.", ".5", "-.5", "1-")),
        ("inet_recv", "10.0.0/24"),
        ("inet_recv", "10.0.0.0.1"),
        ("uuid_recv", ""),
        ("interval_recv", "day"),
        ("varbit_recv", "10x1"),
        ("cash_recv", "$1"),
    ],
)
def test_a_text_that_no_output_function_prints_is_refused(function: str, text: str) -> None:
    with pytest.raises((ValueError, OSError)):
        ENCODERS[function](pa.array([text]))


def test_a_number_and_its_unit_stand_in_one_text() -> None:
    with pytest.raises(ValueError, match="not an interval"):
        ENCODERS["interval_recv"](pa.array(["5", "day"]))


@pytest.mark.parametrize("function", ["interval_recv", "array_recv"])
def test_infinite_intervals_are_refused_for_a_server_that_would_take_them_for_finite_ones(function: str) -> None:
    texts = pa.array(["1 day", "infinity"] if function == "interval_recv" else ["{1 day}", "{-infinity}"])
    encode = Receiver("interval", function, 1186, "interval_recv", server=160011).encoder
    assert encode is not None
    with pytest.raises(ValueError, match="from version 17 on"):
        encode(texts)
    assert len(encode(texts[:1])) == 1
    newer = Receiver("interval", function, 1186, "interval_recv", server=170000).encoder
    assert newer is not None
    assert len(newer(texts)) == 2


def test_arrays_are_encoded_in_slices() -> None:
    encode: Callable[[pa.Array], pa.Array] = ENCODERS["int4recv"]
    rows = ["{" + ",".join(map(str, range(row, row + 1000))) + "}" for row in range(1200)]
    texts = pa.array([*rows, None, "{}"])
    whole = arrays(texts, 23, encode)
    assert sum(map(len, rows)) > 2 << 20
    assert whole.to_pylist() == [
        value for row in range(len(texts)) for value in arrays(texts[row : row + 1], 23, encode).to_pylist()
    ]
    assert arrays(texts[:0], 23, encode).to_pylist() == []


@pytest.mark.parametrize(
    "text",
    ["", "1,2", "1,", "x{1}", "{1}x", "{1,2", "{1}}", "{1},{2}", "{1}{2}", "{1,,2}", "{,1}", "{{1}x,{2}}", "{x{1}}"],
)
def test_a_text_that_is_no_array_is_refused(text: str) -> None:
    encode: Callable[[pa.Array], pa.Array] = ENCODERS["int4recv"]
    with pytest.raises(ValueError, match="not an array"):
        arrays(pa.array(["{1}", text, "{2}"]), 23, encode)
