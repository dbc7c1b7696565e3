"""A compaction rewrites only files that may contain rows of a tombstone."""

from __future__ import annotations

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets_tests.engine.compact.compactions import compact, planned, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, READINGS, delete, kept, rows


def paths(place: Place) -> dict[int, set[str]]:
    """Return the live files of the readings by chunk."""
    found = [known.file for known in read_state(place.store).live_files() if known.file.table == "readings"]
    return {chunk: {file.path for file in found if file.chunk == chunk} for chunk in {file.chunk for file in found}}


def test_only_files_that_may_hold_deleted_rows_are_written_anew(exported: Place) -> None:
    before = paths(exported)
    deleted = delete(exported, FIRST_DAYS)
    plan = planned(exported.store)
    assert [(group.chunk, group.reasons) for group in plan.groups] == [(1, ("tombstones",)), (2, ("tombstones",))]
    assert plan.files_before == deleted.files
    outcomes = compact(exported.store)
    assert sum(outcome.rows_deleted for outcome in outcomes.values()) == (
        len(kept(exported)) - len(kept(exported, FIRST_DAYS))
    )
    after = paths(exported)
    assert 1 not in after
    assert before[2].isdisjoint(after[2])
    assert {chunk: after[chunk] for chunk in before if chunk > 2} == {
        chunk: before[chunk] for chunk in before if chunk > 2
    }
    assert rows(exported.store) == kept(exported, FIRST_DAYS)
    assert compact(exported.store) == {}
    assert not verify(exported.store).faults


def test_what_statistics_exclude_is_still_merged_where_files_are_small_and_whole_where_it_is_asked_for(
    exported: Place,
) -> None:
    scatter(exported.store, table="readings", chunks=[3])
    delete(exported, FIRST_DAYS)
    compact(exported.store)
    assert len(paths(exported)[3]) == 1
    assert exported.manifest()["rows_visible"] is None
    compact(exported.store, tables=(READINGS,))
    assert exported.manifest()["rows_visible"] == exported.manifest()["rows"]
    assert rows(exported.store) == kept(exported, FIRST_DAYS)
    assert not verify(exported.store).faults
