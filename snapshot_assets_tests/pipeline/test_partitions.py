import re
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from snapshot_assets.errors import PlanError
from snapshot_assets.format.windows import closed_count, plan_windows, window_at
from snapshot_assets.pipeline.dagster import partitions as partitions_module
from snapshot_assets.pipeline.dagster.partitions import (
    CRON_LENGTHS,
    closing_cron,
    cron_of,
    key_of,
    partitions_of,
    window_of,
)
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.windows import windows_of

START = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

_MINUTE_STARTS = st.datetimes(datetime(1970, 1, 1, 0, 1), datetime(2024, 1, 1), timezones=st.just(UTC)).map(
    lambda start: start.replace(second=0, microsecond=0)
)
_STARTS = st.datetimes(datetime(1, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
_LENGTHS = st.one_of(st.sampled_from(CRON_LENGTHS), st.integers(1, 40 * 86_400).map(lambda s: timedelta(seconds=s)))


def _plan(**fields):
    return Plan(**{"name": "demo", "source": "flights", "to": "s3://backups/demo"} | fields)


def _once(start, end, length):
    return _plan(start_time=start, end_time=end, chunk_time_window=length)


@given(st.one_of(_MINUTE_STARTS, _STARTS), _LENGTHS, st.integers(1, 60), st.integers(0, 10**12))
@example(datetime(2013, 1, 1, tzinfo=UTC), DAY, 365, 0)
@example(datetime(2013, 3, 31, 1, 30, tzinfo=UTC), timedelta(hours=1), 48, 0)  # a clock change in Europe
@example(datetime(2100, 1, 1, tzinfo=UTC), DAY, 3, 0)  # the future
@example(datetime(900, 1, 1, tzinfo=UTC), DAY, 3, 0)
@example(datetime(1970, 1, 1, tzinfo=UTC), timedelta(minutes=15), 34, 0)
@example(datetime(1969, 12, 31, 18, tzinfo=UTC), timedelta(hours=6), 4, 0)
def test_partitions_are_the_windows_whatever_holds_them(start, length, count, clip):
    end = start + count * length - timedelta(microseconds=clip % (length // timedelta(microseconds=1)))
    assume(end > start)
    plan = _once(start, end, length)
    windows = plan_windows(start, end, length)
    keys = partitions_of(plan).get_partition_keys()
    assert keys == [key_of(window) for window in windows]
    assert [window_of(plan, key) for key in keys] == list(windows)
    assert keys == sorted(set(keys))
    assert windows_of(plan) == windows


@settings(max_examples=40)
@given(_MINUTE_STARTS, st.sampled_from(CRON_LENGTHS), st.integers(1, 60))
def test_aligned_windows_of_a_long_finished_range_are_time_windows_with_the_same_bounds(start, length, count):
    plan = _once(start, start + count * length, length)
    listed = partitions_of(plan)
    assert isinstance(listed, dg.StaticPartitionsDefinition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions_module, "_MOST_LISTED", 0)
        partitions = partitions_of(plan)
    assert partitions.get_partition_keys() == listed.get_partition_keys()
    assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    for window in windows_of(plan):
        found = partitions.time_window_for_partition_key(key_of(window))
        assert (found.start, found.end) == (window.start, window.end)


@settings(max_examples=40)
@given(_MINUTE_STARTS, st.sampled_from(CRON_LENGTHS), st.integers(0, 300), st.floats(0, 1, exclude_max=True))
def test_partitions_of_an_open_end_are_the_closed_windows(start, length, count, share):
    now = start + count * length + length * share
    partitions = partitions_of(_plan(kind="continuous", start_time=start, chunk_time_window=length))
    with dg.partition_loading_context(effective_dt=now):
        keys = partitions.get_partition_keys()
    closed = closed_count(start, length, now, timedelta(0))
    assert keys == [key_of(window_at(start, length, index)) for index in range(1, closed + 1)]


@given(_MINUTE_STARTS, st.sampled_from(CRON_LENGTHS), st.integers(1, 100), st.integers(0, 100))
def test_keys_keep_their_windows_when_the_present_moves_forward(start, length, count, more):
    plan = _plan(kind="continuous", start_time=start, chunk_time_window=length)
    before = {key_of(window): window for window in windows_of(plan, start + count * length)}
    after = {key_of(window): window for window in windows_of(plan, start + (count + more) * length)}
    assert before.items() <= after.items()
    assert all(window_of(plan, key) == window for key, window in before.items())


@pytest.mark.parametrize(
    ("start", "length", "cron"),
    [
        ("2013-01-01T00:00", timedelta(days=1), "0 0 * * *"),
        ("2013-01-01T05:30", timedelta(days=1), "30 5 * * *"),
        ("2013-01-01T05:30", timedelta(hours=1), "30 * * * *"),
        ("2013-01-01T20:30", timedelta(hours=6), "30 2,8,14,20 * * *"),
        ("2013-01-01T00:07", timedelta(minutes=1), "* * * * *"),
        ("2013-01-01T00:07", timedelta(minutes=20), "7,27,47 * * * *"),
        ("2013-01-06T00:00", timedelta(days=7), "0 0 * * 0"),  # a Sunday
        ("2013-01-12T00:00", timedelta(days=7), "0 0 * * 6"),
        ("2013-01-01T00:00", timedelta(days=2), None),
        ("2013-01-01T00:00", timedelta(days=30), None),
        ("2013-01-01T00:00", timedelta(hours=36), None),
        ("2013-01-01T00:00", timedelta(hours=5), None),
        ("2013-01-01T00:00", timedelta(minutes=7), None),
        ("2013-01-01T00:00", timedelta(minutes=90), None),
        ("2013-01-01T00:00", timedelta(seconds=30), None),
        ("2013-01-01T00:00:30", timedelta(hours=1), None),
        ("2013-01-01T00:00:00.5", timedelta(hours=1), None),
        ("1970-01-01T00:00", timedelta(hours=1), None),
        ("1960-01-01T00:00", timedelta(hours=1), None),
    ],
)
def test_cron_is_used_only_where_it_is_exact(start, length, cron):
    assert cron_of(datetime.fromisoformat(start).replace(tzinfo=UTC), length) == cron


@pytest.mark.parametrize(
    ("end", "length"),
    [
        (START + 2.5 * DAY, DAY),  # clipped
        (START + 10 * DAY, timedelta(hours=36)),
        (datetime(2100, 1, 1, tzinfo=UTC), timedelta(days=7)),  # in the future
    ],
)
def test_other_windows_are_listed_keys(end, length):
    assert isinstance(partitions_of(_once(START, end, length)), dg.StaticPartitionsDefinition)


@pytest.mark.parametrize(
    ("start", "key"),
    [
        ("2013-01-01T00:00:00Z", "2013-01-01T00:00"),
        ("2013-01-01T01:00:00+01:00", "2013-01-01T00:00"),
        ("2013-01-01T00:00:30Z", "2013-01-01T00:00:30"),
        ("2013-01-01T00:00:00.5Z", "2013-01-01T00:00:00.5"),
        ("0013-01-01T00:00:00Z", "0013-01-01T00:00"),
    ],
)
def test_a_key_is_the_start_in_utc_as_fine_as_it_needs_to_be(start, key):
    plan = _plan(start_time=start, end_time="2013-01-02T00:00:00Z", chunk_time_window="9000000d")
    assert partitions_of(plan).get_partition_keys() == [key]
    assert window_of(plan, key).id == 1


@given(_STARTS, _LENGTHS)
def test_keys_hold_no_character_that_hurts(start, length):
    window = plan_windows(start, start + length, length)[0]
    assert re.fullmatch(r"[0-9T:.-]+", key_of(window))
    assert "..." not in key_of(window)


@pytest.mark.parametrize(
    "key",
    [
        *("2012-12-31T00:00", "2013-01-04T00:00", "2013-01-01T12:00", "2013-01-01T00:00:00", "2013-01-01", ""),
        *("2013-01-01 00:00", "2013-01-01T00:00Z", "2013-13-01T00:00", "2013-01-01T00:00+00"),
    ],
)
def test_what_is_no_key_of_the_plan_is_refused_with_the_first_that_is(key):
    with pytest.raises(PlanError) as caught:
        window_of(_once(START, START + 3 * DAY, DAY), key)
    assert str(caught.value) == (
        f"plan 'demo' has no partition {key!r}; a key is the start of a window in UTC: the first is "
        "'2013-01-01T00:00', and another follows every 1d before 2013-01-04T00:00:00Z"
    )


@pytest.mark.parametrize(("lag", "offset"), [("0s", 0), ("6h", 0), ("1d", -1), ("50h", -2)])
def test_whole_windows_of_lag_hold_partitions_back(lag, offset):
    partitions = partitions_of(_plan(kind="continuous", start_time=START, lag=lag))
    assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
    assert partitions.end_offset == offset


@settings(max_examples=100)
@given(_MINUTE_STARTS, st.sampled_from(CRON_LENGTHS), st.integers(0, 20 * 86_400), st.integers(1, 60))
@example(datetime(2013, 3, 30, 23, 17, tzinfo=UTC), DAY, 25 * 3600, 2)  # a clock change in Europe
@example(datetime(2013, 1, 5, 5, 59, tzinfo=UTC), timedelta(days=7), 30, 3)
def test_each_tick_of_the_schedule_comes_when_one_more_window_has_closed_and_its_lag_is_over(
    start, length, lag, number
):
    lag = timedelta(seconds=lag)
    plan = _plan(kind="continuous", start_time=start, chunk_time_window=length, lag=lag, time_zone="Europe/Berlin")
    closes = start + number * length + lag + timedelta(seconds=59)
    ticks = dg.TimeWindowPartitionsDefinition(
        start=closes.replace(second=0, tzinfo=None), cron_schedule=closing_cron(plan), fmt="%Y-%m-%dT%H:%M"
    ).get_partition_keys(current_time=closes + 3 * length)
    for count, key in zip((number, number + 1), ticks, strict=False):
        tick = datetime.strptime(f"{key}Z", "%Y-%m-%dT%H:%M%z")
        windows = windows_of(plan, tick)
        assert len(windows) == count
        assert timedelta(0) <= tick - (windows[-1].end + lag) < timedelta(minutes=1)
        assert partitions_of(plan, tick).get_partition_keys(current_time=tick)[count - 1] == key_of(windows[-1])


def test_an_open_end_with_another_length_is_refused_with_those_that_work():
    plan = _plan(kind="continuous", start_time=START, chunk_time_window="36h")
    with pytest.raises(PlanError) as caught:
        partitions_of(plan)
    assert "continuous with chunk_time_window 36h from 2013-01-01T00:00:00Z" in str(caught.value)
    assert str(caught.value).endswith(
        "use one of 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m, 30m, 1h, 2h, 3h, 4h, 6h, 8h, 12h, 1d, 7d"
    )


def test_a_schema_only_plan_has_no_windows_and_no_partitions():
    plan = _plan(schema_only=True)
    assert windows_of(plan) == ()
    with pytest.raises(PlanError, match="schema_only: it has no windows"):
        partitions_of(plan)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, "has no start_time and no end_time"),
        ({"start_time": START}, "has no end_time"),
        ({"end_time": START + DAY}, "has no start_time, which"),
    ],
)
def test_an_open_range_has_no_partitions(fields, missing):
    with pytest.raises(PlanError, match=re.escape(missing)):
        partitions_of(_plan(**fields))
