"""Which scans make up a chunk, how large ones are cut, and how small ones share a task."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.databases.protocol.source import AllRows, TimelessRows, WindowRows
from snapshot_assets.engine.export import chunks as engine_export
from snapshot_assets.engine.export import planning
from snapshot_assets.engine.export.chunks import SMALL_CHUNK, _job_bytes
from snapshot_assets.engine.export.tasks import ChunkWork, Outcome
from snapshot_assets.engine.jobs import JOB_BYTES, Failures, Pace, shared_jobs, side_by_side
from snapshot_assets_tests.engine.exports import FailingRunner

_sizes = st.one_of(st.integers(0, 3 * SMALL_CHUNK), st.just(0), st.integers(0, 1000))
_plans = st.lists(st.tuples(_sizes, st.integers(0, 3)), max_size=120).map(
    lambda drawn: [ChunkWork(number, scans=((),) * works, size=size) for number, (size, works) in enumerate(drawn)]
)


@given(_plans, st.lists(st.integers(1, 40), min_size=120, max_size=120))
def test_jobs_hold_every_chunk_once_and_only_small_ones_share_one_within_its_limits(plans, limits):
    pace, most, jobs = Pace(), [], []
    for job in shared_jobs(plans, _job_bytes, pace):
        jobs.append(job)
        most.append(pace.chunks)
        pace.chunks = limits[len(jobs)]
    assert [plan for job in jobs for plan in job] == plans
    for job, limit in zip(jobs, most, strict=True):
        assert 0 < len(job) <= limit
        if len(job) > 1:
            assert all(plan.size < SMALL_CHUNK and len(plan.scans) == 1 for plan in job)
            assert sum(plan.size for plan in job) <= JOB_BYTES


def test_chunks_are_planned_when_a_job_needs_them():
    planned = []

    def plans():
        for number in range(100):
            planned.append(number)
            yield ChunkWork(number, scans=((),), size=1)

    jobs = shared_jobs(plans(), _job_bytes, Pace(8))
    assert len(next(jobs)) == 8
    assert len(planned) == 9


def test_jobs_grow_while_they_are_short_and_shrink_when_they_are_long():
    pace = Pace()
    for seconds, expected in ((0.1, 16), (0.1, 32), (4.0, 16), (1000.0, 1), (0.0, 2)):
        pace.finished(pace.chunks, seconds)
        assert pace.chunks == expected
    for _ in range(20):
        pace.finished(pace.chunks, 0.001)
    assert pace.chunks == 256


def test_jobs_run_side_by_side_as_many_as_are_asked_for_once_there_is_one():
    asked, together = [], threading.Barrier(3, timeout=30)

    def three():
        asked.append(len(asked))
        return 3

    def run(job, stop):
        together.wait()
        return [Outcome(chunk, "exported") for chunk in job]

    def ran(jobs):
        return sorted(each.chunk for some in side_by_side(run, jobs, three, "t", Failures(), list) for each in some)

    assert ran([]) == []
    assert asked == []  # the answer may need Spark
    assert ran([number] for number in range(6)) == list(range(6))
    assert asked == [0]


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


def test_small_tables_of_a_large_chunk_share_tasks(place, monkeypatch):
    for number in range(40):
        place.sql(f"CREATE TABLE small{number} AS SELECT {number} AS n, 'x' AS v")
    with place.run().open() as export:
        planner = export.make_planner(export.catalog.state, export.schema)
        whole = planner.plan(0)
        monkeypatch.setattr(planning, "SMALL_CHUNK", whole.size // 4)
        work = planner.plan(0)
        sizes = [sum(map(planner.database.estimate, scans)) for scans in work.scans]
    assert [scan for scans in work.scans for scan in scans] == list(whole.scans[0])
    assert 4 <= len(work.scans) <= 8
    assert max(sizes) <= whole.size // 4
    assert not any(part.whole for part in work.parts)
    exported = {file.table: file.rows for file in place.export()[0].files}
    assert {f"small{number}": 1 for number in range(40)}.items() <= exported.items()
