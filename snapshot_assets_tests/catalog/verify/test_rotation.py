"""Which files a sample hashes: all within a known number of days, whatever is added and removed meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_share

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
ROUND = START + 6 * DAY  # twenty days from it are a round of twenty


def file(chunk: int) -> str:
    return f"data/{chunk}/main.m-0123abcd-{chunk:06}.parquet"


@pytest.mark.slow
@given(
    days=st.integers(1, 40),
    first=st.integers(0, 10_000),
    count=st.integers(1, 60),
    grown=st.integers(0, 3),
    removed=st.integers(0, 3),
)
def test_every_file_that_stays_is_due_within_the_days_whatever_comes_and_goes(
    days: int, first: int, count: int, grown: int, removed: int
) -> None:
    stay = [file(chunk) for chunk in range(count)]
    due = set()
    rotation = Rotation(days, START)
    for day in range(rotation.within):
        others = [file(1000 + chunk) for chunk in range(day * removed, 200 + day * grown)]
        due |= Rotation(days, START + (first + day) * DAY).due([*others, *stay])
    assert due >= set(stay)


def test_a_part_is_the_share_of_all_and_the_parts_of_a_round_are_different() -> None:
    files = [file(chunk) for chunk in range(4000)]
    parts = [Rotation.of_share(Fraction(1, 20), ROUND + day * DAY).due(files) for day in range(20)]
    assert all(150 < len(part) < 250 for part in parts)
    assert sum(map(len, parts)) == len(set().union(*parts)) == 4000
    later = Rotation.of_share(Fraction(1, 20), ROUND + 20 * DAY + timedelta(hours=23))
    assert later.due(files) == parts[1]


def test_something_is_read_each_day_even_of_a_few_files_and_all_within_the_days() -> None:
    files = [file(chunk) for chunk in range(3)]
    parts = [Rotation(20, START + day * DAY).due(files) for day in range(39)]
    assert all(parts)
    assert set().union(*parts) == set(files)
    assert Rotation(20, START).due([]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 7, 14, 30])
@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(15, 100)])
def test_runs_at_other_intervals_read_everything_too(step: int, share: Fraction) -> None:
    files, due = [file(chunk) for chunk in range(300)], set()
    for run in range(400):
        due |= Rotation.of_share(share, START + run * step * DAY).due(files)
    assert due == set(files)


@pytest.mark.parametrize(
    ("share", "days"), [("5%", 20), ("100%", 1), ("30%", 4), ("0.5%", 200), ("33.4%", 3), ("7%", 15)]
)
def test_the_days_are_those_that_the_share_needs(share: str, days: int) -> None:
    assert Rotation.of_share(parse_share(share), START).days == days


@pytest.mark.parametrize("text", ["5", "0%", "0.0%", "-5%", "101%", "5 %", "%", "", "1e1%", "\u0665%", "5.%"])
def test_other_texts_are_no_shares(text: str) -> None:
    with pytest.raises(PlanError, match=r"such as 5% or 0\.5%"):
        parse_share(text)
