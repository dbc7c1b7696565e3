"""Several exporters at one location: a linear log, every row once, and a superseded run reports it."""

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets_tests.faults.conftest import by_kind
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.faults.source import CHUNKS, location

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(scratch, tmp_path):
    return scratch / tmp_path.name


def job(source, folder, **settings):
    return {"job": "export", "source": source, "location": location(folder), **settings}


def test_two_exporters_of_one_plan_both_succeed_and_commit_each_chunk_once(driver, fresh, folder, scratch):
    """Both stand still before their first file until the other is there too, so that both read and one loses."""
    at = fresh.trace.index("open file") + 1
    here, there = (str(scratch / f"{side} of {folder.name}") for side in ("here", "there"))
    results = driver.run(
        job(fresh.source, folder, fault={"kind": "pause-before", "at": at, "reached": here, "go": there}),
        job(fresh.source, folder, fault={"kind": "pause-before", "at": at, "reached": there, "go": here}),
    )
    assert all("sealed" in each and 1 in each["read"] for each in results), results
    scan = scan_log(store_at(folder))
    assert not scan.faults
    completed = [
        action.id for entry in scan.entries for action in entry.transaction.actions if type(action).__name__ == "Chunk"
    ]
    assert sorted(completed) == list(CHUNKS)
    assert len({entry.transaction.writer_id for entry in scan.entries}) == 2
    driver.assert_whole(fresh.source, location(folder))


def test_four_exporters_of_different_chunks_lose_no_commit(driver, source, folder):
    shares = [CHUNKS[number::4] for number in range(4)]
    results = driver.run(*(job(source, folder, chunks=share, seal=False) for share in shares))
    for share, each in zip(shares, results, strict=True):
        assert each["outcomes"] == {str(chunk): "exported" for chunk in share}, each
    after = driver.export(source, location(folder))
    assert after["read"] == []
    assert "sealed" in after
    driver.assert_whole(source, location(folder))


LOSING = ("list transactions/", "create receipt", "create transactions/revision.txn", "open file", "list schema/")
"""Calls at which a run that another one supersedes has not begun to seal."""


@pytest.mark.timeout(1800)
def test_superseded_at_a_call_of_every_kind_nothing_is_mixed(driver, fresh, folder, scratch):
    """The run may have sealed before; else it reports that it was superseded."""
    kinds = by_kind(fresh.trace)
    assert kinds.keys() >= set(LOSING[:3])
    for call, numbers in kinds.items():
        pause = {"kind": "pause-before", "at": numbers[-1]}
        place = folder / str(numbers[-1])
        reached, go = (str(scratch / f"{what} {place.name}") for what in ("reached", "go"))
        old, new = driver.run(
            job(fresh.source, place, fault={**pause, "reached": reached, "go": go}),
            job(fresh.source, place, force=True, start_after=reached, signal_to=go),
        )
        assert "sealed" in new, f"{call}: {new}"
        assert ("sealed" in old and call not in LOSING) or "SupersededError" in old["error"], f"{call}: {old}"
        runs = {known.chunk.run for known in read_state(store_at(place)).chunks.values()}
        assert runs == {new["run"]} or (runs <= {old["run"]} and call not in LOSING), call
        driver.assert_whole(fresh.source, location(place))
