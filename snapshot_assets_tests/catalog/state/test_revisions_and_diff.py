"""Totals of readable revisions, and the differences between them, compared with folding each revision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.state.diff import Change, DiffRow, Kind, difference
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries
from snapshot_assets.format import actions as act
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START, Writer
from snapshot_assets_tests.catalog.execute import delete_rows, rollback


@pytest.fixture
def changed(writer: Writer) -> Writer:
    """Seals of a first export, of one chunk replaced by more rows, and of that chunk emptied."""
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    for files in ([writer.file(1, b"new"), writer.file(1, b"more")], []):
        writer.complete(1, *files, replaces=tuple(writer.catalog.state.files.chunk(1)))
        seal(writer.catalog)
    return writer


def of(rows: list[DiffRow], kind: Kind) -> list[DiffRow]:
    return [row for row in rows if row.kind is kind]


def _by_folding(writer: Writer) -> dict[int, tuple[int, int, int, int]]:
    states = {seal.revision: writer.catalog.state.at(seal.revision) for seal in writer.catalog.state.readable()}
    return {
        revision: (state.schema_id, *(state.files.totals()[place] for place in (1, 0, 2)))
        for revision, state in states.items()
    }


def _summaries(writer: Writer) -> dict[int, tuple[int, int, int, int]]:
    summaries = revision_summaries(writer.catalog.state)
    return {number: (each.schema_id, each.rows, each.files, each.bytes) for number, each in summaries.items()}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_summaries_equal_folding_each_revision(changed: Writer, checkpoint: bool) -> None:
    if checkpoint:
        write_checkpoint(changed.store, changed.catalog.state)
        changed.catalog = Catalog.open(changed.store)
    assert len(_summaries(changed)) == 3
    assert _summaries(changed) == _by_folding(changed)


def test_summaries_leave_out_expired_revisions(changed: Writer) -> None:
    first, *others = (seal.revision for seal in changed.catalog.state.seals)
    changed.catalog.commit(lambda _: [act.Expired((first,))])
    assert list(revision_summaries(changed.catalog.state)) == others


def test_file_differences_equal_those_of_the_live_files(changed: Writer) -> None:
    state = changed.catalog.state
    live = {seal.revision: {each.file.path for each in state.at(seal.revision).live_files()} for seal in state.seals}
    for one, other in permutations(live, 2):
        found = of(difference(state, one, other), Kind.FILE)
        assert {file.path for file in found if file.change is Change.ADDED} == live[other] - live[one]
        assert {file.path for file in found if file.change is Change.REMOVED} == live[one] - live[other]


def test_changes_are_grouped_by_chunk_and_table(changed: Writer) -> None:
    first, second, third = (seal.revision for seal in changed.catalog.state.seals)
    found = difference(changed.catalog.state, first, second)
    assert of(found, Kind.CHUNK) == [
        DiffRow(Kind.CHUNK, Change.REWRITTEN, 1, "main", "m", None, None, 2, 1, 4, 2, 7, 4)
    ]
    assert len(found) == 4
    [gone] = of(difference(changed.catalog.state, second, third), Kind.CHUNK)
    assert gone == DiffRow(Kind.CHUNK, Change.REMOVED, 1, "main", "m", None, None, 0, 2, 0, 4, 0, 7)
    assert difference(changed.catalog.state, first, first) == []


@pytest.fixture(params=[False, True], ids=["log", "checkpoint"])
def reopened(request: pytest.FixtureRequest) -> Callable[[Writer], State]:
    """Returns a writer's state, replayed or from a checkpoint."""

    def state(writer: Writer) -> State:
        if request.param:
            write_checkpoint(writer.store, writer.catalog.state)
            writer.catalog = Catalog.open(writer.store)
        return writer.catalog.state

    return state


def test_deleted_rows_are_a_change_without_changed_files(writer: Writer, reopened: Callable[[Writer], State]) -> None:
    writer.fill()
    seal(writer.catalog)
    revision = delete_rows(writer.catalog, TableName("main", "m"), "t < '2025-01-02T00:00:00Z'").revision
    assert revision is not None
    writer.complete(3, writer.file(3, b"later"), replaces=tuple(writer.catalog.state.files.chunk(3)))
    seal(writer.catalog)
    rollback(writer.catalog, writer.catalog.state.seals[0].revision, undelete=True)
    seal(writer.catalog)
    state = reopened(writer)
    first, second, third, last = (seal.revision for seal in state.seals)
    detail = f"revision {revision}: \"t\" < '2025-01-02T00:00:00.000000Z'"
    tombstone = DiffRow(Kind.TOMBSTONE, Change.ADDED, schema="main", table="m", detail=detail)
    deleted = DiffRow(Kind.CHUNK, Change.DELETED, 1, "main", "m", None, None, 0, 0, 0, None, 0, 0)
    kept = DiffRow(Kind.CHUNK, Change.DELETED, 3, "main", "m", None, None, 0, 0, 0, None, 0, 0)
    assert difference(state, first, second) == [tombstone, deleted, kept]
    *head, rewritten = difference(state, first, third)[:3]
    assert (head, rewritten.chunk, rewritten.change) == ([tombstone, deleted], 3, Change.REWRITTEN)
    assert (rewritten.rows_added, rewritten.rows_removed) == (2, 2)  # the new file has none of those rows
    undone = replace(tombstone, change=Change.REMOVED)
    back = replace(deleted, change=Change.UNDELETED, rows_added=None, rows_removed=0)
    assert difference(state, second, last)[:2] == [undone, back]
    assert difference(state, second, first) == [undone, back, replace(back, chunk=3)]
    assert difference(state, first, last) == []


def test_a_longer_range_and_a_chunk_without_rows_are_changes(
    store: ObjectStore, reopened: Callable[[Writer], State]
) -> None:
    writer = Writer(store)
    writer.begin(replace(HEADER, kind="continuous", end=START + DAY))
    writer.complete(1, writer.file(1))
    seal(writer.catalog)
    writer.catalog.commit(lambda _: [act.Extend(START + 2 * DAY)])
    writer.complete(2)
    seal(writer.catalog)
    state = reopened(writer)
    first, second = (seal.revision for seal in state.seals)
    longer = DiffRow(Kind.HEADER, Change.CHANGED, detail="end: 2025-01-02T00:00:00Z → 2025-01-03T00:00:00Z")
    empty = DiffRow(Kind.CHUNK, Change.ADDED, 2, None, None, None, "Pending → Completed", 0, 0, 0, 0, 0, 0)
    assert difference(state, first, second) == [longer, empty]
    shorter = replace(longer, detail="end: 2025-01-03T00:00:00Z → 2025-01-02T00:00:00Z")
    gone = replace(empty, change=Change.REMOVED, detail="Completed → Pending")
    assert difference(state, second, first) == [shorter, gone]


def test_a_new_schema_is_a_change(changed: Writer, reopened: Callable[[Writer], State]) -> None:
    known = changed.catalog.state.schemas[1]
    changed.catalog.commit(lambda _: [replace(known, schema_id=2)])
    seal(changed.catalog)
    state = reopened(changed)
    *_, last, newest = (seal.revision for seal in state.seals)
    assert difference(state, last, newest) == [DiffRow(Kind.SCHEMA, Change.ADDED, detail="2")]


def test_another_snapshot_is_a_change(changed: Writer) -> None:
    old, last = changed.catalog.state.snapshot_id, changed.catalog.state.seals[-1].revision
    changed.begin(replace(HEADER, catalog="other", chunk_time_window=3_600_000_000), force=True)
    state = changed.catalog.state
    assert [row.detail for row in of(difference(state, last, state.revision), Kind.HEADER)] == [
        f"snapshot_id: {old} → {state.snapshot_id}",
        "catalog: none → other",
        "chunk_time_window: 1d → 1h",
    ]


def test_a_file_that_was_removed_and_returned_is_no_change(changed: Writer) -> None:
    first, *_, last = (seal.revision for seal in changed.catalog.state.seals)
    path = next(iter(changed.catalog.state.at(first).files.chunk(1)))
    for checkpoint in (False, True):
        if checkpoint:
            write_checkpoint(changed.store, changed.catalog.state)
            changed.catalog = Catalog.open(changed.store)
            changed.catalog.commit(lambda _: [act.RemoveFile(path)])
        changed.catalog.commit(lambda _: [act.ReturnedFiles((path,))])
        state = changed.catalog.state
        assert path in state.files.chunk(1)
        assert of(difference(state, first, state.revision), Kind.FILE) == []
        assert [file.path for file in of(difference(state, last, state.revision), Kind.FILE)] == [path]
