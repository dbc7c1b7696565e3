"""SQL queries of a snapshot: the rows of all its files, from the files that may have them, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest

from snapshot_assets.engine.reading.duckdb_tables import Stream, sql_tables
from snapshot_assets.engine.reading.snapshot import Snapshot, open_version
from snapshot_assets.engine.reading.sql import SqlSession
from snapshot_assets.engine.reading.sql_places import DEFAULT
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.test_reading import hourly

__all__ = ["hourly"]

Rows = list[tuple[str | None, ...]]


def session(*snapshots: Snapshot, **options: Any) -> SqlSession:
    return SqlSession({DEFAULT: snapshots[0]}, **options)


def ask(snapshot: Snapshot, query: str, **options: Any) -> Rows:
    """Return all rows of one query in a session of its own."""
    with session(snapshot, **options) as opened:
        return opened.rows(query, 1_000_000)[1]


def streamed(snapshot: Snapshot, query: str) -> Rows:
    """Return the rows of a query over all files, each read by the snapshot's own reader."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET search_path = 'main'")
        for table in sql_tables(snapshot.schema):
            read = snapshot.table(table.table.table_name)._all
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{table.name.schema}"')
            name = '"' + table.name.table.replace('"', '""') + '"'
            connection.register("rows_of_it", Stream(table, read, read.parts))
            connection.execute(f'CREATE TABLE "{table.name.schema}".{name} AS {table.streamed("rows_of_it")}')
            connection.unregister("rows_of_it")
        text = f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})"
        return connection.execute(text).fetchall()


def same(snapshot: Snapshot, query: str, **options: Any) -> Rows:
    """Return the rows of a query; they are those that all files give, read by the snapshot's own reader."""
    found = ask(snapshot, query, **options)
    assert Counter(found) == Counter(streamed(snapshot, query)), query
    return found


def used(snapshot: Snapshot, query: str) -> dict[str, list[int]]:
    """Return the chunks whose files a query reads, by table."""
    with session(snapshot) as opened:
        opened.rows(query, 1)
        return {
            place.path[-1]: sorted({part.file.chunk for part in place.parts})
            for place in opened._places.values()
            if place.parts is not None
        }


@pytest.fixture
def snapshot(exported_place: Place) -> Snapshot:
    return open_version(exported_place.store, None)


# Which files a query uses

RANGES = {
    "t >= '2025-01-03'": [2, 3, 4, 5, 6],
    "t >= '2025-01-03 00:02'": [3, 4, 5, 6],
    "t < '2025-01-02 12:00'": [1, 2],
    "t = '2025-01-03 02:00+00'": [3],
    "t BETWEEN '2025-01-02 06:00' AND '2025-01-03 06:00'": [2, 3],
    "date_trunc('day', t) = TIMESTAMPTZ '2025-01-03'": [2, 3, 4],
    "t > '2025-01-05 12:00' AND t < '2025-01-05 14:00' AND sensor = 's1'": [5],
    "'2025-01-05 12:00' < t AND t <= '2025-01-05 14:00'::TIMESTAMPTZ": [5],
    "t < '2025-01-02 12:00' OR t > '2025-01-06 12:00'": [0, 1, 2, 3, 5, 6],
    "t IS NULL": [0, 1, 2, 3, 5, 6],
    "t >= now()": [],
    "t <= now()": [1, 2, 3, 5, 6],
    "sensor = '(t >= ''2030-01-01''::TIMESTAMP WITH TIME ZONE)'": [0, 1, 2, 3, 5, 6],
    "t >= 'infinity'": [0, 1, 2, 3, 5, 6],
    "t = '2025-01-02' AND t > '2026-01-01'": [0, 1, 2, 3, 5, 6],
}


@pytest.mark.parametrize("condition", RANGES)
def test_a_comparison_with_the_time_index_leaves_out_files(snapshot: Snapshot, condition: str) -> None:
    query = f"SELECT * FROM readings WHERE {condition}"
    known = {known.file.chunk for known in snapshot.state.live_files() if known.file.table == "readings"}
    assert used(snapshot, query) == {"readings": sorted(known & set(RANGES[condition]))}
    same(snapshot, query)


QUERIES = {
    "FROM readings a JOIN readings b ON a.sensor = b.sensor WHERE a.t < '2025-01-02' AND b.t >= '2025-01-02 06:00'"
    " AND b.t < '2025-01-02 12:00'": {"readings": [1, 2]},
    "FROM readings a, readings b WHERE a.t < '2025-01-01 06:00' AND b.value < 1": {"readings": [0, 1, 2, 3, 5, 6]},
    "FROM readings a JOIN events e ON e.moment = a.t::TIMESTAMP WHERE a.t >= '2025-01-06' AND e.moment <"
    " '2025-01-02'": {"readings": [5, 6], "events": [1]},
    "FROM (FROM readings WHERE t < '2025-01-02') UNION ALL (FROM readings WHERE t > '2025-01-06 01:00')": {
        "readings": [1, 2, 3, 5, 6]
    },
    "WITH x AS (FROM readings WHERE t < '2025-01-02 06:00') FROM x a, x b WHERE a.t > '2025-01-02 01:00'": None,
    "FROM readings WHERE t >= (SELECT max(moment) FROM events)": None,
    "FROM places LEFT JOIN readings ON t < '2025-01-01 03:00' AND name = sensor": {"places": [0], "readings": [1]},
    "SELECT sensor, count(*), sum(value) FROM readings WHERE t >= '2025-01-05' GROUP BY ALL": {"readings": [5, 6]},
    "SELECT count(*), min(t), max(t) FROM readings": {"readings": [0, 1, 2, 3, 5, 6]},
    "FROM readings WHERE t < '2025-01-02' AND EXISTS (FROM readings r WHERE r.t > '2025-01-06')": None,
    "FROM query_table('readings') WHERE t < '2025-01-02'": {"readings": [0, 1, 2, 3, 5, 6]},
    "SELECT count(*) FROM readings r, query_table('readings') q WHERE r.t < '2025-01-02'": None,
    "FROM query('SELECT count(*) FROM readings')": {"readings": [0, 1, 2, 3, 5, 6]},
    "SELECT bin, count FROM histogram(readings, value)": {"readings": [0, 1, 2, 3, 5, 6]},
    "FROM (SUMMARIZE readings) SELECT column_name, count": {"readings": [0, 1, 2, 3, 5, 6]},
}


@pytest.mark.parametrize("query", QUERIES)
def test_scans_of_a_query_share_the_files_that_any_of_them_needs(snapshot: Snapshot, query: str) -> None:
    found = used(snapshot, query)
    if QUERIES[query] is not None:
        # a bound of a minute more than is asked for may touch the chunk before it
        assert found.keys() == QUERIES[query].keys()
        assert all(set(found[name]) <= set(QUERIES[query][name]) for name in found)
    assert same(snapshot, query)


def test_a_session_widens_and_narrows_its_tables_from_query_to_query(snapshot: Snapshot) -> None:
    with session(snapshot) as opened:
        for condition in ("t >= '2025-01-06'", "true", "t < '2025-01-02'", "t IS NULL", "false", "t >= '2025-01-06'"):
            query = f"SELECT count(*) FROM readings WHERE {condition}"
            assert opened.rows(query, 2)[1] == streamed(snapshot, query)
            assert opened.rows("SELECT count(*) FROM query_table('readings')", 2)[1] == [("82",)]


KINDS = {
    "TIMESTAMP": "Europe/Zurich",
    "TIMESTAMPTZ": "Europe/Zurich",
    "TIMESTAMP_MS": "America/New_York",
    "TIMESTAMP_NS": "Europe/Zurich",
    "DATE": "Pacific/Auckland",
}
"""Types of a time index, and the snapshot's zone."""


@pytest.fixture(scope="module", params=KINDS)
def clocks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Rows of every half an hour where clocks change, with windows of three hours (of a day for dates)."""
    kind, zone = request.param, KINDS[request.param]
    folder = tmp_path_factory.mktemp("clocks")
    place = Place(f"duckdb://{folder}/clocks.duckdb", folder / "location")
    day = {"Europe/Zurich": "2025-10-25 12:00Z", "America/New_York": "2025-11-02 00:00Z"}.get(zone, "2025-09-25 00:00Z")
    local = "i" if kind == "TIMESTAMPTZ" else f"timezone('{zone}', i)"
    hours = 96 if kind == "DATE" else 24
    place.sql(
        f"CREATE TABLE clocks AS SELECT ({local})::{kind} AS \"at  'the' \"\"time\", n, 'x' || n % 3 AS note"
        f" FROM (SELECT TIMESTAMPTZ '{day}' + to_minutes(30 * n::INT) AS i, n FROM range({2 * hours}) r(n))"
        " UNION ALL SELECT NULL, -1, NULL"
    )
    start = datetime_of(day)
    place.export(
        range(1 + hours // (24 if kind == "DATE" else 3)),
        time_columns={"main.clocks": "at  'the' \"time"},
        time_zone=zone,
        start_time=start,
        end_time=start + timedelta(hours=hours),
        chunk_time_window="1d" if kind == "DATE" else "3h",
    )
    return open_version(place.store, None)
