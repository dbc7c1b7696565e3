"""DuckDB passes the suites of sources and targets."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import duckdb
import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.testing.example import ExampleDatabase, TimeType
from snapshot_assets.testing.source_suite import SourceSuite
from snapshot_assets.testing.target_suite import TargetSuite
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import fresh


class ExampleFile(ExampleDatabase):
    """A database file in a folder of its own."""

    schema = "main"
    times = (
        TimeType("TIMESTAMP", infinite=("'infinity'", "'-infinity'")),
        *(TimeType(kind) for kind in ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")),
        TimeType("TIMESTAMP WITH TIME ZONE", zoned=True, infinite=("'infinity'", "'-infinity'")),
        TimeType("DATE", infinite=("'infinity'", "'-infinity'")),
    )
    midnights = "DATE"
    counts_rows = False
    locked_while_read = duckdb.Error
    types: ClassVar = {
        "BOOLEAN": [("true", True), ("false", False)],
        "BIGINT": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
        "DOUBLE": [("'-0.0'", -0.0), ("'nan'", float("nan")), ("5e-324", 5e-324)],
        "DECIMAL(38,10)": [("'-0.0000000001'", Decimal("-1E-10")), ("1.5", Decimal("1.5000000000"))],
        "VARCHAR": [("''", ""), ("'größe 🦆'", "größe 🦆"), ("'NULL'", "NULL")],
        "BLOB": [("'\\x00\\xFF'::BLOB", b"\x00\xff")],
        "DATE": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
        "TIMESTAMP": [("'1969-12-31 23:59:59.999999'", datetime(1969, 12, 31, 23, 59, 59, 999999))],
        "INTEGER[]": [("[]", []), ("[1, NULL]", [1, None])],
        "HUGEINT": [(f"'{2**127 - 1}'", str(2**127 - 1))],
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = make_file(folder / "example.duckdb")

    @property
    def address(self) -> DatabaseAddress:
        return self._address

    def another(self) -> DatabaseAddress:
        return fresh(self._folder, "another")

    def execute(self, *statements: str) -> None:
        with duckdb.connect(path_of(self._address)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for statement in statements:
                connection.execute(statement)

    def numbers(self, count: int) -> str:
        return f"(SELECT range AS i FROM range(1, {count + 1})) n"


@pytest.fixture
def example(tmp_path: Path) -> ExampleFile:
    return ExampleFile(tmp_path)


class TestSource(SourceSuite):
    """DuckDB as a source."""


class TestTarget(TargetSuite):
    """DuckDB as a target."""
