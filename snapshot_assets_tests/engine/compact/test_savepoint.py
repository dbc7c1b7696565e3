"""A savepoint pins only compacted data, also if other writers commit meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.compact.plan import CompactionPlan, compact_and_pin
from snapshot_assets.errors import CompactionFailedError, ConflictError, UnsealedError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import SEAL, Changed, reseal, sealed_by

Change = Callable[[Writer], object]


@pytest.fixture
def other(tmp_path: Path) -> Writer:
    """Who else is at work on a sealed location."""
    writer = Writer(open_store(parse_location(f"file://{tmp_path}")))
    writer.begin()
    return sealed_by(writer)


class Compactor:
    """Does what a compaction of a location does to its log, with files that are no Parquet."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.chunks: list[list[int]] = []

    def __call__(self, plan: CompactionPlan) -> None:
        catalog = self.writer.catalog
        self.chunks.append([each.chunk.id for each in plan.chunks])
        for chunk in self.chunks[-1]:
            catalog.refresh()
            file = replace(self.writer.file(chunk), tombstones_through=catalog.state.revision)
            receipt, ref = self.writer.receipt(chunk, file, compaction=MERGED)
            commit_merged(catalog, catalog.token(), receipt, ref)


def deletion(writer: Writer) -> None:
    delete_rows(writer.catalog, TableName("main", "m"), "t is not null")


def two_files(writer: Writer) -> None:
    """An export that replaces a chunk by small files, and seals."""
    reseal(writer)
    assert writer.catalog.state.sealed
    files = [writer.file(3, content) for content in (b"one", b"two")]
    writer.complete(3, *files, replaces=tuple(writer.catalog.state.files.chunk(3)))
    reseal(writer)


def at_the_object(writer: Writer, change: Change, times: int = 1) -> Catalog:
    """Return the location as one sees it whom others overtake between the object of a savepoint and its commit."""
    left = [times]

    def create(path: str, data: bytes) -> None:
        writer.store.create(path, data)
        if path.startswith("savepoint/") and left[0]:
            left[0] -= 1
            change(writer)

    return Catalog.open_for_writing(Changed(writer.store, create=create))


def test_what_is_compact_is_pinned_at_once(other: Writer) -> None:
    compact = Compactor(other)
    assert compact_and_pin(Catalog.open_for_writing(other.store), compact).pin.revision == SEAL
    assert compact.chunks == []


@pytest.mark.parametrize(
    ("change", "compacted"), [(deletion, [[1, 3]]), (two_files, [[3]]), (reseal, [])], ids=["rows", "files", "file"]
)
def test_what_others_seal_between_compaction_and_pin_is_compacted_before_it_is_pinned(
    other: Writer, change: Change, compacted: list[list[int]]
) -> None:
    compact = Compactor(other)
    made = compact_and_pin(at_the_object(other, change), compact, automatic=True)
    assert compact.chunks == compacted
    state = read_state(other.store)
    assert (state.pins.savepoints, made.pin.automatic) == ({1: made}, True)
    assert (made.pin.revision, made.committed) == (state.newest_seal.revision, state.revision)
    assert made.pin.revision > SEAL
    assert pending_tombstones(state) == {}
    assert [len(state.files.chunk(chunk)) for chunk in (1, 3)] == [1, 1]
    assert not verify(other.store).damaged


def test_what_others_delete_while_it_is_compacted_is_compacted_too(other: Writer) -> None:
    deletion(other)
    compact, met = Compactor(other), []

    def overtaken(plan: CompactionPlan) -> None:
        compact(plan)
        if not met:
            met.append(delete_rows(other.catalog, TableName("main", "m"), "t = '2025-01-01T00:00:00Z'").revision)

    made = compact_and_pin(Catalog.open_for_writing(other.store), overtaken)
    assert compact.chunks == [[1, 3], [1, 3]]
    assert met[0] < made.pin.revision
    assert pending_tombstones(read_state(other.store)) == {}


def test_a_chunk_that_others_replace_while_it_is_compacted_is_planned_again(other: Writer) -> None:
    two_files(other)
    compact, tried = Compactor(other), []

    def overtaken(plan: CompactionPlan) -> None:
        tried.append(plan)
        if len(tried) == 1:
            two_files(other)
            raise CompactionFailedError("Another writer replaced chunk 3.", chunks={3: "replaced"})
        compact(plan)

    made = compact_and_pin(Catalog.open_for_writing(other.store), overtaken)
    assert (len(tried), compact.chunks) == (2, [[3]])
    assert made.pin.revision == read_state(other.store).newest_seal.revision


def test_a_chunk_that_cannot_be_compacted_ends_it_with_its_error(other: Writer) -> None:
    two_files(other)
    tried = []

    def failing(plan: CompactionPlan) -> None:
        tried.append(plan)
        raise CompactionFailedError("A file is damaged.", chunks={3: "damaged"})

    with pytest.raises(CompactionFailedError, match="damaged"):
        compact_and_pin(Catalog.open_for_writing(other.store), failing)
    assert (len(tried), read_state(other.store).pins.savepoints) == (1, {})


def test_writers_that_never_rest_end_it_with_an_error_and_nothing_is_left(other: Writer) -> None:
    with pytest.raises(ConflictError, match=r"again and again .* last in revision \d+; no savepoint was made") as ended:
        compact_and_pin(at_the_object(other, reseal, times=1000), Compactor(other))
    state = read_state(other.store)
    assert ended.value.attributes["revision"] == state.data_revision
    assert (state.pins.savepoints, list(other.store.list("savepoint/"))) == ({}, [])


def test_a_head_that_is_not_sealed_any_more_ends_it(other: Writer) -> None:
    def change(writer: Writer) -> None:
        writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))

    compact = Compactor(other)
    with pytest.raises(UnsealedError, match="the head, is not sealed"):
        compact_and_pin(at_the_object(other, change), compact)
    assert (compact.chunks, read_state(other.store).pins.savepoints) == ([], {})
    assert list(other.store.list("savepoint/")) == []
