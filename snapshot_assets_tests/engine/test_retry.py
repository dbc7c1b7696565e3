from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.engine.retry import RetryPolicy


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
