"""A rebuild where some tables were compacted: what a receipt does not speak for stays, and is not collected.

Each test loses the log (or a part of it) and other things, rebuilds, seals, collects garbage without any grace,
verifies every byte, and compares every row of every table with what could be read before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import product

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.collect_garbage import collect_garbage
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import Rebuild, rebuild
from snapshot_assets.catalog.receipts.receipts import Receipt, read_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import is_receipt, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.test_rebuild import lose
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, SOME, delete, kept, rows
from snapshot_assets_tests.faults.source import CHUNKS, add_rows

pytestmark = pytest.mark.slow

READINGS = TableName("main", "readings")
EVENTS = TableName("main", "events")
TABLES = ("main.readings", "main.events", "main.places")

Rows = dict[str, list[tuple]]


def content(store: ObjectStore) -> Rows:
    return {table: rows(store, table) for table in TABLES}


def collect(store: ObjectStore) -> set[str]:
    time.sleep(0.02)
    catalog = Catalog.open_for_writing(store)
    return {each.path for each in collect_garbage(catalog, grace=timedelta(0), unsafe=True).deleted}


def settled(store: ObjectStore) -> Rows:
    """Seal, collect garbage, verify every byte; returns all rows that can still be read."""
    seal(Catalog.open_for_writing(store))
    collect(store)
    assert not [fault for fault in verify(store, depth="full").faults if fault.is_damage]
    state = read_state(store)
    assert state.sealed
    for chunk in state.files.chunks():
        assert named_by_receipts(store, state, chunk) >= set(state.files.chunk(chunk))
    return content(store)


def named_by_receipts(store: ObjectStore, state: State, chunk: int) -> set[str]:
    receipts = (read_receipt(store, ref.path)[0] for ref in state.chunks[chunk].chunk.receipts)
    return {file.path for receipt in receipts for file in receipt.files}


def receipts(store: ObjectStore, chosen: Callable[[Receipt], bool]) -> list[str]:
    found = (read_receipt(store, info.path)[0] for info in store.list("data/") if is_receipt(info.path))
    return [receipt.path for receipt in found if chosen(receipt)]


def is_compaction(receipt: Receipt) -> bool:
    return receipt.compaction is not None


@pytest.fixture
def compacted(exported: Place) -> Place:
    """In chunks 1 to 6 only `readings` are compacted, of three tables; the newest receipts name nothing else."""
    scatter(exported.store, table="readings")
    compact(exported.store, tables=(READINGS,))
    return exported


LOSSES = {
    "all but receipts": ("transactions/", "manifest.json"),
    "all but the manifest": ("transactions/",),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("collected", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tables_that_were_not_compacted_are_there_after_the_log_is_lost(
    place: Place, loss: str, collected: bool
) -> None:
    """With `collected`, what was compacted is gone, so that no export's receipt is complete any more."""
    place.export(seal=False)
    scatter(place.store, table="readings", sealed=False)
    compact(place.store, tables=(READINGS,))
    compact(place.store, tables=(EVENTS,), chunks=(0, 1))
    seal(Catalog.open_for_writing(place.store))
    if collected:
        assert any("readings" in path for path in collect(place.store))
    before, had = read_state(place.store), content(place.store)
    assert had["main.events"]
    lose(place.store, *LOSSES[loss])
    done = rebuild(place.store, accept_undeleted=True)
    after = read_state(place.store)
    assert (done.missing, after.sealed) == ((), loss == "all but the manifest")
    assert after.files.paths() == {known.file.path for known in before.live_files()}
    for chunk in before.chunks:
        assert after.chunks[chunk].chunk.receipts == before.chunks[chunk].chunk.receipts
        assert after.chunks[chunk].chunk.checksum == before.chunks[chunk].chunk.checksum
    assert settled(place.store) == had
    assert place.differences() == {}


def holes(store: ObjectStore, first: int) -> Iterator[range]:
    last = read_state(store).revision
    yield range(first, last)
    yield range(first + 1, first + 2)
    yield range(2, last + 1)
    yield range(1, last)


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("manifest", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tables_that_were_not_compacted_are_there_after_a_hole(exported: Place, number: int, manifest: bool) -> None:
    scatter(exported.store, table="readings")
    first = read_state(exported.store).revision + 1
    compact(exported.store, tables=(READINGS,))
    before, had = read_state(exported.store), content(exported.store)
    for revision in list(holes(exported.store, first))[number]:
        lose(exported.store, transaction_path(revision))
    if not manifest:
        lose(exported.store, "manifest.json")
    done = rebuild(exported.store, accept_undeleted=True)
    assert done.missing == ()
    assert read_state(exported.store).files.paths() >= {known.file.path for known in before.live_files()}
    assert settled(exported.store) == had
    assert {known.file.path for known in read_state(exported.store).live_files()} == {
        known.file.path for known in before.live_files()
    }


@pytest.mark.parametrize("lost", ["of compactions", "of exports", "all"])
def test_from_files_every_table_is_there_too(compacted: Place, lost: str) -> None:
    """Of compactions: the files that they wrote lie beside those of the exports, which have receipts and equal rows.

    Of exports: that of chunk 0 is left, which tells the plan.
    """
    had = content(compacted.store)
    chosen = {
        "of compactions": is_compaction,
        "of exports": lambda each: not is_compaction(each) and each.chunk,
        "all": lambda _: True,
    }
    gone = receipts(compacted.store, chosen[lost])
    if lost != "of compactions":  # else two attempts at each table are there, and nothing tells which counts
        keep = {known.file.path for known in read_state(compacted.store).live_files()}
        old = {info.path for info in compacted.store.list("data/") if info.path.endswith(".parquet")} - keep
        gone += sorted(old)
    lose(compacted.store, "transactions/", "manifest.json", *gone)
    done = rebuild(compacted.store, accept_undeleted=True, from_files=True)
    assert set(done.missing) <= {4}, done.lost
    compacted.export(chunks=done.missing)
    assert read_all(compacted) == had
    lost_files = [line for line in done.lost if line.startswith("Not taken")]
    assert bool(lost_files) == (lost == "of compactions")


def read_all(place: Place) -> Rows:
    seal(Catalog.open_for_writing(place.store))
    collect(place.store)
    assert not [fault for fault in verify(place.store, depth="full").faults if fault.is_damage]
    return content(place.store)


def test_files_that_only_a_receipt_names_which_is_not_complete_are_not_forgotten_from_files(compacted: Place) -> None:
    """The compactions' receipts are lost, and what they merged was collected: the exports' receipts lack those."""
    had, before = content(compacted.store), read_state(compacted.store)
    old = {
        info.path
        for info in compacted.store.list("data/")
        if info.path.endswith(".parquet") and "readings" in info.path
    } - {known.file.path for known in before.live_files()}
    lose(compacted.store, "transactions/", "manifest.json", *receipts(compacted.store, is_compaction), *old)
    assert {1, 2, 3, 5, 6} <= set(rebuild(compacted.store, accept_undeleted=True, dry_run=True).missing)
    done = rebuild(compacted.store, accept_undeleted=True, from_files=True)
    assert set(done.missing) <= {4}
    compacted.export(chunks=done.missing)
    assert read_all(compacted) == had


def test_a_chunk_of_which_only_a_compaction_tells_stays_open_where_files_of_other_tables_lie_about(
    compacted: Place,
) -> None:
    """The export's receipt is lost: nothing says that `events` belong to the chunk, and nothing may collect them."""
    had = content(compacted.store)
    exports = receipts(compacted.store, lambda each: not is_compaction(each) and each.chunk == 1)
    lose(compacted.store, "transactions/", "manifest.json", *exports)
    done = rebuild(compacted.store, accept_undeleted=True)
    assert done.missing == (1,)
    assert any(line.startswith("Chunk 1: ") and "main.events" in line for line in done.lost)
    assert compacted.export(chunks=(1,))[1].status == "exported"
    assert settled(compacted.store) == had


@pytest.mark.parametrize(("predicate", "merged"), list(product((SOME, FIRST_DAYS), (READINGS, EVENTS))))
def test_deleted_rows_stay_deleted_if_a_manifest_tells_the_tombstones(
    exported: Place, predicate: str, merged: TableName
) -> None:
    scatter(exported.store)
    delete(exported, predicate)
    delete(exported, "what = 'middle'", EVENTS)
    compact(exported.store, tables=(merged,))
    before, had = read_state(exported.store), content(exported.store)
    assert manifest_of(before)["tombstones"]
    assert had["main.readings"] == kept(exported, predicate)
    lose(exported.store, "transactions/")
    done = rebuild(exported.store)
    after = read_state(exported.store)
    assert (done.sealed, done.missing) == (True, ())
    assert manifest_of(after) == manifest_of(before)
    assert content(exported.store) == had
    assert settled(exported.store) == had
    compact(exported.store, tables=(READINGS, EVENTS))
    assert manifest_of(read_state(exported.store))["tombstones"] == []
    assert settled(exported.store) == had


@pytest.mark.parametrize("lost", ["all", "the tombstones", "the second tombstone and all after it"])
def test_tombstones_of_manifest_and_tags_count_at_their_own_revisions(exported: Place, lost: str) -> None:
    store = exported.store
    create_tag(Catalog.open_for_writing(store), "whole", read_state(store).seals[-1].revision)
    delete(exported, SOME)
    create_tag(Catalog.open_for_writing(store), "some", read_state(store).seals[-1].revision)
    delete(exported, FIRST_DAYS)
    before = read_state(store)
    first, second = before.tombstones
    versions = ("tag:whole", "tag:some", f"rev:{second}")
    had = {version: rows(store, version=version) for version in versions}
    assert len({len(found) for found in had.values()}) == 3
    gone = {"all": range(1, second + 1), "the tombstones": (first, second)}.get(
        lost, range(second, before.revision + 1)
    )
    for revision in gone:
        lose(store, transaction_path(revision))
    rebuild(store)
    assert {version: rows(store, version=version) for version in versions} == had
    assert read_state(store).tombstones == before.tombstones
    assert settled(store)["main.readings"] == had[f"rev:{second}"]


def test_receipts_alone_do_not_tell_tombstones_and_the_report_says_so(exported: Place) -> None:
    """What was deleted by a compaction stays deleted."""
    scatter(exported.store)
    delete(exported, "what = 'middle'", EVENTS)
    delete(exported, SOME)
    compact(exported.store, tables=(READINGS,))
    had = content(exported.store)
    lose(exported.store, "transactions/", "manifest.json")
    done = rebuild(exported.store, accept_undeleted=True)
    found = settled(exported.store)
    assert found["main.readings"] == had["main.readings"] == kept(exported, SOME)
    assert len(found["main.events"]) == len(had["main.events"]) + 1
    assert any("nor rows of them deleted" in line for line in done.lost)


def test_a_compaction_of_what_was_replaced_meanwhile_gives_way_to_the_replacement(exported: Place) -> None:
    """A later compaction is of other files; whatever is newer, each chunk is of one of the two."""
    scatter(exported.store, table="readings")
    compact(exported.store, tables=(READINGS,), chunks=(2,))
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    had = content(exported.store)
    lose(exported.store, "transactions/", "manifest.json")
    rebuild(exported.store, accept_undeleted=True)
    assert settled(exported.store) == had
    compact(exported.store, tables=(READINGS,), chunks=(2,))
    lose(exported.store, "transactions/", "manifest.json")
    rebuild(exported.store, accept_undeleted=True)
    assert settled(exported.store) == had


def test_a_rebuilt_and_compacted_location_is_rebuilt_again(compacted: Place) -> None:
    had = content(compacted.store)
    for number in range(3):
        lose(compacted.store, "transactions/", *(["manifest.json"] if number == 1 else []))
        rebuilt: Rebuild = rebuild(compacted.store, accept_undeleted=True)
        assert rebuilt.missing == ()
        compact(compacted.store, tables=(EVENTS,))
        assert settled(compacted.store) == had
    assert sorted(read_state(compacted.store).chunks) == list(CHUNKS)


@pytest.mark.parametrize("lost", ["the tombstone", "the begin", "all"])
def test_tombstones_of_work_in_progress_are_kept_or_named(place: Place, lost: str) -> None:
    """Its manifest has no checksum. Where receipts begin the snapshot anew, a tombstone cannot lie before that.

    If only the begin is lost, what lies behind it is of the snapshot, and so is the tombstone.
    """
    place.export(seal=False)
    delete(place, SOME)
    store = place.store
    revision = read_state(store).revision
    place.export(chunks=(1,), replace=True, seal=False)  # so that the tombstone is not the last word
    lose(store, *{"all": ("transactions/",), "the begin": (transaction_path(1), "manifest.json")}.get(lost, ()))
    lose(store, *[transaction_path(revision)] * (lost == "the tombstone"))
    done = rebuild(store, accept_undeleted=True)
    found = settled(store)["main.readings"]
    start = f"Rows of main.readings were deleted at revision {revision}, those where "
    named = [line for line in done.lost if line.startswith(start)]
    if lost != "all":
        assert (found, named) == (kept(place, f"({SOME}) and (t is null or t >= '2025-01-02T00:00:00Z')"), [])
    else:
        assert found == kept(place)
        assert '"column": "sensor"' in named[0]
        assert named[0].endswith("Delete them once more.")


@pytest.mark.parametrize("gone", [lambda _: [1], lambda last: range(1, last)], ids=["the begin", "all but the last"])
def test_a_tombstone_whose_snapshot_began_in_a_hole_counts_if_a_seal_proves_the_snapshot(
    exported: Place, gone: Callable[[int], Sequence[int]]
) -> None:
    delete(exported, SOME)
    store = exported.store
    lose(store, "manifest.json", *(transaction_path(number) for number in gone(read_state(store).revision)))
    rebuild(store, accept_undeleted=True)
    assert settled(store)["main.readings"] == kept(exported, SOME)
