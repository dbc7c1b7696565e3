"""A replica's log or marker is damaged: replication writes it again, as verification of the replica states."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.replica import read_marker
from snapshot_assets.catalog.replication.plan import plan_replication
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.status import location_status
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, ReplicaConflictError, ReplicaError
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import LOAD_MANIFESTS, REPLICA, checkpoint_path, transaction_path
from snapshot_assets.pipeline.automation.verification import _report
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.tags import Changed, reseal, sealed_by

AGAIN = "`snapshots replicate` writes it again"


def flipped(place: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        at = place % len(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


DAMAGE: list[Callable[[bytes], bytes]] = [flipped(0), flipped(-1), lambda data: data[:-1], lambda _: b""]


@pytest.fixture
def replica(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a replica"))


@pytest.fixture
def replicated(writer: Writer, replica: ObjectStore) -> Writer:
    """A location with four checkpoints, and its replica."""
    sealed_by(writer)
    for number in range(4):
        reseal(writer, b"rows %d" % number)
        write_checkpoint(writer.store, writer.catalog.state)
    reseal(writer)
    create_tag(writer.catalog, "last", seal(writer.catalog).seal.revision)
    replicate(writer.store, replica)
    return writer


def log_of(store: ObjectStore) -> dict[str, bytes]:
    return {info.path: store.get(info.path) for info in store.list("transactions/")}


@pytest.mark.parametrize(("damage", "more"), [*zip(DAMAGE, (False, True, True, False), strict=True)])
def test_each_damaged_object_of_its_log_is_named_and_written_again(
    replicated: Writer, replica: ObjectStore, damage: Callable[[bytes], bytes], more: bool
) -> None:
    """After the verification that found it, also where no reader needs the object; `more` follows in the source."""
    for path, data in sorted(log_of(replica).items()):
        replica.put(path, damage(data))
        report = verify(replica)
        record_verification(replica, report, datetime.now(UTC))
        [fault] = [fault for fault in report.faults if fault.object == path]
        assert fault.is_damage
        assert AGAIN in fault.message
        if more:
            reseal(replicated)
        plan_replication(replicated.store, replica)
        replicate(replicated.store, replica)
        assert log_of(replica) == log_of(replicated.store), path
        assert verify(replica).faults == []
        record_verification(replica, verify(replica), datetime.now(UTC))


def test_the_newest_objects_of_its_log_are_written_again_without_a_verification(
    replicated: Writer, replica: ObjectStore
) -> None:
    listing = list_log(replica)
    for path in (transaction_path(listing.transactions[-1]), *map(checkpoint_path, listing.checkpoints[-2:])):
        replica.put(path, b"torn")
    replicate(replicated.store, replica)
    assert log_of(replica) == log_of(replicated.store)


def test_a_replication_reads_no_checkpoint_that_has_its_size(replicated: Writer, replica: ObjectStore) -> None:
    """Its newest one alone, for the replica's head, without its statistics: it may have many gigabytes."""
    read: list[str] = []

    def get_range(path: str, start: int, length: int) -> bytes:
        read.append(path)
        return replica.get_range(path, start, length)

    [*_, before, newest] = map(checkpoint_path, list_log(replica).checkpoints)
    plan_replication(replicated.store, Changed(replica, get_range=get_range))
    assert newest in read
    assert before not in read
    replica.put(before, b"torn")
    replicate(replicated.store, replica)
    assert log_of(replica) == log_of(replicated.store)


def test_a_checkpoint_that_its_source_lacks_is_computed_again(replicated: Writer, replica: ObjectStore) -> None:
    path = checkpoint_path(list_log(replica).checkpoints[-1])
    whole = replica.get(path)
    replicated.store.delete(path)
    replica.put(path, whole[:-1])
    replicate(replicated.store, replica)
    assert replica.get(path) == whole


def test_a_transaction_of_another_revision_is_not_replaced(replicated: Writer, replica: ObjectStore) -> None:
    """It is whole, so something else wrote it."""
    [*_, before, last] = list_log(replica).transactions
    replica.put(transaction_path(last), replicated.store.get(transaction_path(before)))
    log = log_of(replica)
    with pytest.raises(ReplicaConflictError):
        replicate(replicated.store, replica)
    assert log_of(replica) == log


def test_a_load_manifest_is_written_again_by_what_may_write_to_the_location(
    store: ObjectStore, replica: ObjectStore
) -> None:
    writer = Writer(store)
    writer.begin(replace(HEADER, manifest=("redshift",)))
    sealed_by(writer)
    replicate(store, replica)
    for place, command in ((store, "catalog repair"), (replica, "replicate")):
        place.put(LOAD_MANIFESTS["redshift"], b"{}")
        [fault] = verify(place).faults
        assert fault.repairable == (place is store)
        assert f"`snapshots {command}` writes it again" in fault.message


@pytest.mark.parametrize(
    ("damage", "more"),
    [
        *zip(DAMAGE, (False, True, True, False), strict=True),
        (lambda _: b"{}", False),
        (lambda data: data.replace(b"a", b"b", 1), True),
    ],
)
def test_a_damaged_marker_is_one_finding_and_written_again(
    replicated: Writer, replica: ObjectStore, damage: Callable[[bytes], bytes], more: bool
) -> None:
    if more:
        reseal(replicated)
    replica.put(REPLICA, damage(replica.get(REPLICA)))
    [path] = [info.path for info in replica.list("tag/")]
    replica.put(path, b"torn")
    faults = {fault.object: fault.message for fault in verify(replica).faults if fault.is_damage}
    assert faults.keys() == {REPLICA, path}
    assert AGAIN in faults[REPLICA]
    assert read_state(replica).seals == read_state(replicated.store).seals[: -1 if more else None]
    [fault] = [fault for fault in _report(replica, read_state(replica), "quick", None, set()).faults if fault.is_damage]
    assert (fault.object, AGAIN in fault.message) == (REPLICA, True)
    status = location_status(replica, datetime.now(UTC))
    assert status.is_damaged
    assert AGAIN in status.damage
    with pytest.raises(ReplicaError, match="snapshots replicate"):
        Catalog.open_for_writing(replica)
    replica.put(path, replicated.store.get(path))
    replicate(replicated.store, replica)
    marker = read_marker(replica)
    assert marker is not None
    assert (marker.source, marker.revisions) == (replicated.store.uri, None)
    assert verify(replica).faults == []


def test_a_marker_that_is_a_link_refuses_writers(replicated: Writer, replica: ObjectStore, tmp_path: Path) -> None:
    """Otherwise their commits would separate its log from its source's."""
    marker = tmp_path / "a replica" / REPLICA
    marker.rename(tmp_path / "elsewhere")
    marker.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReplicaError, match="remove the link"):
        Catalog.open_for_writing(replica)
    assert REPLICA in {fault.object for fault in verify(replica).faults if fault.is_damage}


def test_a_damaged_marker_of_chosen_versions_is_written_again_with_those_that_are_named(
    replicated: Writer, tmp_path: Path
) -> None:
    chosen = open_store(parse_location(f"file://{tmp_path}/chosen"))
    replicate(replicated.store, chosen, only=["rev:5", "rev:7"])
    chosen.put(REPLICA, b"torn")
    replicate(replicated.store, chosen, only=["rev:5"])
    marker = read_marker(chosen)
    assert marker is not None
    assert marker.revisions == (5,)
    assert verify(chosen).faults == []


def test_a_marker_that_is_written_again_names_no_version_whose_objects_are_not_there(
    replicated: Writer, tmp_path: Path
) -> None:
    chosen = open_store(parse_location(f"file://{tmp_path}/chosen"))
    replicate(replicated.store, chosen, only=["rev:7"])
    chosen.put(REPLICA, b"torn")
    [lost] = set(replicated.catalog.state.at(5).files.paths()) - {info.path for info in chosen.list("data/")}
    replicated.store.put(lost, b"?" * len(replicated.store.get(lost)))
    with pytest.raises(DamageError, match=lost):
        replicate(replicated.store, chosen, only=["rev:5"])
    marker = read_marker(chosen)
    assert marker is not None
    assert marker.revisions == ()
    assert not verify(chosen).damaged


def test_a_first_copy_of_another_location_is_refused_also_if_its_marker_is_damaged(
    replicated: Writer, replica: ObjectStore, tmp_path: Path
) -> None:
    for path in log_of(replica):
        replica.delete(path)
    replica.put(REPLICA, b"torn")
    other = Writer(open_store(parse_location(f"file://{tmp_path}/other")))
    other.begin()
    for source in (other.store, replicated.store):  # nothing shows of which it was one
        with pytest.raises(ReplicaConflictError, match="empty location"):
            replicate(source, replica)
    for info in list(replica.list()):
        if info.path != REPLICA:
            replica.delete(info.path)
    replicate(other.store, replica)
    assert verify(replica).faults == []


def test_a_location_with_a_damaged_marker_that_is_no_replica_of_the_source_is_refused(
    replicated: Writer, tmp_path: Path
) -> None:
    other = Writer(open_store(parse_location(f"file://{tmp_path}/other")))
    other.begin()
    other.store.put(REPLICA, b"torn")
    before = {info.path: other.store.get(info.path) for info in other.store.list()}
    with pytest.raises(ReplicaConflictError):
        replicate(replicated.store, other.store)
    assert {info.path: other.store.get(info.path) for info in other.store.list()} == before


def test_a_marker_of_an_older_build_has_no_checksum_and_one_has_it_last(
    replicated: Writer, replica: ObjectStore
) -> None:
    document = json.loads(replica.get(REPLICA))
    assert list(document) == ["version", "location_id", "source", "created_at", "created_by", "sha256"]
    marker = read_marker(replica)
    del document["sha256"]
    replica.put(REPLICA, pretty_json(document))
    assert read_marker(replica) == marker
