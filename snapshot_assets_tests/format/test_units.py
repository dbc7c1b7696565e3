from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import (
    duration_text,
    human_bytes,
    human_seconds,
    parse_duration,
    parse_size,
    parse_time,
    size_text,
    time_text,
)

_ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_INSTANTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=_ZONES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45s", timedelta(seconds=45)),
        ("90m", timedelta(minutes=90)),
        ("6h", timedelta(hours=6)),
        ("7d", timedelta(days=7)),
        ("30d", timedelta(days=30)),
        ("1w", timedelta(days=7)),
        ("0s", timedelta(0)),
        (timedelta(hours=2), timedelta(hours=2)),
    ],
)
def test_durations_are_read(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "6", "6 h", "h6", "-6h", "1.5h", "6H", "1h30m", "6h\n", "٦h", "1M", 6, None, True, timedelta(seconds=-1)],
)
def test_other_durations_are_refused(text):
    with pytest.raises(PlanError, match="duration"):
        parse_duration(text)


def test_a_refused_duration_is_named_beside_examples_that_work():
    with pytest.raises(PlanError) as caught:
        parse_duration("6 hours")
    assert str(caught.value) == (
        "'6 hours' is not a duration; write a whole number and one unit of s, m, h, d, w, such as 90m, 6h or 7d"
    )


def test_a_duration_too_long_to_compute_with_is_refused():
    with pytest.raises(PlanError, match="longer than 999999999d"):
        parse_duration("999999999999999999w")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("90m", "90m"), ("60m", "1h"), ("24h", "1d"), ("36h", "36h"), ("1w", "7d"), ("61s", "61s"), ("0h", "0s")],
)
def test_duration_text_takes_the_largest_unit_that_divides(text, canonical):
    assert duration_text(parse_duration(text)) == canonical


@given(st.integers(0, 10**12))
def test_duration_text_is_the_inverse_of_parsing(seconds):
    duration = timedelta(seconds=seconds)
    assert parse_duration(duration_text(duration)) == duration


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("256MB", 268_435_456),
        ("256 MB", 268_435_456),
        ("1kB", 1024),
        ("2GB", 2 << 30),
        ("64 KiB", 64 << 10),
        ("1MiB", 1 << 20),
        ("2GiB", 2 << 30),
        ("1TiB", 1 << 40),
        ("1TB", 1 << 40),
        ("17B", 17),
        ("17", 17),
        (17, 17),
        (0, 0),
    ],
)
def test_sizes_are_read(value, expected):
    assert parse_size(value) == expected


@pytest.mark.parametrize("value", ["256mb", "256Mb", "1KB", "1mib", "1.5GB", "-1", -1, True, None, 1.0, "", "MB", "٣"])
def test_other_sizes_are_refused(value):
    with pytest.raises(PlanError, match="is not a size; write whole bytes"):
        parse_size(value)


def test_a_size_beyond_64_bits_is_refused():
    with pytest.raises(PlanError, match="the largest there is"):
        parse_size("9000000000000TB")


@given(st.integers(0, (1 << 63) - 1))
def test_size_text_is_the_inverse_of_parsing(size):
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize(
    ("size", "human", "canonical"),
    [
        (0, "0 B", "0B"),
        (1023, "1023 B", "1023B"),
        (1 << 10, "1.0 KiB", "1KiB"),
        (3 << 19, "1.5 MiB", "1536KiB"),
        (256 << 20, "256.0 MiB", "256MiB"),
        (4 << 30, "4.0 GiB", "4GiB"),
        (5 << 40, "5.0 TiB", "5TiB"),
        (1 << 50, "1024.0 TiB", "1024TiB"),
    ],
)
def test_sizes_of_1024_are_written_with_its_units(size, human, canonical):
    assert (human_bytes(size), size_text(size)) == (human, canonical)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-01-01T00:00:00Z", datetime(2013, 1, 1, tzinfo=UTC)),
        ("2013-01-01t00:00:00z", datetime(2013, 1, 1, tzinfo=UTC)),
        ("2013-01-01 00:00:00Z", datetime(2013, 1, 1, tzinfo=UTC)),
        ("2013-01-01T01:00:00+01:00", datetime(2013, 1, 1, tzinfo=UTC)),
        ("2012-12-31T19:00:00-05:00", datetime(2013, 1, 1, tzinfo=UTC)),
        ("2013-01-01T00:00:00.5Z", datetime(2013, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2013-01-01T00:00:00.123456000Z", datetime(2013, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)),
        (datetime(2013, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2013, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_read_into_utc(text, expected):
    assert parse_time(text) == expected
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2013-01-01", "is not a time"),
        ("2013-01-01T00:00Z", "is not a time"),
        ("2013-01-01T00:00:00+0100", "is not a time"),
        ("2013-01-01T00:00:00+01:60", "is not a time"),
        ("yesterday", "is not a time"),
        (1356998400, "is not a time"),
        (None, "is not a time"),
        ("2013-01-01T00:00:00", "has no zone; append Z"),
        (datetime(2013, 1, 1), "has no zone"),
        ("2013-02-29T00:00:00Z", "does not exist"),
        ("2013-01-01T24:00:01Z", "does not exist"),
        ("2016-12-31T23:59:60Z", "does not exist"),
        ("2013-01-01T00:00:00.1234567Z", "finer than a microsecond"),
        ("0001-01-01T00:00:00+01:00", "outside the years 1 to 9999"),
        ("9999-12-31T23:59:59-01:00", "outside the years 1 to 9999"),
    ],
)
def test_other_times_are_refused_with_the_reason(text, reason):
    with pytest.raises(PlanError, match=reason):
        parse_time(text)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2013, 1, 1, tzinfo=UTC), "2013-01-01T00:00:00Z"),
        (datetime(2013, 1, 1, 0, 0, 10, tzinfo=UTC), "2013-01-01T00:00:10Z"),
        (datetime(2013, 1, 1, 0, 0, 0, 120_000, tzinfo=UTC), "2013-01-01T00:00:00.12Z"),
        (datetime(2013, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "2013-01-01T00:00:00.000001Z"),
        (datetime(13, 1, 1, tzinfo=UTC), "0013-01-01T00:00:00Z"),
        (datetime(2013, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2013-01-01T00:00:00Z"),
    ],
)
def test_time_text_is_utc_and_without_needless_fraction(instant, text):
    assert time_text(instant) == text


@given(_INSTANTS)
def test_time_text_is_the_inverse_of_parsing(instant):
    assert parse_time(time_text(instant)) == instant


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (99, "99 s"),
        (5900, "98 min"),
        (30 * 3600, "30 h 0 min"),
        (48 * 3600 - 60, "47 h 59 min"),
        (48 * 3600, "2 d 0 h"),
        (75 * 3600 + 1799, "3 d 3 h"),
    ],
)
def test_ages_are_shown_in_two_units(seconds: int, text: str) -> None:
    assert human_seconds(seconds) == text
