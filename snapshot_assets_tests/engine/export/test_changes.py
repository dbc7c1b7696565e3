"""Exports follow their source: the tables of chunks whose rows changed are exported again, and no others."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.changes import Changes, chunks_to_look_at, find_changes
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows, rollback
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.restore.imports import Into

START = datetime(2025, 1, 1, tzinfo=UTC)
DAYS = 4
EVERY = range(DAYS + 1)
TABLES = """
    CREATE TABLE orders (id int PRIMARY KEY, moment timestamptz NOT NULL, status text);
    INSERT INTO orders SELECT i, timestamptz '2025-01-01 00:00:00+00' + i * interval '6 hours', 'new'
        FROM generate_series(0, 15) AS g(i);
    CREATE TABLE readings (moment timestamptz, reading float8);
    INSERT INTO readings SELECT timestamptz '2025-01-01 00:00:00+00' + i * interval '8 hours', i
        FROM generate_series(0, 11) AS g(i);
    CREATE TABLE customers (id int PRIMARY KEY, name text);
    INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace');
    CREATE TABLE prices (id int, price numeric(8, 2));
    INSERT INTO prices VALUES (1, 1.50)
"""


@dataclass
class Following:
    """A database, a location, and runs that follow the one in the other."""

    source: str
    folder: Path

    @property
    def store(self) -> ObjectStore:
        return open_store(parse_location(f"file://{self.folder}/snapshot"))

    @property
    def state(self) -> State:
        return read_state(self.store)

    def run(self, **plan: Any) -> ExportRun:
        fields = {
            "name": "orders",
            "source": self.source,
            "to": f"file://{self.folder}/snapshot",
            "start_time": START,
            "end_time": START + timedelta(days=DAYS),
        }
        return ExportRun(
            Plan(**(fields | plan)), DatabaseAddress("source", self.source), self.store, InlineRunner(), "run"
        )

    def sql(self, statements: str) -> None:
        if self.source.startswith("duckdb"):
            with duckdb.connect(self.source.removeprefix("duckdb://")) as connection:
                connection.execute(f"SET TimeZone = 'UTC'; {statements}")
        else:
            execute(self.source, *(each for each in statements.split(";") if each.strip()))

    def export(self, **plan: Any) -> None:
        with self.run(**plan).open() as export:
            list(export.export(EVERY))
            export.seal()

    def look(self, **plan: Any) -> Changes:
        with self.run(**plan).look() as opened:
            return find_changes(opened, chunks_to_look_at(opened.catalog.state, opened.run.plan, datetime.now(UTC)))

    def refresh(self, **plan: Any) -> Changes:
        """Export again what changed, and seal."""
        with self.run(**plan).open() as export:
            changes = find_changes(export, chunks_to_look_at(self.state, export.run.plan, datetime.now(UTC)))
            list(export.commits(list(changes.only), replace_completed=True, only=changes.only))
            export.seal()
        return changes

    def found(self, **plan: Any) -> dict[tuple[int, str], str]:
        return {(part.chunk, part.table.table): part.answer.reason for part in self.look(**plan).changed}

    def files(self) -> dict[str, str]:
        """Return the live files' tables by path."""
        return {known.file.path: f"{known.file.chunk} {known.file.table}" for known in self.state.live_files()}

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the live files by table."""
        files: dict[str, list[str]] = {}
        for known in self.state.live_files():
            files.setdefault(known.file.table, []).append(f"{self.folder}/snapshot/{known.file.path}")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return {
                table: sorted(connection.read_parquet(paths).fetchall(), key=repr) for table, paths in files.items()
            }

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return what another export into an empty location holds."""
        fresh = replace(self, folder=self.folder / "fresh" / str(len(list(self.folder.glob("fresh/*")))))
        fresh.folder.mkdir(parents=True)
        fresh.export()
        return fresh.rows()


@pytest.fixture(params=["duckdb", "postgresql"])
def following(request: pytest.FixtureRequest, tmp_path: Path) -> Following:
    """An exported database of two timed and two untimed tables, in DuckDB and in PostgreSQL."""
    source = f"duckdb://{tmp_path}/source.duckdb"
    if request.param == "postgresql":
        source = request.getfixturevalue("postgresql_database")
    place = Following(source, tmp_path)
    place.sql(TABLES)
    place.export()
    return place


@pytest.fixture
def in_postgresql(postgresql_database: str, tmp_path: Path) -> Following:
    place = Following(postgresql_database, tmp_path)
    place.sql(TABLES)
    place.export()
    return place


def test_without_changes_nothing_is_read_written_or_sealed(following: Following) -> None:
    before = following.state
    changes = following.refresh()
    assert (changes.changed, changes.compared, changes.chunks) == ([], 0, DAYS + 1)
    assert following.state.revision == before.revision


def test_only_changed_tables_of_changed_windows_are_exported_again(following: Following) -> None:
    before = following.files()
    following.sql("UPDATE orders SET status = 'paid' WHERE id = 5; DELETE FROM readings WHERE reading = 7")
    following.sql("UPDATE customers SET name = 'Ida' WHERE id = 1")
    changes = following.refresh()
    again = {(part.chunk, part.table.table) for part in changes.changed}
    assert again == {(2, "orders"), (3, "readings"), (0, "customers")}
    after = following.files()
    gone = {before[path] for path in before.keys() - after.keys()}
    assert gone == {"2 orders", "3 readings", "0 customers"}
    assert following.rows() == following.expected()
    assert following.state.sealed
    assert not verify(following.store).damaged
    assert following.look().changed == []


def test_counts_tell_rows_that_were_added_and_rows_that_are_fewer(in_postgresql: Following) -> None:
    in_postgresql.sql("DELETE FROM orders WHERE id = 0; INSERT INTO orders VALUES (100, '2025-01-02 12:00+00', 'late')")
    assert in_postgresql.found() == {(1, "orders"): "rows fewer", (2, "orders"): "rows added"}


def test_a_moved_time_changes_both_windows(in_postgresql: Following) -> None:
    in_postgresql.sql("UPDATE orders SET moment = moment + interval '1 day' WHERE id = 1")
    assert in_postgresql.found() == {(1, "orders"): "rows fewer", (2, "orders"): "rows added"}


def test_a_table_that_is_emptied_dropped_or_new_is_followed(following: Following) -> None:
    following.sql("DELETE FROM readings WHERE moment < '2025-01-02'; DROP TABLE prices")
    following.sql("CREATE TABLE parts (id int); INSERT INTO parts VALUES (7)")
    with pytest.raises(Exception, match="parts is not in the snapshot"):
        following.refresh()  # a plan that runs once has fixed tables
    plan = {"kind": "continuous", "end_time": None, "chunk_time_window": "365d"}
    continuous = replace(following, folder=following.folder / "continuous")
    continuous.folder.mkdir()
    with continuous.run(**plan).open() as export:
        list(export.export([0, 1]))
        export.seal()
    following.sql("INSERT INTO parts VALUES (8); DROP TABLE customers; CREATE TABLE tools AS SELECT 1 AS id")
    continuous.refresh(**plan)
    assert sorted(continuous.rows()) == ["orders", "parts", "readings", "tools"]
    assert continuous.rows()["parts"] == [(7,), (8,)]


def test_other_columns_are_a_change_and_comments_are_none(in_postgresql: Following) -> None:
    in_postgresql.sql("COMMENT ON TABLE orders IS 'ours'; ALTER TABLE readings ADD COLUMN unit text DEFAULT 'C'")
    assert in_postgresql.found() == {(chunk, "readings"): "the columns are others" for chunk in range(1, DAYS + 1)}
    in_postgresql.refresh()
    assert in_postgresql.rows() == in_postgresql.expected()


def test_unknown_rows_are_compared_by_value_once(in_postgresql: Following) -> None:
    in_postgresql.sql("CLUSTER orders USING orders_pkey; VACUUM FULL prices")
    before = in_postgresql.files()
    changes = in_postgresql.refresh()
    assert changes.compared == DAYS + 1
    assert changes.changed == []
    assert in_postgresql.files() == before
    assert in_postgresql.look().compared == 0


def test_views_are_compared_each_time(in_postgresql: Following) -> None:
    in_postgresql.sql("CREATE VIEW dear AS SELECT * FROM prices WHERE price > 1")
    tables = {"tables": ["public.orders", "public.dear"]}
    place = replace(in_postgresql, folder=in_postgresql.folder / "view")
    place.folder.mkdir()
    place.export(**tables)
    assert [place.refresh(**tables).compared for _ in range(2)] == [1, 1]
    in_postgresql.sql("UPDATE prices SET price = 2.50")
    assert place.found(**tables) == {(0, "dear"): "other values"}


def test_an_older_location_is_compared_once(in_postgresql: Following) -> None:
    older = in_postgresql.run().open

    def without(fence: dict[str, str]) -> dict[str, str]:
        return {name: fence[name] for name in ("run", "snapshot", "lsn")}

    with older() as export:
        replaced = replace(export, fence=without(dict(export.fence)))
        list(replaced.export(EVERY, replace_completed=True))
        export.seal()
    changes = in_postgresql.refresh()
    assert changes.compared == 2 * DAYS + 2
    assert in_postgresql.look().compared == 0


def test_a_bounded_look_passes_over_older_windows(in_postgresql: Following) -> None:
    in_postgresql.sql("UPDATE orders SET status = 'paid'")
    age = timedelta(
        seconds=int((datetime.now(UTC) - START - timedelta(days=2.5)).total_seconds())
    )  # at any time of day
    plan = {"kind": "continuous", "end_time": None, "late_windows": "changed", "refresh_for": age}
    place = replace(in_postgresql, folder=in_postgresql.folder / "bounded")
    place.folder.mkdir()
    with place.run(**plan).open() as export:
        list(export.export(EVERY))
        export.catalog.refresh()
        looked = chunks_to_look_at(export.catalog.state, export.run.plan, datetime.now(UTC))
    assert looked == [0, 3, 4]


def test_a_killed_refresh_is_finished_by_the_next(in_postgresql: Following) -> None:
    in_postgresql.sql("UPDATE orders SET status = 'paid'; UPDATE customers SET name = 'Ida'")
    with in_postgresql.run().open() as export:
        changes = find_changes(export, list(EVERY))
        commits = export.commits(list(changes.only), replace_completed=True, only=changes.only)
        next(commits)
        commits.close()
    in_postgresql.refresh()
    assert in_postgresql.rows() == in_postgresql.expected()
    assert in_postgresql.look().changed == []


def test_the_log_is_rebuilt_from_receipts_of_partly_exported_chunks(following: Following) -> None:
    following.sql("UPDATE orders SET status = 'paid' WHERE id = 5; DELETE FROM customers WHERE id = 2")
    following.refresh()
    rows, files = following.rows(), following.files()
    for path in [*following.store.list("transactions/"), *following.store.list("checkpoints/")]:
        following.store.delete(path.path)
    for hint in ("manifest.json", "SHA256SUMS"):
        (following.folder / "snapshot" / hint).unlink()
    rebuild(following.store, accept_undeleted=True)
    assert following.files() == files
    assert following.rows() == rows


def test_rows_that_a_compaction_erased_are_no_change(in_postgresql: Following) -> None:
    catalog = Catalog.open_for_writing(in_postgresql.store)
    delete_rows(catalog, TableName("public", "orders"), "id = 4")
    assert in_postgresql.look().changed == []  # while the deletion is pending
    compact(in_postgresql.store)
    erased = {
        (number, each.table): each.rows
        for number, known in in_postgresql.state.chunks.items()
        for each in known.chunk.erased
    }
    assert erased == {(2, "orders"): 1}
    assert in_postgresql.look().changed == []
    in_postgresql.sql("DELETE FROM readings WHERE reading = 3")  # in the same chunk
    in_postgresql.refresh()
    assert (4,) not in [row[:1] for row in in_postgresql.rows()["orders"]]
    assert in_postgresql.look().changed == []
    in_postgresql.sql("UPDATE orders SET status = 'paid' WHERE id = 5")
    in_postgresql.refresh()
    assert in_postgresql.rows() == in_postgresql.expected()


def test_a_chunk_of_kept_and_new_files_is_rolled_back(following: Following) -> None:
    before, rows = following.state.revision, following.rows()
    following.sql("UPDATE orders SET status = 'paid' WHERE id = 5")
    following.refresh()
    rollback(Catalog.open_for_writing(following.store), before)
    assert following.rows() == rows
    following.refresh()
    assert following.rows() == following.expected()


def test_a_restore_takes_over_what_was_exported_again(following: Following) -> None:
    into = Into(f"duckdb://{following.folder}/restored.duckdb")
    into.restore(following.store)
    following.sql("UPDATE orders SET status = 'paid' WHERE id = 5; DELETE FROM customers WHERE id = 2")
    following.refresh()
    restored = into.restore(following.store, replace=True)
    assert {chunk: each.status for chunk, each in restored.outcomes.items() if each.status == "replaced"} == {
        0: "replaced",
        2: "replaced",
    }
    schema = "main" if following.source.startswith("duckdb") else "public"
    with duckdb.connect(f"{following.folder}/restored.duckdb") as connection:
        assert connection.sql(f"SELECT status FROM {schema}.orders WHERE id = 5").fetchall() == [("paid",)]
        assert connection.sql(f"SELECT id FROM {schema}.customers").fetchall() == [(1,)]
        assert connection.sql(f"SELECT count(*) FROM {schema}.orders").fetchall() == [(16,)]
