"""Expiry: which revisions expire, what nothing needs then, and what pins keep."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.catalog.state.retained import ReleasedObject, end_of_pin, needed_events
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, PlanError
from snapshot_assets.format.actions import Expired
from snapshot_assets.format.layout import is_receipt, transaction_path
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.execute import expire
from snapshot_assets_tests.catalog.merging import merge
from snapshot_assets_tests.catalog.tags import (
    NOW,
    Changed,
    collected,
    file_of,
    flip,
    readable,
    reseal,
    sealed_four_times,
)


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    return sealed_four_times(writer)


@pytest.mark.parametrize(
    ("rules", "expired"),
    [
        ({"keep_last": 1}, (5, 7, 9)),
        ({"keep_last": 3}, (5,)),
        ({"keep_last": 9}, ()),
        ({"keep_for": NOW}, (5, 7, 9)),  # the newest seal always stays
        ({"keep_for": DAY}, ()),
        ({"keep_last": 2, "keep_for": NOW}, (5, 7)),
        ({"keep_last": 1, "keep_for": DAY}, ()),
        ({"calendar": Calendar(yearly=1)}, (5, 7, 9)),
        ({"calendar": Calendar(monthly=2)}, (7, 9)),  # one month so far: its newest, and the oldest of all
        ({"calendar": Calendar(daily=1), "keep_last": 3}, (5,)),
    ],
)
def test_a_revision_that_either_rule_keeps_is_kept(sealed: Writer, rules: dict, expired: tuple[int, ...]) -> None:
    before = sealed.catalog.state.revision
    plan = plan_expiry(sealed.catalog, Retention(**rules))
    assert (plan.expired, plan.revision, plan.kept) == (expired, None, 4 - len(expired))
    assert read_state(sealed.store).revision == before
    done = expire(sealed.catalog, **rules)
    assert (done.expired, done.released, done.kept) == (plan.expired, plan.released, plan.kept)
    assert done.revision == (before + 1 if expired else None)
    assert readable(sealed.store) == [each for each in (5, 7, 9, 11) if each not in expired]


def test_what_was_only_compacted_counts_as_one_with_what_it_was_made_of(sealed: Writer) -> None:
    """A compaction seals for each chunk: it must not push out what was exported."""
    merged = [merge(sealed, chunk) for chunk in (1, 2)]
    assert (merged, readable(sealed.store)) == ([12, 13], [5, 7, 9, 11, 12, 13])
    assert plan_expiry(sealed.catalog, Retention(keep_last=4)).expired == (11, 12)
    write_checkpoint(sealed.store, sealed.catalog.state)
    assert expire(Catalog.open_for_writing(sealed.store), keep_last=2).expired == (5, 7, 11, 12)
    assert readable(sealed.store) == [9, 13]
    assert reseal(sealed) == 16
    assert expire(sealed.catalog, keep_last=2).expired == (9,)
    assert expire(sealed.catalog, keep_last=1).expired == (13,)


def test_the_calendar_counts_a_compaction_as_keep_last_does(sealed: Writer) -> None:
    merge(sealed, 1)
    assert readable(sealed.store) == [5, 7, 9, 11, 12]
    assert plan_expiry(sealed.catalog, Retention(calendar=Calendar(yearly=1))).expired == (5, 7, 9, 11)


def test_keep_for_counts_from_the_commit(sealed: Writer) -> None:
    times = {seal.revision: seal.committed_at for seal in sealed.catalog.state.seals}
    sealed.catalog._clock = lambda: times[9] + DAY  # exactly as old as what is kept
    assert plan_expiry(sealed.catalog, Retention(keep_for=DAY)).expired == (5, 7)


@pytest.mark.parametrize("rules", [{"keep_last": 0}, {"keep_for": -DAY}])
def test_an_invalid_rule_is_refused(sealed: Writer, rules: dict) -> None:
    with pytest.raises(PlanError, match=r"keep_(last|for)"):
        expire(sealed.catalog, **rules)
    assert readable(sealed.store) == [5, 7, 9, 11]


def test_what_nothing_needs_after_an_expiry_is_planned_and_collected_later(sealed: Writer) -> None:
    gone = {file_of(sealed, 5), file_of(sealed, 7)}
    plan = plan_expiry(sealed.catalog, Retention(keep_last=2))
    assert {each.path for each in plan.released if not is_receipt(each.path)} == gone
    assert plan.bytes == sum(sealed.store.head(each.path).size for each in plan.released)
    assert collected(sealed) == set()
    expire(sealed.catalog, keep_last=2)
    assert all(sealed.store.head(path) for path in gone)  # expiring deletes nothing
    assert collected(sealed) == gone
    assert not verify(sealed.store).faults
    assert expire(sealed.catalog, keep_last=2) == ExpiryPlan((), {}, 2)  # once is enough


def test_a_head_that_is_not_sealed_and_the_newest_seal_both_stay(sealed: Writer) -> None:
    sealed.complete(1, sealed.file(1, b"not sealed"), replaces=tuple(sealed.catalog.state.files.chunk(1)))
    expire(sealed.catalog, keep_for=NOW)
    assert read_state(sealed.store).retained() == [11, 13]
    collected(sealed)
    for revision in (11, 13):
        assert sealed.store.head(file_of(sealed, revision))
    sealed.begin(HEADER, force=True)
    assert expire(sealed.catalog, keep_last=1).expired == ()
    assert readable(sealed.store) == [11]


def test_a_pinned_revision_stays_readable_until_its_last_pin_goes(sealed: Writer) -> None:
    for name, revision in (("one", 7), ("two", 7), ("newest", 11)):
        create_tag(sealed.catalog, name, revision)
    pinned = file_of(sealed, 7)
    done = expire(sealed.catalog, keep_last=1)
    assert (done.expired, done.pinned, done.kept) == ((5, 7, 9), {7: ("tag 'one'", "tag 'two'")}, 2)
    assert {each.path for each in done.released} > {file_of(sealed, 5), file_of(sealed, 9)}
    assert collected(sealed) == {each.path for each in done.released if not is_receipt(each.path)}
    write_checkpoint(sealed.store, sealed.catalog.refresh())
    delete_tag(sealed.catalog, "one")
    assert (readable(sealed.store), collected(sealed)) == ([7, 11], set())
    state = sealed.catalog.state
    [two] = [known for known in state.pins if known.pin.revision == 7]
    ends = end_of_pin(state, two)
    assert ReleasedObject(pinned, len(b"late rows"), "tag deleted") in ends.released
    assert ends.unreadable == 7
    delete_tag(sealed.catalog, "two")
    assert (readable(sealed.store), collected(sealed)) == ([11], {pinned})
    assert not verify(sealed.store).faults


def test_checkpoints_record_an_expiry_for_two_grace_periods(sealed: Writer) -> None:
    expired = expire(sealed.catalog, keep_last=3).expired
    state = sealed.catalog.state
    for age, recorded in ((2 * DAY - timedelta(seconds=5), [expired]), (2 * DAY, [])):
        state.committed_at = state.events[-1].committed_at + age
        actions = [action for event in needed_events(state) for action in event.actions]
        assert [action.revisions for action in actions if isinstance(action, Expired)] == recorded


@pytest.mark.parametrize("when", ["before", "during"])
def test_only_what_was_planned_expires(sealed: Writer, when: str) -> None:
    plan, other, raced = plan_expiry(sealed.catalog, Retention(keep_last=3)), Writer(sealed.store), list[int]()

    def create(path: str, data: bytes) -> None:
        if not raced:
            raced.append(0)
            raced.append(reseal(other))
        sealed.store.create(path, data)

    if when == "before":
        reseal(other)
    else:
        sealed.catalog.store = Changed(sealed.store, create=create)
    assert execute_expiry(sealed.catalog, plan).expired == (5,)
    assert readable(sealed.store) == [7, 9, 11, 13]
    assert expire(sealed.catalog, keep_last=3).expired == (7,)


def test_nothing_expires_where_the_log_is_damaged_after_the_plan(sealed: Writer) -> None:
    write_checkpoint(sealed.store, sealed.catalog.state)
    plan = plan_expiry(sealed.catalog, Retention(keep_last=1))
    flip(sealed.store, transaction_path(3))
    with pytest.raises(DamageError, match="The log has a fault, so nothing expired"):
        execute_expiry(Catalog.open_for_writing(sealed.store), plan)
    assert readable(sealed.store) == [5, 7, 9, 11]
