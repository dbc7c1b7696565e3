"""What readable revisions are and what changed between them, against folding each of them on its own."""

from __future__ import annotations

from itertools import permutations

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.checkpoints import write_checkpoint
from snapshot_assets.catalog.diff import Change, difference
from snapshot_assets.catalog.facts import revision_facts
from snapshot_assets.catalog.seal import seal
from snapshot_assets.format import actions as act
from snapshot_assets_tests.catalog.conftest import Writer


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


def _by_folding(writer: Writer) -> dict[int, tuple[int, int, int, int]]:
    states = {known.revision: writer.catalog.state.at(known.revision) for known in writer.catalog.state.readable()}
    return {
        revision: (state.schema_id, *(state.files.totals()[place] for place in (1, 0, 2)))
        for revision, state in states.items()
    }


def _facts(writer: Writer) -> dict[int, tuple[int, int, int, int]]:
    found = revision_facts(writer.catalog.state)
    return {revision: (fact.schema_id, fact.rows, fact.files, fact.bytes) for revision, fact in found.items()}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_facts_are_what_folding_each_revision_gives(changed: Writer, checkpoint: bool) -> None:
    if checkpoint:
        write_checkpoint(changed.store, changed.catalog.state)
        changed.catalog = Catalog.open(changed.store)
    assert len(_facts(changed)) == 3
    assert _facts(changed) == _by_folding(changed)


def test_facts_leave_out_what_expired(changed: Writer) -> None:
    first, *others = (known.revision for known in changed.catalog.state.seals)
    changed.catalog.commit(lambda _: [act.Expired((first,))])
    assert list(revision_facts(changed.catalog.state)) == others


def test_differences_are_those_of_the_live_files(changed: Writer) -> None:
    state = changed.catalog.state
    live = {known.revision: {each.file.path for each in state.at(known.revision).live_files()} for known in state.seals}
    for one, other in permutations(live, 2):
        found = difference(state, one, other).files
        assert {file.path for file in found if file.change is Change.ADDED} == live[other] - live[one]
        assert {file.path for file in found if file.change is Change.REMOVED} == live[one] - live[other]


def test_changes_are_told_by_chunk_and_table(changed: Writer) -> None:
    first, second, third = (known.revision for known in changed.catalog.state.seals)
    [rewritten] = difference(changed.catalog.state, first, second).by_chunk()
    assert (rewritten.change, rewritten.chunk, rewritten.table) == (Change.REWRITTEN, 1, "m")
    assert (rewritten.files_added, rewritten.files_removed, rewritten.bytes_added, rewritten.bytes_removed) == (
        2,
        1,
        7,
        4,
    )
    [gone] = difference(changed.catalog.state, second, third).by_chunk()
    assert (gone.change, gone.rows_removed, gone.rows_added) == (Change.REMOVED, 4, 0)
    assert difference(changed.catalog.state, first, first).files == ()


def test_a_file_that_went_and_came_back_is_no_change(changed: Writer) -> None:
    first, *_, last = (known.revision for known in changed.catalog.state.seals)
    path = next(iter(changed.catalog.state.at(first).files.chunk(1)))
    for checkpoint in (False, True):
        if checkpoint:
            write_checkpoint(changed.store, changed.catalog.state)
            changed.catalog = Catalog.open(changed.store)
            changed.catalog.commit(lambda _: [act.RemoveFile(path)])
        changed.catalog.commit(lambda _: [act.ReturnedFiles((path,))])
        state = changed.catalog.state
        assert path in state.files.chunk(1)
        assert difference(state, first, state.revision).files == ()
        assert [file.path for file in difference(state, last, state.revision).files] == [path]
