"""Absence from one listing proves nothing: an object is requested by its name before it counts as missing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.maintain_log import execute_pruning, plan_pruning
from snapshot_assets.catalog.operations.rollback import plan_rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import LogWholeError
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, prune
from snapshot_assets_tests.catalog.tags import SEAL, Changed, damage, reseal, save, sealed_by
from snapshot_assets_tests.faults.store import HidingStore

NOW = timedelta(0)


def never_shown(store: ObjectStore, path: str) -> HidingStore:
    return HidingStore(store, lambda shown: shown == path)


def randomly_hidden(store: ObjectStore, seed: int) -> HidingStore:
    choose = random.Random(seed)
    return HidingStore(store, lambda _: choose.random() < 0.2)


def paths(store: ObjectStore, *prefixes: str) -> list[str]:
    return [info.path for info in store.list() if info.path.startswith(prefixes)]


@pytest.fixture
def pinned(writer: Writer) -> Writer:
    """Sealed at 5 and 7, with a tag and a savepoint, and a checkpoint at 6."""
    sealed_by(writer)
    create_tag(writer.catalog, "old", 5)
    write_checkpoint(writer.store, writer.catalog.state)
    reseal(writer)
    save(writer.catalog)
    return writer


@pytest.fixture
def pruned(pinned: Writer) -> Writer:
    """Pruned below 6; also the newest revision has a checkpoint."""
    write_checkpoint(pinned.store, pinned.catalog.state)
    assert prune(pinned.catalog, grace=NOW, unsafe=True).deleted
    return pinned


@pytest.mark.parametrize("which", ["pinned", "pruned"])
def test_an_object_that_no_listing_shows_is_not_missing(request: pytest.FixtureRequest, which: str) -> None:
    writer: Writer = request.getfixturevalue(which)
    head, tagged = manifest_of(read_state(writer.store)), manifest_of(read_state(writer.store, through=5))
    some = paths(writer.store, "transactions/", "tag/", "manifest") + paths(writer.store, "data/1/", "schema/")[:4]
    for path in some[which == "pruned" :: 2]:
        hiding = never_shown(writer.store, path)
        assert manifest_of(read_state(hiding)) == head, path
        assert manifest_of(read_state(hiding, through=5)) == tagged, path
        assert damage(hiding) == {}, path
        assert plan_rollback(Catalog.open(hiding), 5).reversal.actions, path


def test_a_revision_between_two_others_that_one_listing_passes_over_is_read_by_its_name(pinned: Writer) -> None:
    """Also several of them, and those of which a listing shows neither checkpoint nor transaction."""
    for hidden in ({3, 4}, {2, 3, 4}, {8, 9}, {2, 4, 6, 8}, set(range(2, 10))):
        names = {path(revision) for revision in hidden for path in (transaction_path, checkpoint_path)}
        hiding = HidingStore(pinned.store, names.__contains__)
        assert read_state(hiding).revision == 9
        assert damage(hiding) == {}


def test_a_revision_that_is_missing_behind_one_that_no_listing_shows_is_still_named(pinned: Writer) -> None:
    pinned.store.delete(checkpoint_path(6))
    pinned.store.delete(transaction_path(4))
    faults = damage(never_shown(pinned.store, transaction_path(3))).values()
    assert any(f"{transaction_path(4)} is missing; revision 5 exists" in fault for fault in faults)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
def test_whatever_listings_pass_over_nothing_is_damaged_lost_or_deleted(pinned: Writer, seed: int) -> None:
    store, hiding = pinned.store, randomly_hidden(pinned.store, seed)
    write_checkpoint(store, pinned.catalog.state)
    before, data = manifest_of(read_state(store)), paths(store, "data/", "schema/", "tag/", "savepoint/")
    assert damage(hiding) == {}
    with pytest.raises(LogWholeError):
        rebuild(hiding)
    catalog = Catalog.open_for_writing(hiding)
    assert collect_garbage(catalog, grace=NOW, unsafe=True).deleted == ()
    assert paths(store, "data/", "schema/", "tag/", "savepoint/") == data
    for _ in range(3):
        prune(catalog, grace=NOW, unsafe=True)
        assert damage(hiding) == damage(store) == {}
    assert manifest_of(read_state(hiding)) == before
    assert seal(catalog, seal_verify="full").seal == catalog.state.newest_seal


@pytest.mark.parametrize("seed", range(4))
def test_pruning_deletes_without_a_hole_whatever_listings_pass_over(pinned: Writer, seed: int) -> None:
    """A transaction left between pruned ones would let a writer that slept commit after it."""
    for _ in range(2):
        save_again(pinned)
        write_checkpoint(pinned.store, pinned.catalog.state)
    prune(Catalog.open_for_writing(randomly_hidden(pinned.store, seed)), grace=NOW, unsafe=True)
    there = list_log(pinned.store).transactions
    assert there == [1, *range(there[1], there[-1] + 1)]


def test_a_checkpoint_that_one_listing_passes_over_when_a_pruning_is_executed_is_read_by_its_name(
    pinned: Writer,
) -> None:
    write_checkpoint(pinned.store, pinned.catalog.state)
    newest = checkpoint_path(pinned.catalog.state.revision)
    plan = plan_pruning(pinned.catalog, grace=NOW, unsafe=True)
    assert execute_pruning(Catalog.open_for_writing(never_shown(pinned.store, newest)), plan) == plan


def test_a_log_that_another_writer_begins_while_the_location_is_opened_is_not_lost(store: ObjectStore) -> None:
    """The first reading of the log is before the other writer's first revision, and the next one after its files."""

    def list_after_others(prefix: str = "") -> Iterator[ObjectInfo]:
        if prefix == "data/" and not store.folders("data/"):
            writer = Writer(store)
            writer.begin()
            sealed_by(writer)
        return store.list(prefix)

    changed = cast(ObjectStore, Changed(store, list=list_after_others))
    assert Catalog.open_for_writing(changed).refresh().revision == SEAL


def save_again(writer: Writer) -> None:
    reseal(writer)
    save(writer.catalog)


@pytest.mark.parametrize("seed", range(2))
def test_a_deletion_leaves_nothing_whatever_listings_pass_over(pinned: Writer, seed: int) -> None:
    delete_snapshot(randomly_hidden(pinned.store, seed), with_tags=True)
    assert paths(pinned.store, "") == []


@pytest.mark.parametrize("seed", range(3))
def test_a_rebuild_takes_what_a_listing_passes_over(pinned: Writer, seed: int) -> None:
    """It has the same result with a listing that shows everything."""
    pinned.store.delete(transaction_path(8))
    expected = rebuild(pinned.store, dry_run=True)
    found = rebuild(randomly_hidden(pinned.store, seed), dry_run=True)
    assert sorted(found.lost) == sorted(expected.lost)
    assert (found.files, found.rows, found.tags, found.savepoints, found.sealed) == (
        expected.files,
        expected.rows,
        expected.tags,
        expected.savepoints,
        expected.sealed,
    )
