from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.format.windows import (
    MAX_WINDOWS,
    TimeRange,
    Window,
    closed_count,
    count_windows,
    merge_ranges,
    plan_windows,
    window_at,
    window_holding,
)

START = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

_STARTS = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
_LENGTHS = st.integers(1, 40 * 86_400).map(lambda seconds: timedelta(seconds=seconds))


@st.composite
def _ranges(draw):
    """A start, an end after it, and a length that cuts it into at most a few hundred windows."""
    start, length = draw(_STARTS), draw(_LENGTHS)
    span = draw(st.integers(1, int(length.total_seconds()) * 300_000_000)) * timedelta(microseconds=1)
    return start, start + span, length


def test_a_range_is_cut_from_its_start_and_its_last_window_is_clipped():
    assert plan_windows(START, START + 2.5 * HOUR, HOUR) == (
        Window(1, START, START + HOUR),
        Window(2, START + HOUR, START + 2 * HOUR),
        Window(3, START + 2 * HOUR, START + 2.5 * HOUR),
    )


def test_a_length_beyond_the_range_gives_one_window():
    assert plan_windows(START, START + HOUR, timedelta(days=9_000_000)) == (Window(1, START, START + HOUR),)


def test_bounds_in_another_zone_are_the_same_instants():
    there = START.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert plan_windows(there, there + 2 * HOUR, HOUR) == plan_windows(START, START + 2 * HOUR, HOUR)


@given(_ranges())
def test_windows_cover_the_range_without_gap_or_overlap(plan):
    start, end, length = plan
    windows = plan_windows(start, end, length)
    assert [window.id for window in windows] == list(range(1, len(windows) + 1))
    assert windows[0].start == start
    assert windows[-1].end == end
    assert all(before.end == after.start for before, after in pairwise(windows))
    assert all(window.end - window.start == length for window in windows[:-1])
    assert timedelta(0) < windows[-1].end - windows[-1].start <= length
    assert merge_ranges(windows) == (TimeRange(start, end),)


@given(_ranges(), st.floats(0, 1, exclude_max=True))
def test_an_instant_lies_in_the_window_its_id_names(plan, share):
    start, end, length = plan
    instant = start + timedelta(microseconds=int((end - start) / timedelta(microseconds=1) * share))
    assume(instant < end)
    window = window_holding(start, length, instant, end=end)
    assert window.start <= instant < window.end
    assert window_at(start, length, window.id, end=end) == window
    assert window == plan_windows(start, end, length)[window.id - 1]


@given(_ranges(), st.floats(0, 100))
def test_ids_are_stable_when_the_present_moves_forward(plan, lengths):
    start, now, length = plan
    lag = HOUR
    closed = closed_count(start, length, now, lag)
    assert closed_count(start, length, now + lengths * length, lag) >= closed
    assert closed == 0 or window_at(start, length, closed).end <= now - lag
    assert window_at(start, length, closed + 1).end > now - lag


def test_a_window_closes_at_its_end_and_not_before():
    tick = timedelta(microseconds=1)
    assert closed_count(START, HOUR, START + HOUR - tick, timedelta(0)) == 0
    assert closed_count(START, HOUR, START + HOUR, timedelta(0)) == 1
    assert closed_count(START, HOUR, START + HOUR, tick) == 0


def test_nothing_is_closed_before_the_start():
    assert closed_count(START, HOUR, START - timedelta(days=400), timedelta(0)) == 0


def test_a_negative_lag_is_refused():
    with pytest.raises(PlanError, match=r"lag .* is negative"):
        closed_count(START, HOUR, START + HOUR, -HOUR)


@pytest.mark.parametrize("end", [START, START - HOUR])
def test_an_empty_or_negative_range_is_refused_with_both_bounds(end):
    with pytest.raises(PlanError, match=r"end_time .* is not after start_time 2013-01-01T00:00:00Z"):
        plan_windows(START, end, HOUR)


@pytest.mark.parametrize("length", [timedelta(0), -HOUR, timedelta(seconds=1.5)])
def test_a_length_that_is_no_whole_positive_seconds_is_refused(length):
    with pytest.raises(PlanError, match="not a positive number of whole seconds"):
        plan_windows(START, START + HOUR, length)
    with pytest.raises(PlanError, match="not a positive number of whole seconds"):
        window_at(START, length, 1)


def test_the_most_windows_are_accepted_and_one_more_is_refused():
    most = START + MAX_WINDOWS * HOUR
    assert count_windows(START, most, HOUR) == MAX_WINDOWS
    with pytest.raises(PlanError) as caught:
        count_windows(START, most + timedelta(microseconds=1), HOUR)
    assert str(caught.value) == (
        "chunk_time_window 1h cuts the range into 100,001 windows; the most is 100,000; use 2h or longer"
    )
    assert caught.value.attributes["windows"] == MAX_WINDOWS + 1


@given(_STARTS, st.integers(1, 7_000 * 366 * 86_400))
def test_the_length_that_a_refusal_names_works(start, seconds):
    end = start + timedelta(seconds=seconds)
    try:
        count_windows(start, end, timedelta(seconds=1))
    except PlanError as error:
        length = parse_duration(str(error).rsplit("use ", 1)[1].removesuffix(" or longer"))
        assert 0 < count_windows(start, end, length) <= MAX_WINDOWS
    else:
        assert seconds <= MAX_WINDOWS


def test_too_many_closed_windows_are_refused():
    with pytest.raises(PlanError, match="the most is 100,000; use 1m or longer"):
        closed_count(START, timedelta(seconds=1), START + timedelta(days=60), timedelta(0))


@pytest.mark.parametrize("index", [0, -1, 4, 10**30])
def test_an_id_outside_a_bounded_range_names_no_window(index):
    with pytest.raises(PlanError, match=f"there is no window {index}.*range ends at 2013-01-01T03:00:00Z"):
        window_at(START, HOUR, index, end=START + 3 * HOUR)


def test_an_unbounded_range_ends_with_the_last_year():
    with pytest.raises(PlanError, match="there is no window 1000000000"):
        window_at(START, HOUR, 10**9)


@pytest.mark.parametrize("instant", [START - timedelta(microseconds=1), START + HOUR])
def test_an_instant_outside_the_range_lies_in_no_window(instant):
    with pytest.raises(PlanError, match="lies in no window"):
        window_holding(START, HOUR, instant, end=START + HOUR)


def test_neighbours_are_merged_and_others_are_not():
    first, second, _, fourth = plan_windows(START, START + 4 * HOUR, HOUR)
    assert merge_ranges([fourth, second, first]) == (
        TimeRange(START, START + 2 * HOUR),
        TimeRange(START + 3 * HOUR, START + 4 * HOUR),
    )
    assert merge_ranges([]) == ()


def test_a_window_prints_its_id_and_bounds():
    assert str(Window(1, START, START + HOUR)) == "window 1 [2013-01-01T00:00:00Z, 2013-01-01T01:00:00Z)"
