"""Which scans make up a chunk, how large ones are cut, and how small ones share a task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.databases.source import AllRows, TimelessRows, WindowRows
from snapshot_assets.engine.export import chunks as engine_export
from snapshot_assets.engine.export import planning
from snapshot_assets.engine.export.chunks import SMALL_CHUNK, ChunkPlan, _batches
from snapshot_assets.engine.export.tasks import ChunkWork
from snapshot_assets.engine.jobs import JOB_BYTES, JOB_CHUNKS
from snapshot_assets_tests.engine.exports import FailingRunner

_sizes = st.one_of(st.integers(0, 3 * SMALL_CHUNK), st.just(0), st.integers(0, 1000))
_plans = st.lists(st.tuples(_sizes, st.integers(0, 3)), max_size=120).map(
    lambda drawn: [
        ChunkPlan(number, tuple(ChunkWork(number, "", ()) for _ in range(works)), size)
        for number, (size, works) in enumerate(drawn)
    ]
)


@given(_plans, st.integers(1, 8))
def test_batches_hold_every_chunk_once_and_only_small_ones_share_one_within_its_limits(plans, parallelism):
    batches = _batches(plans, parallelism)
    assert [plan for batch in batches for plan in batch] == plans
    for batch in batches:
        assert batch
        if len(batch) > 1:
            assert all(plan.size < SMALL_CHUNK and len(plan.works) == 1 for plan in batch)
            assert sum(plan.size for plan in batch) <= JOB_BYTES
            assert len(batch) <= min(JOB_CHUNKS, -(-len(plans) // parallelism))


@given(st.integers(1, 200), st.integers(1, 8))
def test_small_chunks_keep_all_jobs_busy_and_make_few_tasks(count, parallelism):
    plans = [ChunkPlan(number, (ChunkWork(number, "", ()),), 1) for number in range(count)]
    batches = _batches(plans, parallelism)
    share = -(-count // parallelism)
    assert len(batches) == -(-count // min(share, JOB_CHUNKS))


@pytest.fixture
def planner(place):
    with place.run().open() as export:
        yield export.make_planner(export.catalog.state, export.schema)


def test_a_window_is_scanned_in_every_timed_table_and_chunk_0_holds_the_rest(planner):
    assert {(scan.table.name, type(scan.rows)) for scan in planner.scans(0)} == {
        ("events", TimelessRows),
        ("places", AllRows),
        ("readings", TimelessRows),
    }
    assert {(scan.table.name, type(scan.rows)) for scan in planner.scans(2)} == {
        ("events", WindowRows),
        ("readings", WindowRows),
    }
    assert {str(scan.rows.start) for scan in planner.scans(2)} == {"2025-01-02 00:00:00+00:00"}


def test_a_large_chunk_cut_into_slices_gives_the_same_rows(place, monkeypatch):
    place.sql(
        "INSERT INTO readings SELECT TIMESTAMPTZ '2025-01-02 00:00:00Z' + to_microseconds(i), 'big', i "
        "FROM range(0, 400000) r(i)"
    )
    monkeypatch.setattr(planning, "SMALL_CHUNK", 1 << 20)
    monkeypatch.setattr(engine_export, "SMALL_CHUNK", 1 << 20)
    monkeypatch.setattr(planning, "SLICE_BYTES", 1 << 20)
    runner = FailingRunner()
    outcomes = place.export(runner, settings={"most_parts": 3})
    assert max(attempt.count(2) for attempt in runner.attempts) > 2
    readings = [file for file in outcomes[2].files if file.table == "readings"]
    assert len(readings) > 1
    assert place.differences() == {}
