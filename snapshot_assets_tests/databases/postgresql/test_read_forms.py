"""What is read is what the server prints, whatever form it is sent in: of tables and of queries, sorted or not."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.postgresql.read_forms import received, sent
from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import AllRows, Scan, Selection
from snapshot_assets.errors import CarrierError
from snapshot_assets.format.relations import Table
from snapshot_assets.testing.restores import read_scan
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, opened, read, table_of

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
EXACT = Context(prec=40)
ODD = st.sampled_from(["NaN", "Infinity", "-Infinity", "1e-16383", "9.9e131071", "-0.000", "1.10"])


def numbers(precision: int, scale: int) -> st.SearchStrategy[str]:
    """Return all values of numeric(precision, scale), the greatest and the smallest ones often."""
    extreme = 10**precision - 1
    unscaled = st.sampled_from([0, 1, -1, extreme, -extreme]) | st.integers(-extreme, extreme)
    return unscaled.map(lambda value: f"{value}e{-scale}")


def array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.none() | values, max_size=4).map(
        lambda items: (
            "{" + ",".join("NULL" if item is None else json.dumps(item, ensure_ascii=False) for item in items) + "}"
        )
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
)
PLAIN = st.text("abc ,{}ß€", max_size=12)
FORMS: dict[str, st.SearchStrategy[str]] = {
    "numeric(15,2)": numbers(15, 2),
    "numeric(18,18)": numbers(18, 18),
    "numeric(18,0)": numbers(18, 0),
    "numeric(1,0)": numbers(1, 0),
    "numeric(19,4)": numbers(19, 4),
    "numeric(38,10)": numbers(38, 10),
    "numeric(5,-2)": numbers(5, -2),
    "numeric(40,2)": numbers(40, 2),
    "numeric": numbers(40, 7) | ODD,
    "price": numbers(12, 2),
    "numeric(8,3)[]": array(numbers(8, 3)),
    "text[]": array(PLAIN),
    "mood": st.sampled_from(["sad", "so, so", "häppy"]),
    "uuid": st.uuids().map(str),
    "jsonb": JSON.map(lambda value: json.dumps(value).replace("\\u0000", "")),
    "inet": st.ip_addresses().map(str) | st.sampled_from(["10.1.2.3/8", "::ffff:1.2.3.4/64", "255.255.255.255"]),
    "cidr": st.sampled_from(["10.0.0.0/8", "::/0", "192.168.100.128/25"]),
    "interval": st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2, st.integers(-(2**62), 2**62)).map(
        lambda parts: f"{parts[0]} months {parts[1]} days {parts[2]} microseconds"
    ),
    "int4range": st.sampled_from(["empty", "(,)", "[-2147483648,2147483647)", "[1,2]"]),
    "timetz": st.sampled_from(["24:00:00+15:59", "00:00:00.000001-15:59"]),
    "money": st.integers(-(10**16), 10**16).map(str),
    '"char"': st.sampled_from(["", "a", "\\200"]),
    "bit varying(9)": st.text("01", max_size=9),
    "char(5)": st.text("ab ", max_size=5),
}
NAMES = {f"c{number}": name for number, name in enumerate(FORMS)}


@pytest.fixture(scope="module")
def forms(postgresql_module_database: str) -> tuple[Table, Table]:
    """One table with a column of every form, as such and as the rows of a query."""
    columns = ", ".join(f"{column} {name}" for column, name in NAMES.items())
    execute(
        postgresql_module_database,
        "CREATE DOMAIN price AS numeric(12,2)",
        "CREATE TYPE mood AS ENUM ('sad', 'so, so', 'häppy')",
        f"CREATE TABLE t (n int, {columns})",
    )
    with opened(postgresql_module_database) as database:
        [query] = database.extract(Selection(query=Query("q", "SELECT * FROM public.t"))).tables
        return table_of(database), query


def literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def printed(value: Any) -> str | None:
    """Return a value of a data file as the server prints it."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(UUID(bytes=value)) if isinstance(value, bytes) else value


@settings(max_examples=12)
@given(st.data())
def test_every_form_is_read_as_the_server_prints_it(
    postgresql_module_database: str, forms: tuple[Table, Table], data: st.DataObject
) -> None:
    uri, rows = postgresql_module_database, data.draw(st.integers(1, 6))
    drawn = [data.draw(st.lists(st.none() | v, min_size=rows, max_size=rows), label=n) for n, v in FORMS.items()]
    values = [f"({number}, {', '.join(map(literal, row))})" for number, row in enumerate(zip(*drawn, strict=True))]
    execute(uri, "TRUNCATE t", f"INSERT INTO t VALUES {', '.join(values)}")
    # A domain's and an array's text is that of its output function; format() calls it, and no cast does.
    outputs = ", ".join(f"CASE WHEN {column} IS NOT NULL THEN format('%s', {column}) END" for column in NAMES)
    with client(uri) as run:
        expected = run(f"SELECT n, {outputs} FROM t ORDER BY n")
    for table in forms:
        for order in ((), ("c0", "c8", "c11", "c17")):
            with opened(uri) as database:
                found = read_scan(database, Scan(table, AllRows(), order_by=order)).sort_by("n")
            for number, (column, name) in enumerate(NAMES.items()):
                texts = [printed(value) for value in found[column].to_pylist()]
                assert (name, texts) == (name, [row[number + 1] for row in expected])


@pytest.mark.parametrize("kind", ["numeric(15,2)", "numeric(18,0)", "numeric(30,2)", "price"])
def test_not_a_number_names_its_column(postgresql_module_database: str, forms: tuple[Table, Table], kind: str) -> None:
    uri = postgresql_module_database
    execute(uri, "DROP TABLE IF EXISTS odd", f"CREATE TABLE odd AS SELECT 1.5::{kind} AS fine, 'NaN'::{kind} AS v")
    with opened(uri) as database, pytest.raises(CarrierError, match=r"odd\.v.*NaN.*carriers: \{public\.odd\.v: text\}"):
        read(database, table_of(database, "odd"))


def test_a_number_beyond_its_declared_digits_is_refused(postgresql_module_database: str) -> None:
    """A catalog that was changed by hand declares fewer digits than the rows have."""
    uri = postgresql_module_database
    for name, stored in {"scale": "numeric(15,3)", "precision": "numeric(9,2)", "whole": "numeric(9,1)"}.items():
        execute(uri, f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} AS SELECT 1234567.1::{stored} AS v")
        modifier = {"scale": (15 << 16) + 2, "precision": (5 << 16) + 2, "whole": 9 << 16}[name] + 4
        execute(
            uri,
            f"UPDATE pg_attribute SET atttypmod = {modifier} WHERE attrelid = '{name}'::regclass AND attname = 'v'",
        )
        with opened(uri) as database:
            table = table_of(database, name)
            if name == "scale":  # its last digit is zero: Arrow's cast finds the same number
                assert read(database, table)["v"].to_pylist() == [Decimal("1234567.10")]
                continue
            with pytest.raises(CarrierError, match="another precision"):
                read(database, table)


@settings(max_examples=60)
@given(st.data())
def test_decimals_are_parsed_as_python_parses_them(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    unscaled = data.draw(st.lists(st.none() | st.integers(1 - 10**precision, 10**precision - 1), max_size=9))
    values = [None if value is None else Decimal(value).scaleb(-scale, EXACT) for value in unscaled]
    texts = pa.array([None if value is None else f"{value:.{scale}f}".encode() for value in values], pa.binary())
    kind = pa.decimal128(precision, scale)
    for array in (texts, texts[1:], texts.view(pa.string())):
        found = received(array, kind)
        found.validate(full=True)
        assert found.equals(pa.array(values[len(values) - len(array) :], kind))


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "1.234", "12345.67", "x.50", "1..50", "", ".", "1", "0x1.00"])
def test_a_text_that_is_no_number_of_the_type_is_never_another_number(wrong: str) -> None:
    kind = pa.decimal128(5, 2)
    for texts in ([wrong], ["1.50", wrong], [wrong, "1.50"], [None, wrong]):
        try:
            found = received(pa.array(texts), kind)
        except pa.ArrowInvalid:
            continue
        assert wrong in ("1", "."), wrong
        assert found.to_pylist()[texts.index(wrong)] == Decimal({"1": "1.00", ".": "0.00"}[wrong])


def test_only_texts_of_output_functions_are_sent_otherwise() -> None:
    assert sent('pg_catalog.textin("pg_catalog"."numeric_out"("n"))') == '"pg_catalog"."numeric_out"("n")'
    assert sent('"pg_catalog.textin(a)"') == '"pg_catalog.textin(a)"'
    assert sent('"a"::pg_catalog.text') == '"a"::pg_catalog.text'
