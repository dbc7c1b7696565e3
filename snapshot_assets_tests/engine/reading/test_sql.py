"""SQL queries of a snapshot: the rows of all its files, from the files that may have them, and nothing else."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snapshot_assets
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.databases.duckdb.parser import Texts
from snapshot_assets.engine.reading import parallel
from snapshot_assets.engine.reading.duckdb_tables import Stream, sql_tables
from snapshot_assets.engine.reading.snapshot import Snapshot, open_version
from snapshot_assets.engine.reading.sql import SqlSession
from snapshot_assets.engine.reading.sql_places import DEFAULT, view_statements
from snapshot_assets.errors import ChecksumMismatchError, ObjectNotFoundError, PlanError
from snapshot_assets.format.names import parse_table
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.odd_names import ODD
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, binaries, start_postgresql
from snapshot_assets_tests.servers.s3 import S3Server

Rows = list[tuple[str | None, ...]]


def session(*snapshots: Snapshot, **options: Any) -> SqlSession:
    return SqlSession({DEFAULT: snapshots[0]}, **options)


def ask(snapshot: Snapshot, query: str, **options: Any) -> Rows:
    """Return all rows of one query in a session of its own."""
    with session(snapshot, **options) as opened:
        return opened.rows(query, 1_000_000)[1]


def loaded(snapshot: Snapshot) -> duckdb.DuckDBPyConnection:
    """Return a database with the rows of all files, each read by the snapshot's own reader."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in sql_tables(snapshot.schema, Texts()):
        read = snapshot.table(table.table.table_name)._all
        schema, name = quoted(table.name.schema), quoted(table.name.table)
        connection.register("rows_of_it", Stream(table, read, read.parts))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE TABLE {schema}.{name} AS {table.streamed('rows_of_it')}")
        connection.unregister("rows_of_it")
    return connection


def texts(connection: duckdb.DuckDBPyConnection, query: str) -> Rows:
    return connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})").fetchall()


def streamed(snapshot: Snapshot, query: str) -> Rows:
    """Return the rows of a query over all files, each read by the snapshot's own reader."""
    with loaded(snapshot) as connection:
        return texts(connection, query)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
    "t >= '2025-01-03'": [3, 4, 5, 6],
    "t >= '2025-01-03 00:02'": [3, 4, 5, 6],
    "t < '2025-01-02 12:00'": [1, 2],
    "t = '2025-01-03 02:00+00'": [3],
    "t BETWEEN '2025-01-02 06:00' AND '2025-01-03 06:00'": [2, 3],
    "date_trunc('day', t) = TIMESTAMPTZ '2025-01-03'": [3],
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
    "FROM readings a JOIN events e ON a.value < 9 WHERE a.t >= '2025-01-06' AND e.moment < '2025-01-02'": {
        "readings": [6],
        "events": [1],
    },
    "FROM (FROM readings WHERE t < '2025-01-02') UNION ALL (FROM readings WHERE t > '2025-01-06 01:00')": {
        "readings": [0, 1, 2, 3, 5, 6]
    },
    "WITH x AS (FROM readings WHERE t < '2025-01-02 06:00') FROM x a, x b WHERE a.t > '2025-01-02 01:00'": None,
    "FROM readings WHERE t >= (SELECT min(moment) FROM events)": None,
    "FROM places LEFT JOIN readings ON t < '2025-01-01 03:00' AND name = sensor": {"places": [0], "readings": [1]},
    "SELECT sensor, count(*), sum(value::DECIMAL(18, 6)) FROM readings WHERE t >= '2025-01-05' GROUP BY ALL": {
        "readings": [5, 6]
    },
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
        assert found == QUERIES[query]
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


class Clocks(NamedTuple):
    """A session of a snapshot, and a database with the same rows."""

    session: SqlSession
    loaded: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", params=KINDS)
def clocks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocks]:
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
    start = datetime.fromisoformat(day)
    place.export(
        chunks=range(1 + hours // (24 if kind == "DATE" else 3)),
        time_columns={"main.clocks": "at  'the' \"time"},
        time_zone=zone,
        start_time=start,
        end_time=start + timedelta(hours=hours),
        chunk_time_window="1d" if kind == "DATE" else "3h",
    )
    snapshot = open_version(place.store, None)
    with session(snapshot) as opened, loaded(snapshot) as connection:
        yield Clocks(opened, connection)


TIME = '"at  \'the\' ""time"'
CLOCK_CONDITIONS = (
    "{} >= '2025-10-26 02:30'",
    "{} < '2025-10-26 02:30' AND {} > '2025-10-26 01:45'",
    "{} = '2025-10-26 02:00'",
    "{} <= '2025-11-02 01:30'",
    "{} BETWEEN '2025-09-28' AND '2025-09-28'",
    "{} >= '2025-09-28 02:30+00'::TIMESTAMPTZ",
    "{} IS NULL OR n < 3",
)


def check_clocks(clocks: Clocks, condition: str) -> None:
    query = f"SELECT * FROM clocks WHERE {condition}"
    try:
        expected = texts(clocks.loaded, query)
    except duckdb.Error:  # types that DuckDB does not compare
        with pytest.raises(PlanError):
            clocks.session.rows(query, 1000)
    else:
        assert Counter(clocks.session.rows(query, 1000)[1]) == Counter(expected)


@pytest.mark.parametrize("condition", CLOCK_CONDITIONS)
def test_times_are_compared_in_the_snapshots_zone_where_clocks_change(clocks: Clocks, condition: str) -> None:
    check_clocks(clocks, condition.replace("{}", TIME))


@pytest.mark.parametrize(
    ("zone", "first", "ranges"),
    [
        ("America/New_York", "2025-03-09", (("02:30", "03:00"), ("00:00", "03:25"), ("02:55", "04:00"))),
        ("Pacific/Apia", "2011-12-30", (("02:00", "02:55"), ("00:00", "07:00"), ("06:30", "07:10"))),
    ],
)
def test_rows_of_skipped_times_are_found(
    tmp_path: Path, zone: str, first: str, ranges: tuple[tuple[str, str], ...]
) -> None:
    """A local time that clocks skip is a later instant for an export than a bound that is set to it."""
    place = Place(f"duckdb://{tmp_path}/skipped.duckdb", tmp_path / "location")
    place.sql(
        f"CREATE TABLE skipped AS SELECT TIMESTAMP '{first}' + to_minutes(5 * n::INT) AS t, n FROM range(96) r(n)"
    )
    start = datetime.fromisoformat(f"{first}T00:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    place.export(
        chunks=range(66),
        time_columns={"main.skipped": "t"},
        time_zone=zone,
        start_time=start,
        end_time=start + timedelta(hours=32, minutes=30),
        chunk_time_window="30m",
    )
    with session(open_version(place.store, None)) as opened:
        for after, before in ranges:
            bounds = f"t{{0}} >= '{first} {after}' AND t{{0}} < '{first} {before}'"
            counted = [
                opened.rows(f"SELECT count(*) FROM skipped WHERE {bounds.format(way)}", 2)[1]
                for way in ("", " + INTERVAL 0 DAY")
            ]
            assert counted[0] == counted[1] != [("0",)]


def test_an_odd_name_of_the_time_index_leaves_out_files(clocks: Clocks) -> None:
    [place] = clocks.session._places.values()
    [(last,)] = texts(clocks.loaded, f"SELECT max({TIME}) FROM clocks")
    clocks.session.rows(f"FROM clocks WHERE {TIME} >= '{last}'", 1)
    chunks = sorted(known.file.chunk for known in place.snapshot.state.live_files())
    assert chunks[-1] in (used := [part.file.chunk for part in place.parts])
    assert len(used) < len(chunks) / 2


_TIMES = st.integers(-16, 160).map(lambda n: f"'{datetime(2025, 10, 25, 20) + timedelta(minutes=15 * n)}'")


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> str:
    """Draw a condition on the table `clocks`."""
    if depth and draw(st.booleans()):
        one, other = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        return draw(st.sampled_from([f"({one}) AND ({other})", f"({one}) OR ({other})", f"NOT ({one})"]))
    time, other, sign = draw(_TIMES), draw(_TIMES), draw(st.sampled_from(["<", "<=", "=", ">", ">=", "<>"]))
    kind = draw(st.sampled_from(["TIMESTAMP", "TIMESTAMPTZ", "DATE", "TIMESTAMP_MS", "TIMESTAMP_NS"]))
    conditions = [
        f"{TIME} {sign} {time}",
        f"{TIME} {sign} {time}::{kind}",
        f"{TIME} {sign} {time}::TIMESTAMP - INTERVAL 90 MINUTE",
        f"{TIME} BETWEEN {time} AND {other}",
        f"{TIME} IN ({time}, {other})",
        f"{TIME} IS NULL",
        f"{TIME}::DATE {sign} {time}::DATE",
        f"date_trunc('hour', {TIME}) {sign} {time}",
        f"{TIME} {sign} (SELECT max({TIME}) FROM clocks WHERE note = 'x1' AND {TIME} < {time})",
        "note = 'x1'",
        "n % 5 = 0",
    ]
    return draw(st.sampled_from(conditions))


@settings(max_examples=12)
@given(condition=predicates())
def test_a_query_has_the_rows_of_all_files(clocks: Clocks, condition: str) -> None:
    check_clocks(clocks, condition)


@pytest.mark.slow
@settings(max_examples=300)
@given(condition=predicates(depth=3))
def test_any_query_has_the_rows_of_all_files(clocks: Clocks, condition: str) -> None:
    check_clocks(clocks, condition)


# Files of every kind


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_files_are_queried(place: Place, form: str) -> None:
    place.export(format=form)
    snapshot = open_version(place.store, None)
    assert len(same(snapshot, "FROM readings")) == 82
    same(snapshot, "FROM events WHERE moment >= '2025-01-03'")


def test_deleted_rows_are_left_out_and_whole_files_are_read_by_duckdb(exported: Place) -> None:
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.readings"), "t < '2025-01-02T12:00:00Z'")
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.places"), "id = 1")
    exported.export()
    snapshot = open_version(exported.store, None)
    assert len(same(snapshot, "FROM readings")) == snapshot.table("main.readings").count() < 82
    assert [row[0] for row in same(snapshot, "FROM places")] == ["2", "3"]
    with session(snapshot) as opened:
        assert opened.rows("SELECT min(t) FROM readings", 5)[1] == [("2025-01-02 12:00:00+00",)]
        assert {part.file.chunk for stream in opened._streams for part in stream._parts} <= {0, 1, 2}
    compact(exported.store)
    with session(open_version(exported.store, None)) as opened:
        assert opened.rows("SELECT count(*) FROM readings", 2)[1] == ask(snapshot, "SELECT count(*) FROM readings")
        assert opened._streams == []


def test_files_of_several_schemas_are_queried_in_the_newest(place: Place) -> None:
    place.sql("ALTER TABLE readings ADD COLUMN n INTEGER DEFAULT 7")
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("ALTER TABLE readings ADD COLUMN note VARCHAR; UPDATE readings SET note = 'new'")
    place.sql("ALTER TABLE readings DROP COLUMN value; ALTER TABLE readings ALTER n TYPE BIGINT")
    place.export()
    snapshot = open_version(place.store, None)
    found = same(snapshot, "SELECT t, sensor, n, note FROM readings")
    assert {row[2:] for row in found} == {("7", None), ("7", "new")}
    same(snapshot, "FROM readings WHERE t >= '2025-01-02' AND note IS NULL")
    place.sql("ALTER TABLE readings ALTER n TYPE VARCHAR")
    place.sql("ALTER TABLE readings RENAME note TO NOTE")
    place.export(chunks=[2], replace=True)
    assert len(same(open_version(place.store, None), "SELECT note, n FROM readings")) == 82


def test_empty_tables_have_their_columns(place: Place) -> None:
    place.sql("CREATE TABLE nothing (a INTEGER, b DECIMAL(9, 2)[], c UUID)")
    place.export()
    snapshot = open_version(place.store, None)
    assert same(snapshot, "FROM nothing") == []
    kinds = [row[:2] for row in ask(snapshot, "DESCRIBE nothing")]
    assert kinds == [("a", "INTEGER"), ("b", "DECIMAL(9,2)[]"), ("c", "UUID")]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_type_of_duckdb_has_its_values(place: Place, form: str) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(CASES))
    values = zip_longest(*(values for _, _, values in CASES.values()), fillvalue="NULL")
    rows = ", ".join(f"({', '.join(row)})" for row in values)
    place.sql(f"CREATE TABLE t ({columns}); INSERT INTO t VALUES {rows}")
    place.export(format=form, time_columns={"main.t": None})
    snapshot = open_version(place.store, None)
    with duckdb.connect(place.source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        expected = connection.execute("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM t").fetchall()
        kinds = connection.execute("SELECT column_name, column_type FROM (DESCRIBE t)").fetchall()
    assert Counter(same(snapshot, "FROM t")) == Counter(expected)
    shown = ask(snapshot, "SELECT column_name, column_type FROM (DESCRIBE t)")
    assert {pair: other for pair, other in zip(kinds, shown, strict=True) if pair != other} == {}
    assert snapshot.table("main.t").to_arrow().num_rows == len(expected)


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_every_type_of_postgresql_has_its_values(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path, form: str
) -> None:
    postgresql_server.psql_script(postgresql_database, every_type_script())
    place = Place(postgresql_database, tmp_path / "location")
    place.export(format=form, time_columns={"public.t": None})
    snapshot, notes = open_version(place.store, None), list[str]()
    found, table = same(snapshot, "FROM public.t", notify=notes.append), snapshot.table("public.t")
    expected = table.to_arrow()
    assert len(found) == expected.num_rows > 5
    texts = [
        number
        for number, column in enumerate(table.definition.columns)
        if pa.types.is_string(expected.schema.field(number).type) and column.type not in ("json", "jsonb")
    ]
    assert len(texts) > 20
    for number in texts:
        assert Counter(row[number] for row in found) == Counter(expected.column(number).to_pylist())
    [note] = [note for note in notes if note.startswith("Texts here, which compare as texts, in public.t: ")]
    assert [each for each in ("character(5)", "public.mood", "interval", "numeric") if f"({each})" not in note] == [], (
        note
    )
    assert not any(f"({each})" in note for each in ("text", "character varying(5)", "uuid"))
    assert table.to_polars().collect().height == expected.num_rows
    assert ask(snapshot, "SELECT count(*) FROM (SHOW ALL TABLES) WHERE name LIKE 'odd%'") == [("0",)]


# Names


@pytest.mark.parametrize("folder", [pytest.param("plain", marks=pytest.mark.slow), "ein Ort%20 ä'#+=, [a-b]{x,y} *?"])
def test_odd_names_of_schemas_tables_columns_and_folders(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    place = Place(f"duckdb://{tmp_path}/odd.duckdb", tmp_path / folder / "x=1")
    names = list({name.lower(): name for name in ODD}.values())[:: 1 if folder == "plain" else 5]
    paths = [f"{quoted(name)}.{quoted(name)}" for name in names]
    place.sql(
        "; ".join(
            f"CREATE SCHEMA IF NOT EXISTS {quoted(name)};"
            f"CREATE TABLE {path} AS SELECT {number} AS {quoted(name)}, TIMESTAMP '2025-01-02' AS t"
            for number, (name, path) in enumerate(zip(names, paths, strict=True))
        )
    )
    place.export(time_columns={})
    with session(open_version(place.store, None), verify=False) as opened:
        for number, (name, path) in enumerate(zip(names, paths, strict=True)):
            query = f"SELECT {quoted(name)} FROM {path} WHERE t >= '2025-01-01'"
            assert opened.rows(query, 5)[1] == [(str(number),)], name


def test_names_that_differ_by_case_get_a_number_and_a_note(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path
) -> None:
    script = """
        CREATE TABLE t (a int, "A" int, rowid int, filename text, file_row_number int);
        INSERT INTO t VALUES (1, 2, 3, 'f', 4);
        CREATE TABLE "T" (b int); INSERT INTO "T" VALUES (5), (6);
        CREATE TABLE t_1 AS SELECT 4 AS n;
        CREATE SCHEMA "a.b"; CREATE TABLE "a.b".c AS SELECT 7 AS n;
        CREATE SCHEMA a; CREATE TABLE a."b.c" AS SELECT 8 AS n;
        CREATE TABLE a.t AS SELECT 1 AS n;
        CREATE SCHEMA temp; CREATE TABLE temp.main AS SELECT 9 AS n;
    """
    postgresql_server.psql_script(postgresql_database, script)
    place = Place(postgresql_database, tmp_path / "location")
    place.export(time_columns={})
    notes = list[str]()
    with session(open_version(place.store, None), notify=notes.append) as opened:
        tables = {row[1:3] for row in opened.rows("SHOW ALL TABLES", 99)[1]}
        assert tables == {
            *(("public", "t"), ("public", "t_1"), ("public", "T_2")),
            *(("a.b", "c"), ("a", "b.c"), ("a", "t"), ("temp", "main")),
        }
        columns, rows = opened.rows("FROM public.t", 9)
        assert (columns, rows) == (["a", "A_1", "rowid", "filename", "file_row_number"], [("1", "2", "3", "f", "4")])
        assert opened.rows('SELECT b FROM public."T_2" ORDER BY b', 9)[1] == [("5",), ("6",)]
        both = 'SELECT n FROM "a.b".c UNION ALL SELECT n FROM a."b.c" ORDER BY n'
        assert opened.rows(both, 9)[1] == [("7",), ("8",)]
        assert opened.rows("SELECT n FROM memory.temp.main", 9)[1] == [("9",)]
        with pytest.raises(PlanError, match=r"Several schemas have a table t: name one of a\.t, public\.t"):
            opened.rows("FROM t", 9)
        assert opened.rows("WITH t AS (SELECT 3 AS x) FROM t", 9)[1] == [("3",)]
    assert notes.count("DuckDB ignores case in names, so here public.T is T_2, public.t is t.") == 1
    assert notes.count("DuckDB ignores case in names, so here public.t.a is a, public.t.A is A_1.") == 1


def test_a_note_names_the_versions_that_it_is_true_of(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path
) -> None:
    postgresql_server.psql(postgresql_database, 'CREATE TABLE t (a int, "A" int)')
    place, notes = Place(postgresql_database, tmp_path / "location"), list[str]()
    place.export(time_columns={})
    first = open_version(place.store, None)
    postgresql_server.psql(postgresql_database, 'ALTER TABLE t RENAME "A" TO b; ALTER TABLE t ADD c numeric')
    place.export(time_columns={})
    second = open_version(place.store, None)
    texts, renamed = "Texts here, which compare as texts, in public.t: c (numeric).", "so here public.t.a is a"
    with SqlSession({"new": second, "old": first, "same": second}, notify=notes.append) as opened:
        opened.rows("SELECT 1 FROM new.public.t, old.public.t, same.public.t", 9)
    assert [note.partition("DuckDB ignores")[0] for note in notes] == [f"new, same: {texts}", "old: "]
    assert renamed in notes[1]


def test_a_note_names_columns_whose_collations_ignore_case(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path
) -> None:
    source = Place(mariadb_database, tmp_path / "location")
    columns = "a varchar(9) COLLATE utf8mb4_general_ci, b varchar(9) COLLATE utf8mb4_bin"
    mariadb_server.sql(f"CREATE TABLE shop.t ({columns})", "INSERT INTO shop.t VALUES ('x', 'x'), ('X', 'X')")
    source.export(time_columns={})
    notes = list[str]()
    with session(open_version(source.store, None), notify=notes.append) as opened:
        for _ in range(2):
            assert opened.rows("SELECT count(*) FROM t WHERE a = 'x'", 9)[1] == [("1",)]
    assert [note.partition("in the source, in ")[2] for note in notes] == ["shop.t: a (utf8mb4_general_ci)."]


def test_a_note_names_columns_whose_collations_are_nondeterministic(tmp_path: Path) -> None:
    if not (binaries(15) / "initdb").exists():
        pytest.skip(f"PostgreSQL 15, which has ICU, is not installed in {binaries(15)}")
    with start_postgresql(15) as server:
        database, notes = server.create_database(), list[str]()
        server.psql(
            database,
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            """CREATE TABLE t (a text COLLATE ci, b text COLLATE "de-x-icu", c text)""",
        )
        place = Place(database, tmp_path / "location")
        place.export(time_columns={})
        ask(open_version(place.store, None), "FROM t", notify=notes.append)
    assert [note.partition("in the source, in ")[2] for note in notes] == ["public.t: a (public.ci)."]


# Several versions, and metadata


def test_a_name_with_its_version_or_schema_uses_no_other_table(exported: Place) -> None:
    snapshot = open_version(exported.store, None)
    with SqlSession({"new": snapshot, "old": snapshot}) as opened:
        early = "FROM {}.main.readings WHERE t < '2025-01-0{}'"
        opened.rows(f"{early.format('new', 2)} UNION ALL {early.format('old', 3)}", 9)
        found = {key[0]: len(place.parts or ()) for key, place in opened._places.items() if key[2] == "readings"}
        files = len(snapshot.table("main.readings")._all.parts)
        assert 0 < found["new"] < found["old"] < files
        opened.rows("FROM new.main.readings", 9)
        assert len(opened._places["old", "main", "readings"].parts or ()) == found["old"]


def test_two_versions_are_compared_side_by_side(exported: Place) -> None:
    old = open_version(exported.store, None)
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.readings"), "sensor = 's0'")
    exported.export()
    with SqlSession({"new": open_version(exported.store, None), "old": old}) as opened:
        gone = "SELECT sensor, count(*) FROM (FROM old.main.readings EXCEPT ALL FROM new.main.readings) GROUP BY ALL"
        assert opened.rows(gone, 9)[1] == [("s0", "20")]
        both = "SELECT (SELECT count(*) FROM old.readings), (SELECT count(*) FROM readings)"
        assert opened.rows(both, 9)[1] == [("82", "62")]
        narrow = (
            "SELECT count(*) FROM old.readings o, new.readings n WHERE o.t < '2025-01-01 01:00' AND n.sensor = 's1'"
        )
        assert opened.rows(narrow, 9)[1] == [("40",)]


def test_show_tables_lists_version_schema_and_table(exported: Place) -> None:
    snapshot = open_version(exported.store, None)
    with session(snapshot) as opened:
        columns, rows = opened.rows("SHOW TABLES", 9)
    assert (columns, rows) == (["schema", "table"], [("main", name) for name in ("events", "places", "readings")])
    with SqlSession({"new": snapshot, "old": snapshot}) as opened:
        columns, both = opened.rows(" show\ntables;", 9)
        assert columns == ["version", "schema", "table"]
        assert both == [(version, *row) for version in ("new", "old") for row in rows]


def test_metadata_tables_are_those_of_the_version(snapshot: Snapshot) -> None:
    for name in METADATA_TABLES.keys() - {"$diff"}:
        assert len(ask(snapshot, f'FROM "{name}"')) == snapshot.metadata(name).num_rows, name
    query = "SELECT count(*) FROM readings JOIN \"$chunks\" ON chunk = 2 AND t < '2025-01-02'"
    assert ask(snapshot, query) == [("16",)]


# Read only, and confined

REFUSED = """
CREATE TABLE x (n INT)
INSERT INTO places VALUES (9, 'x')
DELETE FROM places
DROP TABLE places
COPY places TO '{out}'
COPY places FROM '{secret}'
ATTACH '{out}' AS other
INSTALL httpfs
LOAD httpfs
SET threads = 1
SET VARIABLE x = 1
RESET threads
PRAGMA database_list
CALL pragma_version()
EXPORT DATABASE '{out}'
EXPLAIN ANALYZE INSERT INTO places VALUES (9, 'x')
EXPLAIN ANALYZE COPY places TO '{out}'
FROM read_text('{secret}')
FROM read_csv('{secret}')
FROM '{secret}'
FROM glob('{folder}/*')
FROM read_blob('snapshot://0.parquet/../../x')
FROM read_parquet('https://127.0.0.1:9/x.parquet')
FROM query('COPY places TO ''{out}''')
FROM query_table('{secret}')
FROM sniff_csv('{secret}')
FROM parquet_metadata('{secret}')
FROM duckdb_secrets()
FROM snapshot
SELECT getenv('HOME')
SELECT ?
SELECT 1 2
FROM nothing
PREPARE x AS SELECT 1
"""


@pytest.mark.parametrize("query", REFUSED.strip().splitlines())
def test_a_query_neither_writes_nor_reads_anything_else(snapshot: Snapshot, tmp_path: Path, query: str) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("a,b\n1,2\n")
    with session(snapshot) as opened:
        with pytest.raises(PlanError):
            opened.rows(query.format(secret=secret, out=out, folder=tmp_path), 9)
        assert opened.rows("SELECT count(*) FROM places", 2)[1] == [("4",)]
    assert list(tmp_path.iterdir()) == [secret]


def test_a_query_names_no_file_of_the_snapshot_by_itself(exported: Place) -> None:
    """Nothing would hash it, and it may belong to another version."""
    files = f"{exported.folder}/data/*/*.parquet"
    for query in (f"FROM read_parquet('{files}')", f"FROM places, glob('{files}')", "FROM 'snapshot://0.parquet'"):
        with session(open_version(exported.store, None)) as opened, pytest.raises(PlanError):
            opened.rows(query, 9)


WRITES = """
WITH x AS (COPY (SELECT 1 AS x) TO '{out}' (FORMAT parquet, USE_TMP_FILE false)) SELECT 1
EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1 AS x) TO '{out}' (FORMAT parquet, USE_TMP_FILE false)) SELECT 1
EXPLAIN (ANALYZE /*) SELECT 1 --*/) COPY (SELECT 1 AS x) TO '{out}' (FORMAT parquet, USE_TMP_FILE false)
EXPLAIN (FROM places) SELECT 1
"""


@pytest.mark.parametrize("query", WRITES.strip().splitlines())
def test_no_part_of_a_query_writes_into_the_snapshot(exported: Place, tmp_path: Path, query: str) -> None:
    """DuckDB takes COPY as an expression of WITH, and may write where it may read."""
    out = exported.folder / "data/1/forged.parquet"
    with session(open_version(exported.store, None), output=tmp_path / "rows.csv") as opened:
        for ask_for in (lambda text: opened.rows(text, 9), lambda text: opened.write(text, "csv")):
            with pytest.raises(PlanError):
                ask_for(query.format(out=out))
    assert not out.exists()


@pytest.mark.parametrize("text", ["", ";", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE places"])
def test_a_call_is_one_query(snapshot: Snapshot, text: str) -> None:
    with pytest.raises(PlanError, match="a call runs one statement"):
        ask(snapshot, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'é;' AS x;",
        "SELECT 'é;' AS x ; -- é; end",
        "-- a\n/* ; */ SELECT 'é;' AS x -- end",
        ";; SELECT 'é;' AS x ;;",
    ],
)
def test_comments_and_semicolons_may_stand_around_a_query(snapshot: Snapshot, tmp_path: Path, text: str) -> None:
    with session(snapshot, output=tmp_path / "out.csv") as opened:
        assert opened.rows(text, 5) == (["x"], [("é;",)])
        opened.write(text, "csv")
    assert (tmp_path / "out.csv").read_text() == "x\né;\n"


# Errors


def test_errors_of_one_query_are_not_those_of_the_next(exported: Place) -> None:
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.readings"), "value > 9")
    exported.export()
    with session(open_version(exported.store, None), verify=False) as opened:
        assert len(opened.rows("FROM readings LIMIT 1", 5)[1]) == 1  # leaves the stream before its end
        for query in ("SELECT name::INT FROM places", "SELECT sensor::INT FROM readings"):
            with pytest.raises(PlanError, match="Conversion Error"):
                opened.rows(query, 5)
        [file] = exported.folder.glob("data/3/main.readings-*")
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(ObjectNotFoundError, match=file.name):
            opened.rows("FROM readings", 99)
        file.write_bytes(kept)
        with pytest.raises(PlanError, match="Conversion Error"):
            opened.rows("SELECT name::INT FROM places", 5)
        assert opened.rows("SELECT count(*) FROM places", 5)[1] == [("4",)]


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["moved", "[x]"])
def test_a_damaged_file_is_named(exported: Place, verify: bool, name: str) -> None:
    folder = exported.folder.rename(exported.folder.with_name(name))
    snapshot = open_version(Place(exported.source, folder).store, None)
    [file] = folder.glob("data/3/main.readings-*")
    file.write_bytes(file.read_bytes()[:-40] + bytes(40))
    path = re.escape(file.relative_to(folder).as_posix())
    with session(snapshot, verify=verify) as opened:
        with pytest.raises(ChecksumMismatchError, match=rf"{path} has SHA-256 \w+; expected"):
            opened.rows("SELECT sum(value) FROM readings", 5)
        assert opened.rows("SELECT count(*) FROM readings WHERE t < '2025-01-02'", 5)[1] == [("16",)]
        assert opened.rows("SELECT count(*) FROM places", 5)[1] == [("4",)]
    file.unlink()
    with session(snapshot, verify=verify) as opened, pytest.raises(ObjectNotFoundError, match=path):
        opened.rows("SELECT sum(value) FROM readings", 5)


def test_a_session_hashes_a_file_once_and_only_those_of_a_query(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    check = parallel.check_hash
    monkeypatch.setattr(parallel, "check_hash", lambda store, file: (hashed.append(file.path), check(store, file))[1])
    with session(snapshot) as opened:
        opened.rows("FROM readings WHERE t >= '2025-01-06 01:00'", 5)
        assert [path.split("/")[1] for path in hashed] == ["6"]
        opened.rows("FROM readings", 5)
        opened.rows("FROM readings", 5)
        assert len(hashed) == len(set(hashed)) == 6
        changed = parse_location(snapshot.store.uri).local_path / hashed[0]
        os.utime(changed, (0, 0))
        opened.rows("FROM readings", 5)
    assert hashed.pop() == hashed[0]
    ask(snapshot, "FROM readings", verify=False)
    assert len(hashed) == 6


# Object storage


def test_files_of_object_storage_are_queried_and_damage_is_named(
    exported_place: Place, s3_server: S3Server, s3_location: str
) -> None:
    store: Any = open_store(parse_location(s3_location), s3_server.options)
    for file in exported_place.folder.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(exported_place.folder).as_posix(), file.read_bytes())
    local = open_version(exported_place.store, None)
    opened = snapshot_assets.open(s3_location, storage={"s3": s3_server.options})
    query = "SELECT sensor, count(*), max(t) FROM readings WHERE t >= '2025-01-03 01:00' GROUP BY ALL"
    for verify in (True, False):
        for text in (query, "FROM readings"):
            assert Counter(ask(opened, text, verify=verify)) == Counter(ask(local, text))
    assert opened.table("main.readings").to_arrow().equals(local.table("main.readings").to_arrow())
    [path] = [known.file.path for known in local.state.live_files(3) if known.file.table == "readings"]
    store.put(path, bytes(100))
    for verify in (True, False):
        with pytest.raises(ChecksumMismatchError, match=re.escape(path)):
            ask(opened, "FROM readings", verify=verify)
    store.delete(path)
    for verify in (True, False):
        with pytest.raises(ObjectNotFoundError, match=re.escape(path)):
            ask(opened, "FROM readings", verify=verify)


# DuckDB alone


def test_the_printed_views_give_duckdb_alone_the_same_rows(exported: Place) -> None:
    snapshot = open_version(exported.store, None)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in view_statements({DEFAULT: snapshot}):
            connection.execute(statement)
        for table in ("readings", "events", "places"):
            found = connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {table}").fetchall()
            assert Counter(found) == Counter(ask(snapshot, f"FROM {table}"))
    delete_rows(Catalog.open_for_writing(exported.store), parse_table("main.readings"), "value > 9")
    exported.export()
    statements = list(view_statements({"a": open_version(exported.store, None), "b": snapshot}))
    assert [text.split(" is not here")[0] for text in statements if text.startswith("--")] == ["-- a.main.readings"]
    with duckdb.connect() as connection:
        for statement in statements:
            connection.execute(statement)
        assert connection.execute("SELECT count(*) FROM b.main.readings").fetchall() == [(82,)]
