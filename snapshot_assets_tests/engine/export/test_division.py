"""Large untimed tables are divided by ranges of their primary keys, and a change rewrites its range only."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from snapshot_assets.engine.export.changes import Changes, find_changes
from snapshot_assets.engine.export.compare import Comparison, compare
from snapshot_assets.format.chunk_parts import KeyRange, divisions
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets_tests.engine.export.test_changes import Following

ROWS = 5000
PLAN = {"format": "csv", "max_file_size": "64KiB", "start_time": None, "end_time": None}
SMALL = "CREATE TABLE kinds (id int PRIMARY KEY); INSERT INTO kinds VALUES (1)"


def items(key: str, value: str, rows: int = ROWS) -> str:
    """Return statements that make the table `items`: a key by its type, and the value of row `i`."""
    return (
        f"CREATE TABLE items (id {key} PRIMARY KEY, note text);"
        f" INSERT INTO items SELECT {value}, repeat('x', 60) FROM generate_series(1, {rows}) AS g(i)"
    )


@dataclass
class Divided(Following):
    """A database with the large table `items`, whose exports have small files."""

    def begin(self, tables: str) -> None:
        self.sql(tables)
        self.sql("ANALYZE")
        self.export()

    def export(self) -> None:
        with self.run(**PLAN).open() as export:
            list(export.export([UNTIMED_CHUNK]))
            export.seal()

    def follow(self) -> Changes:
        """Export again what changed, and seal."""
        with self.run(**PLAN).open() as export:
            changes = find_changes(export, [UNTIMED_CHUNK])
            list(export.commits(list(changes.only), replace_completed=True, only=changes.only))
            export.seal()
        return changes

    @property
    def ranges(self) -> list[KeyRange]:
        """The ranges of `items`, in order of the key."""
        [found] = divisions(self.state.chunks[UNTIMED_CHUNK].chunk.ranges).values()
        assert found is not None
        return found

    def changed_ranges(self) -> list[int]:
        """Follow the source; returns which ranges have other files then. All other files stay."""
        before, files = self.ranges, self.files()
        self.follow()
        self.check()
        own = {attempt for each in self.ranges for attempt in each.attempts}
        known = {attempt for each in before for attempt in each.attempts}
        new = [path for path in self.files() if path not in files]
        assert all(table == "0 items" for path, table in self.files().items() if path in new)
        assert {each.low for each in self.ranges} == {each.low for each in before}
        return [n for n, (a, b) in enumerate(zip(before, self.ranges, strict=True)) if a.attempts != b.attempts]

    def check(self) -> None:
        """Compare the snapshot with its source by value, and see that it is proved current without values."""
        with self.run(**PLAN).look() as opened:
            assert set(compare(opened).counts) <= {Comparison.EQUAL}
            changes = find_changes(opened, [UNTIMED_CHUNK])
        assert (changes.changed, changes.compared) == ([], 0)


@pytest.fixture(params=["duckdb", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Divided:
    if request.param == "postgresql":
        return Divided(request.getfixturevalue("postgresql_database"), tmp_path)
    return Divided(f"duckdb://{tmp_path}/source.duckdb", tmp_path)


def test_a_large_table_is_divided(place: Divided) -> None:
    place.begin(f"{items('int', 'i')}; {SMALL}")
    ranges = place.ranges
    assert len(ranges) >= 4
    assert {each.table for each in ranges} == {"items"}
    rows = {each.low: sum(k.file.rows for k in place.state.live_files() if k.file.attempt in each.attempts) for each in ranges}
    assert sum(rows.values()) == ROWS
    assert max(rows.values()) < 2 * ROWS / len(ranges)
    place.check()
