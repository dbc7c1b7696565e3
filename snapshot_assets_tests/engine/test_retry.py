import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.engine.jobs import Failures, by_cause, first_failures
from snapshot_assets.engine.retry import RetryPolicy, attempt_chunks
from snapshot_assets.errors import ChecksumMismatchError, ConflictError, DatabaseError, SnapshotError, TransientError


@given(st.integers(1, 40), st.floats(0, 100), st.floats(0, 300))
def test_there_is_a_wait_before_every_further_try_and_none_is_longer_than_its_bound(tries, base, cap):
    waits = list(RetryPolicy(tries, base, cap).waits())
    assert len(waits) == tries - 1
    for attempt, wait in enumerate(waits):
        assert 0 <= wait <= min(cap, base * 2**attempt)


def test_waits_differ_so_that_chunks_do_not_come_back_together_and_end_at_five_minutes():
    waits = list(RetryPolicy(tries=40).waits())
    assert len(set(waits)) == len(waits)
    assert max(waits[:2]) <= 2
    assert max(waits) <= 300


def test_failures_are_grouped_by_cause_whatever_their_own_objects_are_named() -> None:
    gone = "The source answers no more."
    failed = {
        **dict.fromkeys(range(3, 11), gone),
        1: "No space left for data/1/main.a-77.parquet: disk full.",
        2: "No space left for data/2/main.a-12.parquet: disk full.",
        12: "Another cause.",
    }
    assert [chunks for chunks, _ in by_cause(failed)] == [[1, 2], [*range(3, 11)], [12]]
    assert first_failures(failed, lambda chunk: f"{chunk} (day {chunk})") == (
        "chunks 1 (day 1), 2 (day 2): No space left for data/1/main.a-77.parquet: disk full;"
        " chunks 3 (day 3), 4 (day 4), 5 (day 5), 6 (day 6), 7 (day 7) and 3 more: The source answers no more;"
        " chunk 12 (day 12): Another cause"
    )


@pytest.mark.parametrize(
    ("errors", "tried", "expected"),
    [
        ([TransientError("Busy.")], 1, "Run again to retry what failed."),
        (
            [TransientError("Busy."), ConflictError("Changed.")],
            3,
            "The other chunks are loaded. Run again to retry what failed.",
        ),
        (
            [TransientError("Busy."), ChecksumMismatchError("Damaged.")],
            2,
            "Correct what the errors name first; then the same command, or the same run in Dagster, retries what"
            " failed.",
        ),
        (
            [DatabaseError("No such type.")],
            2,
            "The other chunks are loaded. Correct what the errors name first; then the same command, or the same run in"
            " Dagster, retries what failed.",
        ),
    ],
)
def test_a_report_of_failures_asks_to_run_again_only_if_every_cause_may_pass(
    errors: Sequence[SnapshotError], tried: int, expected: str
) -> None:
    failed = Failures()
    for chunk, error in enumerate(errors):
        failed.add(chunk, error)
    assert failed.report("loaded", tried) == expected
    assert failed.attributes()["transient"] == expected.endswith("Run again to retry what failed.")


def test_chunks_that_are_tried_again_for_one_cause_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    tries = iter((TransientError("Busy."), None))

    def attempt(chunks: Sequence[int]) -> list[Outcome]:
        error = next(tries)
        return [Outcome(chunk, "exported", error=error) for chunk in chunks]

    attempt_chunks([1, 2, 3], threading.Event(), attempt, RetryPolicy(base=0.0))
    assert caplog.messages == ["Chunks 1, 2, 3 failed and are tried again: Busy."]
