"""A rebuilt location of real data files: it is exported to, sealed, restored, and every row is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    AcceptanceNeededError,
    LogWholeError,
    LostLogError,
    NoSnapshotError,
    StoreUnavailableError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.tags import Changed
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW, add_rows


@pytest.fixture
def exported(place: Place, exported_place: Place) -> Place:
    shutil.copytree(exported_place.folder, place.folder)
    return place


@pytest.fixture
def into(tmp_path: Path) -> Into:
    return Into(f"duckdb://{tmp_path}/target.duckdb")


def lose(store: ObjectStore, *words: str) -> None:
    for info in list(store.list()):
        if any(word in info.path for word in words):
            store.delete(info.path)


def undamaged(store: ObjectStore) -> bool:
    return not verify(store).damaged


def test_a_location_whose_log_was_lost_is_not_taken_for_an_empty_one(exported: Place) -> None:
    lose(exported.store, "transactions/")
    with pytest.raises(LostLogError, match=r"has no log, but data/.* is there.*Rebuild"):
        exported.export()
    lose(exported.store, "data/")
    with pytest.raises(LostLogError, match=r"manifest\.json is there"):
        exported.export()
    assert list(exported.store.list("transactions/")) == []


def test_a_rebuilt_location_is_restored_at_once(exported: Place, into: Into) -> None:
    before = read_state(exported.store)
    lose(exported.store, "transactions/")
    assert rebuild(exported.store).sealed
    after = read_state(exported.store)
    assert manifest_of(after) == manifest_of(before)
    assert after.files.merged().bounds.of("t") == before.files.merged().bounds.of("t") != {}
    assert undamaged(exported.store)
    assert into.restore(exported.store).finished
    assert into.differences(exported.source, IN_RANGE) == {}


def test_from_receipts_alone_the_same_plan_goes_on_seals_and_replaces(exported: Place, into: Into) -> None:
    before = read_state(exported.store)
    some = [before.chunks[number].chunk.receipts[0].path for number in (1, 3)]
    lose(exported.store, "transactions/", "manifest.json", *some)
    done = rebuild(exported.store, accept_undeleted=True)
    assert (done.missing, sorted(done.taken)) == ((1, 3), [0, 2, 4, 5, 6])
    [named] = [line for line in done.lost if line.startswith("No receipt names ")]
    assert all(known.file.path in named for number in (1, 3) for known in before.live_files(number))
    assert (read_state(exported.store).header, read_state(exported.store).schemas) == (before.header, before.schemas)
    outcomes = exported.export()
    assert [outcomes[number].status for number in (0, 1, 2, 3)] == ["skipped", "exported", "skipped", "exported"]
    assert exported.differences() == {}
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    assert exported.differences() == {}
    assert undamaged(exported.store)
    assert into.restore(exported.store).finished
    assert into.differences(exported.source, IN_RANGE) == {}


@pytest.mark.parametrize("log", ["lost", "begun"])
def test_files_whose_receipts_are_lost_too_are_taken_by_their_own_words_as_the_last_resort(
    exported: Place, into: Into, log: str
) -> None:
    before = read_state(exported.store)
    lose(exported.store, "chunk-", "manifest.json", *(["transactions/"] if log == "lost" else []))
    for revision in range(2, before.revision + 1) if log == "begun" else ():
        lose(exported.store, f"{revision:020}.txn")
    torn = next(before.live_files(5)).file.path
    exported.store.put(torn, exported.store.get(torn)[:-1])
    if log == "lost":
        with pytest.raises(NoSnapshotError, match="No receipt names data/0/main"):
            rebuild(exported.store, accept_undeleted=True)
        with pytest.raises(AcceptanceNeededError):
            rebuild(exported.store, from_files=True)
    else:
        assert before.revision == read_state(exported.store).revision + before.revision - 1  # nobody sees the loss
        shutil.copy(exported.folder / torn, exported.folder / "transactions" / f"{before.revision:020}.txn")
    done = rebuild(exported.store, accept_undeleted=True, from_files=True)
    assert done.missing == (EMPTY_WINDOW, 5)
    assert any(torn in line and line.startswith("Not taken, ") for line in done.lost)
    after = read_state(exported.store)
    assert (after.location_id, after.snapshot_id) == (before.location_id, before.snapshot_id)
    for number in (0, 1, 2, 3, 6):
        assert after.chunks[number].chunk.checksum == before.chunks[number].chunk.checksum
    assert (after.header.source, after.header.schemas) == (before.header.source, before.header.schemas)
    assert [str(window) for window in after.windows()] == [str(window) for window in before.windows()]
    if log == "begun":
        outcomes = exported.export()
        assert {outcomes[number].status for number in (EMPTY_WINDOW, 5)} == {"exported"}
        assert exported.differences() == {}
        assert into.restore(exported.store).finished
        assert into.differences(exported.source, IN_RANGE) == {}
    assert undamaged(exported.store)


def without_receipts(exported: Place) -> list[str]:
    """Lose the log, and of two chunks the receipts too; returns the files that these had."""
    before = read_state(exported.store)
    lose(exported.store, "transactions/", "manifest.json", "data/1/chunk-", "data/3/chunk-")
    return [known.file.path for number in (1, 3) for known in before.live_files(number)]


@pytest.mark.parametrize("error", [StoreUnavailableError("503 Slow Down"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("when", ["footers", "contents"])
def test_a_store_that_does_not_answer_is_not_taken_for_a_file_that_says_nothing(
    exported: Place, error: Exception, when: str
) -> None:
    path, store = without_receipts(exported)[0], exported.store

    def failing(method: Callable[..., object]) -> Callable[..., object]:
        def call(name: str, *arguments: object) -> object:
            if name == path:
                raise error
            return method(name, *arguments)

        return call

    broken = {name: failing(getattr(store, name)) for name in ("open_reader", "get_range")}
    chosen = broken if when == "footers" else {"open_reader": broken["open_reader"]}
    with pytest.raises(type(error)):
        rebuild(Changed(store, **chosen), accept_undeleted=True, from_files=True)
    assert list(store.list("transactions/")) == []
    assert rebuild(store, accept_undeleted=True, from_files=True).missing == ()


def test_files_that_a_rebuild_left_can_be_taken_later(exported: Place) -> None:
    """But none of a chunk that something was written to since: a run may be about to name its files."""
    left = without_receipts(exported)
    done = rebuild(exported.store, accept_undeleted=True)
    assert done.missing == (1, 3)
    [named] = [line for line in done.lost if line.startswith("No receipt names ")]
    assert all(path in named for path in left)
    assert "--from-files may take them, now or later, until garbage collection deletes them" in named
    data = exported.store.get(left[-1])
    exported.store.delete(left[-1])
    exported.store.put(left[-1], data)
    with pytest.raises(LogWholeError, match=rf"left, --from-files takes what it can: {left[0]}"):
        rebuild(exported.store)
    done = rebuild(exported.store, from_files=True)
    assert (done.missing, list(done.taken), done.sealed) == ((3,), [1], False)
    with pytest.raises(LogWholeError, match="there is nothing to rebuild"):
        rebuild(exported.store, from_files=True)
    assert exported.export()[3].status == "exported"
    assert exported.differences() == {}
    assert undamaged(exported.store)


def test_files_of_two_attempts_at_one_table_are_not_guessed(exported: Place) -> None:
    exported.export(chunks=[2], replace=True)
    lose(exported.store, "chunk-", "manifest.json", "transactions/")
    done = rebuild(exported.store, accept_undeleted=True, from_files=True)
    assert done.missing == (2, EMPTY_WINDOW)
    assert sum(line.count("data/2/main.readings-") for line in done.lost) == 2


def test_receipts_that_do_not_tell_the_plan_leave_it_to_the_manifest(exported: Place) -> None:
    """As those that were written before receipts told it."""
    for info in list(exported.store.list("data/")):
        if "chunk-" in info.path:
            lines = exported.store.get(info.path).decode().splitlines(keepends=True)
            kept = [line for line in lines if not line.lstrip().startswith(('"header"', '"location_id"'))]
            exported.store.put(info.path, "".join(kept).encode())
    before = read_state(exported.store)
    lose(exported.store, "transactions/")
    done = rebuild(exported.store)
    assert done.sealed
    assert any("tells a part of it, and name, source, kind" in line for line in done.lost)
    assert manifest_of(read_state(exported.store)) == manifest_of(before)
    assert undamaged(exported.store)
    lose(exported.store, "transactions/", "manifest.json")
    with pytest.raises(NoSnapshotError):
        rebuild(exported.store, accept_undeleted=True)


def test_a_location_on_object_storage_is_rebuilt(place: Place, any_location) -> None:
    uri, options = any_location
    store = open_store(parse_location(uri), options)
    run = place.run(store=store)
    run.begin()
    list(run.export(CHUNKS))
    run.seal()
    run.close()
    before = read_state(store)
    lose(store, "transactions/", "manifest.json")
    done = rebuild(store, accept_undeleted=True)
    assert (done.missing, sorted(done.taken)) == ((), list(CHUNKS))
    assert seal(Catalog.open_for_writing(store)).seal.seal.checksum == before.seals[-1].seal.checksum
    assert undamaged(store)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_compaction_of_one_table_leaves_a_rebuild_the_others(exported: Place, manifest: bool) -> None:
    store = exported.store
    scatter(store, chunks=[1, 2], sealed=False)
    seal(Catalog.open_for_writing(store))
    tables = sorted({known.file.table for known in read_state(store).live_files(1)})
    assert len(tables) > 1
    for name in tables[:2]:
        compact(store, tables=(TableName("main", name),), chunks=(1, 2))
    before = read_state(store)
    assert len(before.chunks[1].chunk.receipts) == 3
    lose(store, "transactions/", *([] if manifest else ["manifest.json"]))
    done = rebuild(store, accept_undeleted=True)
    after = read_state(store)
    assert (done.missing, done.sealed) == ((), manifest)
    for chunk in before.chunks:
        assert after.files.chunk(chunk).keys() == before.files.chunk(chunk).keys()
        one, other = after.chunks[chunk].chunk, before.chunks[chunk].chunk
        assert (one.checksum, one.receipts, one.rows) == (other.checksum, other.receipts, other.rows)
    assert after.header == before.header
    assert undamaged(store)
