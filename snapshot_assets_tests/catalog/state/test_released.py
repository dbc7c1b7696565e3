"""Released objects: garbage collection deletes exactly the objects that were reported before the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.rollback import plan_rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, replace_tag
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.state.retained import ReleasedObject, end_of_pin
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, rollback
from snapshot_assets_tests.catalog.tags import (
    Changed,
    delete_savepoint,
    file_of,
    reseal,
    save,
    sealed_by,
    sealed_four_times,
    wait_for_clock,
)

SECOND = timedelta(seconds=1)


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    return sealed_four_times(writer)


def later(writer: Writer, by: timedelta = DAY / 2) -> Catalog:
    """Move a writer's clock forward."""
    writer.catalog = Catalog.open_for_writing(writer.store)
    writer.catalog._clock = lambda: datetime.now(UTC) + by
    return writer.catalog


def garbage(writer: Writer) -> dict[str, str]:
    """Return by path the reason of all that nothing needs now, but statements about seals, which no plan names."""
    found = plan_collection(Catalog.open(writer.store))
    every = (*found.deleted, *found.waiting)
    return {each.path: each.reason for each in every if not each.path.startswith("seals/")}


@dataclass(frozen=True)
class Change:
    """A change, the objects that it is planned to release, and how many it releases by reason."""

    planned: Callable[[Catalog], tuple[ReleasedObject, ...]]
    execute: Callable[[Catalog], object]
    reasons: dict[str, int]


CHANGES = {
    "expiry": Change(
        lambda catalog: plan_expiry(catalog, Retention(keep_last=1)).released,
        lambda catalog: expire(catalog, keep_last=1),
        {"expired": 2},
    ),
    "tag deleted": Change(
        lambda catalog: end_of_pin(catalog.state, catalog.state.tags["kept"]).released,
        lambda catalog: delete_tag(catalog, "kept"),
        {"tag deleted": 2, "pin object": 1},
    ),
    "tag replaced": Change(
        lambda catalog: end_of_pin(catalog.state, catalog.state.tags["kept"], replaced_by=13).released,
        lambda catalog: replace_tag(catalog, "kept", 13),
        {"tag replaced": 2, "pin object": 1},
    ),
    "savepoint deleted": Change(
        lambda catalog: end_of_pin(catalog.state, catalog.state.pins.savepoints[1]).released,
        lambda catalog: delete_savepoint(catalog, 1),
        {"savepoint deleted": 2, "pin object": 1},
    ),
    "rollback": Change(
        lambda catalog: plan_rollback(catalog, 11, discard_newer=True).released,
        lambda catalog: rollback(catalog, 11, discard_newer=True),
        {"expired": 2, "replaced": 2},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_planned_releases_are_what_garbage_collection_deletes(writer: Writer, name: str) -> None:
    """A file is released with its receipt. The object of a pin is deleted at once. Checkpoints change nothing."""
    change = CHANGES[name]
    sealed_by(writer)
    reseal(writer)
    create_tag(writer.catalog, "kept", 5)
    assert save(writer.catalog).pin.revision == 7
    assert [reseal(writer), reseal(writer)] == [11, 13]
    assert expire(writer.catalog, keep_last=2).expired == (5, 7)
    writer.complete(1, writer.file(1, b"not sealed"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    assert garbage(writer) == {}
    objects = {info.path: info.size for info in writer.store.list() if not info.path.startswith("seals/")}

    planned = change.planned(writer.catalog)
    assert Counter(each.reason for each in planned) == change.reasons
    assert {each.path: each.bytes for each in planned}.items() <= objects.items()
    change.execute(writer.catalog)
    reasons = {
        each.path: "replaced" if each.reason == "replaced" else "expired" for each in planned if not each.at_once
    }
    assert garbage(writer) == reasons
    write_checkpoint(writer.store, writer.catalog.state)
    assert garbage(writer) == reasons
    deleted = objects.keys() - {info.path for info in writer.store.list()}
    assert deleted == {each.path for each in planned if each.at_once}
    wait_for_clock(writer.store, writer.catalog.state.committed_at)
    collect_garbage(Catalog.open_for_writing(writer.store), grace=timedelta(0), unsafe=True)
    assert objects.keys() - {info.path for info in writer.store.list()} == {each.path for each in planned}
    assert not verify(writer.store).faults


def test_rollback_releases_receipts_that_no_resume_can_adopt(writer: Writer) -> None:
    writer.begin(replace(HEADER, kind="continuous", requested_end=""), force=True)
    writer.fill()
    first = seal(writer.catalog).seal.revision
    writer.catalog.commit(rules.extend(writer.token, START + 4 * DAY))
    file = writer.file(4)
    receipt, _ = writer.receipt(4, file)
    before = garbage(writer)
    planned = plan_rollback(writer.catalog, first).released
    assert {each.path: each.reason for each in planned} == {file.path: "orphan", receipt.path: "orphan"}
    rollback(writer.catalog, first)
    assert garbage(writer) == before | {each.path: each.reason for each in planned}
    assert rollback(writer.catalog, first).released == ()


def test_without_a_retention_rule_only_outlived_tags_are_deleted(sealed: Writer) -> None:
    create_tag(sealed.catalog, "young", 5, DAY)
    create_tag(sealed.catalog, "old", 7, SECOND)
    create_tag(sealed.catalog, "for-ever", 7)
    later(sealed)
    path, before = sealed.catalog.state.tags["old"].pin.object.path, sealed.catalog.state.revision
    planned = plan_expiry(sealed.catalog, None)
    assert (planned.tags, planned.expired, planned.kept, planned.revision) == (("old",), (), 4, None)
    assert [(each.path, each.reason, each.at_once) for each in planned.released] == [(path, "pin object", True)]
    assert (read_state(sealed.store).revision, planned.bytes) == (before, 0)
    assert expire(sealed.catalog) == planned
    assert set(read_state(sealed.store).tags) == {"young", "for-ever"}
    assert path not in {info.path for info in sealed.store.list()}
    assert (sealed.catalog.state.revision, verify(sealed.store).faults) == (before + 1, [])
    assert expire(sealed.catalog) == ExpiryPlan((), {}, 4)


def test_revisions_that_only_an_outlived_tag_pinned_are_released_with_expired_ones(sealed: Writer) -> None:
    create_tag(sealed.catalog, "old", 5, SECOND)
    assert expire(sealed.catalog, keep_last=3).pinned == {5: ("tag 'old'",)}
    create_tag(sealed.catalog, "older", 7, SECOND)
    later(sealed)
    planned = plan_expiry(sealed.catalog, Retention(keep_last=1))
    assert (planned.tags, planned.expired, planned.pinned, planned.kept) == (("old", "older"), (7, 9), {}, 1)
    reasons = {each.path: each.reason for each in planned.released}
    assert [reasons[file_of(sealed, revision)] for revision in (5, 7, 9)] == ["tag deleted", "expired", "expired"]
    assert replace(expire(sealed.catalog, keep_last=1), revision=None) == planned
    assert [seal.revision for seal in read_state(sealed.store).readable()] == [11]
    assert garbage(sealed).keys() == {each.path for each in planned.released if not each.at_once}


def test_a_tag_renewed_during_an_expiry_stays(sealed: Writer) -> None:
    create_tag(sealed.catalog, "old", 5, SECOND)
    other = Catalog.open_for_writing(sealed.store)
    later(sealed)
    planned = plan_expiry(sealed.catalog, Retention(keep_last=3))
    assert planned.tags == ("old",)
    raced: list[int] = []

    def create(path: str, data: bytes) -> None:
        if not raced:
            raced.append(0)
            replace_tag(other, "old", 5)
        sealed.store.create(path, data)

    sealed.catalog.store = Changed(sealed.store, create=create)
    done = execute_expiry(sealed.catalog, planned)
    assert (done.tags, done.expired, done.pinned) == ((), (5,), {5: ("tag 'old'",)})
    assert not verify(sealed.store).faults
