"""Large untimed tables are divided by ranges of their primary keys, and a change rewrites its range only."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.changes import Changes, find_changes
from snapshot_assets.engine.export.compare import Comparison, compare
from snapshot_assets.errors import ConflictError, ExportFailedError
from snapshot_assets.format.chunk_parts import KeyRange, divisions
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows, rollback
from snapshot_assets_tests.engine.compact.compactions import Meanwhile, compact
from snapshot_assets_tests.engine.export.test_changes import START, Following
from snapshot_assets_tests.engine.restore.imports import Into

ROWS = 5000
PLAN = {"format": "csv", "max_file_size": "64KiB", "start_time": None, "end_time": None}
SMALL = "CREATE TABLE kinds (id int PRIMARY KEY); INSERT INTO kinds VALUES (1)"


def items(key: str = "int", value: str = "i", rows: int = ROWS, order: str = "i") -> str:
    """Return statements that make `items`: with a key of a type, its value of row `i`, and the order of the rows."""
    return (
        f"CREATE TABLE items (id {key} PRIMARY KEY, note text);"
        f" INSERT INTO items SELECT {value}, repeat('x', 60) FROM generate_series(1, {rows}) AS g(i) ORDER BY {order}"
    )


@dataclass
class Divided(Following):
    """A database with the large table `items`, whose exports have small files."""

    plan: dict[str, Any] = field(default_factory=lambda: dict(PLAN))

    def begin(self, tables: str = "") -> None:
        self.sql(tables or f"{items()}; {SMALL}")
        self.sql("ANALYZE")
        self.whole()

    @property
    def schema(self) -> str:
        return "main" if "duckdb" in self.source else "public"

    def whole(self, *, replace: bool = False) -> None:
        """Export everything."""
        with self.run(**self.plan).open() as export:
            list(export.export(self.state.expected_chunks() or [UNTIMED_CHUNK], replace_completed=replace))
            export.seal()

    def follow(self) -> Changes:
        """Export again what changed, and seal."""
        with self.run(**self.plan).open() as export:
            changes = find_changes(export, [UNTIMED_CHUNK])
            list(export.commits(list(changes.only), replace_completed=True, only=changes.only))
            export.seal()
        return changes

    @property
    def ranges(self) -> list[KeyRange]:
        """The ranges of `items`, in order of the key; none if it is one part."""
        found = divisions(self.state.chunks[UNTIMED_CHUNK].chunk.ranges).get((self.schema, "items"), [])
        assert found is not None
        return found

    def rows_in(self, each: KeyRange) -> int:
        return sum(known.file.rows for known in self.state.live_files() if known.file.attempt in each.attempts)

    def changed_by(self, statements: str) -> list[int]:
        """Follow statements; returns which ranges have other files then. The files of all others are the same."""
        before, files = self.ranges, self.files()
        self.sql(statements)
        self.follow()
        after = self.files()
        self.check()
        assert [(each.low, each.high) for each in self.ranges] == [(each.low, each.high) for each in before]
        changed = [n for n, (old, new) in enumerate(zip(before, self.ranges, strict=True)) if old != new]
        stale = {attempt for n in changed for attempt in before[n].attempts}
        gone = {path for path, table in files.items() if path not in after and table == "0 items"}
        assert all(any(attempt in path for attempt in stale) for path in gone)
        return changed

    def check(self) -> None:
        """Compare the snapshot with its source by value, and see that it is proved current without values."""
        with self.run(**self.plan).look() as opened:
            assert set(compare(opened).counts) <= {Comparison.EQUAL}
            changes = find_changes(opened, [UNTIMED_CHUNK])
        assert (changes.changed, changes.compared) == ([], 0)
        assert not verify(self.store).damaged


@pytest.fixture
def in_postgresql(postgresql_database: str, tmp_path: Path) -> Divided:
    return Divided(postgresql_database, tmp_path)


@pytest.fixture(params=["duckdb", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Divided:
    if request.param == "postgresql":
        in_postgresql: Divided = request.getfixturevalue("in_postgresql")
        return in_postgresql
    return Divided(f"duckdb://{tmp_path}/source.duckdb", tmp_path)


def test_a_large_table_is_divided_into_ranges_of_similar_size(place: Divided) -> None:
    place.begin()
    ranges = place.ranges
    assert len(ranges) >= 4
    assert {(each.table, each.column, each.type.lower()) for each in ranges} == {("items", "id", "integer")}
    rows = [place.rows_in(each) for each in ranges]
    assert sum(rows) == ROWS
    assert max(rows) < 2 * ROWS / len(ranges)
    place.check()
    assert place.follow().changed == []


def test_changes_rewrite_their_ranges_and_keep_all_other_files(place: Divided) -> None:
    place.begin()
    bounds, last = [int(each.low or 0) for each in place.ranges], len(place.ranges) - 1
    edges = f"UPDATE items SET note = 'y' WHERE id IN ({bounds[1] - 1}, {bounds[2]})"
    assert place.changed_by(edges) == [0, 2]
    assert place.changed_by(f"DELETE FROM items WHERE id = {bounds[2] + 1}; INSERT INTO kinds VALUES (2)") == [2]
    assert place.changed_by(f"INSERT INTO items VALUES ({ROWS + 7}, 'behind the last')") == [last]
    assert place.changed_by(f"UPDATE items SET id = -8 WHERE id = {bounds[3] + 1}") == [0, 3]  # from range to range


def test_two_rows_that_change_places_change_both_ranges(place: Divided) -> None:
    place.begin()
    one, other = (int(each.low) + 1 for each in place.ranges[1:3])
    swap = f"DELETE FROM items WHERE id IN ({one}, {other});"
    swap += f" INSERT INTO items VALUES ({one}, 'other'), ({other}, 'one')"
    assert place.changed_by(swap) == [1, 2]


def test_a_range_that_is_emptied_stays(place: Divided) -> None:
    place.begin()
    low, high = place.ranges[1].low, place.ranges[1].high
    assert place.changed_by(f"DELETE FROM items WHERE id >= {low} AND id < {high}") == [1]
    assert place.ranges[1].attempts == ()
    assert place.changed_by(f"INSERT INTO items VALUES ({low}, 'again')") == [1]
    count = len(place.ranges)
    assert place.changed_by("DELETE FROM items" if "duckdb" in place.source else "TRUNCATE items") == list(range(count))
    assert [each.attempts for each in place.ranges] == [()] * count
    assert place.changed_by(f"INSERT INTO items SELECT i, 'back' FROM generate_series(1, {ROWS}) AS g(i)") == list(
        range(count)
    )


def test_a_range_that_outgrew_twice_its_size_is_divided_further(place: Divided) -> None:
    place.begin()
    before = place.ranges
    place.sql(f"INSERT INTO items SELECT i, repeat('x', 60) FROM generate_series({ROWS + 1}, {2 * ROWS}) AS g(i)")
    place.sql("ANALYZE")
    place.follow()
    assert place.ranges[: len(before) - 1] == before[:-1]
    assert len(place.ranges) > len(before) + 2
    assert place.ranges[len(before) - 1].low == before[-1].low
    assert sum(map(place.rows_in, place.ranges)) == 2 * ROWS
    place.check()


def test_an_export_of_everything_reads_the_ranges_of_before(place: Divided) -> None:
    place.begin()
    before = [(each.low, each.high) for each in place.ranges]
    place.sql("DELETE FROM items WHERE id % 2 = 0")
    place.sql("ANALYZE")
    place.whole(replace=True)
    assert [(each.low, each.high) for each in place.ranges] == before
    place.check()


def test_another_key_divides_anew_or_not_at_all(in_postgresql: Divided) -> None:
    in_postgresql.plan |= {"kind": "continuous", "start_time": START, "chunk_time_window": "365d"}
    in_postgresql.begin()
    in_postgresql.sql("ALTER TABLE items ALTER COLUMN id TYPE bigint; ANALYZE")
    in_postgresql.follow()
    assert {each.type for each in in_postgresql.ranges} == {"bigint"}
    in_postgresql.sql("ALTER TABLE items DROP CONSTRAINT items_pkey; UPDATE items SET note = '' WHERE id = 1")
    in_postgresql.follow()
    assert in_postgresql.ranges == []
    in_postgresql.check()
    in_postgresql.sql("DROP TABLE items")
    in_postgresql.follow()
    in_postgresql.check()


KEYS = {
    "bigint": "i * 1000000000000 - 5000000000000",
    "date": "date '1900-01-01' + CAST(i AS int)",
    "timestamp": "timestamp '2025-01-01' + i * interval '1 second'",
    "uuid": "CAST(lpad(to_hex(i * 1000), 8, '0') || '-0000-7000-8000-000000000000' AS uuid)",
}


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_types_with_ranges(place: Divided, key: str) -> None:
    place.plan["time_columns"] = {f"{place.schema}.items": None}
    place.begin(items(key, KEYS[key]))
    assert len(place.ranges) >= 4
    assert place.changed_by(f"UPDATE items SET note = 'y' WHERE id = '{place.ranges[2].low}'") == [2]
    assert place.changed_by(f"DELETE FROM items WHERE id < '{place.ranges[1].low}'") == [0]


def test_a_composite_key_is_divided_by_its_first_column(place: Divided) -> None:
    columns = "CREATE TABLE items (note text, part int, id int, PRIMARY KEY (id, part))"
    place.begin(f"{columns}; INSERT INTO items SELECT repeat('x', 60), i, i / 3 FROM generate_series(1, 5000) AS g(i)")
    assert {each.column for each in place.ranges} == {"id"}
    low = place.ranges[1].low
    assert place.changed_by(f"UPDATE items SET note = 'y' WHERE id = {low} AND part % 3 = 1") == [1]
    assert place.changed_by(f"DELETE FROM items WHERE id = {low}") == [1]


UNDIVIDED = {
    "text": items("text", "lpad(CAST(i AS text), 8, '0')"),  # a collation may order it otherwise tomorrow
    "numeric": items("numeric(12, 2)", "i"),
    "in no order": items(order="(i * 7919) % 5003"),
    "small": items(rows=100),
    "no key": f"{items()}; CREATE TABLE pieces AS SELECT * FROM items; DROP TABLE items",
}


@pytest.mark.parametrize("why", UNDIVIDED)
def test_other_tables_are_one_part(place: Divided, why: str) -> None:
    place.begin(UNDIVIDED[why])
    assert place.ranges == []
    if why != "no key":
        place.sql("UPDATE items SET note = 'y' WHERE id = (SELECT max(id) FROM items)")
        place.follow()
    place.check()


def test_a_table_that_was_never_analyzed_is_one_part(in_postgresql: Divided) -> None:
    in_postgresql.sql(f"ALTER SYSTEM SET autovacuum = off; {items()}")
    in_postgresql.whole()
    assert in_postgresql.ranges == []


def test_bounds_of_a_masked_key_are_not_recorded(place: Divided) -> None:
    place.plan["mask"] = {f"{place.schema}.items.id": "id % 7"}
    place.begin()
    assert place.ranges == []
    assert place.state.live_files()


def test_restores_do_not_see_the_ranges(place: Divided) -> None:
    place.begin()
    into = Into(f"duckdb://{place.folder}/restored.duckdb")
    into.restore(place.store)
    place.changed_by("UPDATE items SET note = 'y' WHERE id = 2000; DELETE FROM items WHERE id = 4000")
    into.restore(place.store, replace=True)
    with duckdb.connect(f"{place.folder}/restored.duckdb") as connection:
        found = connection.sql(
            f"SELECT count(*), count(DISTINCT id), sum(id), max(note) FROM {place.schema}.items"
        ).fetchall()
    assert found == [(ROWS - 1, ROWS - 1, ROWS * (ROWS + 1) // 2 - 4000, "y")]


def test_a_compaction_of_small_files_leaves_ranges_alone(place: Divided) -> None:
    place.begin()
    files = place.files()
    assert compact(place.store) == {}
    assert place.files() == files
    compact(place.store, chunks=(UNTIMED_CHUNK,))  # asked for, it makes the table one part
    assert place.ranges == []
    place.check()
    place.sql("UPDATE items SET note = 'y' WHERE id = 2000")
    place.follow()
    assert len(place.ranges) >= 4
    place.check()


def test_a_table_with_erased_rows_is_one_part(in_postgresql: Divided) -> None:
    in_postgresql.begin()
    delete_rows(Catalog.open_for_writing(in_postgresql.store), TableName("public", "items"), "id = 2000")
    assert in_postgresql.follow().changed == []
    compact(in_postgresql.store)
    assert in_postgresql.ranges == []
    assert in_postgresql.follow().changed == []
    in_postgresql.sql("DELETE FROM items WHERE id = 2000")
    in_postgresql.follow()
    assert len(in_postgresql.ranges) >= 4
    in_postgresql.check()


def test_ranges_that_are_merged_meanwhile_are_not_replaced(place: Divided) -> None:
    place.begin()
    place.sql("UPDATE items SET note = 'y' WHERE id = 2000")
    with place.run(**place.plan).open() as export:
        only = find_changes(export, [UNTIMED_CHUNK]).only
        compact(place.store, chunks=(UNTIMED_CHUNK,))
        with pytest.raises(ConflictError, match="Run again"):
            list(export.commits(list(only), replace_completed=True, only=only))
    place.follow()
    place.check()


@pytest.mark.parametrize("table", ["kinds", "items"])
def test_a_compaction_while_a_range_is_read(place: Divided, table: str) -> None:
    place.begin()
    place.sql("UPDATE items SET note = 'y' WHERE id = 2000")
    done = list[Any]()
    merge = partial(compact, place.store, chunks=(UNTIMED_CHUNK,), tables=(TableName(place.schema, table),))
    with place.run(**place.plan).open() as export:
        only = find_changes(export, [UNTIMED_CHUNK]).only
        reading = replace(export, run=replace(export.run, runner=Meanwhile(lambda: done or done.append(merge()))))
        commits = reading.commits(list(only), replace_completed=True, only=only)
        if table == "items":
            with pytest.raises(ExportFailedError, match="merged meanwhile by a compaction"):
                list(commits)
        else:
            merged = {path for path, name in place.files().items() if name == "0 kinds"}
            list(commits)
            assert {path for path, name in place.files().items() if name == "0 kinds"}.isdisjoint(merged)
        export.seal()
    if table == "items":
        place.follow()
    place.check()


def test_ranges_survive_checkpoints_rollbacks_and_the_loss_of_the_log(place: Divided) -> None:
    place.begin()
    before, revision = place.ranges, place.state.revision
    place.changed_by("UPDATE items SET note = 'y' WHERE id = 2000")
    changed = place.ranges
    write_checkpoint(place.store, place.state)
    assert place.ranges == changed
    rollback(Catalog.open_for_writing(place.store), revision)
    assert place.ranges == before
    place.follow()
    before = place.ranges
    for path in [*place.store.list("transactions/"), *place.store.list("checkpoints/")]:
        place.store.delete(path.path)
    for hint in ("manifest.json", "SHA256SUMS"):
        (place.folder / "snapshot" / hint).unlink()
    rebuild(place.store, accept_undeleted=True)
    assert place.ranges == before
    [changed] = place.changed_by("UPDATE items SET note = 'z' WHERE id = 2000")
    assert int(place.ranges[changed].low) <= 2000 < int(place.ranges[changed].high)


def test_a_killed_export_is_adopted_with_its_ranges(place: Divided, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("snapshot_assets.catalog.rules.complete_chunks", _killed)
        with pytest.raises(_Killed):
            place.begin()
    with place.run(**place.plan).open() as export:
        [outcome] = export.export([UNTIMED_CHUNK])
        export.seal()
    assert outcome.status == "adopted"
    assert len(place.ranges) >= 4
    place.check()


class _Killed(BaseException):
    """Ends a run without its cleaning up."""


def _killed(*_: object) -> None:
    raise _Killed


def test_ranges_tile_or_are_none() -> None:
    def tiled(*ends: tuple[str, str]) -> bool:
        return divisions(KeyRange("s", "t", "id", "int", *each) for each in ends) != {("s", "t"): None}

    assert tiled(("", ""))
    assert tiled(("5", ""), ("", "5"))
    assert not tiled(("", "5"), ("6", ""))
    assert not tiled(("", "5"))
    assert not tiled(("", "5"), ("5", ""), ("5", ""))
    assert not tiled(("", "5"), ("5", "7"), ("7", "5"))
    one, other = (KeyRange("s", "t", "id", "int", *ends, ("aa",)) for ends in (("", "5"), ("5", "")))
    assert divisions([one, other]) == {("s", "t"): None}  # one attempt in two ranges


@given(st.lists(st.integers(1, 10**6), unique=True, min_size=1), st.randoms())
def test_ranges_are_put_in_the_order_of_the_key(bounds: Sequence[int], random: Any) -> None:
    ends = ["", *map(str, sorted(bounds)), ""]
    ranges = [KeyRange("s", "t", "id", "int", low, high) for low, high in pairwise(ends)]
    shuffled = random.sample(ranges, len(ranges))
    assert divisions(shuffled) == {("s", "t"): ranges}
    assert all(found is None for found in divisions(shuffled[1:]).values())
