"""Damaged bytes in a checkpoint of a whole log: nothing stops, and the checkpoint is written again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, read_checkpoint, write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.checkpoint import checkpoint_head
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, LogWholeError
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import prune
from snapshot_assets_tests.catalog.histories import with_bounds
from snapshot_assets_tests.catalog.tags import reseal

NOW = timedelta(0)


def flip(store: ObjectStore, path: str, place: int | None = -3) -> None:
    """Flip a bit, by default in the statistics of the last column; without a place, append bytes."""
    data = bytearray(store.get(path))
    if place is None:
        data += b"more"
    else:
        data[place] ^= 1
    store.put(path, bytes(data))


def damage(store: ObjectStore) -> list[str]:
    return [fault.object for fault in verify(store).faults if fault.is_damage]


def prune_all(store: ObjectStore) -> int:
    return prune(Catalog.open_for_writing(store), grace=NOW, unsafe=True).kept


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Sealed at 6, 8 and 10 with statistics; checkpoints at 4, 6 and 8."""
    writer.complete(1, with_bounds(writer, 1, 1))
    writer.complete(2)
    writer.complete(3, with_bounds(writer, 3, 3))
    write_checkpoint(writer.store, read_state(writer.store))
    for _ in range(3):
        reseal(writer)
        write_checkpoint(writer.store, read_state(writer.store))
    writer.store.delete(checkpoint_path(read_state(writer.store).revision))
    return writer


@pytest.fixture
def checkpoints(sealed: Writer) -> list[int]:
    return list_log(sealed.store).checkpoints


@pytest.mark.parametrize("place", [-3, None])
def test_a_rebuild_of_a_whole_log_names_the_checkpoint_and_its_repair(
    sealed: Writer, checkpoints: list[int], place: int | None
) -> None:
    for revision in checkpoints:
        flip(sealed.store, checkpoint_path(revision), place)
    with pytest.raises(LogWholeError, match=rf"`snapshots catalog checkpoint` .*{checkpoint_path(checkpoints[-1])}"):
        rebuild(sealed.store)


@pytest.mark.parametrize("place", [-3, 40])
def test_a_rebuild_that_is_needed_passes_a_damaged_checkpoint_over(sealed: Writer, place: int) -> None:
    """The rebuilt log has all states and statistics."""
    before = read_state(sealed.store, statistics=True)
    newest = list_log(sealed.store).checkpoints[-1]
    flip(sealed.store, checkpoint_path(newest), place)
    flip(sealed.store, transaction_path(before.revision), 40)
    done = rebuild(sealed.store)
    after = read_state(sealed.store, statistics=True)
    assert manifest_of(after.at(newest)) == manifest_of(before.at(newest))
    assert after.files.merged().bounds.columns == before.files.merged().bounds.columns
    assert not any("tatistics" in sentence for sentence in done.lost)
    assert damage(sealed.store) == []


def test_statistics_that_nothing_else_gives_are_lost_by_a_rebuild_which_says_so(sealed: Writer) -> None:
    before = read_state(sealed.store)
    checkpoints = list_log(sealed.store).checkpoints
    flip(sealed.store, checkpoint_path(checkpoints[-1]))
    for revision in range(1, checkpoints[-1]):
        sealed.store.delete(transaction_path(revision))
    for revision in checkpoints[:-1]:
        sealed.store.delete(checkpoint_path(revision))
    assert damage(sealed.store)
    done = rebuild(sealed.store)
    assert any("Statistics in" in sentence and "exclude no file" in sentence for sentence in done.lost)
    after = read_state(sealed.store, statistics=True)
    assert manifest_of(after)["chunks"] == manifest_of(before)["chunks"]
    assert after.files.merged().bounds.columns == before.files.merged().bounds.columns - {"t"}
    assert damage(sealed.store) == []
    write_checkpoint(sealed.store, after)


def test_verification_names_damaged_statistics_also_where_the_log_begins_with_them(sealed: Writer) -> None:
    checkpoint_head(Catalog.open_for_writing(sealed.store))
    kept = prune_all(sealed.store)
    assert damage(sealed.store) == []
    flip(sealed.store, checkpoint_path(kept))
    assert set(damage(sealed.store)) == {checkpoint_path(kept)}
    assert scan_log(sealed.store).state.revision == read_state(sealed.store).revision


@pytest.mark.parametrize("place", [-3, None])
def test_pruning_keeps_two_checkpoints_that_can_be_read(
    sealed: Writer, checkpoints: list[int], place: int | None
) -> None:
    before = manifest_of(read_state(sealed.store))
    flip(sealed.store, checkpoint_path(checkpoints[-1]), place)
    assert prune_all(sealed.store) == checkpoints[-3]
    assert manifest_of(read_state(sealed.store)) == before
    assert set(damage(sealed.store)) == {checkpoint_path(checkpoints[-1])}
    checkpoint_head(Catalog.open_for_writing(sealed.store))
    assert damage(sealed.store) == []


def test_pruning_deletes_damaged_checkpoints_below_what_it_keeps(sealed: Writer, checkpoints: list[int]) -> None:
    flip(sealed.store, checkpoint_path(checkpoints[0]))
    assert prune_all(sealed.store) == checkpoints[-2]
    assert damage(sealed.store) == []


def test_pruning_stays_away_from_a_checkpoint_that_is_whole_and_wrong(sealed: Writer, checkpoints: list[int]) -> None:
    state = read_state(sealed.store, through=checkpoints[-1])
    state.events = [event for event in state.events if event.revision != checkpoints[-2]]
    sealed.store.put(checkpoint_path(checkpoints[-1]), checkpoint_bytes(state))
    with pytest.raises(DamageError, match="nothing was pruned"):
        prune_all(sealed.store)


def test_pruning_with_one_checkpoint_that_can_be_read_keeps_all(sealed: Writer, checkpoints: list[int]) -> None:
    for revision in checkpoints[1:]:
        flip(sealed.store, checkpoint_path(revision))
    assert prune_all(sealed.store) == 0
    assert list_log(sealed.store).checkpoints == checkpoints


@pytest.mark.parametrize("place", [-3, 2, 40, None])
def test_a_damaged_checkpoint_is_written_again_in_its_place(sealed: Writer, place: int) -> None:
    """That of the head, and those before it."""
    store, catalog = sealed.store, Catalog.open_for_writing(sealed.store)
    assert checkpoint_head(catalog).new
    bad = [checkpoint_path(revision) for revision in list_log(store).checkpoints]
    whole = {path: store.get(path) for path in bad}
    for path in bad:
        flip(store, path, place)
    written = checkpoint_head(Catalog.open_for_writing(store))
    assert (written.path, written.new, written.mended) == (bad[-1], True, tuple(bad[:-1]))
    assert {path: len(store.get(path)) for path in bad} == {path: len(data) for path, data in whole.items()}
    assert damage(store) == []
    again = checkpoint_head(catalog)
    assert (again.new, again.mended) == (False, ())


@pytest.mark.parametrize("place", [-3, None])
def test_a_checkpoint_that_nothing_else_gives_is_left_as_it_is(sealed: Writer, place: int | None) -> None:
    """A rebuild then starts from what can be read of it."""
    checkpoint_head(Catalog.open_for_writing(sealed.store))
    kept = prune_all(sealed.store)
    flip(sealed.store, checkpoint_path(kept), place)
    data = sealed.store.get(checkpoint_path(kept))
    with pytest.raises(DamageError, match=f"{checkpoint_path(kept)}.*rebuild"):
        checkpoint_head(Catalog.open_for_writing(sealed.store))
    assert sealed.store.get(checkpoint_path(kept)) == data
    rebuild(sealed.store)
    assert damage(sealed.store) == []


def test_the_writer_of_a_due_checkpoint_replaces_a_damaged_one(sealed: Writer, checkpoints: list[int]) -> None:
    """The create finds an object there, and replaces it."""
    path = checkpoint_path(checkpoints[-1])
    for place in (2, 40):
        flip(sealed.store, path, place)
        write_checkpoint(sealed.store, scan_log(sealed.store, through=checkpoints[-1]).state)
        assert read_checkpoint(sealed.store, checkpoints[-1], statistics=True).revision == checkpoints[-1]


def test_a_rebuilt_location_needs_no_checkpoint_from_below_its_rebuild(sealed: Writer, checkpoints: list[int]) -> None:
    """What lies there may have any fault, and is no part of the log."""
    store = sealed.store
    assert read_state(store).rebuilt_at == 0
    flip(store, checkpoint_path(checkpoints[-1]))
    sealed.store.delete(transaction_path(checkpoints[-2] + 1))
    done = rebuild(store)
    assert damage(store) == []
    catalog = Catalog.open_for_writing(store)
    assert catalog.state.rebuilt_at == done.revision
    reseal(Writer(store))
    written = checkpoint_head(catalog)
    assert (written.revision, written.new, written.mended) == (catalog.state.revision, True, ())
    assert list_log(store).checkpoints[-1] == written.revision > done.revision


@pytest.fixture
def pruned(sealed: Writer) -> Writer:
    """Pruned, with three checkpoints; the oldest, which the log begins with, is the only one that nothing gives."""
    checkpoint_head(Catalog.open_for_writing(sealed.store))
    prune_all(sealed.store)
    for _ in range(2):
        reseal(sealed)
        write_checkpoint(sealed.store, read_state(sealed.store))
    return sealed


@pytest.mark.parametrize("place", [-3, 40, None])
def test_a_damaged_checkpoint_that_the_log_begins_with_is_named_and_pruned(pruned: Writer, place: int) -> None:
    """It would go, so it stops no pruning; the head has its own checkpoint before it is named."""
    store = pruned.store
    start, *_, older, newest = list_log(store).checkpoints
    before = manifest_of(read_state(store))
    flip(store, checkpoint_path(start), place)
    store.delete(checkpoint_path(newest))
    with pytest.raises(
        DamageError, match=f"{checkpoint_path(start)}.*the log begins with it.*`snapshots catalog prune`"
    ):
        checkpoint_head(Catalog.open_for_writing(store))
    assert list_log(store).checkpoints[-1] == newest
    assert prune_all(store) == older
    assert damage(store) == []
    assert manifest_of(read_state(store)) == before
    assert checkpoint_head(Catalog.open_for_writing(store)).mended == ()


@pytest.mark.parametrize("wrong", ["older", "newest"])
def test_behind_a_damaged_beginning_the_checkpoints_that_stay_are_compared_with_each_other(
    pruned: Writer, wrong: str
) -> None:
    store = pruned.store
    start, *_, older, newest = list_log(store).checkpoints
    revision = {"older": older, "newest": newest}[wrong]
    state = read_state(store, through=revision)
    state.events = state.events[:-1]
    store.put(checkpoint_path(revision), checkpoint_bytes(state))
    flip(store, checkpoint_path(start))
    there = list_log(store)
    with pytest.raises(DamageError, match="nothing was pruned"):
        prune_all(store)
    assert list_log(store) == there
