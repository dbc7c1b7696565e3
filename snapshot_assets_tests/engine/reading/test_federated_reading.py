"""Several writers' locations, read in Spark as one."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.engine.reading.federated import plan_federated
from snapshot_assets.engine.reading.options import parse_options
from snapshot_assets.engine.reading.tasks import PlannedRead
from snapshot_assets.errors import FederationError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.cli.helpers import DAY, START, export, make_plan, store_of
from snapshot_assets_tests.engine.reading.data_source import Load, rows

pytestmark = pytest.mark.slow


class Root:
    """A folder with a location for each writer, each exported from a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def export(
        self, writer: str, first_day: int, values: str, *, columns: str = "t TIMESTAMPTZ, id INT, note TEXT"
    ) -> None:
        source = self.folder / f"{writer}.duckdb"
        source.unlink(missing_ok=True)
        with duckdb.connect(str(source)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"CREATE TABLE m ({columns}); INSERT INTO m {values}")
        start = START + first_day * DAY
        uri = (self.folder / "root" / writer / "shop").as_uri()
        plan = make_plan(f"duckdb://{source}", uri, start_time=start, end_time=start + 3 * DAY)
        export(plan, store_of(uri))

    @property
    def uri(self) -> str:
        return (self.folder / "root").as_uri()

    def plan(self, **options: str) -> PlannedRead:
        given = {"path": self.uri, "table": "main.m", "federation": "true"}
        read = plan_federated(
            store_of(self.folder / "root"),
            lambda *names: store_of(self.folder.joinpath("root", *names)),
            parse_options(given | options, {}),
        )
        pickle.dumps((read.read, read.work))
        return read

    def rows(self, **options: str) -> list[Any]:
        read = self.plan(**options)
        batches = [batch for work in read.work for batch in read.read(work)]
        return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


HOURS = "SELECT TIMESTAMPTZ '{start}' + to_hours(n::INT), n, '{note}' FROM range({first}, {end}) r(n)"
KEYED = "t TIMESTAMPTZ, id INT, note TEXT, PRIMARY KEY ({key})"


def hours(first: int, end: int, note: str) -> str:
    """Rows of some hours since the start; `id` counts them."""
    return HOURS.format(start=START.isoformat(), first=first, end=end, note=note)


def expected(*parts: tuple[int, int, str]) -> list[Any]:
    found = [(START + timedelta(hours=n), n, note) for first, end, note in parts for n in range(first, end)]
    return sorted(found, key=repr)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_spark_reads_adjoining_windows_of_two_writers_with_every_row_once(root: Root, load: Load) -> None:
    root.export("a", 0, hours(0, 72, "a"))
    root.export("b", 3, hours(72, 144, "b"))
    assert root.rows() == expected((0, 72, "a"), (72, 144, "b"))
    some = load(root.uri, "main.m", federation=True, start="2025-01-03T22:00:00Z", end="2025-01-04T02:00:00Z")
    assert rows(some) == expected((70, 72, "a"), (72, 74, "b"))


def test_a_column_that_one_writer_lacks_is_null_there(root: Root) -> None:
    root.export("a", 0, "VALUES ('2025-01-01', 1)", columns="t TIMESTAMPTZ, id SMALLINT")
    root.export("b", 3, "VALUES ('2025-01-04', 70000, 'b')")
    assert root.rows(columns="id, note") == [(1, None), (70000, "b")]


def test_overlapping_windows_are_refused(root: Root) -> None:
    root.export("a", 0, hours(0, 72, "a"))
    root.export("b", 2, hours(48, 120, "b"))
    with pytest.raises(FederationError, match=r"'a' overlaps window 1 .* of writer 'b'"):
        root.plan()


@pytest.mark.parametrize("key", ["t", "id", "id, t"])
def test_with_dedupe_the_row_of_the_newest_seal_stays(root: Root, key: str) -> None:
    columns = KEYED.format(key=key)
    root.export("b", 2, hours(50, 120, "b"), columns=columns)
    root.export("a", 0, hours(0, 72, "a"), columns=columns)  # sealed last
    whole = expected((0, 72, "a"), (72, 120, "b"))
    assert root.rows(dedupe="primary_key") == whole
    assert root.rows(dedupe="primary_key", columns="note") == sorted([(row[2],) for row in whole])
    late = root.rows(dedupe="primary_key", start="2025-01-03T23:00:00Z", end="2025-01-04T01:00:00Z", columns="id, note")
    assert late == [(71, "a"), (72, "b")]


def test_a_row_that_moved_in_time_is_there_once(root: Root) -> None:
    """Its key does not hold the time, so windows that do not overlap may hold it twice."""
    columns = KEYED.format(key="id")
    root.export("a", 0, "VALUES ('2025-01-01', 1, 'old'), ('2025-01-02', 2, 'old')", columns=columns)
    root.export("b", 3, "VALUES ('2025-01-04', 1, 'new')", columns=columns)
    assert root.rows(dedupe="primary_key", columns="id, note") == [(1, "new"), (2, "old")]
    assert root.rows(dedupe="primary_key", columns="id", end="2025-01-03T00:00:00Z") == [(2,)]


@pytest.mark.parametrize(
    ("key", "deleted"),
    [("id", "id = 60"), ("id, t", "id >= 48"), ("id", "id >= 0"), ("id, t", "note = 'a' and id < 65")],
)
def test_a_row_that_was_deleted_is_not_brought_back_by_an_older_writer(root: Root, key: str, deleted: str) -> None:
    """Also where the deletion took a whole file of the newer writer, or columns that are not asked for."""
    columns = KEYED.format(key=key)
    root.export("b", 2, hours(50, 120, "b"), columns=columns)
    root.export("a", 0, hours(0, 72, "a"), columns=columns)
    delete_rows(Catalog.open_for_writing(store_of(root.folder / "root/a/shop")), TableName("main", "m"), deleted)
    query = f"SELECT id FROM range(72) r(id), (SELECT 'a' AS note) WHERE {deleted}"
    gone = {n for (n,) in duckdb.sql(query).fetchall()}
    wanted = [row for row in expected((0, 72, "a"), (72, 120, "b")) if row[1] not in gone]
    assert root.rows(dedupe="primary_key") == wanted
    assert root.rows(dedupe="primary_key", columns="id") == sorted([(row[1],) for row in wanted], key=repr)
    ranged = root.rows(dedupe="primary_key", columns="id", start="2025-01-03T12:00:00Z", end="2025-01-04T03:00:00Z")
    assert ranged == sorted([(row[1],) for row in wanted if 60 <= row[1] < 75], key=repr)


def test_rows_that_an_older_writer_deleted_are_not_there_and_hide_nothing(root: Root) -> None:
    columns = KEYED.format(key="id")
    root.export("a", 0, hours(0, 72, "a"), columns=columns)
    delete_rows(
        Catalog.open_for_writing(store_of(root.folder / "root/a/shop")), TableName("main", "m"), "id >= 40 and id < 60"
    )
    root.export("b", 2, hours(50, 120, "b"), columns=columns)
    wanted = [(n, "a") for n in range(40)] + [(n, "b") for n in range(50, 120)]
    assert root.rows(dedupe="primary_key", columns="id, note") == sorted(wanted, key=repr)


def test_a_version_is_read_again(root: Root) -> None:
    root.export("a", 0, hours(0, 72, "a"))
    seal = read_state(store_of(root.folder / "root/a/shop")).seals[-1].revision
    root.export("b", 3, hours(72, 144, "b"))
    assert root.rows(version=f"a={seal}") == expected((0, 72, "a"))
