"""The condition of a location: what its age counts from, what is not sealed, damaged, garbage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import status as module
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.status import Size, Unsealed, location_status
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, NoSnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import delete_rows, expire, rollback
from snapshot_assets_tests.catalog.merging import merge
from snapshot_assets_tests.catalog.tags import Changed, flip, path_of, replaced, reseal, save

GRACE = timedelta(microseconds=HEADER.grace)


def status(writer: Writer, later: timedelta = timedelta(0)) -> module.Status:
    return location_status(writer.store, datetime.now(UTC) + later)


def test_a_sealed_location_has_the_age_of_its_seal_and_nothing_unsealed(sealed: Writer) -> None:
    found = status(sealed, timedelta(hours=30))
    assert found.seal is not None
    assert found.seal == found.export
    assert (found.seal.revision, found.sealed, found.unsealed) == (5, True, Unsealed(0, 0, 0))
    assert 30 * 3600 <= found.seal.age_seconds < 31 * 3600
    assert found.is_older(timedelta(hours=26))
    assert not found.is_older(timedelta(hours=31))
    assert not found.is_damaged
    assert (found.tag, found.verified) == (None, ())
    log = [info.size for info in sealed.store.list("transactions/")]
    assert (found.transactions, found.checkpoints) == (Size(5, sum(log)), Size(0, 0))
    behind = status(sealed, -timedelta(hours=1)).seal
    assert behind is not None
    assert behind.age_seconds == 0


def test_what_is_not_sealed_is_counted_and_without_a_seal_nothing_is_fresh(writer: Writer) -> None:
    writer.complete(1, writer.file(1, b"12345"))
    found = status(writer)
    assert (found.seal, found.export, found.sealed, found.unsealed) == (None, None, False, Unsealed(2, 1, 5))
    assert found.is_older(timedelta(days=1000))
    writer.complete(2)
    writer.complete(3)
    seal(writer.catalog)
    writer.complete(1, writer.file(1, b"1234567"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    found = status(writer)
    assert (found.sealed, found.unsealed) == (False, Unsealed(0, 1, 7))


def test_a_new_snapshot_at_a_location_leaves_the_seal_of_the_one_before(sealed: Writer) -> None:
    sealed.begin(force=True)
    found = status(sealed)
    assert found.export is not None
    assert (found.export.revision, found.sealed, found.unsealed.chunks) == (5, False, 3)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_seals_old_rows_again_does_not_make_them_younger(sealed: Writer, checkpoint: bool) -> None:
    export = sealed.catalog.state.revision
    delete_rows(sealed.catalog, TableName("main", "m"), "t < '2025-01-02T00:00:00Z'")
    tombstone = sealed.catalog.state.revision
    if checkpoint:
        write_checkpoint(sealed.store, read_state(sealed.store))
    found = status(sealed)
    assert found.seal is not None
    assert found.export is not None
    assert (found.seal.revision, found.export.revision) == (tombstone, export)
    newer = reseal(sealed)
    found = status(sealed)
    assert found.export == found.seal
    rollback(sealed.catalog, tombstone)
    found = status(sealed)
    assert found.seal is not None
    assert found.export is not None
    assert found.seal.revision > newer
    assert found.export.revision == export


def test_an_export_whose_seal_the_log_forgot_is_as_old_as_it_was(sealed: Writer) -> None:
    export = status(sealed).export
    assert export is not None
    delete_rows(sealed.catalog, TableName("main", "m"), "t < '2025-01-02T00:00:00Z'")
    tombstone = sealed.catalog.state.revision
    merge(sealed, 1)
    expire(sealed.catalog, keep_last=1)
    write_checkpoint(sealed.store, sealed.catalog.refresh())
    found = status(sealed).export
    assert found is not None
    assert (found.revision, found.at) == (tombstone + 1, export.at)
    rollback(sealed.catalog, tombstone + 1)
    again = status(sealed).export
    assert again is not None
    assert (again.revision, again.at) == (found.revision, found.at)


def test_the_newest_tag_is_the_one_that_was_created_last(sealed: Writer) -> None:
    create_tag(sealed.catalog, "first", 5)
    newer = reseal(sealed)
    create_tag(sealed.catalog, "newest", newer)
    create_tag(sealed.catalog, "of-an-older-seal", 5)
    found = status(sealed).tag
    assert found is not None
    assert (found.name, found.revision) == ("of-an-older-seal", 5)


def test_garbage_is_told_apart_by_age(sealed: Writer) -> None:
    reseal(sealed)
    expire(sealed.catalog, keep_last=1)
    sealed.store.put("data/9/main.m-01234567-000000.parquet", b"orphan")
    found = status(sealed)
    assert found.collectable == Size(0, 0)
    assert found.waiting is not None
    assert found.waiting.objects >= 2
    later = status(sealed, 2 * GRACE)
    assert (later.collectable, later.waiting) == (found.waiting, Size(0, 0))


def test_files_that_are_missing_or_cut_are_damage_also_those_of_older_revisions(sealed: Writer) -> None:
    old = next(iter(sealed.catalog.state.files.chunk(1)))
    replaced(sealed)
    seal(sealed.catalog)
    cut = next(iter(sealed.catalog.state.files.chunk(3)))
    sealed.store.put(cut, b"x")
    sealed.store.delete(old)
    assert status(sealed).damaged == tuple(sorted((old, cut)))
    assert status(sealed).is_damaged


def test_damage_that_a_verification_found_is_shown_until_one_finds_it_gone(sealed: Writer) -> None:
    path = next(iter(sealed.catalog.state.files.chunk(1)))
    whole = sealed.store.get(path)
    flip(sealed.store, path)
    assert not status(sealed).is_damaged
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))
    record_verification(sealed.store, verify(sealed.store, depth="quick"), datetime.now(UTC))
    found = status(sealed)
    assert found.damaged == (path,)
    assert [each.record.depth for each in found.verified] == ["full", "quick"]
    sealed.store.put(path, whole)
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))
    assert not status(sealed).is_damaged


def test_a_damaged_pin_is_damage_and_hides_only_the_garbage(sealed: Writer) -> None:
    create_tag(sealed.catalog, "nightly", 5)
    flip(sealed.store, path_of(sealed.store))
    found = status(sealed)
    assert found.is_damaged
    assert "nightly" in found.damage
    assert (found.collectable, found.waiting) == (None, None)
    assert found.tag is not None


def test_what_others_delete_meanwhile_is_no_damage(sealed: Writer) -> None:
    create_tag(sealed.catalog, "nightly", 5)
    pinned = path_of(sealed.store)

    def get(path: str, **limit: int) -> bytes:
        if path == pinned:
            delete_tag(sealed.catalog, "nightly")
        return sealed.store.get(path, **limit)

    found = location_status(Changed(sealed.store, get=get), datetime.now(UTC))
    assert (found.is_damaged, found.tag, found.revision) == (False, None, 7)


def test_a_compaction_and_a_savepoint_are_no_exports(sealed: Writer) -> None:
    compacted = merge(sealed, 1)
    save(sealed.catalog)
    found = status(sealed)
    assert found.seal is not None
    assert found.export is not None
    assert (found.seal.revision, found.export.revision, found.unsealed) == (compacted, 5, Unsealed(0, 0, 0))


def test_no_data_file_is_read(sealed: Writer) -> None:
    read = []

    def opened(path: str) -> object:
        read.append(path)
        return sealed.store.open_reader(path)

    def get(path: str, **limit: int) -> bytes:
        read.append(path)
        return sealed.store.get(path, **limit)

    def get_range(path: str, start: int, length: int) -> bytes:
        read.append(path)
        return sealed.store.get_range(path, start, length)

    location_status(Changed(sealed.store, open_reader=opened, get=get, get_range=get_range), datetime.now(UTC))
    assert read
    assert not [path for path in read if path.endswith(".parquet")]


def test_what_cannot_be_judged_is_an_error(sealed: Writer, store: ObjectStore) -> None:
    flip(sealed.store, "transactions/00000000000000000003.txn")
    with pytest.raises(DamageError):
        status(sealed)
    for info in list(store.list()):
        store.delete(info.path)
    with pytest.raises(NoSnapshotError):
        status(sealed)
