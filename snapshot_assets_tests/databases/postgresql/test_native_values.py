"""Native carriers return every Arrow value that was loaded, and the server prints it as text."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.postgresql.types import NATIVE
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, load, opened, read, table_of

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
FLOATS4 = st.floats(width=32, allow_nan=False)
FLOATS8 = st.floats(allow_nan=False)

CASES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], str]]] = {
    "bool": (NATIVE["bool"], st.booleans(), lambda value: "t" if value else "f"),
    "int2": (NATIVE["int2"], st.integers(-(2**15), 2**15 - 1), str),
    "int4": (NATIVE["int4"], st.integers(-(2**31), 2**31 - 1), str),
    "int8": (NATIVE["int8"], st.integers(-(2**63), 2**63 - 1), str),
    "text": (NATIVE["text"], TEXTS, str),
    "bpchar": (NATIVE["bpchar"], TEXTS, str),
    "json": (NATIVE["json"], TEXTS.map(lambda text: '"' + "".join(filter(str.isalnum, text)) + '" '), str),
    "bytea": (NATIVE["bytea"], st.binary(max_size=40), lambda value: "\\x" + value.hex()),
    "uuid": (NATIVE["uuid"], st.uuids().map(lambda value: value.bytes), lambda value: str(UUID(bytes=value))),
    "date": (NATIVE["date"], st.dates(), date.isoformat),
    "time": (NATIVE["time"], st.times(), lambda value: plain(time.isoformat(value))),
    "timestamp": (NATIVE["timestamp"], st.datetimes(), lambda value: plain(datetime.isoformat(value, " "))),
    "timestamptz": (
        NATIVE["timestamptz"],
        st.datetimes(),
        lambda value: plain(value.replace(tzinfo=None).isoformat(" ")) + "+00",
    ),
    "numeric(38,0)": (pa.decimal128(38, 0), st.integers(1 - 10**38, 10**38 - 1).map(Decimal), lambda v: f"{v:f}"),
    "numeric(20,7)": (
        pa.decimal128(20, 7),
        st.integers(1 - 10**20, 10**20 - 1).map(lambda value: Decimal(value).scaleb(-7)),
        lambda value: f"{value:.7f}",
    ),
    "float4": (NATIVE["float4"], FLOATS4, lambda value: value),
    "float8": (NATIVE["float8"], FLOATS8, lambda value: value),
}


def plain(text: str) -> str:
    """Return an ISO time without the zeros that PostgreSQL leaves out."""
    return text.rstrip("0").rstrip(".") if "." in text else text


@pytest.fixture(scope="module")
def documents(postgresql_module_database: str) -> tuple[Table, Table]:
    """One table of all native types, to be read natively and as text."""
    with client(postgresql_module_database) as run:
        run("CREATE TABLE t (" + ", ".join(f"c{number} {name}" for number, name in enumerate(CASES)) + ")")
    text = {f"c{number}": Carrier.TEXT for number in range(len(CASES))}
    with opened(postgresql_module_database) as database:
        return table_of(database), table_of(database, carriers=text)


@settings(max_examples=8)
@given(st.data())
def test_a_native_value_is_the_servers_value(
    postgresql_module_database: str, documents: tuple[Table, Table], data: st.DataObject
) -> None:
    uri = postgresql_module_database
    rows = data.draw(st.integers(1, 5))
    columns = [
        pa.array(data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows), label=name), arrow_type)
        for name, (arrow_type, values, _) in CASES.items()
    ]
    given_rows = pa.table(columns, names=[f"c{number}" for number in range(len(CASES))])
    execute(uri, "DELETE FROM t")
    load(uri, documents[0], given_rows, "t")
    with opened(uri) as database:
        scanned, printed = (read(database, table) for table in documents)
    file = io.BytesIO()
    pq.write_table(scanned, file)
    assert pq.read_table(file).equals(given_rows)
    for number, (name, (_, _, printed_form)) in enumerate(CASES.items()):
        expected = [None if value is None else printed_form(value) for value in given_rows[f"c{number}"].to_pylist()]
        text = printed[f"c{number}"]
        assert (name, (text.cast(given_rows[f"c{number}"].type) if "float" in name else text).to_pylist()) == (
            name,
            expected,
        )
