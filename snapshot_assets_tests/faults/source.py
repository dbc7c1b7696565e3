"""A small database: two timed tables with six windows, one of them empty, rows without a time and outside the range."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import duckdb

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.header import format_of
from snapshot_assets.storage.base import ObjectStore

WINDOWS = 6
EMPTY_WINDOW = 4
_RANGE = ("2025-01-01T00:00:00Z", "2025-01-07T00:00:00Z")
PLAN = {"name": "faults", "start_time": _RANGE[0], "end_time": _RANGE[1], "chunk_time_window": "1d"}
CHUNKS = tuple(range(WINDOWS + 1))
TIMES = {"readings": "t", "events": "moment", "places": None}
OUTSIDE = {"readings": 2, "events": 0}


def make_source(path: Path) -> str:
    """Create the database and return its URI."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"""
            SET TimeZone = 'UTC';
            CREATE TABLE places (id INTEGER, name VARCHAR);
            INSERT INTO places VALUES (1, 'Zürich'), (1, 'Zürich'), (2, NULL), (3, '');
            CREATE TABLE readings (t TIMESTAMPTZ, sensor VARCHAR, value DOUBLE);
            INSERT INTO readings
                SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i * 2), 's' || i % 3, i / 7.0
                FROM range(0, 72) r(i) WHERE i // 12 <> {EMPTY_WINDOW - 1};
            INSERT INTO readings SELECT * FROM readings WHERE sensor = 's1';
            INSERT INTO readings VALUES
                (NULL, 'lost', 1), (NULL, 'lost', 1),
                ('2024-12-31 23:59:59.999999Z', 'early', 1), ('2025-01-07 00:00:00Z', 'late', 2);
            CREATE TABLE events (moment TIMESTAMP, what VARCHAR);
            INSERT INTO events VALUES ('2025-01-01 00:00:00', 'first'), ('2025-01-03 12:00:00', 'middle'),
                ('2025-01-06 23:59:59.999999', 'last'), (NULL, 'sometime');
            """
        )
    return f"duckdb://{path}"


def location(folder: Path) -> str:
    """Return the URI of a folder."""
    return f"file://{quote(str(folder))}"


def add_rows(source: str) -> None:
    """Add late rows to window 2."""
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute(
            "SET TimeZone = 'UTC'; INSERT INTO readings VALUES ('2025-01-02 01:00:00Z', 'late', 9), "
            "('2025-01-02 01:00:00Z', 'late', 9)"
        )


def differences(source: str, store: ObjectStore, folder: Path, query: str = "") -> dict[str, list[tuple]]:
    """Return, by table, the rows whose number differs between source and snapshot, or copy of a query."""
    tables = {table: f"SELECT * FROM {table} {_inside(time)}" for table, time in TIMES.items()}
    tables = {str(PLAN["name"]): query} if query else tables
    state, found = read_state(store), {}
    files: dict[str, list[str]] = {table: [] for table in tables}
    for known in state.live_files():
        files[known.file.table].append(str(folder / known.file.path))
    with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table, wanted in tables.items():
            columns = {name: kind for name, kind, *_ in connection.sql(f"DESCRIBE {wanted}").fetchall()}
            exported = _reading(state, files[table], columns) if files[table] else f"{wanted} LIMIT 0"
            rows = connection.sql(
                f"(({wanted}) EXCEPT ALL ({exported})) UNION ALL (({exported}) EXCEPT ALL ({wanted}))"
            ).fetchall()
            if rows:
                found[table] = rows
    return found


def _reading(state: State, files: list[str], columns: dict[str, str]) -> str:
    """Return the query by which DuckDB reads data files in the snapshot's format."""
    written = format_of(state.header)
    if written.name == "json":
        return f"SELECT * FROM read_json({files}, format='newline_delimited', columns={columns})"
    if written.name == "csv":
        options = "quote='\"', escape='\"', nullstr='', allow_quoted_nulls=false, auto_detect=false"
        return f"SELECT * FROM read_csv({files}, columns={columns}, header={written.header}, {options})"
    return f"SELECT * FROM read_parquet({files})"


def _inside(time: str | None) -> str:
    if time is None:
        return ""
    return f"WHERE {time} IS NULL OR isinf({time}) OR ({time} >= '{_RANGE[0]}' AND {time} < '{_RANGE[1]}')"
