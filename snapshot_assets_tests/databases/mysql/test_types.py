"""Any values of every type with a native carrier are read exactly."""

from __future__ import annotations

import decimal
import struct
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.mysql.session import MysqlConnection
from snapshot_assets.databases.mysql.types import ColumnType
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Carrier
from snapshot_assets_tests.databases.mysql.helpers import table_of, values_of

FIRST, LAST = datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7)
# No surrogates, which are no characters. MySQL's strings may hold NUL.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
LATIN1 = st.text(st.sampled_from("aäß€'\"\\\0\n\t, "), max_size=50)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False).map(lambda x: x + 0.0)  # no -0.0
SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(lambda x: x + 0.0)


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(1 << bits - 1) if signed else 0
    return st.integers(low, low + (1 << bits) - 1)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    return integers_of_digits(digits).map(lambda n: Decimal(n).scaleb(-scale, _CONTEXT))


def integers_of_digits(digits: int) -> st.SearchStrategy[int]:
    return st.integers(-(10**digits) + 1, 10**digits - 1)


_CONTEXT = decimal.Context(prec=80)

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": integers(8),
    "tinyint unsigned": integers(8, signed=False),
    "smallint": integers(16),
    "mediumint": integers(24),
    "mediumint unsigned": integers(24, signed=False),
    "int": integers(32),
    "int unsigned": integers(32, signed=False),
    "bigint": integers(64),
    "bigint unsigned zerofill": integers(64, signed=False),
    "bit(1)": integers(1, signed=False),
    "bit(64)": integers(64, signed=False),
    "float": SINGLES,
    "double": FLOATS,
    "decimal(38,38)": decimals(38, 38),
    "decimal(38,0)": decimals(38, 0),
    "decimal(20,5) unsigned": decimals(20, 5).map(abs),
    "year": st.sampled_from([0, 1901, 2000, 2155]),
    "date": st.dates(),
    "datetime": st.datetimes().map(lambda x: x.replace(microsecond=0, fold=0)),
    "datetime(3)": st.datetimes().map(lambda x: x.replace(microsecond=x.microsecond // 1000 * 1000, fold=0)),
    "datetime(6)": st.datetimes().map(lambda x: x.replace(fold=0)),
    "timestamp(6) NULL": st.datetimes(FIRST, LAST).map(lambda x: x.replace(tzinfo=UTC, fold=0)),
    "varchar(300) CHARACTER SET utf8mb4": TEXTS,
    "longtext CHARACTER SET utf16": TEXTS,
    "varchar(50) CHARACTER SET latin1 COLLATE latin1_german2_ci": LATIN1,
    "varbinary(300)": st.binary(max_size=300),
    "longblob": st.binary(max_size=70_000),
    "enum('a','b,''c','\\','') CHARACTER SET utf8mb4": st.sampled_from(["a", "b,'c", "\\", ""]),
}


def literal_of(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'" if value else "''"
    if isinstance(value, str):
        return f"CONVERT(x'{value.encode().hex()}' USING utf8mb4)"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None)}'"
    return f"'{value}'" if isinstance(value, date) else f"{value:f}" if isinstance(value, Decimal) else repr(value)


@pytest.mark.parametrize("kind", COLUMNS)
def test_any_values_are_read_exactly(mariadb_database: str, kind: str) -> None:
    with closing(MysqlConnection(DatabaseAddress("shop", mariadb_database))) as connection:
        connection.execute(f"CREATE TABLE t (id int, c {kind})", "preparing")

        @settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.none() | COLUMNS[kind], min_size=1, max_size=30))
        def check(values: list[Any]) -> None:
            rows = ", ".join(f"({n}, {literal_of(value)})" for n, value in enumerate(values))
            connection.execute("DELETE FROM t", "preparing")
            connection.execute(f"INSERT INTO t VALUES {rows}", "preparing")
            read = values_of(mariadb_database, table_of(mariadb_database), order_by=("id",))["c"]
            utc = [value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value for value in read]
            assert list(map(repr, utc)) == list(map(repr, values))

        check()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("float", "0.1", "0.10000000149011612"),
        ("bit(10)", "b'1000000001'", "513"),
        ("datetime(2)", "'2024-00-00 01:02:03.04'", "2024-00-00 01:02:03.04"),
        ("date", "'0000-00-00'", "0000-00-00"),
        ("year", "0", "0000"),
        ("double", "-1.5e300", "-1.5e+300"),
        ("time(2)", "'-838:59:59.01'", "-838:59:59.01"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ],
)
def test_a_plan_may_have_the_text_of_a_value(mariadb_database: str, kind: str, value: str, text: str) -> None:
    with closing(MysqlConnection(DatabaseAddress("shop", mariadb_database))) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 1 AS id, CAST({value} AS CHAR) AS x", "preparing")
        connection.execute(f"ALTER TABLE t ADD c {kind}", "preparing")
        connection.execute(f"UPDATE t SET c = {value}", "preparing")
    table = table_of(mariadb_database, carriers={"c": Carrier.TEXT})
    assert values_of(mariadb_database, table)["c"] == [text]


@pytest.mark.parametrize(("kind", "wanted"), [("time(6)", Carrier.NATIVE), ("blob", Carrier.TEXT)])
def test_a_carrier_that_holds_not_all_values_is_refused(kind: str, wanted: Carrier) -> None:
    with pytest.raises(PlanError, match=f"column 's.t.c' of type .* {wanted.value}".replace("'", "")):
        ColumnType(kind).carry(wanted, "s.t.c")


def test_a_single_float_has_all_its_bits(mariadb_database: str) -> None:
    bits = [1, 0x007FFFFF, 0x00800000, 0x3DCCCCCD, 0x7F7FFFFF]
    values = [struct.unpack("<f", struct.pack("<I", each))[0] for each in bits]
    with closing(MysqlConnection(DatabaseAddress("shop", mariadb_database))) as connection:
        connection.execute("CREATE TABLE t (c float)", "preparing")
        connection.execute(f"INSERT INTO t VALUES {', '.join(f'({each!r})' for each in values)}", "preparing")
    assert values_of(mariadb_database, table_of(mariadb_database))["c"] == values
