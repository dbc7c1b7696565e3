"""Damaged bytes in a checkpoint of a whole log: nothing stops, and the checkpoint is written again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import DamageError, LogWholeError
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import prune
from snapshot_assets_tests.catalog.histories import with_bounds
from snapshot_assets_tests.catalog.tags import damage, flip, reseal

NOW = timedelta(0)


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
    with pytest.raises(LogWholeError, match=rf"`snapshots catalog repair` .*{checkpoint_path(checkpoints[-1])}"):
        rebuild(sealed.store)


def test_a_rebuild_that_is_needed_passes_a_damaged_checkpoint_over(sealed: Writer) -> None:
    """The rebuilt log has all states and statistics."""
    before = read_state(sealed.store, statistics=True)
    newest = list_log(sealed.store).checkpoints[-1]
    flip(sealed.store, checkpoint_path(newest), 40)
    flip(sealed.store, transaction_path(before.revision), 40)
    done = rebuild(sealed.store)
    after = read_state(sealed.store, statistics=True)
    assert manifest_of(after.at(newest)) == manifest_of(before.at(newest))
    assert after.files.merged().bounds.columns == before.files.merged().bounds.columns
    assert not any("tatistics" in sentence for sentence in done.lost)
    assert damage(sealed.store) == {}


def test_statistics_that_nothing_else_gives_are_lost_by_a_rebuild_which_says_so(sealed: Writer) -> None:
    before = read_state(sealed.store)
    checkpoints = list_log(sealed.store).checkpoints
    flip(sealed.store, checkpoint_path(checkpoints[-1]), -3)
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
    assert damage(sealed.store) == {}
    write_checkpoint(sealed.store, after)


@pytest.mark.parametrize("place", [-3, None])
def test_pruning_keeps_two_checkpoints_that_can_be_read(
    sealed: Writer, checkpoints: list[int], place: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    before = manifest_of(read_state(sealed.store))
    flip(sealed.store, checkpoint_path(checkpoints[-1]), place)
    assert prune_all(sealed.store) == checkpoints[-3]
    [message] = [message for message in caplog.messages if message.startswith("A checkpoint is damaged")]
    assert checkpoint_path(checkpoints[-1]) in message
    assert manifest_of(read_state(sealed.store)) == before
    assert set(damage(sealed.store)) == {checkpoint_path(checkpoints[-1])}
    checkpoint_head(Catalog.open_for_writing(sealed.store))
    assert damage(sealed.store) == {}


def test_pruning_stays_away_from_a_checkpoint_that_is_whole_and_wrong(sealed: Writer, checkpoints: list[int]) -> None:
    state = read_state(sealed.store, through=checkpoints[-1])
    state.events = [event for event in state.events if event.revision != checkpoints[-2]]
    sealed.store.put(checkpoint_path(checkpoints[-1]), checkpoint_bytes(state))
    with pytest.raises(DamageError, match="nothing was pruned"):
        prune_all(sealed.store)


def test_pruning_with_one_checkpoint_that_can_be_read_keeps_all(sealed: Writer, checkpoints: list[int]) -> None:
    for revision in checkpoints[1:]:
        flip(sealed.store, checkpoint_path(revision), -3)
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
    assert damage(store) == {}
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
    assert damage(sealed.store) == {}


def test_a_rebuilt_location_needs_no_checkpoint_from_below_its_rebuild(sealed: Writer, checkpoints: list[int]) -> None:
    """What lies there may have any fault, and is no part of the log."""
    store = sealed.store
    assert read_state(store).rebuilt_at == 0
    flip(store, checkpoint_path(checkpoints[-1]), -3)
    sealed.store.delete(transaction_path(checkpoints[-2] + 1))
    done = rebuild(store)
    assert damage(store) == {}
    catalog = Catalog.open_for_writing(store)
    assert catalog.state.rebuilt_at == done.revision
    reseal(Writer(store))
    written = checkpoint_head(catalog)
    assert (written.revision, written.new, written.mended) == (catalog.state.revision, True, ())
    assert list_log(store).checkpoints[-1] == written.revision > done.revision
