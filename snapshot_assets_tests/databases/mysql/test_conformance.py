"""MariaDB passes the suites of sources and targets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import ClassVar

import pytest

from snapshot_assets.databases.mysql.session import SQL_MODE, MysqlConnection
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.testing.example import ExampleDatabase, TimeType
from snapshot_assets.testing.restores import source
from snapshot_assets.testing.source_suite import SourceSuite, read_ids
from snapshot_assets.testing.target_suite import TargetSuite
from snapshot_assets_tests.servers.mariadb import MariadbServer

ZERO = ("'0000-00-00 00:00:00'",)
PARTIAL = ("'0000-00-00'", "'2024-00-00'", "'2024-01-00'", "'0000-12-31'")


class ExampleServer(ExampleDatabase):
    """A database of a server."""

    schema = "shop"
    times = (
        TimeType("datetime(6)", infinite=PARTIAL),
        TimeType("datetime", infinite=PARTIAL),
        TimeType("timestamp(6) NULL", zoned=True, infinite=ZERO),
        TimeType("date", infinite=PARTIAL),
    )
    midnights = "date"
    counts_rows = True
    locked_while_read = None
    types: ClassVar = {
        "boolean": [("true", 1), ("false", 0), ("-128", -128)],
        "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
        "bigint unsigned zerofill": [("18446744073709551615", 2**64 - 1), ("0", 0)],
        "float": [("0.1", 0.10000000149011612), ("3.4028234e38", 3.4028234663852886e38)],
        "double": [
            ("5e-324", 5e-324),
            ("0.1", 0.1),
            ("1.7976931348623157e308", 1.7976931348623157e308),
        ],
        "decimal(38,10)": [("-0.0000000001", Decimal("-1E-10")), ("1.5", Decimal("1.5000000000"))],
        "decimal(65,30)": [("-1e-30", "-0.000000000000000000000000000001")],
        "bit(64)": [("b'1'", 1), ("18446744073709551615", 2**64 - 1)],
        "year": [("'0000'", 0), ("1901", 1901), ("2155", 2155)],
        "varchar(20)": [("''", ""), ("'größe 🦆'", "größe 🦆"), ("'NULL'", "NULL"), (r"'\ '", "\\ ")],
        "text CHARACTER SET utf16": [("'größe 🦆'", "größe 🦆")],
        "char(5) CHARACTER SET latin1": [("'€é'", "€é"), ("''", "")],
        "enum('a','b,c')": [("'b,c'", "b,c")],
        "set('a','b')": [("'b,a'", "a,b"), ("''", "")],
        "json": [("'{\"a\": [1.0, null]}'", '{"a": [1.0, null]}')],
        "binary(3)": [("x'00ff'", b"\x00\xff\x00")],
        "longblob": [("x'00ff'", b"\x00\xff"), ("''", b"")],
        "date": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
        "datetime(6)": [("'1969-12-31 23:59:59.999999'", datetime(1969, 12, 31, 23, 59, 59, 999999))],
        "time(6)": [("'-838:59:59.000001'", "-838:59:59.000001"), ("'838:59:59'", "838:59:59.000000")],
        "inet6": [("'::1'", "::1")],
        "uuid": [("'123e4567-e89b-12d3-a456-426614174000'", "123e4567-e89b-12d3-a456-426614174000")],
        "point": [("ST_GeomFromText('POINT(1 2)', 4326)", struct.pack("<IBIdd", 4326, 1, 1, 1.0, 2.0))],
    }

    def __init__(self, server: MariadbServer, second: MariadbServer) -> None:
        self._second = second
        self._address = DatabaseAddress("shop", server.create_database("shop"))

    @property
    def address(self) -> DatabaseAddress:
        return self._address

    def another(self) -> DatabaseAddress:
        return DatabaseAddress("shop", self._second.create_database("shop"))

    def execute(self, *statements: str) -> None:
        connection = MysqlConnection(self._address, {"sql_mode": f"'{SQL_MODE}'"})
        try:
            for statement in statements:
                # The zone of an instant is written as +00:00, which is that of the session.
                connection.execute(statement.replace("+00:00'", "'"), "preparing")
        finally:
            connection.close()

    def numbers(self, count: int) -> str:
        return f"(SELECT CAST(seq AS SIGNED) AS i FROM seq_1_to_{count}) n"


@pytest.fixture
def example(mariadb_server: MariadbServer, second_mariadb_server: MariadbServer) -> Iterator[ExampleServer]:
    yield ExampleServer(mariadb_server, second_mariadb_server)
    mariadb_server.drop_databases()
    second_mariadb_server.drop_databases()


class TestSource(SourceSuite):
    """MariaDB as a source."""

    def test_a_connection_reads_the_state_at_which_it_began(self, example: ExampleDatabase) -> None:
        example.execute(f"CREATE TABLE t AS SELECT i AS id FROM {example.numbers(10)}")
        with source(example.address) as database:
            example.execute("INSERT INTO t VALUES (11)", "DELETE FROM t WHERE id = 1")
            assert read_ids(database, self.table(database, example)) == list(range(1, 11))


class TestTarget(TargetSuite):
    """MariaDB as a target."""
