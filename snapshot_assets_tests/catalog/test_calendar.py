"""Retention by the calendar keeps what `restic forget --keep-*` keeps of the same moments."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.errors import PlanError

PERIODS = {"daily": "%Y-%m-%d", "weekly": "%G-%V", "monthly": "%Y-%m", "yearly": "%Y"}
MOMENTS = st.lists(
    st.datetimes(datetime(2019, 12, 20), datetime(2026, 1, 12), timezones=st.just(UTC)), max_size=60, unique=True
).map(lambda times: sorted(times, reverse=True))
COUNTS = st.fixed_dictionaries({}, optional={period: st.integers(1, 12) for period in PERIODS})


def documented(times: list[datetime], counts: dict[str, int]) -> set[datetime]:
    """Return what restic documents: the newest of each of the last n periods, and the oldest while there are fewer."""
    kept = set()
    for period, count in counts.items():
        newest: dict[str, datetime] = {}
        for time in times:
            newest.setdefault(time.strftime(PERIODS[period]), time)
        kept |= set(list(newest.values())[:count])
        if len(newest) < count:
            kept |= set(times[-1:])
    return kept


@settings(max_examples=300, deadline=None)
@given(MOMENTS, COUNTS)
def test_the_newest_of_each_period_stays(times, counts):
    places = Calendar(**counts).kept(times)
    assert {times[place] for place in places} == documented(times, counts)


@settings(max_examples=100, deadline=None)
@given(MOMENTS, COUNTS.filter(bool))
def test_a_rule_applied_after_each_moment_keeps_the_newest_and_its_number(times, counts):
    calendar, left = Calendar(**counts), list[datetime]()
    for time in reversed(times):
        left = [time, *left]
        kept = calendar.kept(left)
        left = [each for place, each in enumerate(left) if place in kept]
        assert left[0] == time
        assert len(left) <= sum(counts.values())


def test_moments_count_in_utc():
    late = datetime.fromisoformat("2025-01-01T00:30:00+02:00")
    assert Calendar(yearly=2).kept([datetime(2025, 1, 2, tzinfo=UTC), late]) == {0, 1}
    assert Calendar(yearly=1).kept([late, late - timedelta(hours=1)]) == {0}


def test_a_count_below_one_is_refused():
    with pytest.raises(PlanError, match=r"keep_weekly is 0; give 1 or more"):
        Calendar(weekly=0)
    assert not Calendar()
    assert Calendar(yearly=1)
