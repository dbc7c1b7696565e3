"""What a rebuild keeps of tags, savepoints and older sealed revisions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, ForeignLocationError, LogWholeError
from snapshot_assets.format.layout import MANIFEST, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, rollback
from snapshot_assets_tests.catalog.rebuild.test_rebuild import lose
from snapshot_assets_tests.catalog.tags import (
    NOW,
    SEAL,
    damage,
    delete_savepoint,
    file_of,
    readable,
    reseal,
    save_older,
    sealed_by,
)


def pins(state: State) -> set[tuple]:
    """What a rebuild keeps of pins: everything but their objects."""
    return {
        (str(known.pin), known.pin.revision, known.pin.created_at, known.pin.automatic, getattr(known.pin, "ttl", None))
        for known in state.pins
    }


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Seals at 5 and 7."""
    sealed_by(writer)
    assert reseal(writer) == 7
    return writer


@pytest.fixture
def pinned(sealed: Writer) -> Writer:
    """Tags that were renamed and replaced, one by a rule, and savepoints, of which the last is deleted."""
    catalog = sealed.catalog
    create_tag(catalog, "first", SEAL, 7 * DAY)
    rename_tag(catalog, "first", "kept")
    create_tag(catalog, "moving", SEAL, automatic=True)
    replace_tag(catalog, "moving", 7, automatic=True)
    for automatic in (True, False):
        save_older(catalog, SEAL, automatic=automatic)
    create_savepoint(catalog, catalog.state.data_revision)
    delete_savepoint(catalog, 3)
    return sealed


def check(store: ObjectStore) -> State:
    """A rebuilt location is whole, and collecting garbage takes nothing it needs."""
    assert damage(store) == {}
    collect_garbage(Catalog.open_for_writing(store), grace=NOW, unsafe=True)
    assert damage(store) == {}
    return read_state(store)


def test_pins_whose_objects_and_files_are_whole_are_kept_and_no_number_is_used_again(pinned: Writer) -> None:
    before = pinned.catalog.state
    lose(pinned.store, "transactions/", "manifest.json")
    done = rebuild(pinned.store)
    after = check(pinned.store)
    assert pins(after) == pins(before)
    assert (done.tags, done.savepoints) == (("kept", "moving"), (1, 2))
    for revision in (SEAL, 7):
        assert manifest_of(after.at(revision)) == manifest_of(before.at(revision))
    assert after.pins.last_savepoint > before.pins.last_savepoint


@pytest.mark.parametrize("first", [1, 9])
def test_a_hole_loses_no_pin_whose_object_is_whole(pinned: Writer, first: int) -> None:
    store, before = pinned.store, pinned.catalog.state
    for revision in range(first, first + 2):
        store.delete(transaction_path(revision))
    rebuild(store)
    after = check(store)
    assert pins(before) <= pins(after)
    assert after.pins.last_savepoint >= before.pins.last_savepoint


def test_a_savepoint_that_was_lost_before_a_known_one_keeps_its_number(sealed: Writer) -> None:
    save_older(sealed.catalog, SEAL)
    assert (reseal(sealed), create_savepoint(sealed.catalog, sealed.catalog.state.data_revision).pin.id) == (
        10,
        2,
    )
    before = sealed.catalog.state
    sealed.store.delete(transaction_path(8))
    done = rebuild(sealed.store)
    assert (done.proved, done.savepoints) == (11, (1, 2))
    assert pins(check(sealed.store)) == pins(before)


def test_objects_of_pins_that_a_whole_log_knows_are_written_again(pinned: Writer) -> None:
    store, before = pinned.store, pinned.catalog.state
    missing, damaged = (before.tags[name].pin.object.path for name in ("kept", "moving"))
    kept = {path: store.get(path) for path in (missing, damaged)}
    store.delete(missing)
    store.put(damaged, kept[damaged][:-9])
    with pytest.raises(DamageError, match="cannot be read"):
        collect_garbage(Catalog.open_for_writing(store), grace=NOW, unsafe=True)
    assert rebuild(store, dry_run=True).restored
    assert damage(store)
    done = rebuild(store)
    assert (done.revision, done.proved, set(done.restored)) == (before.revision, before.revision, {missing, damaged})
    assert {path: store.get(path) for path in kept} == kept
    assert verify(store).faults == []
    with pytest.raises(LogWholeError):
        rebuild(store)


def test_a_pin_that_the_log_shows_to_be_deleted_stays_deleted(sealed: Writer) -> None:
    create_tag(sealed.catalog, "gone", SEAL)
    path = sealed.catalog.state.tags["gone"].pin.object.path
    data = sealed.store.get(path)
    delete_tag(sealed.catalog, "gone")
    sealed.store.put(path, data)  # its writer died between the transaction and the object
    sealed.catalog.commit(lambda _: [])
    sealed.store.delete(transaction_path(10))
    sealed.receipt(1, base_revision=10)
    assert rebuild(sealed.store).tags == ()


def test_a_revision_that_lacks_files_expires_and_its_pins_are_not_kept(sealed: Writer) -> None:
    create_tag(sealed.catalog, "old", SEAL)
    lost = file_of(sealed, SEAL)
    sealed.store.delete(lost)
    sealed.store.delete(transaction_path(2))
    done = rebuild(sealed.store)
    after = check(sealed.store)
    assert ([seal.revision for seal in after.readable()], done.tags, done.sealed) == ([7], (), True)
    assert any(line.startswith("tag 'old'") and "is not kept: its revision 5 lacks" in line for line in done.lost)


def test_what_expired_in_a_lost_revision_and_was_collected_is_no_damage(sealed: Writer) -> None:
    create_tag(sealed.catalog, "newest", 7)
    expire(sealed.catalog, keep_last=1)
    collect_garbage(sealed.catalog, grace=NOW, unsafe=True)
    sealed.store.delete(transaction_path(9))
    done = rebuild(sealed.store)
    assert readable(sealed.store) == [7]
    assert any(line.startswith("Revision 5 cannot be read: data/1/") for line in done.lost)
    check(sealed.store)


def test_a_file_that_was_replaced_and_collected_behind_the_base_is_read_again(sealed: Writer) -> None:
    """The base's own file is gone for good, and what replaced it is not proved."""
    store = sealed.store
    lose(store, "manifest.json")
    store.delete(transaction_path(6))
    store.delete(file_of(sealed, SEAL))
    done = rebuild(store)
    after = check(store)
    assert (done.proved, done.missing, done.sealed, after.readable()) == (5, (1,), False, [])
    assert any(line.startswith("Chunk 1 lacks data/1/") for line in done.lost)
    assert any(line.startswith("Revision 5 cannot be read") for line in done.lost)
    again = Writer(store)
    again.token = again.catalog.token()
    again.complete(1, again.file(1, b"newest"))
    assert seal(again.catalog).seal.revision == done.revision + 2
    check(store)


def test_a_rollback_is_known_from_the_manifest(sealed: Writer) -> None:
    store = sealed.store
    rollback(sealed.catalog, SEAL)
    create_tag(sealed.catalog, "back", 8)
    before = sealed.catalog.state
    write_checkpoint(store, read_state(store, through=7))
    for lost in ([8], [6, 7, 8], range(1, 10)):
        kept = {info.path: store.get(info.path) for info in store.list()}
        for revision in lost:
            store.delete(transaction_path(revision))
        if len(lost) > 1:
            lose(store, "transactions/00000000000000000007.ckpt")
        rebuild(store)
        after = check(store)
        assert (after.rolled_back, after.sealed) == (8, True)
        assert manifest_of(after) == manifest_of(before)
        lose(store, "")
        for path, data in kept.items():
            store.put(path, data)


def test_a_snapshot_that_was_begun_again_keeps_what_pins_show_of_the_one_before(sealed: Writer) -> None:
    create_tag(sealed.catalog, "old", 7)
    sealed.begin(replace(HEADER, name="second"), force=True)
    sealed.fill()
    seal(sealed.catalog)
    before = sealed.catalog.state
    lose(sealed.store, "transactions/")
    rebuild(sealed.store)
    after = check(sealed.store)
    assert manifest_of(after) == manifest_of(before)
    assert manifest_of(after.at(7)) == manifest_of(before.at(7))
    assert (after.header.name, after.tags.keys()) == ("second", {"old"})


def test_a_pins_object_with_an_impossible_time_is_damaged_and_written_again(pinned: Writer) -> None:
    [path] = [known.pin.object.path for known in pinned.catalog.state.tags.values() if known.pin.name == "kept"]
    whole = pinned.store.get(path)
    pinned.store.put(path, re.sub(rb'"created_at": "(\d+-\d+)-\d\d', rb'"created_at": "\1-32', whole, count=1))
    assert set(damage(pinned.store)) == {path}
    assert rebuild(pinned.store).restored == (path,)
    assert pinned.store.get(path) == whole


def test_no_pin_is_written_again_beside_a_manifest_of_another_location(pinned: Writer) -> None:
    path = next(known.pin.object.path for known in pinned.catalog.state.pins)
    pinned.store.delete(path)
    own, manifest = pinned.catalog.state.location_id.encode(), pinned.store.get(MANIFEST)
    pinned.store.put(MANIFEST, manifest.replace(own, own[::-1]))
    with pytest.raises(ForeignLocationError, match=MANIFEST):
        rebuild(pinned.store)
    assert path not in {info.path for info in pinned.store.list()}
