"""A replica of chosen versions: every reader sees what it has, and nothing that only its source has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import list_snapshots
from snapshot_assets.catalog.log.replay import open_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import existing_state, newest_state
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag
from snapshot_assets.catalog.replication.promote import execute_promotion, plan_promotion
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.status import location_status
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ReplicaError, TagHeldError, UsageError, VersionNotFoundError
from snapshot_assets.format.layout import REPLICA
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.catalog.replication.test_replicate import NOW, replace_chunk


def grow(writer: Writer, number: int) -> None:
    """Replace a chunk, seal, tag the seal, and make a savepoint of it."""
    replace_chunk(writer, b"rows of %d" % number)
    sealed = seal(writer.catalog)
    create_tag(writer.catalog, f"tag{number}", sealed.seal.revision)
    create_savepoint(writer.catalog, writer.catalog.state.data_revision)


@pytest.fixture
def source(writer: Writer) -> Writer:
    writer.fill()
    for number in range(4):
        grow(writer, number)
    return writer


@pytest.fixture
def replica(source: Writer, tmp_path: Path) -> ObjectStore:
    store = open_store(parse_location(f"file://{tmp_path}/replica"))
    replicate(source.store, store, only=["tag:tag1"])
    return store


READERS: dict[str, Callable[[ObjectStore], State]] = {
    "read_state": read_state,
    "newest_state": newest_state,
    "existing_state": existing_state,
    "scan_log": lambda store: scan_log(store).state,
    "Catalog": lambda store: Catalog.open(store).require_snapshot(),
    "refresh": lambda store: Catalog.open(store).refresh(),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_what_the_replica_has(source: Writer, replica: ObjectStore, reader: str) -> None:
    state, recorded = READERS[reader](replica), source.catalog.refresh()
    assert sorted(state.tags) == ["tag1", "tag3"]  # the head has the last
    assert sorted(state.pins.savepoints) == [2, 4]
    assert [seal.revision for seal in state.readable()] == [
        recorded.tags[name].pin.revision for name in ("tag1", "tag3")
    ]
    assert sorted(open_log(replica)[0].tags) == sorted(recorded.tags)


def test_a_reader_that_stays_open_follows_the_source(source: Writer, replica: ObjectStore) -> None:
    """The transactions that follow name pins that the reader does not see."""
    catalog = Catalog.open(replica)
    delete_tag(source.catalog, "tag0")
    grow(source, 4)
    replicate(source.store, replica, only=["tag:tag2"])
    assert sorted(catalog.refresh().tags) == ["tag1", "tag2", "tag4"]


def test_its_status_is_healthy_and_names_what_it_holds(source: Writer, replica: ObjectStore) -> None:
    hold_tag(source.catalog, "tag0", "case 1")
    hold_tag(source.catalog, "tag1", "case 2")
    replicate(source.store, replica, only=["tag:tag1"])
    status = location_status(replica, datetime.now(UTC))
    assert (status.is_damaged, status.damaged, status.damage, status.held) == (False, (), "", ("tag1",))
    assert status.revision == source.catalog.state.revision
    [listed] = [each for each in list_snapshots(replica, lambda *_: replica) if each.uri == replica.uri]
    assert listed
    lost = next(iter(read_state(replica).at(status.revision).files.chunk(3)))
    replica.delete(lost)
    assert location_status(replica, datetime.now(UTC)).damaged == (lost,)


def test_its_garbage_is_known(source: Writer, replica: ObjectStore) -> None:
    grow(source, 4)
    replicate(source.store, replica, only=["tag:tag1"])  # tag3 is no longer the head's
    plan = plan_collection(Catalog.open(replica), **NOW)
    assert plan


def test_a_replica_of_it_has_the_same_versions(source: Writer, replica: ObjectStore, tmp_path: Path) -> None:
    third = open_store(parse_location(f"file://{tmp_path}/third"))
    replicate(replica, third)
    assert sorted(read_state(third).tags) == ["tag1", "tag3"]
    assert not verify(third).damaged
    assert sorted(open_log(third)[0].tags) == ["tag0", "tag1", "tag2", "tag3"]
    fourth = open_store(parse_location(f"file://{tmp_path}/fourth"))
    with pytest.raises(VersionNotFoundError, match="no tag 'tag0'"):
        replicate(replica, fourth, only=["tag:tag0"])
    replicate(source.store, fourth)
    with pytest.raises(ReplicaError, match="its source has only chosen versions"):
        replicate(replica, fourth)


def promote(store: ObjectStore, **options) -> Catalog:
    catalog = Catalog.open(store)
    execute_promotion(catalog, plan_promotion(catalog, **options))
    return Catalog.open_for_writing(store)


def test_a_promoted_replica_has_exactly_what_it_had(source: Writer, replica: ObjectStore) -> None:
    before = read_state(replica)
    files = {known.file.path for known in before.live_files()}
    plan = plan_promotion(Catalog.open(replica))
    revisions = [source.catalog.state.tags[name].pin.revision for name in ("tag0", "tag2")]
    assert list(plan.ends.revisions) == revisions
    assert [known.pin.name for known in plan.ends.tags] == ["tag0", "tag2"]
    assert [known.pin.id for known in plan.ends.savepoints] == [1, 3]
    promoted = promote(replica)
    state = promoted.state
    assert state.revision == before.revision + 1
    assert (state.tags, state.pins.savepoints) == (before.tags, before.pins.savepoints)
    assert [seal.revision for seal in state.readable()] == [seal.revision for seal in before.readable()]
    assert state.sealed
    assert {known.file.path for known in state.live_files()} == files
    assert not verify(replica).faults
    assert not location_status(replica, datetime.now(UTC)).is_damaged
    collect_garbage(promoted, **NOW)
    expire(promoted, keep_last=1)
    create_tag(promoted, "tag0", state.seals[-1].revision)  # the name is free
    grow(Writer(replica), 9)
    assert not verify(replica).damaged


def test_a_hold_that_it_lacks_is_given_up_only_by_name(source: Writer, replica: ObjectStore) -> None:
    for name in ("tag0", "tag2"):
        hold_tag(source.catalog, name, f"case of {name}", "legal")
    replicate(source.store, replica, only=["tag:tag1"])
    before = {info.path: replica.get(info.path) for info in replica.list()}
    with pytest.raises(TagHeldError, match=r"tag0.*case of tag0.*tag2.*--release tag0 --release tag2") as refused:
        plan_promotion(Catalog.open(replica))
    assert refused.value.attributes["tags"] == ["tag0", "tag2"]
    with pytest.raises(TagHeldError, match="--release tag2 gives"):
        plan_promotion(Catalog.open(replica), release=["tag0"])
    for wrong in ("tag1", "tag9"):
        with pytest.raises(UsageError, match=f"'{wrong}' is no held tag"):
            plan_promotion(Catalog.open(replica), release=["tag0", "tag2", wrong])
    assert {info.path: replica.get(info.path) for info in replica.list()} == before
    promoted = promote(replica, release=["tag0", "tag2"])
    assert sorted(promoted.state.tags) == ["tag1", "tag3"]
    assert not verify(replica).faults


def test_a_hold_that_it_has_survives_its_promotion(source: Writer, replica: ObjectStore) -> None:
    hold_tag(source.catalog, "tag1", "case")
    replicate(source.store, replica, only=["tag:tag1"])
    promoted = promote(replica)
    with pytest.raises(TagHeldError):
        delete_tag(promoted, "tag1")
    assert not verify(replica).faults


def test_readers_show_all_versions_and_name_a_damaged_marker(
    source: Writer, replica: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    replicate(source.store, replica, only=["tag:tag1"])
    chosen = read_state(replica)
    replica.put(REPLICA, b"{}")
    recorded = read_state(replica)
    assert recorded.tags.keys() > chosen.tags.keys()
    assert REPLICA in caplog.text
    assert "`snapshots replicate` writes it again" in caplog.text
    with pytest.raises(ReplicaError, match=REPLICA):
        Catalog.open_for_writing(replica)
