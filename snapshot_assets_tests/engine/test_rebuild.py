"""Disasters that a location of real data files survives: rebuild, export, and every row is there as before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import LogWholeError, LostLogError, NoSnapshotError, StoreUnavailableError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.catalog.tags import Changed
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.faults.source import CHUNKS, add_rows
from snapshot_assets_tests.golden.contents import rows

FIRST_SEAL = 16
"""The seal of the first export, before chunk 2 was replaced and chunks were compacted."""


def export(place: Place, store: ObjectStore, chunks: tuple[int, ...] = CHUNKS, *, replace: bool = False) -> dict:
    """Export and seal; returns the status by chunk."""
    with place.run(store=store).open() as export:
        outcomes = {each.chunk: each.status for each in export.export(chunks, replace_completed=replace)}
        export.seal()
    return outcomes


def content(store: ObjectStore) -> dict[str, list[str]]:
    return rows(store, read_state(store))


@pytest.fixture(scope="module")
def made(prepared_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A location with some history: a replaced chunk, compactions, tags and a savepoint."""
    folder = tmp_path_factory.mktemp("disasters")
    shutil.copy(prepared_source, folder / "source.duckdb")
    place = Place(f"duckdb://{folder}/source.duckdb", folder / "location")
    with place.run().open() as opened:
        for chunk in CHUNKS:  # a transaction of its own for each, so that there is much to lose
            list(opened.export([chunk]))
        opened.seal()
    assert read_state(place.store).seals[-1].revision == FIRST_SEAL
    create_tag(Catalog.open_for_writing(place.store), "first", FIRST_SEAL)
    add_rows(place.source)
    export(place, place.store, (2,), replace=True)
    scatter(place.store, chunks=[1, 3], table="readings")
    compact(place.store, tables=(TableName("main", "readings"),), chunks=(1, 3))
    catalog = Catalog.open_for_writing(place.store)
    for name in ("gone", "newest"):
        create_tag(catalog, name, catalog.state.seals[-1].revision)
    delete_tag(catalog, "gone")
    create_savepoint(catalog, catalog.state.data_revision)
    return place


@dataclass
class Spot:
    """A copy of that location on a store of its own."""

    place: Place
    store: ObjectStore

    def lose(self, *prefixes: str, keep: str | tuple[str, ...] = "/") -> None:
        for info in list(self.store.list()):
            if info.path.startswith(prefixes) and not info.path.startswith(keep):
                self.store.delete(info.path)

    def flip(self, path: str) -> None:
        data = bytearray(self.store.get(path))
        data[len(data) // 2] ^= 1
        self.store.put(path, bytes(data))

    def lose_revisions(self, revisions: range) -> None:
        for revision in revisions:
            self.store.delete(transaction_path(revision))

    def lose_receipts(self) -> None:
        for info in list(self.store.list("data/")):
            if "/chunk-" in info.path:
                self.store.delete(info.path)


@pytest.fixture
def spot(tmp_path: Path, made: Place) -> Spot:
    return copied(made, open_store(parse_location((tmp_path / "copy").as_uri())))


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest, made: Place) -> Spot:
    """The same on a disk or on S3."""
    if request.param == "file":
        return request.getfixturevalue("spot")
    options = request.getfixturevalue("s3_server").options
    return copied(made, open_store(parse_location(request.getfixturevalue("s3_location")), options))


def copied(made: Place, store: ObjectStore) -> Spot:
    for info in made.store.list():
        store.put(info.path, made.store.get(info.path))
    return Spot(made, store)


def head(spot: Spot) -> int:
    return list_log(spot.store).transactions[-1]


DISASTERS: dict[str, Callable[[Spot], object]] = {
    "all transactions": lambda spot: spot.lose("transactions/"),
    "all transactions and the manifest": lambda spot: spot.lose("transactions/", "manifest.json", "SHA256SUMS"),
    "one transaction": lambda spot: spot.lose_revisions(range(7, 8)),
    "one transaction flipped": lambda spot: spot.flip(transaction_path(14)),
    "the newest ten": lambda spot: spot.lose_revisions(range(head(spot) - 9, head(spot) + 1)),
    "a tag's object": lambda spot: spot.lose("tag/tag-newest"),
    "a savepoint's object": lambda spot: spot.lose("savepoint/"),
    "a tag's object and a transaction": lambda spot: (spot.lose("tag/tag-newest"), spot.lose_revisions(range(7, 8))),
}
WITHOUT_BASE: dict[str, Callable[[Spot], object]] = {
    "all but data, schemas and receipts": lambda spot: spot.lose("", keep=("data/", "schema/")),
    "all but data": lambda spot: spot.lose("", keep="data/"),
}


def check(spot: Spot, before: dict[str, list[str]]) -> None:
    """Export, and compare every row; verify reads every byte."""
    export(spot.place, spot.store)
    assert read_state(spot.store).sealed
    assert not [fault for fault in verify(spot.store, depth="full").faults if fault.is_damage]
    assert content(spot.store) == before


@pytest.mark.slow
@pytest.mark.parametrize("disaster", DISASTERS)
def test_a_disaster_with_a_base_is_survived_without_consent(spot: Spot, disaster: str) -> None:
    before, state = content(spot.store), read_state(spot.store)
    DISASTERS[disaster](spot)
    done = rebuild(spot.store)
    assert done.committed
    after = read_state(spot.store)
    lost_manifest = "and the manifest" in disaster
    assert done.tags == (() if lost_manifest and not after.tags else ("first", "newest"))
    for name in done.tags:
        assert rows(spot.store, after.at(after.tags[name].pin.revision)) == rows(
            spot.store, state.at(state.tags[name].pin.revision)
        )
    check(spot, before)


@pytest.mark.parametrize("disaster", WITHOUT_BASE)
def test_a_disaster_without_a_base_is_survived_with_consent(anywhere: Spot, disaster: str) -> None:
    spot = anywhere
    before = content(spot.store)
    WITHOUT_BASE[disaster](spot)
    done = rebuild(spot.store, accept_undeleted=True)
    assert done.lost
    check(spot, before)


@pytest.mark.parametrize("lost", ["all transactions", "one transaction", "the newest ten"])
def test_deleted_rows_stay_deleted(spot: Spot, lost: str) -> None:
    """Each sealed revision has those that it had: manifest and pins show the deletions at their own revisions."""
    catalog = Catalog.open_for_writing(spot.store)
    for name, where in (("some", "sensor = 's0' and value < 5 or t is null"), ("more", "t < '2025-01-02T12:00:00Z'")):
        delete_rows(catalog, TableName("main", "readings"), where)
        create_tag(catalog, name, catalog.state.seals[-1].revision)
    before, state = content(spot.store), read_state(spot.store)
    had = {name: rows(spot.store, state.at(known.pin.revision)) for name, known in state.tags.items()}
    assert had["first"] != had["some"] != had["more"] == before
    DISASTERS[lost](spot)
    rebuild(spot.store)
    after = read_state(spot.store)
    assert {name: rows(spot.store, after.at(known.pin.revision)) for name, known in after.tags.items()} == had
    check(spot, before)


FROM_FILES: dict[str, Callable[[Spot], object]] = {
    "all but data files and schemas": lambda spot: (spot.lose("", keep=("data/", "schema/")), spot.lose_receipts()),
    "all but data files, schemas and the log's beginning": lambda spot: (
        spot.lose("", keep=("data/", "schema/", "transactions/")),
        spot.lose_revisions(range(2, head(spot) + 1)),
        spot.lose_receipts(),
        spot.store.put(transaction_path(2), b"torn"),
    ),
}


@pytest.mark.parametrize("disaster", FROM_FILES)
def test_a_disaster_without_receipts_is_survived_from_files(anywhere: Spot, disaster: str) -> None:
    """What their footers do not decide, such as a chunk that was exported twice, is named and exported again."""
    spot = anywhere
    before, files = content(spot.store), read_state(spot.store).files
    FROM_FILES[disaster](spot)
    done = rebuild(spot.store, accept_undeleted=True, from_files=True)
    assert done.taken.keys() == {0, 5, 6}
    assert done.missing == (1, 2, 3, 4)
    [left] = [line for line in done.lost if line.startswith("Neither the base nor a receipt names data/1/")]
    assert "data/2/main.readings-" in left
    after = read_state(spot.store)
    for chunk in (0, 5, 6):
        assert after.files.chunk(chunk).keys() == files.chunk(chunk).keys()
    check(spot, before)


def test_without_receipts_and_schemas_there_is_nothing_to_begin_with(spot: Spot) -> None:
    spot.lose("", keep="data/")
    spot.lose_receipts()
    with pytest.raises(NoSnapshotError, match="--from-files"):
        rebuild(spot.store, accept_undeleted=True)
    with pytest.raises(NoSnapshotError, match="do not show a snapshot: their schema documents"):
        rebuild(spot.store, accept_undeleted=True, from_files=True)


@pytest.mark.parametrize("when", ["footers", "contents"])
def test_a_store_that_fails_is_not_taken_for_a_file_without_a_footer(spot: Spot, when: str) -> None:
    FROM_FILES["all but data files and schemas"](spot)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("503 Slow Down")

    broken = {"open_reader": fail, **({"get_range": fail} if when == "footers" else {})}
    with pytest.raises(StoreUnavailableError):
        rebuild(Changed(spot.store, **broken), accept_undeleted=True, from_files=True)
    assert list(spot.store.list("transactions/")) == []


def test_a_torn_file_leaves_its_chunk_to_the_next_export(spot: Spot) -> None:
    before, torn = content(spot.store), next(read_state(spot.store).live_files(5)).file.path
    FROM_FILES["all but data files and schemas"](spot)
    spot.store.put(torn, spot.store.get(torn)[:-1])
    done = rebuild(spot.store, accept_undeleted=True, from_files=True)
    assert (5 in done.missing, any(torn in line for line in done.lost)) == (True, True)
    check(spot, before)


def test_a_location_whose_log_was_lost_is_not_taken_for_an_empty_one(spot: Spot) -> None:
    spot.lose("transactions/")
    with pytest.raises(LostLogError, match=r"has no log, but data/.* is there.*rebuild the log"):
        export(spot.place, spot.store)
    spot.lose("data/")
    with pytest.raises(LostLogError, match=r"manifest\.json is there"):
        export(spot.place, spot.store)
    assert list(spot.store.list("transactions/")) == []


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["gone", "flipped"])
def test_every_second_transaction_in_turn(spot: Spot, spoil: str) -> None:
    before, kept = content(spot.store), {info.path: spot.store.get(info.path) for info in spot.store.list()}
    for revision in range(1, head(spot) + 1, 2):
        path = transaction_path(revision)
        spot.store.delete(path) if spoil == "gone" else spot.flip(path)
        with suppress(LogWholeError):  # of an end that nothing names
            rebuild(spot.store)
        assert not verify(spot.store, depth="full").damaged
        assert content(spot.store) == before, revision
        spot.lose("")
        for each, data in kept.items():
            spot.store.put(each, data)


def test_a_receipt_without_the_plan_leaves_it_to_the_manifest(spot: Spot) -> None:
    """As those that were written before receipts had it."""
    for info in list(spot.store.list("data/")):
        if "/chunk-" in info.path:
            lines = spot.store.get(info.path).decode().splitlines(keepends=True)
            lines = [line for line in lines if not line.lstrip().startswith(('"header"', '"location_id"'))]
            spot.store.put(info.path, "".join(lines).encode())
    before, state = content(spot.store), read_state(spot.store)
    spot.lose("transactions/")
    done = rebuild(spot.store)
    assert any("has a part of it. Name, source, kind" in line for line in done.lost)
    assert (content(spot.store), done.sealed) == (before, True)
    assert manifest_of(read_state(spot.store)) == manifest_of(state)
    spot.lose("transactions/", "manifest.json", "tag/", "savepoint/")
    with pytest.raises(NoSnapshotError):
        rebuild(spot.store, accept_undeleted=True)
