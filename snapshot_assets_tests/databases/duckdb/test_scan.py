from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pytest

from snapshot_assets.databases.duckdb.time_predicates import DuckDBTimeColumn
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, WindowRows
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.scratch_folders import process_folder
from snapshot_assets.testing.restores import utc
from snapshot_assets_tests.databases.duckdb.files import documented, make_file, opened, rows_of

EVENTS = TableName("main", "events")
KINDS = DuckDBTimeColumn.types


def ids(database: object, table: object, rows: object) -> list[int]:
    return sorted(rows_of(database, table, rows).column("id").to_pylist())  # type: ignore[arg-type]


def times_file(folder: Path, kind: str, times: list[str]) -> DatabaseAddress:
    """Make a file with a table `events (id, ts)` of the given times, and none at last."""
    values = ", ".join(f"({number}, '{time}')" for number, time in enumerate(times))
    return make_file(
        folder / "x.duckdb",
        f"CREATE TABLE events (id INTEGER, ts {kind})",
        f"INSERT INTO events VALUES {values}, (9, NULL)",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_windows_at_the_ends_of_time_hold_everything_finite(kind: str, tmp_path: Path) -> None:
    widest = ["1677-09-22", "2262-04-11"] if kind.endswith("_NS") else ["290000-01-01 (BC)", "290000-01-01"]
    address = times_file(tmp_path, kind, [*widest, "infinity"])
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    inside = [0, 1] if kind.endswith("_NS") else []
    with opened(address) as database:
        table = documented(database, EVENTS, time_columns={EVENTS: "ts"}, carriers={(EVENTS, "ts"): Carrier.TEXT})
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            assert ids(database, table, WindowRows(first, last, zone)) == inside
            assert database.count_outside(table, first, last, zone) == 2 - len(inside)
            bounds = database.time_bounds((table,), zone)
            assert bounds is not None
            assert bounds[0] < utc(1678, 1, 1) < utc(2262, 1, 1) < bounds[1]


BERLIN = ZoneInfo("Europe/Berlin")


def test_a_time_without_zone_is_read_in_the_plans_zone(tmp_path: Path) -> None:
    times = ["2024-06-01 01:59:59.999999", "2024-06-01 02:00:00", "2024-06-02 01:59:59.999999", "2024-06-02 02:00:00"]
    address = times_file(tmp_path, "TIMESTAMP", times)
    with opened(address) as database:
        table = documented(database, EVENTS)
        assert ids(database, table, WindowRows(utc(2024, 6, 1), utc(2024, 6, 2), "Europe/Berlin")) == [1, 2]
        assert database.count_outside(table, utc(2024, 6, 1), utc(2024, 6, 2), "Europe/Berlin") == 2
        assert database.time_bounds((table,), "Europe/Berlin") == (
            datetime(2024, 6, 1, 1, 59, 59, 999999, BERLIN),
            datetime(2024, 6, 2, 2, 0, 0, 0, BERLIN),
        )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("kind", ["TIMESTAMP_NS", "TIMESTAMPTZ_NS"])
@pytest.mark.parametrize("year", [1960, 2025])
def test_bounds_and_windows_round_a_nanosecond_to_its_own_microsecond(
    kind: str, zone: str, year: int, tmp_path: Path
) -> None:
    edge = datetime(year, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    second = timedelta(seconds=1)
    written = [f"{year - 1}-12-31 23:59:59.9999996", f"{year}-01-01 00:00:00", f"{year}-01-01 00:00:00.0000009"]
    if kind == "TIMESTAMPTZ_NS":
        offset = datetime(year, 1, 1, tzinfo=ZoneInfo(zone)).strftime("%z")
        written = [f"{text}{offset[:3]}" for text in written]
    with opened(times_file(tmp_path, kind, written)) as database:
        table = documented(database, EVENTS, time_columns={EVENTS: "ts"})
        assert database.time_bounds((table,), zone) == (edge - timedelta(microseconds=1), edge)
        assert ids(database, table, WindowRows(edge - second, edge, zone)) == [0]
        assert ids(database, table, WindowRows(edge, edge + second, zone)) == [1, 2]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> DatabaseAddress:
    """500,000 rows, some deleted and some updated, so that row ids have holes."""
    return make_file(
        tmp_path_factory.mktemp("large") / "x.duckdb",
        """CREATE TABLE events AS
        SELECT range AS id, TIMESTAMP '2024-01-01' + to_seconds(range) AS ts, 'host_' || (range % 50) AS host
        FROM range(500000)""",
        "DELETE FROM events WHERE id % 7 = 0 OR id BETWEEN 150000 AND 350000",
        "UPDATE events SET host = host || '!' WHERE id % 11 = 0",
        "CREATE VIEW v AS SELECT * FROM events",
    )


@pytest.mark.parametrize("parts", [1, 3, 100])
def test_parts_are_disjoint_and_together_yield_all_rows(large: DatabaseAddress, parts: int) -> None:
    with opened(large) as database:
        table = documented(database, EVENTS)
        for rows in (AllRows(), WindowRows(utc(2024, 1, 2), utc(2024, 1, 6))):
            scans = database.split(Scan(table, rows), parts)
            assert 1 <= len(scans) <= parts
            found = ids(database, table, rows)
            parted = [
                id_ for scan in scans for id_ in rows_of(database, table, rows, scan.part).column("id").to_pylist()
            ]
            assert sorted(parted) == found
            assert 0.5 < sum(map(database.estimate, scans)) / database.estimate(Scan(table, rows)) < 2
            if parts == 3 and isinstance(rows, AllRows):
                assert len(scans) == 3


def test_a_view_and_an_empty_table_are_not_cut(large: DatabaseAddress, tmp_path: Path) -> None:
    view = TableName("main", "v")
    with opened(large) as database:
        table = documented(database, view, tables=(view,))
        assert database.split(Scan(table, AllRows()), 4) == [Scan(table, AllRows())]
    with opened(make_file(tmp_path / "x.duckdb", "CREATE TABLE events (id INTEGER)")) as database:
        table = documented(database, EVENTS)
        assert database.split(Scan(table, AllRows()), 4) == [Scan(table, AllRows())]
        assert (database.estimate(Scan(table, AllRows())), rows_of(database, table).num_rows) == (0, 0)
        assert database.time_bounds((table,)) is None


def test_an_estimate_is_near_the_truth_and_a_part_of_another_database_is_refused(large: DatabaseAddress) -> None:
    with opened(large) as database:
        table = documented(database, EVENTS)
        estimate = database.estimate(Scan(table, AllRows()))
        rows = rows_of(database, table)
        with pytest.raises(DatabaseError, match="ctid:1-2"):
            rows_of(database, table, part="ctid:1-2")
    assert 0.5 < estimate / rows.nbytes < 2


def test_a_scan_left_early_leaves_the_connection_usable_and_an_error_of_its_reader_stays_its_own(
    large: DatabaseAddress,
) -> None:
    def write() -> None:
        with database.scan(Scan(table, AllRows())) as batches:
            next(batches)
            with database.scan(Scan(table, AllRows())) as others:  # two scans side by side
                next(others)
            raise OSError("disk full")

    with opened(large) as database:
        table = documented(database, EVENTS)
        with pytest.raises(OSError, match="disk full"):
            write()
        assert rows_of(database, table, WindowRows(utc(2024, 1, 2), utc(2024, 1, 3))).num_rows > 0


def test_a_column_that_changed_since_the_extraction_is_named(tmp_path: Path) -> None:
    address = make_file(tmp_path / "x.duckdb", "CREATE TABLE events (id INTEGER, b INTEGER)")
    with opened(address) as database:
        table = documented(database, EVENTS)
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("ALTER TABLE events ALTER b TYPE VARCHAR")
    with opened(address) as database, pytest.raises(DatabaseError, match=r"main\.events\.b was INTEGER.*now VARCHAR"):
        rows_of(database, table)


def test_a_view_runs_once_to_be_read_and_its_small_batches_are_joined(tmp_path: Path) -> None:
    """A look at its first rows would run an aggregation twice."""
    address = make_file(
        tmp_path / "v.duckdb",
        "CREATE TABLE base AS SELECT range AS n FROM range(50_000)",
        "CREATE VIEW events AS SELECT n, count(*) AS many FROM base GROUP BY n",
    )
    with opened(address) as database, database._session.cursor() as log:
        table = documented(database, EVENTS, tables=(EVENTS,))
        log.execute("CALL enable_logging('QueryLog')")
        with database.scan(Scan(table, AllRows())) as batches:
            sizes = [batch.num_rows for batch in batches]
        queries = [message for (message,) in log.execute("SELECT message FROM duckdb_logs").fetchall()]
    assert len([query for query in queries if '"many"' in query]) == 1, queries
    assert (sum(sizes), len(sizes)) == (50_000, 4)


def test_an_error_in_the_middle_of_a_view_is_ours(tmp_path: Path) -> None:
    address = make_file(
        tmp_path / "x.duckdb",
        "CREATE TABLE t AS SELECT range AS id FROM range(300000)",
        "CREATE VIEW events AS SELECT CASE WHEN id = 299999 THEN error('no such id') ELSE id END AS id FROM t",
    )
    with opened(address) as database:
        table = documented(database, EVENTS, tables=(EVENTS,))
        with pytest.raises(DatabaseError, match=r"reading main\.events failed.*no such id"):
            rows_of(database, table)


_MEASURE = """
import re, sys
from pathlib import Path
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.databases.open import open_database
database = open_database(DatabaseAddress("x", sys.argv[1]))
(table,) = database.extract(Selection()).tables
largest = rows = 0
with database.scan(Scan(table, AllRows())) as batches:
    for batch in batches:
        largest, rows = max(largest, batch.nbytes), rows + batch.num_rows
database.close()
print(rows, largest >> 20, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10)
"""


def test_a_view_that_spills_leaves_nothing_behind_and_rows_that_need_more_memory_say_how_to_allow_it(
    tmp_path: Path,
) -> None:
    whole = make_file(
        tmp_path / "x.duckdb",
        "CREATE TABLE t AS SELECT range AS id FROM range(600000)",
        "CREATE VIEW events AS SELECT id, hash(id) AS a, repeat('x', 200) || id AS b FROM t ORDER BY a",
        "CREATE VIEW huge AS SELECT list(a || b) AS c FROM events",
    )
    huge = TableName("main", "huge")

    def spilled() -> list[Path]:
        return list(process_folder().glob("duckdb/*"))

    with opened(DatabaseAddress("shop", f"{whole.uri}?memory_limit=96MiB")) as database:
        table = documented(database, EVENTS, tables=(EVENTS,))
        with database.scan(Scan(table, AllRows())) as batches:
            rows = next(batches).num_rows
            assert spilled()
            assert rows + sum(batch.num_rows for batch in batches) == 600_000
        with pytest.raises(DatabaseError, match=r"\?memory_limit=2GiB"):
            rows_of(database, documented(database, huge, tables=(huge,)))
    assert list(tmp_path.iterdir()) == [tmp_path / "x.duckdb"]
    assert not spilled()


@pytest.mark.parametrize(("width", "rows"), [(1000, 600_000), (40_000, 9000)])
@pytest.mark.slow
def test_memory_stays_bounded_whatever_the_table(width: int, rows: int, tmp_path: Path) -> None:
    text = f"repeat(chr(65 + (range % 26)::INTEGER), {width})"
    statement = f"CREATE TABLE t AS SELECT range AS id, {text} AS s FROM range({rows})"
    address = make_file(tmp_path / "x.duckdb", "SET threads = 1", statement)
    done = subprocess.run([sys.executable, "-c", _MEASURE, address.uri], capture_output=True, text=True, check=True)
    found, largest, peak = map(int, done.stdout.split())
    assert found == rows
    assert largest <= 32
    assert peak < 512
