"""Savepoints pin what is complete under ever greater numbers."""

from datetime import UTC, datetime

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import summarize
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.pins.listing import list_savepoints
from snapshot_assets.catalog.pins.objects import UncompactedError, create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    LocationDeletedError,
    NoSnapshotError,
    PinnedError,
    UnsealedError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import parse_json, sha256_hex
from snapshot_assets_tests.catalog.conftest import DAY, Writer
from snapshot_assets_tests.catalog.tags import SEAL, delete_savepoint, faults, meeting, reseal, save


def objects(store):
    return [info.path for info in store.list("savepoint/")]


def savepoints(store):
    return {number: known.pin.revision for number, known in read_state(store).pins.savepoints.items()}


def test_a_savepoint_is_one_object_and_one_revision_that_names_it(sealed):
    made = save(sealed.catalog)
    assert read_state(sealed.store).pins.savepoints == {1: made}
    savepoint = made.pin
    assert (savepoint.id, savepoint.revision, made.committed) == (1, SEAL, 6)
    assert (made.created_by, objects(sealed.store)) == (sealed.catalog.writer_id, [savepoint.object.path])
    data = sealed.store.get(savepoint.object.path)
    assert (savepoint.object.sha256, savepoint.object.bytes) == (sha256_hex(data), len(data))
    assert (verify(sealed.store).sealed, faults(sealed.store)) == (True, set())


@pytest.mark.parametrize("automatic", [False, True])
def test_the_object_of_a_savepoint_is_the_literal_document_of_the_format(sealed, automatic):
    """Literal text, so that the format does not change by accident."""
    sealed.catalog._clock = lambda: datetime(2025, 2, 1, 12, 0, 0, 123456, tzinfo=UTC)
    path = save(sealed.catalog, automatic=automatic).pin.object.path
    manifest = sealed.store.get("manifest.json").decode().removesuffix("\n").replace("\n", "\n  ")
    automatic_line = '\n  "automatic": true,' if automatic else ""
    expected = f"""{{
  "version": 1,
  "id": 1,
  "created_at": "2025-02-01T12:00:00.123Z",
  "created_by": "{sealed.catalog.writer_id}",{automatic_line}
  "manifest": {manifest}
}}
"""
    assert sealed.store.get(path).decode() == expected
    assert read_state(sealed.store).pins.savepoints[1].pin.automatic is automatic
    assert faults(sealed.store) == set()


def test_ids_only_grow_also_behind_one_that_was_deleted_and_a_checkpoint(sealed):
    assert [save(sealed.catalog).pin.id for _ in range(3)] == [1, 2, 3]
    assert delete_savepoint(Catalog.open_for_writing(sealed.store), 3)
    assert not delete_savepoint(sealed.catalog, 3)
    sealed.catalog.refresh()
    write_checkpoint(sealed.store, sealed.catalog.state)
    assert save(Catalog.open_for_writing(sealed.store)).pin.id == 4
    assert savepoints(sealed.store) == {1: SEAL, 2: SEAL, 4: SEAL}
    assert len(objects(sealed.store)) == 3
    assert faults(sealed.store) == set()


def test_an_unsealed_head_is_refused_before_anything_is_written(sealed):
    old = next(sealed.catalog.state.live_files(1)).file.path
    sealed.complete(1, sealed.file(1, b"late rows"), replaces=(old,))
    with pytest.raises(UnsealedError, match=r"Revision 6, the head, is not sealed \(the newest seal is revision 5"):
        save(sealed.catalog)
    assert (objects(sealed.store), read_state(sealed.store).revision) == ([], 6)


def test_nothing_is_pinned_where_there_is_no_snapshot_or_a_deleted_one(store):
    with pytest.raises(NoSnapshotError):
        save(Catalog.open_for_writing(store))
    writer = Writer(store)
    writer.begin()
    with pytest.raises(UnsealedError, match=r"not sealed \(nothing is\)"):
        save(writer.catalog)
    writer.catalog.commit(rules.delete(writer.token))
    with pytest.raises(LocationDeletedError):
        save(writer.catalog)


def test_savepoints_are_versions_by_id_and_by_their_ends(sealed):
    state = sealed.catalog.state
    for text in ("savepoint:1", "savepoint:latest", "savepoint:earliest", "savepoint:x", "savepoint:"):
        with pytest.raises(VersionNotFoundError, match=r"no savepoint '.*'; sealed is 1 revision"):
            resolve_version(text, state)
    save(sealed.catalog)
    newer = reseal(sealed)
    save(sealed.catalog)
    delete_savepoint(sealed.catalog, save(sealed.catalog).pin.id)
    state = read_state(sealed.store)
    assert resolve_version("savepoint:1", state) == resolve_version("savepoint:earliest", state) == SEAL
    assert resolve_version("savepoint:2", state) == resolve_version("savepoint:latest", state) == newer
    with pytest.raises(VersionNotFoundError, match="no savepoint '3'; savepoints are 1, 2; sealed are"):
        resolve_version("savepoint:3", state)
    assert verify(sealed.store, at=lambda head: resolve_version("savepoint:1", head)).faults == []


def test_savepoints_are_listed_with_their_neighbours(sealed):
    save(sealed.catalog)
    save(sealed.catalog)
    newer = reseal(sealed)
    save(sealed.catalog)
    state = read_state(sealed.store)
    assert [
        (each.savepoint_id, each.saved_snapshot_id, each.previous, each.next) for each in list_savepoints(state)
    ] == [
        (1, SEAL, None, 3),
        (2, SEAL, None, 3),
        (3, newer, 2, None),
    ]
    assert [each.commit_time for each in list_savepoints(state)][-1] == state.seals[1].committed_at
    assert summarize(sealed.store).savepoints == tuple(list_savepoints(state))


def test_a_snapshot_with_pins_is_deleted_only_with_them(sealed):
    save(sealed.catalog)
    with pytest.raises(PinnedError, match=r"^Savepoint 1 pins revisions of .*--with-tags"):
        delete_snapshot(sealed.store)
    save(sealed.catalog)
    create_tag(sealed.catalog, "nightly", SEAL)
    before = [info.path for info in sealed.store.list()]
    with pytest.raises(PinnedError, match=r"^Tag nightly and savepoints 1, 2 pin revisions of") as refused:
        delete_snapshot(sealed.store)
    assert (refused.value.attributes["tags"], refused.value.attributes["savepoints"]) == (["nightly"], [1, 2])
    assert ([info.path for info in sealed.store.list()], read_state(sealed.store).deleted) == (before, False)
    assert delete_snapshot(sealed.store, with_tags=True).foreign == ()
    assert list(sealed.store.list()) == []


def test_a_file_that_only_a_savepoint_needs_is_missed_by_verification_and_kept_by_garbage_collection(sealed):
    path = save(sealed.catalog).pin.object.path
    old = next(sealed.catalog.state.live_files(1)).file.path
    reseal(sealed)
    sealed.catalog.commit(lambda _: [act.Expired((SEAL,))])
    assert garbage(sealed) == {}
    data = sealed.store.get(old)
    sealed.store.delete(old)
    [fault] = [fault for fault in verify(sealed.store, depth="quick").faults if fault.is_damage]
    assert (fault.kind, fault.object, "(savepoint 1) needs" in fault.message) == (FaultKind.MISSING, old, True)
    sealed.store.put(old, data)
    document = sealed.store.get(path)
    sealed.store.delete(path)
    with pytest.raises(DamageError, match=r"savepoint 1 .* `snapshots catalog repair` writes it .* or delete"):
        garbage(sealed)
    sealed.store.put(path, document)
    delete_savepoint(sealed.catalog, 1)
    found = garbage(sealed)
    assert (found.pop(old), list(found.values())) == (
        "expired",
        ["expired", "expired"],
    )  # its receipt, and the statement
    assert faults(sealed.store) == set()


def garbage(writer):
    """Return what is garbage, however young: on S3 even what is just written has an age of up to a second."""
    found = plan_collection(Catalog.open(writer.store), grace=0 * DAY, unsafe=True)
    return {each.path: each.reason for each in (*found.deleted, *found.waiting) if "probe" not in each.path}


@pytest.mark.parametrize("number", [0, 1])
def test_a_number_that_was_used_before_is_damage(sealed, number):
    savepoint = save(sealed.catalog).pin
    delete_savepoint(sealed.catalog, 1)
    again = act.SavepointCreated(number, SEAL, savepoint.object, savepoint.created_at)
    with pytest.raises(DocumentError, match=f"creates savepoint {number} after 1"):
        sealed.catalog.commit(lambda _: [again])
    with pytest.raises(DocumentError, match="deletes savepoint 1, which is not there"):
        Catalog(sealed.store, read_state(sealed.store, through=7)).state.after([act.SavepointDeleted(1)])


def test_a_number_that_another_won_is_followed_by_the_next_one(sealed):
    store = meeting(sealed.store, "savepoint/savepoint-1-", lambda: save(sealed.catalog))
    made = save(Catalog.open_for_writing(store))
    assert (made.pin.id, len(objects(sealed.store))) == (2, 2)
    assert parse_json(sealed.store.get(made.pin.object.path), "savepoint")["id"] == 2
    assert faults(sealed.store) == set()


def test_data_that_is_sealed_after_it_was_compacted_is_not_pinned(sealed):
    compacted = sealed.catalog.state.data_revision
    newer = reseal(sealed)
    before = read_state(sealed.store).revision
    with pytest.raises(UncompactedError, match=rf"Revision {newer - 1} changed data after .* at revision {compacted};"):
        create_savepoint(sealed.catalog, compacted)
    assert (objects(sealed.store), read_state(sealed.store).revision) == ([], before)
    assert create_savepoint(sealed.catalog, newer - 1).pin.revision == newer
