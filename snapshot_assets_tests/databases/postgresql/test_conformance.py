"""PostgreSQL passes the suites of sources and targets."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import ClassVar

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.testing.example import ExampleDatabase, TimeType
from snapshot_assets.testing.source_suite import SourceSuite
from snapshot_assets.testing.target_suite import TargetSuite
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

INFINITE = ("'infinity'", "'-infinity'")


class ExampleServer(ExampleDatabase):
    """A database of a server."""

    schema = "public"
    times = (
        TimeType("timestamp", infinite=INFINITE),
        TimeType("timestamptz", zoned=True, infinite=INFINITE),
        TimeType("date", infinite=INFINITE),
    )
    midnights = "date"
    counts_rows = True
    locked_while_read = None
    types: ClassVar = {
        "boolean": [("true", True), ("false", False)],
        "bigint": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
        "double precision": [("'-0'", -0.0), ("'NaN'", float("nan")), ("5e-324", 5e-324)],
        "numeric(38,10)": [("-0.0000000001", Decimal("-1E-10")), ("1.5", Decimal("1.5000000000"))],
        "text": [("''", ""), ("'größe 🦆'", "größe 🦆"), ("'NULL'", "NULL")],
        "bytea": [("'\\x00ff'", b"\x00\xff")],
        "date": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
        "timestamp": [("'1969-12-31 23:59:59.999999'", datetime(1969, 12, 31, 23, 59, 59, 999999))],
        "integer[]": [("'{}'", "{}"), ("'{1,NULL}'", "{1,NULL}")],
        "numeric": [("1e-200", "0." + "0" * 199 + "1")],
    }

    def __init__(self, make: MakeDatabase, *, copy: bool = True) -> None:
        self._make, self._copy = make, copy
        self._address = self.another()

    @property
    def address(self) -> DatabaseAddress:
        return self._address

    def another(self) -> DatabaseAddress:
        return DatabaseAddress("shop", self._make(), copy=self._copy)

    def execute(self, *statements: str) -> None:
        execute(self._address.uri, *statements)

    def numbers(self, count: int) -> str:
        return f"generate_series(1::bigint, {count}) AS n (i)"


@pytest.fixture
def example(make_postgresql_database: MakeDatabase) -> ExampleServer:
    return ExampleServer(make_postgresql_database)


class TestSource(SourceSuite):
    """PostgreSQL as a source."""


class TestSourceWithoutCopy(SourceSuite):
    """PostgreSQL as a source that is read by cursors."""

    @pytest.fixture
    def example(self, make_postgresql_database: MakeDatabase) -> ExampleServer:
        return ExampleServer(make_postgresql_database, copy=False)


class TestTarget(TargetSuite):
    """PostgreSQL as a target."""
