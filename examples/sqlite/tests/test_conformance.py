"""SQLite passes the suite of sources, and does what the suite does not ask."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import ClassVar

import pytest

from snapshot_assets.databases.open import kind_of, open_target
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.example import ExampleDatabase, TimeType
from snapshot_assets.testing.restores import read_scan, source
from snapshot_assets.testing.source_suite import SourceSuite

_NO_TIMES = ("'never'", "12", "'2024-01-02T10'")


class ExampleFile(ExampleDatabase):
    """A file in a folder of its own."""

    schema = "main"
    times = tuple(TimeType(each, infinite=_NO_TIMES) for each in ("TIMESTAMP", "DATETIME", "DATE"))
    midnights = "DATE"
    counts_rows = True
    locked_while_read = sqlite3.OperationalError
    types: ClassVar = {
        "INTEGER": [(str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)],
        "REAL": [("5e-324", 5e-324), ("9e999", float("inf")), ("0.1", 0.1)],
        "VARCHAR(20)": [("''", ""), ("'größe 🦆'", "größe 🦆"), ("'NULL'", "NULL")],
        "BLOB": [("x'00ff'", b"\x00\xff"), ("x''", b"")],
        "DATE": [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
        "TIMESTAMP": [
            ("'1969-12-31 23:59:59.999999'", datetime(1969, 12, 31, 23, 59, 59, 999999)),
            ("'2024-01-01'", datetime(2024, 1, 1)),
        ],
        "NUMERIC": [("0.1", "0.10000000000000001"), ("'abc'", "abc"), ("x'00ff'", "X'00FF'")],
    }

    def __init__(self, folder: Path) -> None:
        self._path = folder / "example.db"
        self.execute()

    @property
    def address(self) -> DatabaseAddress:
        return DatabaseAddress("example", f"sqlite://{self._path}")

    def another(self) -> DatabaseAddress:
        raise NotImplementedError  # only targets are asked for one

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=0)) as connection:
            for statement in statements:
                connection.execute(statement)

    def numbers(self, count: int) -> str:
        every = f"n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        return f"(WITH RECURSIVE {every} SELECT i FROM n) n"


@pytest.fixture
def example(tmp_path: Path) -> ExampleFile:
    return ExampleFile(tmp_path)


class TestSource(SourceSuite):
    """SQLite as a source."""


def test_it_is_a_source_only(example: ExampleFile) -> None:
    assert kind_of("sqlite:///a.db").title == "SQLite"
    with pytest.raises(UnknownSourceError, match="is a SQLite, into which nothing can be restored"):
        open_target(example.address)


def test_a_value_that_its_column_does_not_promise_is_refused_before_the_export(example: ExampleFile) -> None:
    example.execute("CREATE TABLE t (n INTEGER, at TIMESTAMP, x)", "INSERT INTO t VALUES ('many', '2024-01-01T10', 1)")
    with source(example.address) as database:
        [table] = database.extract(Selection(time_columns={TableName("main", "t"): None})).tables
        assert [error.attributes["column"] for error in database.unfit(table, [AllRows()])] == ["main.t.n", "main.t.at"]


def test_keys_indexes_and_views_are_documented(example: ExampleFile) -> None:
    example.execute(
        "CREATE TABLE p (a INT, b INT, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "CREATE TABLE c (id INTEGER PRIMARY KEY, x INT UNIQUE, y INT, FOREIGN KEY (x, y) REFERENCES p)",
        "CREATE INDEX by_y ON c (y)",
        "CREATE VIEW v AS SELECT id FROM c",
        "INSERT INTO p VALUES (1, 2)",
    )
    with source(example.address) as database:
        schema = database.extract(Selection())
        child, parent = schema.tables
        scan = Scan(parent, AllRows())
        assert read_scan(database, scan).to_pylist() == [{"a": 1, "b": 2}]
        assert database.split(scan, 3) == [scan]
        assert database.count_rows([(parent, [AllRows()])], thorough=True) == [None]
    assert parent.primary_key is not None
    assert parent.primary_key.columns == ("b", "a")
    assert [each.name for each in child.indexes] == ["by_y"]
    assert child.options == {"not_carried": ["foreign key to p", "unique constraint of x"]}
    assert [view.definition for view in schema.views] == ["CREATE VIEW v AS SELECT id FROM c"]
