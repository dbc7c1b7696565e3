"""Replication: the replica has every object of the source byte for byte, and is a location that readers use."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.replica import read_marker
from snapshot_assets.catalog.replication.objects import copy_object
from snapshot_assets.catalog.replication.plan import check_target, plan_replication
from snapshot_assets.catalog.replication.promote import execute_promotion, plan_promotion
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.retained import needed_objects
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, PlanError, ReplicaConflictError, ReplicaError, VersionNotFoundError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES
from snapshot_assets.format.layout import REPLICA, TRANSACTIONS, is_probe, seal_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import ObjectLock, open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune, rollback
from snapshot_assets_tests.servers.s3 import S3Server

NOW = {"grace": timedelta(0), "unsafe": True}


@pytest.fixture
def replica(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a replica"))


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.path: store.get(info.path) for info in store.list()}


def assert_equal(source: ObjectStore, replica: ObjectStore) -> None:
    """Check that a replica has the head and what it needs byte for byte, and that it has no fault."""
    state, copies = read_state(source), contents(replica)
    assert read_state(replica).revision == state.revision
    log = (info.path for info in source.list(TRANSACTIONS) if not is_probe(info.path))  # one stays if a reply is lost
    for path in (*needed_objects(state), *log):
        assert copies[path] == source.get(path), path
    assert not verify(replica).damaged
    assert not [fault for fault in verify(replica).faults if fault.kind in ("replication", "stale", "foreign")]


def replace_chunk(writer: Writer, content: bytes) -> None:
    writer.complete(1, writer.file(1, content), replaces=tuple(writer.catalog.state.files.chunk(1)))


def test_a_replica_equals_its_source_and_follows_it(writer: Writer, replica: ObjectStore) -> None:
    source = writer.store
    writer.fill()
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    done = replicate(source, replica)
    assert (done.revision, done.previous, done.sealed) == (writer.catalog.state.revision, 0, True)
    copies = contents(replica)
    copies.pop(REPLICA)
    assert copies == contents(source)
    replace_chunk(writer, b"late rows")
    seal(writer.catalog)
    again = replicate(source, replica)
    assert (again.previous, again.objects, again.transactions) == (done.revision, 2, 2)
    assert_equal(source, replica)
    before = contents(replica)
    idle = replicate(source, replica)
    assert (idle.objects, idle.transactions) == (0, 0)
    assert contents(replica) == before


def test_what_the_source_collected_is_not_needed_by_the_replica(writer: Writer, replica: ObjectStore) -> None:
    """Files and pins that the source has lost are named by transactions of the log that follows."""
    writer.fill()
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    replicate(writer.store, replica)
    for number in range(3):
        replace_chunk(writer, b"%d" % number)
        create_tag(writer.catalog, f"tag{number}", seal(writer.catalog).seal.revision)
        delete_tag(writer.catalog, f"tag{number}")
    delete_tag(writer.catalog, "first")
    expire(writer.catalog, keep_last=1)
    assert collect_garbage(writer.catalog, **NOW).deleted
    kept = contents(replica)
    replicate(writer.store, replica)
    assert_equal(writer.store, replica)
    assert kept.keys() <= contents(replica).keys()
    assert replicate(writer.store, replica, delete=True).deleted
    assert_equal(writer.store, replica)
    gone = kept.keys() - contents(replica).keys()
    assert gone
    assert not gone & contents(writer.store).keys()


def test_a_statement_that_the_source_lost_stays_in_the_replica(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    path = seal_path(seal(writer.catalog).seal.revision)
    replicate(writer.store, replica)
    stated = replica.get(path)
    writer.store.delete(path)
    replicate(writer.store, replica, delete=True)
    assert replica.get(path) == stated


@pytest.mark.parametrize("replicated_before", [False, True])
@pytest.mark.parametrize("delete", [False, True])
def test_a_pruned_log_is_followed(writer: Writer, replica: ObjectStore, replicated_before: bool, delete: bool) -> None:
    writer.fill()
    seal(writer.catalog)
    if replicated_before:
        replicate(writer.store, replica)
    for number in range(4):
        replace_chunk(writer, b"%d" % number)
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)
    assert prune(writer.catalog, **NOW).released
    replicate(writer.store, replica, delete=delete)
    assert_equal(writer.store, replica)
    replace_chunk(writer, b"more")
    seal(writer.catalog)
    replicate(writer.store, replica, delete=delete)
    assert_equal(writer.store, replica)


def test_a_rollback_is_followed(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    first = seal(writer.catalog).seal.revision
    replicate(writer.store, replica)
    replace_chunk(writer, b"wrong")
    seal(writer.catalog)
    replicate(writer.store, replica)
    rollback(writer.catalog, first, discard_newer=True)
    collect_garbage(writer.catalog, **NOW)
    replicate(writer.store, replica, delete=True)
    assert_equal(writer.store, replica)


def test_damage_of_the_source_is_named_and_not_copied(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    seal(writer.catalog)
    replicate(writer.store, replica)
    replace_chunk(writer, b"late rows")
    seal(writer.catalog)
    [path] = writer.catalog.state.files.chunk(1)
    whole = writer.store.get(path)
    for damaged in (b"LATE rows", b"late"):
        writer.store.put(path, damaged)
        with pytest.raises(DamageError, match=path):
            replicate(writer.store, replica)
        assert path not in contents(replica)
        assert not verify(replica).damaged
    writer.store.delete(path)
    with pytest.raises(DamageError, match=path):
        replicate(writer.store, replica)
    writer.store.put(path, whole)
    replicate(writer.store, replica)
    assert_equal(writer.store, replica)


def test_a_replica_is_refused_by_writers_and_promoted(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    seal(writer.catalog)
    replicate(writer.store, replica)
    with pytest.raises(ReplicaError, match="is a replica of"):
        Catalog.open_for_writing(replica)
    catalog = Catalog.open(replica)
    execute_promotion(catalog, plan_promotion(catalog))
    promoted = Writer(replica)
    create_tag(promoted.catalog, "own", promoted.catalog.state.seals[-1].revision)
    assert not verify(replica).damaged
    with pytest.raises(ReplicaError, match="is not a replica"):
        replicate(writer.store, replica)
    with pytest.raises(ReplicaError, match="nothing to promote"):
        plan_promotion(Catalog.open(replica))


def test_other_bytes_in_the_replica_are_named(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    seal(writer.catalog)
    replicate(writer.store, replica)
    replace_chunk(writer, b"late rows")
    seal(writer.catalog)
    [path] = writer.catalog.state.files.chunk(1)
    for other in (b"LATE rows", b"more than late rows"):
        replica.put(path, other)
        with pytest.raises(ReplicaConflictError, match=path):
            replicate(writer.store, replica)
        assert replica.get(path) == other
    replica.put(path, b"late rows")  # what an interrupted replication leaves
    replica.put(transaction_path(writer.catalog.state.revision), writer.store.get(transaction_path(1)))
    with pytest.raises(ReplicaConflictError, match="move it away"):
        replicate(writer.store, replica)
    replica.delete(transaction_path(writer.catalog.state.revision))
    replicate(writer.store, replica)
    assert_equal(writer.store, replica)


def test_a_replica_that_was_written_to_is_refused(writer: Writer, replica: ObjectStore) -> None:
    """An older release, which does not know markers, may have written to it."""
    writer.fill()
    sealed = seal(writer.catalog).seal.revision
    replicate(writer.store, replica)
    marker = replica.get(REPLICA)
    replica.delete(REPLICA)
    create_tag(Catalog.open_for_writing(replica), "theirs", sealed)
    replica.put(REPLICA, marker)
    with pytest.raises(ReplicaConflictError, match="has revision"):
        replicate(writer.store, replica)
    create_tag(writer.catalog, "ours", sealed)
    with pytest.raises(ReplicaConflictError, match="another transaction"):
        replicate(writer.store, replica)


def test_another_location_is_no_replica(writer: Writer, replica: ObjectStore, tmp_path: Path) -> None:
    writer.fill()
    seal(writer.catalog)
    other = Writer(replica)
    other.begin()
    with pytest.raises(ReplicaError, match="is not a replica"):
        plan_replication(writer.store, replica)
    third = open_store(parse_location(f"file://{tmp_path}/third"))
    replicate(other.store, third)
    with pytest.raises(ReplicaError, match="is a replica of"):
        replicate(writer.store, third)


def test_a_location_that_was_lost_is_not_begun_beside_its_replica(
    writer: Writer, replica: ObjectStore, tmp_path: Path
) -> None:
    writer.fill()
    seal(writer.catalog)
    replicate(writer.store, replica)
    lost = open_store(parse_location(f"file://{tmp_path}/lost"))
    with pytest.raises(ReplicaError) as raised:
        check_target(replica, read_marker(replica), read_state(lost), lost.uri)
    assert str(raised.value) == (
        f"{lost.uri} is empty, or its log is lost, and {replica.uri} is its replica, which has what was there. Restore"
        f" from it by `snapshots import --from {replica.uri}`, or go on with it: `snapshots catalog promote --snapshot"
        f" {replica.uri}`. To begin {lost.uri} again, replicate to an empty location."
    )


def test_chosen_versions_are_replicated_and_others_added_later(writer: Writer, replica: ObjectStore) -> None:
    writer.fill()
    for number in range(4):
        replace_chunk(writer, b"%d" % number)
        create_tag(writer.catalog, f"tag{number}", seal(writer.catalog).seal.revision)
    state = writer.catalog.state
    files = [*(next(iter(state.at(state.tags[f"tag{number}"].pin.revision).files.chunk(1))) for number in range(4))]

    def there() -> list[int]:
        return [number for number, path in enumerate(files) if path in contents(replica)]

    with pytest.raises(VersionNotFoundError):
        replicate(writer.store, replica, only=["rev:2"])
    replicate(writer.store, replica, only=["tag:tag1"])
    assert there() == [1, 3]  # the head has the last
    assert not verify(replica).damaged
    assert verify(replica).sealed
    replicate(writer.store, replica, only=[f"rev:{state.tags['tag0'].pin.revision}"])
    assert there() == [0, 1, 3]
    assert not verify(replica).damaged
    chosen = read_state(replica).at(state.tags["tag1"].pin.revision)
    assert all(replica.get(known.file.path) for known in chosen.live_files())
    replica.delete(files[1])
    assert [fault.object for fault in verify(replica).faults if fault.is_damage] == [files[1]]
    replicate(writer.store, replica)
    assert there() == [0, 1, 2, 3]
    assert_equal(writer.store, replica)
    with pytest.raises(ReplicaError, match="of all versions"):
        replicate(writer.store, replica, only=["tag1"])


def test_damage_that_a_verification_of_the_replica_found_is_repaired_from_the_source(
    writer: Writer, replica: ObjectStore, tmp_path: Path
) -> None:
    writer.fill()
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    replicate(writer.store, replica)
    path = next(iter(writer.catalog.state.live_files())).file.path
    file = tmp_path / "a replica" / path
    file.write_bytes(file.read_bytes()[::-1])
    report = verify(replica)
    record_verification(replica, report, datetime(2026, 1, 2, tzinfo=UTC))
    [fault] = [each for each in report.faults if each.is_damage and each.object == path]
    assert "Move it away; `snapshots replicate` then copies it again." in fault.message
    assert report.remedy is None
    with pytest.raises(ReplicaConflictError, match="move it away, then replicate again"):
        replicate(writer.store, replica)
    file.unlink()
    assert replicate(writer.store, replica).objects == 1
    assert_equal(writer.store, replica)


def test_a_receipt_that_was_replaced_by_a_huge_object_is_not_read(
    writer: Writer, replica: ObjectStore, tmp_path: Path
) -> None:
    writer.fill()
    seal(writer.catalog)
    [ref] = writer.catalog.state.chunks[1].chunk.receipts
    os.truncate(tmp_path / "a location" / ref.path, MAX_DOCUMENT_BYTES + 1)
    fault = copy_object(writer.store, replica, ref)
    assert fault is not None
    assert (fault.kind, fault.object) == (FaultKind.SIZE, ref.path)


def test_a_bucket_that_cannot_lock_what_is_to_be_locked_gets_no_object(
    sealed: Writer, s3_server: S3Server, s3_location: str
) -> None:
    replica = open_store(parse_location(s3_location), replace(s3_server.options, lock=ObjectLock("governance", "1d")))
    with pytest.raises(PlanError, match=r"has no Object Lock; use one .* or remove the storage option lock"):
        replicate(sealed.store, replica)
    assert list(replica.list()) == []
