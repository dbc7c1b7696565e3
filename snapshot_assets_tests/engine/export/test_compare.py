"""`compare`: a snapshot that holds what the database holds is equal, and damage has another verdict than changes."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export import source as source_of_run
from snapshot_assets.engine.export.changes import find_changes
from snapshot_assets.engine.export.compare import Choice, Compared, ComparedPart, Comparison, compare
from snapshot_assets.engine.export.run import ExportRun, OpenExport
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.actions import AddFile, DataFile, RemoveFile
from snapshot_assets.format.documents import chunk_checksum, sha256_hex
from snapshot_assets.format.layout import new_attempt
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.cli.helpers import export, store_of
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.forged import append
from snapshot_assets_tests.servers.postgresql import MakeDatabase

EQUAL, CHANGED, DIFFERENT, UNKNOWN = Comparison
STATEMENTS = (
    "CREATE TABLE items (id int PRIMARY KEY, moment timestamptz, price double precision, secret varchar(20))",
    "INSERT INTO items VALUES (1, '2025-01-01T01:00:00Z', 1, 'kestrel'), (2, '2025-01-01T02:00:00Z', 0.0, 'merlin'),"
    " (3, '2025-01-02T01:00:00Z', NULL, NULL), (4, '2025-01-03T01:00:00Z', 4, 'hobby'), (5, NULL, 5, 'kite')",
    "CREATE TABLE kinds (id int PRIMARY KEY, label varchar(20))",
    "INSERT INTO kinds VALUES (1, 'bird'), (2, NULL)",
)
WINDOWS = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-04T00:00:00Z", "chunk_time_window": "1d"}
Bytes = Callable[[bytes], bytes]


@dataclass
class Shop:
    """A database with a table of three windows and an untimed one, and the folder of its snapshot."""

    uri: str
    folder: Path

    @property
    def schema(self) -> str:
        return "main" if self.uri.startswith("duckdb") else "public"

    @property
    def store(self) -> ObjectStore:
        return store_of(self.folder)

    def plan(self, **fields: Any) -> Plan:
        return Plan(**{"name": "shop", "source": self.uri, "to": self.folder.as_uri(), **WINDOWS, **fields})

    def export(self, **fields: Any) -> None:
        export(self.plan(**fields), self.store)

    def export_changed(self) -> None:
        plan = self.plan()
        with ExportRun(plan, Configuration().source(plan.source), self.store, InlineRunner(), "test").open() as opened:
            changes = find_changes(opened, sorted(opened.catalog.state.chunks))
            list(opened.commits(list(changes.only), replace_completed=True, only=changes.only))
            opened.seal()

    def run(self, *statements: str) -> None:
        if self.uri.startswith("duckdb"):
            make_file(Path(self.uri.removeprefix("duckdb://")), *statements)
        else:
            execute(self.uri, *statements)

    def compare(self, choice: Choice | None = None, **fields: Any) -> Compared:
        with self.looking(**fields) as opened:
            return compare(opened, choice)

    def looking(self, **fields: Any) -> AbstractContextManager[OpenExport]:
        plan = self.plan(**fields)
        return ExportRun(plan, Configuration().source(plan.source), self.store, InlineRunner(), "compare").look()

    def only_unequal(self, **fields: Any) -> ComparedPart:
        [part] = self.compare(**fields).unequal
        return part

    def forge(self, table: str, chunk: int, change: Bytes) -> None:
        """Replace a data file by another whole one; log and hashes are right."""
        state = read_state(self.store)
        files = [known.file for known in state.live_files(chunk)]
        [old] = [file for file in files if file.table == table]
        new, data = self._renamed(old), change(self.store.get(old.path))
        new = replace(new, sha256=sha256_hex(data), bytes=len(data))
        self.store.put(new.path, data)
        rest = [file for file in (*files, new) if file is not old]
        checksum = chunk_checksum((file.path, file.sha256) for file in rest)
        done = replace(state.chunks[chunk].chunk, checksum=checksum)
        append(self.store, RemoveFile(old.path), done, AddFile(new))

    def _renamed(self, file: DataFile) -> DataFile:
        attempt = new_attempt()
        return replace(file, attempt=attempt, path=file.path.replace(file.attempt, attempt))


def with_value(column: str, row: int, value: Any) -> Bytes:
    """Return what sets one value of a Parquet file."""

    def change(data: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(data))
        values = table.column(column).to_pylist()
        values[row] = value
        place = table.schema.get_field_index(column)
        field = table.schema.field(place)
        return _parquet(table.set_column(place, field, pa.array(values, field.type)))

    return change


def _parquet(table: pa.Table) -> bytes:
    written = io.BytesIO()
    pq.write_table(table, written)
    return written.getvalue()


@pytest.fixture(params=["duckdb", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "duckdb":
        uri = make_file(tmp_path / "shop.duckdb", *STATEMENTS).uri
    else:
        uri = request.getfixturevalue("postgresql_database")
        execute(uri, *STATEMENTS)
    return Shop(uri, tmp_path / "location")


@pytest.mark.parametrize("fields", [{}, {"format": "csv"}, {"format": "json"}], ids=["parquet", "csv", "json"])
def test_a_snapshot_of_the_same_rows_is_equal_in_each_format(shop: Shop, fields: dict[str, Any]) -> None:
    shop.export(**fields)
    found = shop.compare(**fields)
    assert found.unequal == []
    # Each window has the timed table; chunk 0 has it for its rows without a time, and the untimed one.
    assert [each.part.chunk for each in found.parts] == [0, 0, 1, 2, 3]
    assert str(found) == "5 tables in 4 chunks compared by value: 5 equal"
    shop.run("UPDATE items SET price = 9 WHERE id = 3")
    assert shop.only_unequal(**fields).part.chunk == 2


def test_an_update_is_a_change_where_rows_have_versions_and_else_unknown(shop: Shop) -> None:
    shop.export()
    shop.run("UPDATE items SET price = 2 WHERE id = 1")
    found = shop.only_unequal()
    has_versions = shop.schema == "public"
    assert found.comparison is (CHANGED if has_versions else UNKNOWN)
    assert found.reason == (
        "rows newer"
        if has_versions
        else "values differ, by a change of the source or by damage: the file was written since, and its rows have no"
        " versions"
    )
    assert (found.part.table.table, found.part.chunk, found.part.exported, found.found) == ("items", 1, 2, 2)


def test_a_forged_file_is_different_and_its_rows_are_named_with_both_values(shop: Shop) -> None:
    shop.export()
    shop.forge("items", 1, with_value("price", 0, 7.0))
    assert not verify(shop.store).damaged  # all hashes are right
    found = shop.only_unequal()
    assert found.comparison is DIFFERENT
    [row] = found.rows
    assert (row.key, row.columns, row.snapshot, row.source) == (
        {"id": "1"},
        ("price",),
        {"price": "7"},
        {"price": "1"},
    )


def test_of_connections_with_states_of_their_own_no_difference_is_damage(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.export()
    shop.forge("items", 1, with_value("price", 0, 7.0))
    original = source_of_run.Source
    monkeypatch.setattr(source_of_run, "Source", lambda *given: replace(original(*given), held=False))
    found = shop.only_unequal()
    assert (found.comparison, found.rows) == (UNKNOWN, ())
    assert found.reason.startswith("the source's connections read states of their own")


def test_negative_zero_is_not_zero(shop: Shop) -> None:
    shop.export()
    shop.forge("items", 1, with_value("price", 1, -0.0))
    [row] = shop.only_unequal().rows
    assert (row.snapshot, row.source) == ({"price": "-0"}, {"price": "0"})


def test_chunk_0_is_compared_too(shop: Shop) -> None:
    shop.export()
    shop.forge("kinds", 0, with_value("label", 1, "fish"))
    found = shop.only_unequal()
    assert (found.part.chunk, found.part.table.table, found.comparison) == (0, "kinds", DIFFERENT)
    assert found.rows[0].source == {"label": "null"}


def test_masks_apply_and_values_of_masked_columns_are_not_named(shop: Shop) -> None:
    fields = {"mask": {f"{shop.schema}.items.secret": "upper(secret)"}}
    shop.export(**fields)
    assert shop.compare(**fields).unequal == []
    shop.forge("items", 1, with_value("secret", 0, "KESTREL2"))
    found = shop.only_unequal(**fields)
    reason = "only masked columns differ, and masks may read more than the row"
    assert (found.comparison, found.reason, found.rows) == (UNKNOWN, reason, ())
    shop.forge("items", 1, with_value("price", 0, 7.0))
    found = shop.only_unequal(**fields)
    assert (found.comparison, found.rows[0].columns) == (DIFFERENT, ("price", "secret"))
    assert (found.rows[0].snapshot, "KESTREL" in str(found.rows)) == ({"price": "7"}, False)


def test_a_mask_with_other_values_at_each_reading_is_no_damage(shop: Shop) -> None:
    fields = {"mask": {f"{shop.schema}.items.secret": "substr(random()::varchar, 1, 20)"}}
    shop.export(**fields)
    assert {each.comparison for each in shop.compare(**fields).unequal} == {UNKNOWN}


def test_rows_that_the_log_does_not_count_are_missed_too(shop: Shop) -> None:
    """The number of rows in the log is the snapshot's own, so it proves no change of the source."""
    shop.export()
    shop.forge("items", 1, lambda data: _parquet(pq.read_table(io.BytesIO(data)).slice(0, 1)))
    state = read_state(shop.store)
    [short] = [known.file for known in state.live_files(1)]
    fewer = replace(shop._renamed(short), rows=1)
    shop.store.put(fewer.path, shop.store.get(short.path))
    checksum = chunk_checksum([(fewer.path, fewer.sha256)])
    done = replace(state.chunks[1].chunk, rows=1, checksum=checksum)
    append(shop.store, RemoveFile(short.path), done, AddFile(fewer))
    found = shop.only_unequal()
    assert (found.comparison, found.part.exported, found.found) == (DIFFERENT, 1, 2)
    assert [(row.snapshot, row.key) for row in found.rows] == [(None, {"id": "2"})]


def test_rows_deleted_in_the_source_are_a_change_but_do_not_hide_another_row(shop: Shop) -> None:
    shop.export()
    shop.run("DELETE FROM items WHERE id = 1")
    found = shop.only_unequal()
    has_versions = shop.schema == "public"
    assert (found.comparison, found.found) == (CHANGED if has_versions else UNKNOWN, 1)
    shop.forge("items", 1, with_value("price", 1, 7.0))
    found = shop.only_unequal()
    assert found.comparison is (DIFFERENT if has_versions else UNKNOWN)
    assert [row.key for row in found.rows] == ([{"id": "2"}, {"id": "1"}] if has_versions else [])
    shop.run("DELETE FROM items WHERE id = 2")
    assert shop.only_unequal().found == 0


def test_a_damaged_file_is_different_and_the_others_are_compared(shop: Shop) -> None:
    shop.export()
    [file] = [known.file for known in read_state(shop.store).live_files(2)]
    path = shop.folder / file.path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    found = shop.compare()
    assert [(each.part.chunk, each.comparison) for each in found.unequal] == [(2, DIFFERENT)]
    assert "has SHA-256" in found.unequal[0].error
    assert len(found.parts) == 5


def test_a_table_that_was_dropped_and_columns_that_changed_are_changes(shop: Shop) -> None:
    shop.export()
    shop.run("DROP TABLE kinds", "ALTER TABLE items ADD COLUMN note varchar(20)")
    found = shop.compare()
    kinds, *items = sorted(found.unequal, key=lambda each: each.part.table, reverse=True)
    assert (kinds.comparison, kinds.reason) == (CHANGED, "the source has no such rows any more")
    assert {(each.comparison, each.reason) for each in items} == {(CHANGED, "the columns are others")}


def test_a_view_that_gives_other_rows_is_unknown(shop: Shop) -> None:
    shop.run("CREATE VIEW cheap AS SELECT id, price FROM items WHERE price < 3")
    fields = {"tables": [f"{shop.schema}.cheap"]}
    shop.export(**fields)
    assert shop.compare(**fields).unequal == []
    shop.run("UPDATE items SET price = 2 WHERE id = 1")
    found = shop.only_unequal(**fields)
    assert (found.comparison, "have no versions" in found.reason) == (UNKNOWN, True)


def test_windows_that_several_runs_exported_are_compared_by_their_own_fences(shop: Shop) -> None:
    export(shop.plan(), shop.store, chunks=[0, 1])
    assert shop.compare().missing == 2
    shop.run("UPDATE items SET price = 2 WHERE id = 1", "INSERT INTO items VALUES (6, '2025-01-02T03:00:00Z', 6, 'x')")
    shop.export()
    shop.forge("items", 2, with_value("price", 0, 7.0))
    found = {each.part.chunk: each.comparison for each in shop.compare().unequal}
    assert found == {1: CHANGED if shop.schema == "public" else UNKNOWN, 2: DIFFERENT}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("too", [False, True], ids=["in-snapshot", "in-source-too"])
def test_rows_that_the_snapshot_deleted_are_counted_and_no_difference(shop: Shop, compacted: bool, too: bool) -> None:
    shop.export()
    table = TableName(shop.schema, "items")
    delete_rows(Catalog.open_for_writing(shop.store), table, "id = 1 or id = 3")
    if compacted:
        compact(shop.store)
        assert [each.rows for each in read_state(shop.store).chunks[1].chunk.erased] == [1]
    if too:
        shop.run("DELETE FROM items WHERE id = 1")
    found = shop.compare()
    assert (found.unequal, found.deleted) == ([], 2)
    assert str(found).endswith("5 equal; the snapshot has deleted 2 rows")
    shop.run("UPDATE items SET price = 3 WHERE id = 2")
    assert shop.only_unequal().part.chunk == 1


def test_rows_deleted_before_another_table_of_their_chunk_was_exported_again_are_no_difference(shop: Shop) -> None:
    """What counts is when the rows themselves were exported, also after a compaction."""
    shop.run("INSERT INTO items VALUES (6, NULL, 6, 'hawk')")
    shop.export()
    table = TableName(shop.schema, "items")
    delete_rows(Catalog.open_for_writing(shop.store), table, "id = 5")
    shop.run("UPDATE kinds SET label = 'insect' WHERE id = 1")
    shop.export_changed()
    compact(shop.store)
    delete_rows(Catalog.open_for_writing(shop.store), table, "id = 6")
    found = shop.compare()
    assert (found.unequal, found.deleted) == ([], 2)


def test_an_older_version_is_compared_by_its_own_fence_and_rows(shop: Shop) -> None:
    shop.export()
    older = read_state(shop.store).revision
    shop.run("UPDATE items SET price = 3 WHERE id = 1")
    shop.export_changed()
    assert shop.compare().unequal == []
    found = shop.compare(Choice(at=partial(resolve_version, f"rev:{older}")))
    [unequal] = found.unequal
    assert (found.state.revision, unequal.part.chunk) == (older, 1)
    assert unequal.comparison is (CHANGED if shop.schema == "public" else UNKNOWN)


def test_a_new_row_that_a_tombstone_would_delete_is_a_difference(shop: Shop) -> None:
    shop.export()
    delete_rows(Catalog.open_for_writing(shop.store), TableName(shop.schema, "items"), "price = 4")
    shop.run("INSERT INTO items VALUES (7, '2025-01-03T02:00:00Z', 4, NULL)")
    found = shop.only_unequal()
    assert (found.part.chunk, found.found, found.deleted) == (3, 2, 1)
    assert found.comparison is (CHANGED if shop.schema == "public" else UNKNOWN)


def test_a_forged_file_of_a_window_with_deleted_rows_is_different(shop: Shop) -> None:
    shop.export()
    delete_rows(Catalog.open_for_writing(shop.store), TableName(shop.schema, "items"), "id = 1")
    compact(shop.store)
    shop.forge("items", 1, with_value("price", 0, 7.0))
    found = shop.only_unequal()
    assert (found.comparison, found.deleted) == (DIFFERENT, 1)
    assert {"id": "2"} in [row.key for row in found.rows]


def test_another_database_with_the_same_rows_is_equal_and_other_rows_are_unknown(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = (Shop(make_postgresql_database(), tmp_path / "location") for _ in range(2))
    one.run(*STATEMENTS)
    other.run(*STATEMENTS, "UPDATE items SET price = 9 WHERE id = 3")
    one.export()
    address = replace(Configuration().source(one.uri), uri=other.uri)
    with ExportRun(one.plan(), address, one.store, InlineRunner(), "compare").look() as opened:
        [found] = compare(opened).unequal
    reason = "values differ, by a change of the source or by damage: the database is another one"
    assert (found.part.chunk, found.comparison, found.reason) == (2, UNKNOWN, reason)


def test_tables_and_windows_are_chosen(shop: Shop) -> None:
    shop.export()
    items = TableName(shop.schema, "ITEMS" if shop.schema == "main" else "items")  # as the source compares names
    assert [each.part.chunk for each in shop.compare(Choice(tables=[items])).parts] == [0, 1, 2, 3]
    day = TimeRange(datetime(2025, 1, 1, 23, tzinfo=UTC), datetime(2025, 1, 3, tzinfo=UTC))
    assert [each.part.chunk for each in shop.compare(Choice(range=day)).parts] == [1, 2]
    with pytest.raises(UnknownRelationError, match=r"Neither the source nor the snapshot has rows of nowhere\.items"):
        shop.compare(Choice(tables=[TableName("nowhere", "items")]))


def test_a_range_without_exported_windows_is_refused(shop: Shop) -> None:
    shop.export()
    later = TimeRange(datetime(2025, 1, 4, tzinfo=UTC), datetime(2025, 1, 5, tzinfo=UTC))
    with pytest.raises(PlanError, match="No exported window overlaps 2025-01-04T00:00:00Z/2025-01-05T00:00:00Z"):
        shop.compare(Choice(range=later))


def test_a_value_that_no_file_can_hold_is_a_change_of_its_part(shop: Shop) -> None:
    shop.export()
    shop.run("INSERT INTO items VALUES (9, 'infinity', 9, NULL)")
    found = shop.only_unequal()
    assert (found.part.chunk, found.comparison, found.reason) == (0, CHANGED, "a value that no file can hold")
    assert "infini" in found.error
    with shop.looking() as opened:
        [changed] = find_changes(opened, sorted(opened.catalog.state.chunks)).changed
    assert changed.chunk == 0


def test_a_spark_catalog_is_refused(shop: Shop) -> None:
    shop.export()
    with shop.looking() as opened:
        assert opened.source is not None
        catalog = replace(opened, source=replace(opened.source, address=DatabaseAddress("lake", "spark:lake")))
        with pytest.raises(PlanError, match="Only a database can be compared"):
            compare(catalog)
