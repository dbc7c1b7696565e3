"""Tags and savepoints by rule: which are due, for which tick, and which have outlived their time."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.catalog.pins.automatic import (
    Due,
    NewTag,
    SavepointRule,
    TagRule,
    Ticks,
    check_pattern,
    due,
    tags_to_delete,
    why_no_tag,
    with_new_tag,
)
from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.pins import SavepointState, TagState
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOON = datetime(2025, 1, 10, 12, tzinfo=UTC)
_OBJECT = act.ObjectRef("tag/tag-x-00000000", "", 0)
_SEAL = act.Seal(1, "", "run")


def tag(name: str, created_at: datetime, *, automatic: bool = True, ttl: timedelta | None = None) -> TagState:
    return TagState(act.TagCreated(name, 5, _OBJECT, created_at, ttl, automatic), "writer", 6, 1)


def savepoint(number: int, created_at: datetime, *, automatic: bool = True) -> SavepointState:
    return SavepointState(act.SavepointCreated(number, 5, _OBJECT, created_at, automatic), "writer", 6, 1)


def state(*tags: TagState, seals: dict[int, datetime], savepoints: tuple[SavepointState, ...] = ()) -> State:
    found = State(snapshot_id="s", seals=[SealState(_SEAL, number, at, "s", 1) for number, at in seals.items()])
    found.pins.tags = {each.pin.name: each for each in tags}
    found.pins.savepoints = {each.pin.id: each for each in savepoints}
    return found


def tag_due(rule: TagRule, head: State, now: datetime) -> NewTag | None:
    return due(head, now, tag=rule).tag


def gone(head: State, now: datetime, rule: TagRule | None = None) -> tuple[str, ...]:
    """Return the names of the tags to delete once the one that is due exists."""
    tagged = with_new_tag(head, due(head, now, tag=rule).tag, now)
    return tuple(known.pin.name for known in tags_to_delete(tagged, now, rule))


SEALS = {5: NOON - 3 * DAY, 7: NOON - DAY, 9: NOON - HOUR}


@pytest.mark.parametrize(
    ("interval", "at", "now", "tick"),
    [
        (1, time(12), NOON, NOON),
        (1, time(12), NOON - timedelta(microseconds=1), NOON - DAY),
        (1, time(0), NOON, NOON - 12 * HOUR),
        (1, time(23, 30), NOON, NOON - 12.5 * HOUR),
        (7, time(0), NOON, datetime(2025, 1, 9, tzinfo=UTC)),  # weeks counted from Thursday, 1970-01-01
    ],
)
def test_the_newest_tick_counts(interval: int, at: time, now: datetime, tick: datetime) -> None:
    assert Ticks(interval * DAY, at).newest(now) == tick


@given(st.integers(1, 400), st.times(), st.datetimes(datetime(1971, 3, 1), datetime(2200, 1, 1)))
def test_ticks_are_one_interval_apart_at_their_time_of_day(days: int, at: time, now: datetime) -> None:
    ticks, now = Ticks(days * DAY, at), now.replace(tzinfo=UTC)
    newest = ticks.newest(now)
    assert newest <= now < newest + days * DAY
    assert (newest.hour, newest.minute, newest.second) == (at.hour, at.minute, 0)
    assert ticks.newest(newest) == newest
    assert ticks.newest(newest - timedelta(microseconds=1)) == newest - days * DAY


@pytest.mark.parametrize("interval", [timedelta(0), HOUR, 36 * HOUR, -DAY])
def test_an_interval_of_other_than_whole_days_is_refused(interval: timedelta) -> None:
    with pytest.raises(PlanError):
        Ticks(interval)


def test_a_tag_names_the_newest_seal_that_can_be_read_when_it_is_made() -> None:
    rule = TagRule(Ticks(DAY, time(12)))
    assert tag_due(rule, state(seals=SEALS), NOON) == NewTag("auto-2025-01-10", 9, None)
    later = SEALS | {11: NOON + HOUR}  # sealed past the tick, as the first of its day
    assert tag_due(rule, state(seals=later), NOON + HOUR) == NewTag("auto-2025-01-10", 11, None)
    first = state(seals={11: NOON + HOUR})
    assert tag_due(rule, first, NOON + HOUR) == NewTag("auto-2025-01-10", 11, None)
    expired = state(seals=later)
    expired.expired = {11}
    assert tag_due(rule, expired, NOON + HOUR) == NewTag("auto-2025-01-10", 9, None)


def test_a_tick_has_one_tag_however_often_it_is_asked() -> None:
    rule = TagRule(Ticks(DAY, time(12)), default_time_retained=30 * DAY)
    known = tag("auto-2025-01-10", NOON + HOUR)
    for hours in (1, 2, 23):
        assert tag_due(rule, state(known, seals=SEALS), NOON + hours * HOUR) is None
    seals = SEALS | {11: NOON + 2 * HOUR}
    assert tag_due(rule, state(known, seals=seals), NOON + 2 * HOUR) is None
    assert tag_due(rule, state(known, seals=seals), NOON + DAY) == NewTag("auto-2025-01-11", 11, 30 * DAY)
    renamed = TagRule(Ticks(DAY, time(12)), "daily-{date}")  # the rule's name changed, and today has its tag already
    assert tag_due(renamed, state(known, seals=SEALS), NOON + 2 * HOUR) is None


def test_missed_ticks_are_made_up_for_once() -> None:
    rule = TagRule(Ticks(DAY, time(12)))
    before = tag("auto-2025-01-02", NOON - 8 * DAY)
    found = tag_due(rule, state(before, seals=SEALS), NOON + 5 * HOUR)
    assert found == NewTag("auto-2025-01-10", 9, None)
    made = tag(found.name, NOON + 5 * HOUR)
    assert tag_due(rule, state(before, made, seals=SEALS), NOON + 5 * HOUR) is None


def test_a_tag_that_was_deleted_by_hand_on_its_day_is_made_again() -> None:
    known = state(tag("auto-2025-01-10", NOON - HOUR), seals=SEALS)
    assert tag_due(TagRule(), known, NOON) is None
    known.pins.tags.clear()
    assert tag_due(TagRule(), known, NOON) is not None


@pytest.mark.parametrize(
    ("rule", "known", "seals", "reason"),
    [
        (TagRule(), None, {}, "nothing is sealed"),
        (TagRule(), tag("auto-2025-01-10", NOON - DAY, automatic=False), SEALS, "there is a tag 'auto-2025-01-10'"),
        (TagRule(), tag("d", NOON - HOUR), SEALS, "tag 'd' was made since 2025-01-10T00:00:00Z"),
        (
            TagRule(default_time_retained=6 * HOUR),
            None,
            SEALS,
            "6h, for which a tag lives, have gone by since 2025-01-10T00:00:00Z",
        ),
        (TagRule(), tag("d", NOON - DAY), SEALS, ""),
    ],
)
def test_why_no_tag_is_due(rule: TagRule, known: TagState | None, seals: dict[int, datetime], reason: str) -> None:
    head = state(*(known,) if known else (), seals=seals)
    assert why_no_tag(rule, head, NOON) == reason
    assert (tag_due(rule, head, NOON) is None) == bool(reason)


def test_the_oldest_automatic_tags_go_beyond_the_most_that_there_may_be() -> None:
    tags = [tag(f"a{days}", NOON - days * DAY) for days in (1, 4, 2, 3)]
    mine = tag("mine", NOON - 99 * DAY, automatic=False)
    known = state(*tags, mine, seals=SEALS)
    rule = TagRule(Ticks(DAY, time(12)), num_retained_max=3)
    assert due(known, NOON, tag=rule).tag is not None
    assert gone(known, NOON, rule) == ("a4", "a3")  # three with the new one
    assert tags_to_delete(known, NOON, rule) == (tags[1],)  # the new one counts only once it exists
    assert due(known, NOON - HOUR, tag=rule) == Due()
    assert gone(known, NOON - HOUR, rule) == ("a4",)
    assert gone(known, NOON, TagRule(Ticks(DAY, time(12)))) == ()


def test_the_calendar_keeps_automatic_tags_beside_the_newest_ones() -> None:
    months = [datetime(2024, month, day, 12, tzinfo=UTC) for month in (9, 10, 11, 12) for day in (3, 20)]
    known = state(*(tag(f"{at:%m-%d}", at) for at in months), tag("mine", months[0], automatic=False), seals=SEALS)
    rule = TagRule(Ticks(DAY, time(12)), num_retained_max=2, calendar=Calendar(monthly=3))
    assert gone(known, NOON, rule) == ("09-03", "09-20", "10-03", "10-20", "11-03", "12-03")
    alone = TagRule(Ticks(DAY, time(12)), calendar=Calendar(monthly=9))
    assert gone(known, NOON, alone) == ("10-03", "11-03", "12-03")  # the oldest stays: fewer than nine


def test_tags_that_outlived_their_time_go_whoever_made_them_and_count_no_more() -> None:
    tags = [
        tag("old", NOON - 5 * DAY, ttl=5 * DAY),
        tag("mine", NOON - 2 * DAY, ttl=DAY, automatic=False),
        tag("young", NOON - 5 * DAY, ttl=5 * DAY + timedelta(seconds=1)),
        tag("for ever", NOON - 99 * DAY, automatic=False),
    ]
    known = state(*tags, seals={})
    assert tags_to_delete(known, NOON) == tuple(tags[:2])
    assert gone(known, NOON, TagRule(num_retained_max=1)) == ("old", "mine")
    assert gone(known, NOON + HOUR, TagRule(num_retained_max=1)) == ("old", "young", "mine")


@pytest.mark.parametrize(
    ("made", "automatic", "wanted"),
    [(None, True, True), (NOON - DAY, True, True), (NOON - HOUR, True, False), (NOON - HOUR, False, True)],
)
def test_a_savepoint_is_due_once_a_tick(made: datetime | None, automatic: bool, wanted: bool) -> None:
    known = (savepoint(1, made, automatic=automatic),) if made else ()
    found = due(state(seals=SEALS, savepoints=known), NOON, savepoint=SavepointRule())
    assert found == Due(savepoint=wanted)
    assert due(state(seals={}, savepoints=known), NOON, savepoint=SavepointRule()) == Due()


def test_a_savepoint_is_due_at_its_own_time_of_day() -> None:
    known = state(seals=SEALS, savepoints=(savepoint(1, NOON - 12 * HOUR),))
    rule = SavepointRule(Ticks(DAY, time(12)))
    assert due(known, NOON - timedelta(seconds=1), savepoint=rule) == Due()
    assert due(known, NOON, savepoint=rule) == Due(savepoint=True)


def test_the_oldest_automatic_savepoints_go_beyond_the_most_that_there_may_be() -> None:
    mine = savepoint(1, NOON - 99 * DAY, automatic=False)
    made = [savepoint(number, NOON - (5 - number) * DAY - HOUR) for number in (2, 3, 4, 5)]
    known = state(seals=SEALS, savepoints=(mine, *made))
    rule = SavepointRule(Ticks(DAY, time(13)), num_retained_max=2)
    assert due(known, NOON, savepoint=rule).savepoints_gone == tuple(made[:2])  # none is due
    found = due(known, NOON + HOUR, savepoint=rule)
    assert found.savepoint is not None
    assert found.savepoints_gone == tuple(made[:3])  # two with the new one
    assert due(known, NOON, savepoint=SavepointRule()).savepoints_gone == ()


def test_what_the_head_becomes_is_foreseen_and_the_head_stays() -> None:
    old = tag("a", NOON - 2 * DAY)
    known = state(old, seals=SEALS)
    then = with_new_tag(known, due(known, NOON, tag=TagRule()).tag, NOON)
    assert {name: each.pin.revision for name, each in then.tags.items()} == {"a": 5, "auto-2025-01-10": 9}
    assert (known.tags, known.revision) == ({"a": old}, 0)
    assert with_new_tag(known, None, NOON) is known


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "{date}",
            "'{date}' is not a pattern of tag names: '1970-01-01' cannot name a tag; a name starts",
        ),
        ("auto-{day}", "'auto-{day}' gives several days one name"),
        ("{date}-{hour}", "'{date}-{hour}' has a part that is not one of"),
    ],
)
def test_a_pattern_that_names_no_tags_is_named(pattern: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_pattern(pattern)
    assert message in str(caught.value)


def test_names_are_those_of_the_tick() -> None:
    tick = datetime(2025, 1, 2, 3, 4, tzinfo=UTC)
    assert TagRule().name_of(tick) == "auto-2025-01-02"
    assert TagRule(name="d{day}.{month}.{year}_{time}").name_of(tick) == "d02.01.2025_0304"


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 5), st.integers(1, 3))
def test_following_the_rule_day_by_day_keeps_the_newest_and_names_each_tick_once(
    gaps: list[int], most: int, interval: int
) -> None:
    rule = TagRule(Ticks(interval * DAY), num_retained_max=most)
    known, now, made = state(seals={5: NOON - 999 * DAY}), NOON, []
    for hours in gaps:
        now += hours * HOUR
        found = due(known, now, tag=rule)
        if found.tag is not None:
            made.append(found.tag.name)
            assert found.tag.name == rule.name_of(rule.ticks.newest(now))
            known.pins.tags[found.tag.name] = tag(found.tag.name, now)
        for each in tags_to_delete(known, now, rule):
            del known.pins.tags[each.pin.name]
        assert due(known, now, tag=rule) == Due()
        assert list(known.pins.tags) == made[-most:]
    assert len(made) == len(set(made))
