from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.engine.retry import RetryPolicy


@given(st.integers(1, 30), st.floats(0, 100), st.floats(0, 300))
def test_there_is_a_wait_before_every_further_try_and_none_is_longer_than_its_bound(tries, base, cap):
    waits = list(RetryPolicy(tries, base, cap).waits())
    assert len(waits) == tries - 1
    for attempt, wait in enumerate(waits):
        assert 0 <= wait <= min(cap, base * 2**attempt)


def test_no_wait_exceeds_five_minutes_however_often_a_chunk_failed():
    assert max(RetryPolicy(tries=40).waits()) <= 300


def test_waits_grow_and_differ_so_that_chunks_do_not_come_back_together():
    waits = list(RetryPolicy(tries=12, base=1.0).waits())
    assert len(set(waits)) == len(waits)
    assert max(list(RetryPolicy(tries=3, base=1.0).waits())) <= 2
