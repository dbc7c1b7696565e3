"""Repairs: what the log gives is written again without the source, and nothing is committed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.compact import receipts_of
from snapshot_assets.catalog.operations.maintain_log import execute_repair, plan_repair
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, hold_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipt_selection import adoptable_receipts
from snapshot_assets.catalog.replication.objects import check_existing
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, ReplicaConflictError, ReplicaError
from snapshot_assets.format.documents import pretty_json, sha256_hex
from snapshot_assets.format.layout import (
    CHECKSUMS,
    MANIFEST,
    TRANSACTIONS,
    checkpoint_path,
    is_receipt,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import Changed, reseal


def damage_torn(store: ObjectStore, path: str) -> None:
    store.put(path, store.get(path)[:-20])


DAMAGE = {
    "bit": lambda store, path: store.put(path, store.get(path)[:-20] + b"\0" + store.get(path)[-19:]),
    "torn": damage_torn,
    "missing": lambda store, path: store.delete(path),
    "empty": lambda store, path: store.put(path, b""),
}


def repair(store: ObjectStore) -> tuple[str, ...]:
    catalog = Catalog.open_for_writing(store)
    return execute_repair(catalog, plan_repair(catalog)).paths


def log_of(store: ObjectStore) -> list[tuple[str, bytes]]:
    return [(info.path, store.get(info.path)) for info in store.list(TRANSACTIONS)]


def receipts(store: ObjectStore, chunk: int) -> list[str]:
    return sorted(info.path for info in store.list(f"data/{chunk}/") if is_receipt(info.path))


@pytest.fixture
def replaced(sealed: Writer) -> Writer:
    """A sealed location whose chunk 1 was replaced after its first seal, which a held tag keeps."""
    create_tag(sealed.catalog, "kept", read_state(sealed.store).seals[-1].revision)
    hold_tag(sealed.catalog, "kept", "case", "legal")
    old = tuple(known.file.path for known in sealed.catalog.state.live_files(1))
    sealed.complete(1, sealed.file(1, b"other"), replaces=old)
    seal(sealed.catalog)
    sealed.catalog.checkpoint()
    create_tag(sealed.catalog, "later", read_state(sealed.store).seals[-1].revision)
    return sealed


def victims(store: ObjectStore) -> list[str]:
    checkpoint = [info.path for info in store.list(TRANSACTIONS) if info.path.endswith(".ckpt")]
    pins = [info.path for info in store.list("tag/")]
    return [CHECKSUMS, MANIFEST, *receipts(store, 1), *receipts(store, 2), *checkpoint, *pins]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_repair_ends_all_damage_that_the_log_can_end_and_commits_nothing(
    replaced: Writer, damage: Callable[[ObjectStore, str], None]
) -> None:
    store = replaced.store
    paths, log, before = victims(store), log_of(store), read_state(store)
    assert len(paths) == 8
    for path in paths:
        damage(store, path)
    gone = {path for path in paths if not any(info.path == path for info in store.list(""))}
    found = {fault.object: fault.message for fault in verify(store).faults}
    assert set(found) == set(paths) - {path for path in gone if path.endswith(".ckpt")}  # none is needed
    assert all("`snapshots catalog repair` writes it again from the log." in message for message in found.values())
    planned = plan_repair(Catalog.open(store))
    assert set(planned.paths) == set(found)
    assert {fault.object for fault in verify(store).faults} == set(found), "a dry run writes nothing"

    assert set(repair(store)) == set(found)
    assert verify(store).faults == []
    assert verify(store, depth="quick").faults == []
    assert [each for each in log_of(store) if each[0] not in gone] == [each for each in log if each[0] not in gone]
    after = read_state(store)
    assert (after.revision, after.tags, after.expired) == (before.revision, before.tags, before.expired)
    assert repair(store) == ()


def test_no_tag_is_given_up_for_a_receipt(replaced: Writer) -> None:
    """A version needs no receipt that a repair writes again, so none is proposed to expire."""
    store = replaced.store
    older = {
        ref.path for ref in read_state(store).at(replaced.catalog.state.seals[0].revision).chunks[1].chunk.receipts
    }
    for path in older:
        store.delete(path)
    report = verify(store)
    assert {fault.object for fault in report.faults if fault.is_damage} == older
    assert report.remedy is None


def test_a_receipt_written_again_is_read_like_the_lost_one(replaced: Writer, tmp_path) -> None:
    store, head = replaced.store, replaced.catalog.refresh()
    lost = receipts(store, 1) + receipts(store, 3)
    for path in lost:
        store.delete(path)
    repair(store)
    [receipt] = receipts_of(store, head.chunks[3].chunk).values()
    assert [file.path for file in receipt.files] == [known.file.path for known in head.live_files(3)]
    assert (receipt.snapshot_id, receipt.fence, receipt.header) == (head.snapshot_id, {"run": "r1"}, head.header)
    assert not receipt.supersedes
    [again] = receipts_of(store, head.chunks[1].chunk).values()
    assert again.supersedes, "its chunk was replaced"
    assert list(adoptable_receipts(store, head, [1, 3])) == [], "the log has a commit after its base"
    seal(replaced.catalog)

    copy = open_store(parse_location(f"file://{tmp_path}/copy"))
    replicate(store, copy)
    assert not verify(copy).damaged
    replicate(store, copy)


def test_a_receipt_written_again_may_have_the_size_of_the_lost_one(sealed: Writer) -> None:
    store = sealed.store
    [ref] = sealed.catalog.state.chunks[3].chunk.receipts
    store.delete(ref.path)
    repair(store)
    info = store.head(ref.path)
    same = replace(ref, bytes=info.size)
    for hashed in (False, True):
        check_existing(store, same, info, hashed=hashed)
    store.put(ref.path, store.get(ref.path).replace(b'"r1"', b'"r2"', 1))
    with pytest.raises(ReplicaConflictError):
        check_existing(store, same, info, hashed=True)


def test_a_rebuild_takes_the_files_of_receipts_that_were_written_again(sealed: Writer) -> None:
    store, head = sealed.store, sealed.catalog.refresh()
    for path in receipts(store, 3):
        store.delete(path)
    repair(store)
    for info in list(store.list(TRANSACTIONS)):
        store.delete(info.path)
    store.delete(MANIFEST)
    rebuild(store, accept_undeleted=True)
    found = read_state(store)
    assert {known.file.path for known in found.live_files()} == {known.file.path for known in head.live_files()}


def test_a_damaged_receipt_that_was_written_again_is_a_fault(sealed: Writer) -> None:
    store = sealed.store
    [path] = receipts(store, 3)
    store.delete(path)
    repair(store)
    store.put(path, store.get(path).replace(b'"r1"', b'"r2"', 1))
    [fault] = verify(store).faults
    assert (fault.object, fault.is_damage) == (path, True)


def test_what_the_log_cannot_give_is_left_and_a_damaged_log_is_refused(replaced: Writer) -> None:
    store = replaced.store
    [file] = (known.file.path for known in replaced.catalog.state.live_files(3))
    store.put(file, b"?" * len(store.get(file)))
    assert repair(store) == ()
    first = next(iter(store.list(TRANSACTIONS))).path
    store.put(first, store.get(first)[:-1])
    with pytest.raises(DamageError, match=r"nothing was repaired.*catalog rebuild"):
        plan_repair(Catalog.open(store))


def test_a_plan_reads_the_log_once_and_computes_the_versions_with_damage_alone(
    sealed: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, states, reads = sealed.store, list[int](), Counter[str]()
    for number in range(5):
        revision = reseal(sealed, b"rows %d" % number)
        damage_torn(store, write_checkpoint(store, sealed.catalog.state))
    at = State.at
    monkeypatch.setattr(State, "at", lambda state, revision: (states.append(revision), at(state, revision))[1])

    def get(path: str, *, limit: int | None = None) -> bytes:
        reads[path] += 1
        return store.get(path, limit=limit)

    assert len(plan_repair(Catalog.open(Changed(store, get=get))).checkpoints) == 5
    assert reads[transaction_path(2)] <= 2
    assert set(states) <= {revision}

    older = sealed.catalog.state.seals[1]
    [path] = [ref.path for ref in at(sealed.catalog.state, older.revision).chunks[1].chunk.receipts]
    store.delete(path)
    states.clear()
    assert path in plan_repair(Catalog.open(store)).objects
    assert set(states) - {revision} == {older.revision}


def test_a_checkpoint_that_cannot_be_repaired_keeps_nothing_else_from_repair(sealed: Writer) -> None:
    store = sealed.store
    manifest = store.get(MANIFEST)
    damage_torn(store, write_checkpoint(store, sealed.catalog.state))
    damage_torn(store, MANIFEST)
    catalog = Catalog.open_for_writing(store)
    plan = plan_repair(catalog)
    assert len(plan.checkpoints) == 1
    damage_torn(store, transaction_path(2))
    with pytest.raises(DamageError, match="cannot reproduce it"):
        execute_repair(catalog, plan)
    assert store.get(MANIFEST) == manifest


def test_nothing_is_promised_that_no_repair_does(replaced: Writer) -> None:
    """A checkpoint, and the object of a tag, are whole and have other content than the log gives."""
    store, head = replaced.store, replaced.catalog.state
    other = replace(head, data_revision=head.data_revision - 1)
    store.put(checkpoint_path(head.revision), checkpoint_bytes(other))
    tag = head.tags["kept"]
    document = pretty_json(json.loads(store.get(tag.pin.object.path)) | {"created_by": "other"})
    ref = replace(tag.pin.object, sha256=sha256_hex(document), bytes=len(document))
    store.put(ref.path, document)
    scan = scan_log(store)
    scan.state.tags["kept"] = replace(tag, pin=replace(tag.pin, object=ref))
    faults = {fault.object: fault.message for fault in verify(store, scan=scan).faults}
    assert faults.keys() == {checkpoint_path(head.revision), ref.path}
    assert not any("catalog repair" in message for message in faults.values())
    assert "create it again" in faults[ref.path]
    with pytest.raises(DamageError, match="nothing was repaired"):
        plan_repair(Catalog.open(store))


def test_a_replica_is_repaired_by_replication(replaced: Writer, tmp_path) -> None:
    copy = open_store(parse_location(f"file://{tmp_path}/copy"))
    replicate(replaced.store, copy)
    with pytest.raises(ReplicaError, match="replicate"):
        plan_repair(Catalog.open(copy))


def test_a_checkpoint_that_starts_the_log_is_not_touched(replaced: Writer) -> None:
    """Nothing else has what it holds."""
    store, state = replaced.store, replaced.catalog.state
    path = checkpoint_path(state.checkpointed)
    for revision in range(2, state.checkpointed + 1):
        store.delete(f"{TRANSACTIONS}{revision:020}.txn")
    store.put(path, store.get(path)[:-1])
    with pytest.raises(DamageError):
        plan_repair(Catalog(store, state))
