"""File sets: equal to a plain list of files, and as fast for many files."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.state import data_files as file_set
from snapshot_assets.catalog.state import file_columns
from snapshot_assets.catalog.state.bounds import Bounds
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import FileColumns, FileState
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import ColumnStatistics, DataFile

AT = datetime(2025, 1, 1, tzinfo=UTC)


def data_file(chunk: int, number: int) -> DataFile:
    path = f"data/{chunk}/main.m-{number:08x}-0000.parquet"
    bounds = (ColumnStatistics("t", 0, number, number),)
    return DataFile(path, "main", "m", chunk, f"{number:08x}", 2, 10 + number, f"{number:064x}", 1, 0, bounds)


def checkpointed(files: FileSet) -> FileSet:
    return FileSet(files.merged())


def many(chunks: int, each: int) -> FileSet:
    files = FileSet()
    for chunk in range(1, chunks + 1):
        for number in range(each):
            files.add(data_file(chunk, number), 1)
    return checkpointed(files)


@dataclass
class Plain:
    """A file set as a plain list."""

    lives: list[FileState] = field(default_factory=list)

    def live(self, at: int | None = None) -> dict[str, FileState]:
        return {k.file.path: k for k in self.lives if (k.in_state(at) if at else not k.removed)}

    def add(self, file: DataFile, revision: int) -> bool:
        if file.path in self.live():
            return False
        self.lives.append(FileState(file, revision))
        return True

    def remove(self, chunk: int, path: str, revision: int, at: datetime) -> bool:
        known = self.live().get(path)
        if known is not None:
            self.lives[self.lives.index(known)] = FileState(known.file, known.added, revision, at)
        return known is not None

    def clear(self, revision: int, at: datetime) -> None:
        for path, known in self.live().items():
            self.remove(known.file.chunk, path, revision, at)

    def purge(self, paths: list[str]) -> set[str]:
        gone = {known.file.path for known in self.lives} & set(paths) - self.live().keys()
        self.lives = [known for known in self.lives if known.file.path not in gone]
        return set(paths) - gone


def bare(files: Iterator[FileState]) -> list[tuple[str, int, int]]:
    return [(known.file.path, known.added, known.file.bytes) for known in files]


def check_bounds(files: FileSet) -> None:
    """Check that each file has its own bounds, which are in its path."""
    merged = files.merged()
    numbers = [int(path.split("m-")[1][:8], 16) for path in merged.table["path"].to_pylist()]
    found = merged.bounds.of("t").get("integer")
    rows = [] if found is None else list(zip(found["file"].to_pylist(), found["minimum"].to_pylist(), strict=True))
    assert rows == list(enumerate(numbers))


@pytest.mark.parametrize("chunks", [range(1, 501), range(500, 0, -1)], ids=["in order", "in reverse"])
def test_files_move_to_columns_any_number_of_times(chunks: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_set, "MOST_PLAIN", 0)
    files = FileSet()
    for chunk in chunks:
        files.add(data_file(chunk, chunk), chunk)
        files.settle()
    assert (files.added, files.totals()[0]) == ({}, 500)
    check_bounds(files)


def test_all_files_are_hashed_by_reading_statistics_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = many(2, 5).merged(), list[str]()
    expected = files.digests([1])
    monkeypatch.setattr(file_columns, "_HASHED", 3)
    bounds = Bounds(lambda: ["t"], lambda column: (read.append(column), files.bounds.of(column))[1])
    assert (FileColumns(files.table, bounds).digests([1]), read) == (expected, ["t"])


def test_columns_are_freed_once_others_replace_them() -> None:
    files = FileSet()
    gc.disable()  # a million files must not wait for the collection of cycles
    try:
        for chunk in (1, 2):
            before = weakref.ref(files.base.table) if files.base is not None else lambda: None
            files.add(data_file(chunk, 1), chunk)
            files.move_to_columns()
        assert files.remove(1, data_file(1, 1).path, 3, AT)
        files.clear(4, AT)
        assert before() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_give_the_files_of_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_set, "MOST_PLAIN", 4)
    monkeypatch.setattr(file_columns, "_MOST_RUNS", seed)  # more are merged in another way
    choose, files, plain = random.Random(seed), FileSet(), Plain()
    for revision in range(1, 120):
        file = data_file(choose.randint(1, 3), choose.randint(0, 5))
        at = AT + timedelta(days=revision)
        changes = "add", "add", "add", "remove", "remove", "purge", "clear", "checkpoint", "copy", "settle"
        match choose.choice(changes):
            case "add":
                assert files.add(file, revision) == plain.add(file, revision)
            case "remove":
                call = file.chunk, file.path, revision, at
                assert files.remove(*call) == plain.remove(*call)
            case "purge":
                paths = [file.path, data_file(1, 1).path]
                assert files.purge(paths) == plain.purge(paths)
            case "clear" if choose.random() < 0.2:
                files.clear(revision, at)
                plain.clear(revision, at)
            case "checkpoint":
                files = checkpointed(files)
            case "copy":
                other, files = files, files.__copy__()
                other.clear(revision, at)
            case "settle":
                files.settle()
        check_bounds(files)
        live = sorted(plain.live().values(), key=lambda known: (known.file.chunk, known.file.path))
        assert bare(iter(files)) == bare(iter(live))
        assert files.chunks() == sorted({known.file.chunk for known in live})
        assert set(files.chunk(file.chunk)) == {k.file.path for k in live if k.file.chunk == file.chunk}
        assert files.totals() == (len(live), 2 * len(live), sum(known.file.bytes for known in live))
        assert files.paths() == {known.file.path for known in plain.lives}
        matches = match_files(State(files=files))
        assert [match.file.path for match in matches] == [known.file.path for known in live]
        then = choose.randint(1, revision)
        assert {known.file.path for known in files.at(then)} == plain.live(then).keys()
        last = {k.file.path: (k.removed, k.removed_at) for k in sorted(plain.lives, key=lambda k: k.removed or 1 << 60)}
        expected = {path: removal for path, removal in last.items() if removal[0]}
        assert files.unreferenced([revision]) == expected


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records each conversion between columns and plain values."""
    calls: list[str] = []
    for module, name in ((file_columns, "_state_of"), (file_set, "columns_of")):
        call = getattr(module, name)
        monkeypatch.setattr(module, name, lambda given, name=name, call=call: (calls.append(name), call(given))[1])
    return calls


def test_changes_of_files_from_a_checkpoint_convert_no_other_files(conversions: list[str]) -> None:
    files = many(1, 200)
    conversions.clear()
    for number in range(200):
        assert files.remove(1, data_file(1, number).path, 2, AT)
        assert files.add(data_file(1, 1000 + number), 2)
    assert files.purge([data_file(1, number).path for number in range(200)]) == set()
    assert conversions == []


def test_chunks_with_files_are_computed_on_columns(conversions: list[str]) -> None:
    files = many(50, 4)
    conversions.clear()
    for number in range(4):
        files.remove(7, data_file(7, number).path, 2, AT)
    assert files.chunks() == [number for number in range(1, 51) if number != 7]
    assert conversions == []


def test_added_files_are_converted_to_columns_once_for_each_change(conversions: list[str]) -> None:
    files = many(3, 4)
    files.add(data_file(1, 50), 2)
    conversions.clear()
    for _ in range(3):
        assert match_files(State(files=files)).totals()[0] == 13
    assert conversions == ["columns_of"]
    files.add(data_file(2, 51), 3)
    files.remove(1, data_file(1, 50).path, 3, AT)
    assert match_files(State(files=files)).totals()[0] == 13
    assert conversions == ["columns_of"] * 2
