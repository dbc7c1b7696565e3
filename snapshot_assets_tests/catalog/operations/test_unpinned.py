"""What an expiry or the end of a tag or savepoint releases stays for a grace period."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.state.retained import needed_events
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.catalog.tags import delete_savepoint, file_of, reseal, save_older, sealed_by

Ends = Callable[[Catalog], object]
ENDS: dict[str, Ends] = {
    "expired": lambda catalog: expire(catalog, keep_last=1),
    "tag deleted": lambda catalog: delete_tag(catalog, "kept"),
    "tag replaced": lambda catalog: replace_tag(catalog, "kept", 7),
    "savepoint deleted": lambda catalog: delete_savepoint(catalog, 1),
}


@pytest.fixture
def writer(store: ObjectStore) -> Writer:
    return Writer(store)


def working(writer: Writer, ago: timedelta) -> Writer:
    """Let a writer work at another time from here on."""
    at = datetime.now(UTC) - ago
    writer.catalog = Catalog(writer.store, read_state(writer.store), clock=lambda: at)
    return writer


def aged(writer: Writer, ago: timedelta) -> None:
    """Let all objects be as old."""
    at = (datetime.now(UTC) - ago).timestamp()
    for info in writer.store.list():
        os.utime(parse_location(writer.store.uri).local_path / info.path, (at, at))


def pinned(writer: Writer, what: str) -> str:
    """Seal at 5 and 7, pin 5 and let it expire, unless it expires later, nine days ago; return its file."""
    working(writer, 9 * DAY).begin()
    sealed_by(writer)
    reseal(writer)
    if what.startswith("tag"):
        create_tag(writer.catalog, "kept", 5)
    elif what.startswith("savepoint"):
        save_older(writer.catalog, 5)
    if what != "expired":
        assert expire(writer.catalog, keep_last=1).expired == (5,)
    aged(writer, 9 * DAY)
    return file_of(writer, 5)


@pytest.mark.parametrize(
    ("ago", "kept", "checkpoint"), [(0 * DAY, True, False), (0 * DAY, True, True), (2 * DAY, False, True)]
)
@pytest.mark.parametrize("what", ENDS)
def test_what_the_end_of_a_pin_left_unneeded_stays_for_a_grace_period(
    writer: Writer, what: str, ago: timedelta, kept: bool, checkpoint: bool
) -> None:
    """A reader of it may be at work."""
    gone = pinned(writer, what)
    working(writer, ago)
    ENDS[what](writer.catalog)
    if checkpoint:
        write_checkpoint(writer.store, writer.catalog.state)
    if not kept:
        aged(writer, ago)
    found = collect_garbage(Catalog.open_for_writing(writer.store))
    assert (gone in {each.path for each in found.waiting}) is kept
    assert (gone in {each.path for each in found.deleted}) is not kept
    assert not verify(writer.store).faults


def of_expiries(writer: Writer) -> dict[int, list[tuple[int, ...]]]:
    """Return the expired revisions that a checkpoint of the state records, by the revision that recorded them."""
    recorded: dict[int, list[tuple[int, ...]]] = {}
    for event in needed_events(writer.catalog.state):
        for action in event.actions:
            if isinstance(action, act.Expired):
                recorded.setdefault(event.revision, []).append(action.revisions)
    return recorded


@pytest.mark.parametrize("checkpoints", [False, True])
def test_checkpoints_tell_which_revision_expired_with_its_last_pin(writer: Writer, checkpoints: bool) -> None:
    pinned(writer, "tag")
    working(writer, 0 * DAY)

    def told_after(change: Callable[[Catalog], object]) -> dict[int, list[tuple[int, ...]]]:
        change(writer.catalog)
        if checkpoints:
            write_checkpoint(writer.store, writer.catalog.state)
            working(writer, 0 * DAY)
        assert same_states(writer.catalog.state, scan_log(writer.store).state)
        return of_expiries(writer)

    assert told_after(lambda catalog: create_tag(catalog, "second", 5)) == {9: [(5,)]}
    assert told_after(lambda catalog: rename_tag(catalog, "kept", "renamed")) == {9: [(5,)]}
    assert told_after(lambda catalog: delete_tag(catalog, "renamed")) == {9: [(5,)]}  # it has another pin
    assert told_after(lambda catalog: create_tag(catalog, "newest", 7)) == {9: [(5,)]}
    assert told_after(lambda catalog: delete_tag(catalog, "newest")) == {9: [(5,)]}  # 7 never expired
    last = writer.catalog.state.revision + 1
    assert told_after(lambda catalog: replace_tag(catalog, "second", 7)) == {last: [(5,)]}
    writer.catalog.state.committed_at += 3 * DAY
    assert of_expiries(writer) == {}
    assert not verify(writer.store).faults


def test_an_expiry_that_a_checkpoint_forgot_is_not_told_again_where_the_grace_period_grows(writer: Writer) -> None:
    """A checkpoint must not depend on earlier ones."""
    pinned(writer, "tag")
    delete_tag(working(writer, 7 * DAY).catalog, "kept")
    working(writer, 4 * DAY).catalog.commit(rules.in_progress(writer.catalog.token(), [2], "run"))
    write_checkpoint(writer.store, writer.catalog.state)
    working(writer, 3 * DAY).begin(replace(HEADER, grace=HEADER.grace * 8), force=True)
    write_checkpoint(writer.store, writer.catalog.state)
    assert of_expiries(writer) == {}
    assert not scan_log(writer.store).faults
