"""Values of the binary protocol are those that the driver reads as text, whichever of them are NULL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pytest
from pymysql.constants import FIELD_TYPE

from snapshot_assets.databases.mysql.binary_rows import SPARE, NoDateError, Rows
from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets_tests.databases.mysql.helpers import large_packets
from snapshot_assets_tests.servers.mariadb import MariadbServer

VALUES = {
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("0", "65535"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("0", "16777215"),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("0", "4294967295"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("0", "18446744073709551615"),
    "year": ("0", "2155"),
    "double": ("-1.7976931348623157e308", "4.9e-320"),
    "decimal(65,30)": ("-12345678901234567890123456789012345.000000000000000000000000000001", "1"),
    "decimal(18,0)": ("-999999999999999999", "0"),
    "decimal(18,18)": ("-0.999999999999999999", "0.000000000000000001"),
    "decimal(18,9) unsigned": ("0", "999999999.999999999"),
    "decimal(12,2) zerofill": ("0.01", "1234567890.12"),
    "date": ("'0001-01-01'", "'9999-12-31'"),
    "datetime": ("'2024-02-29 00:00:00'", "'1969-12-31 23:59:59'"),
    "datetime(6)": ("'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"),
    "timestamp(3)": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999'"),
    "varchar(300)": ("''", "REPEAT('ö', 300)"),
    "longblob": ("X'00FBFCFDFEFF'", "REPEAT('x', 70000)"),
    "json": ("'[]'", "'{\"a\": null}'"),
    "uuid": ("'00000000-0000-0000-0000-000000000001'", "UUID()"),
}


@pytest.fixture
def session(mariadb_server: MariadbServer) -> Iterator[MysqlSession]:
    with closing(MysqlSession(DatabaseAddress("shop", mariadb_server.uri("mysql")))) as opened:
        yield opened


class Field(NamedTuple):
    """A column, as the driver describes it."""

    type_code: int
    scale: int
    length: int
    flags: int = 0


def as_text(value: bytes | Decimal) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def read(session: MysqlSession, sql: str) -> list[pa.Array]:
    with session.stream(sql, "reading") as chunks:
        return [pa.chunked_array(parts).combine_chunks() for parts in zip(*chunks, strict=True)]


def test_each_value_is_that_of_the_text_protocol(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    columns = [f"c{number}" for number in range(len(VALUES))]
    kinds = ", ".join(f"{name} {kind} NULL" for name, kind in zip(columns, VALUES, strict=True))
    ends = [[values[end] for values in VALUES.values()] for end in (0, 1)]
    # Each column is NULL once, between values; all are, and none is.
    rows = [[*ends[n % 2][:n], "NULL", *ends[n % 2][n + 1 :]] for n in range(len(VALUES))]
    rows += [*ends, ["NULL"] * len(VALUES), [value if n % 3 else "NULL" for n, value in enumerate(ends[1])]]
    inserted = ", ".join(f"({', '.join(row)})" for row in rows)
    fill = (f"CREATE TABLE t ({kinds})", f"INSERT INTO t VALUES {inserted}")
    mariadb_server.sql("SET time_zone = '+00:00'", *fill, database="shop")
    with closing(MysqlSession(DatabaseAddress("shop", mariadb_database))) as session:
        found = read(session, "SELECT * FROM t")
        expected = session.rows("SELECT * FROM t", "reading")
    for column, name, kind in zip(found, columns, VALUES, strict=True):
        values = [row[name] for row in expected]
        if pa.types.is_large_binary(column.type):
            values = [value if value is None or isinstance(value, bytes) else str(value).encode() for value in values]
        assert column.to_pylist() == values, kind


@pytest.mark.parametrize("scale", range(19))
def test_decimals_of_every_length_are_exact(session: MysqlSession, scale: int) -> None:
    digits = "LEFT('987654321012345678', 1 + seq % 18)"
    value = f"CAST(CONCAT(IF(seq % 5, '', '-'), {digits}, 'e-{scale}') AS DECIMAL(18, {scale}))"
    query = f"SELECT NULLIF({value}, 9) AS c FROM seq_0_to_999"
    [found] = read(session, query)
    assert found.type == pa.decimal128(18, scale)
    assert found.to_pylist() == [row["c"] for row in session.rows(query, "reading")]


def test_decimals_without_a_fixed_point_are_those_of_the_text_protocol(session: MysqlSession) -> None:
    query = "SELECT IF(seq % 2, 1.5, 22.25) AS a, 1 / seq AS b, LEAST(seq, 0.5) AS c, seq * 1.10 AS d FROM seq_1_to_99"
    for column, values in zip(
        read(session, query), zip(*map(dict.values, session.rows(query, "reading")), strict=True), strict=True
    ):
        assert [Decimal(each.decode()) if isinstance(each, bytes) else each for each in column.to_pylist()] == [*values]


def test_a_text_that_is_shorter_than_its_decimals_is_not_read_with_the_column_before() -> None:
    fields = [Field(FIELD_TYPE.VAR_STRING, 0, 100), Field(FIELD_TYPE.NEWDECIMAL, 2, 12)]
    payload = b"head" + b"\x00\x00" + b"\x09Acme Inc." + b"\x015" + SPARE
    assert Rows(payload, [4], fields).columns()[1].to_pylist() == [b"5"]


@pytest.mark.parametrize("kind", ["decimal(65,30)", "decimal(38,37)", "decimal(18,18)", "decimal(1)"])
def test_a_decimal_that_is_null_in_the_first_row_reads_nothing_before_it(
    mariadb_server: MariadbServer, mariadb_database: str, kind: str
) -> None:
    fill = "INSERT INTO t VALUES (NULL, NULL), (0.5, REPEAT('x', 17000000)), (NULL, NULL)"
    with large_packets(mariadb_server):
        mariadb_server.sql(f"CREATE TABLE t (d {kind}, x longtext)", fill, database="shop")
        with closing(MysqlSession(DatabaseAddress("shop", mariadb_database))) as session:
            [found] = read(session, "SELECT d FROM t LIMIT 1")
            assert found.to_pylist() == [None]
            with session.stream("SELECT * FROM t", "reading") as chunks:
                values = [value for columns in chunks for value in columns[0].to_pylist()]
            half = session.rows("SELECT d FROM t LIMIT 1 OFFSET 1", "reading")[0]["d"]
    assert [value if value is None else Decimal(as_text(value)) for value in values] == [None, half, None]


def test_each_day_of_the_calendar_is_read(session: MysqlSession) -> None:
    days = "SELECT '0001-01-01' + INTERVAL seq DAY AS day FROM seq_0_to_3652058"
    dates, times = read(session, f"SELECT CAST(day AS DATE), CAST(day AS DATETIME) FROM ({days}) t")
    first = pa.scalar(-719_162, pa.int32())
    assert dates.view(pa.int32()).equals(pa.array(range(first.as_py(), first.as_py() + 3_652_059), pa.int32()))
    assert times.equals(dates.cast(pa.timestamp("us")))


@pytest.mark.parametrize(
    "date", ["0000-00-00", "2024-00-01", "2024-01-00", "0000-01-01", "2023-02-29", "1900-02-29", "2024-04-31"]
)
@pytest.mark.parametrize("kind", ["date", "datetime(6)"])
def test_a_date_that_is_none_is_named(
    mariadb_server: MariadbServer, mariadb_database: str, date: str, kind: str
) -> None:
    mode = "SET sql_mode = 'ALLOW_INVALID_DATES'"
    fill = f"INSERT INTO t VALUES (1, '2024-02-29'), (2, NULL), (3, '{date}')"
    mariadb_server.sql(mode, f"CREATE TABLE t (n int, d {kind})", fill, database="shop")
    with closing(MysqlSession(DatabaseAddress("shop", mariadb_database))) as session:
        with pytest.raises(NoDateError, match="column 1 has a date that is none"):
            read(session, "SELECT n, d FROM t")
        assert read(session, "SELECT n FROM t WHERE n = 1")[0].to_pylist() == [1]
