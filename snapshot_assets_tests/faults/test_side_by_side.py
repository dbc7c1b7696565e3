"""Several exporters at one location: a linear log, every row once, and a superseded run reports it."""

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.faults.source import CHUNKS, location


@pytest.fixture
def folder(scratch, tmp_path):
    return scratch / tmp_path.name


def job(source, folder, **settings):
    return {"job": "export", "source": source, "location": location(folder), **settings}


def store_of(folder):
    return open_store(parse_location(location(folder)))


def test_two_exporters_of_one_plan_both_succeed_and_commit_each_chunk_once(driver, fresh, folder, scratch):
    """Both stand still before their first file until the other is there too, so that both read and one loses."""
    at = fresh.trace.index("open file") + 1
    here, there = (str(scratch / f"{side} of {folder.name}") for side in ("here", "there"))
    results = driver.run(
        job(fresh.source, folder, fault={"kind": "pause-before", "at": at, "reached": here, "go": there}),
        job(fresh.source, folder, fault={"kind": "pause-before", "at": at, "reached": there, "go": here}),
    )
    assert all("sealed" in each and 1 in each["read"] for each in results), results
    scan = scan_log(store_of(folder))
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


def forced(driver, source, folder, scratch, at):
    """Let a run stand still at a call while another one forces a new snapshot and finishes it."""
    reached, go = scratch / f"reached {at}", scratch / f"go {at}"
    pause = {"kind": "pause-before", "at": at, "reached": str(reached), "go": str(go)}
    old, new = driver.run(
        job(source, folder, fault=pause),
        job(source, folder, force=True, start_after=str(reached), signal_to=str(go)),
    )
    return old, new


def test_a_superseded_exporter_reports_it_and_leaves_no_trace_in_the_new_snapshot(driver, fresh, folder, scratch):
    at_call = {call: at for at, call in enumerate(fresh.trace, 1)}
    for call in ("create receipt", "create transactions/revision.txn", "open file", "list schema/"):
        place = folder / call.replace("/", " ")
        old, new = forced(driver, fresh.source, place, scratch, at_call[call])
        assert "sealed" in new, f"{call}: {new}"
        assert old.get("error", [""])[0] == "SupersededError", f"{call}: {old}"
        state = read_state(store_of(place))
        assert {known.chunk.run for known in state.chunks.values()} == {new["run"]}, call
        driver.assert_whole(fresh.source, location(place))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_superseded_at_every_fifth_call_nothing_is_mixed(driver, fresh, folder, scratch):
    for at in range(1, len(fresh.trace) + 1, 5):
        place = folder / str(at)
        old, new = forced(driver, fresh.source, place, scratch, at)
        assert "sealed" in new, f"{at}: {new}"
        assert "sealed" in old or "SupersededError" in old["error"], f"{at}: {old}"
        state = read_state(store_of(place))
        runs = {known.chunk.run for known in state.chunks.values()}
        assert runs <= {new["run"]} or runs <= {old["run"]}, at
        driver.assert_whole(fresh.source, location(place))
