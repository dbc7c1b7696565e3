"""What may not be written is found out before anything is, and the corrected call works at the same place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.errors import ExportFailedError, StorageError, StoreDeniedError
from snapshot_assets.format.layout import is_probe
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.engine.export.test_copy import plan, run_of
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.servers.disks import Disk
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.storage.test_probe import Wrapped

QUERY = "SELECT t, sensor FROM readings"
Write = Callable[[ObjectStore], Any]


@pytest.fixture(params=["copy", "export"])
def write(request: pytest.FixtureRequest, place: Place) -> Write:
    """Copies a query, or exports a snapshot, to a store."""

    def copied(store: ObjectStore, **options: Any) -> None:
        assert copy(replace(run_of(plan(place.source, QUERY, place.folder, format="csv")), store=store)).sealed

    def exported(store: ObjectStore) -> None:
        run: ExportRun = place.run(store=store)
        with run.open() as export:
            list(export.export(export.catalog.state.expected_chunks()))
            export.seal()

    return copied if request.param == "copy" else exported


def denying(store: ObjectStore, *methods: str) -> Wrapped:
    def deny(path: str = "", *_: object, **__: object) -> None:
        raise StoreDeniedError(f"denied {path}")

    wrapped = Wrapped(store)
    for method in methods:
        setattr(wrapped, method, deny)
    return wrapped


def objects(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list()]


@pytest.mark.parametrize("right", ["list", "create", "get", "delete"])
def test_a_missing_right_leaves_nothing_and_the_corrected_call_works(place: Place, write: Write, right: str) -> None:
    with pytest.raises(StoreDeniedError, match="denied"):
        write(denying(place.store, right))
    assert all(is_probe(path) for path in objects(place.store))
    assert len(objects(place.store)) == (right == "delete")  # nobody may delete the probe then
    write(place.store)
    assert verify(place.store).damaged is False


@pytest.mark.slow
@pytest.mark.parametrize("user", ["reader", "blind", "stranger"])
def test_a_missing_right_on_s3_too(write: Write, s3_server: S3Server, s3_location: str, user: str) -> None:
    store = open_store(parse_location(s3_location), s3_server.options)
    with pytest.raises(StoreDeniedError, match=rf"Cannot (create|list|read) {s3_location}"):
        write(open_store(parse_location(s3_location), s3_server.as_user(user)))
    assert objects(store) == []
    write(store)
    assert verify(store).damaged is False


def test_a_read_only_disk_is_refused_and_nothing_is_left(write: Write, tiny_disk: Disk) -> None:
    tiny_disk.remount("ro")
    store = open_store(parse_location((tiny_disk.folder / "location").as_uri()))
    with pytest.raises(StorageError, match="Read-only file system"):
        write(store)
    assert list(tiny_disk.folder.iterdir()) == []
    tiny_disk.remount("rw")
    write(store)
    assert verify(store).damaged is False


def test_a_copy_is_not_deleted_where_the_new_one_could_not_be_written(place: Place) -> None:
    run = run_of(plan(place.source, QUERY, place.folder, format="csv"))
    copy(run)
    before = objects(place.store)
    for methods in (("create",), ("delete",)):
        with pytest.raises(StoreDeniedError, match="denied"):
            copy(replace(run, store=denying(place.store, *methods)), overwrite=True)
        assert [path for path in objects(place.store) if not is_probe(path)] == before
    assert copy(run, overwrite=True).sealed


@pytest.mark.slow
@pytest.mark.parametrize("written", ["parquet", "csv"])
def test_a_disk_that_fills_up_fails_a_copy_which_is_finished_once_there_is_room(
    place: Place, tiny_disk: Disk, written: str
) -> None:
    query = "SELECT i, sha256(i::VARCHAR) || sha256(i::VARCHAR || 'x') AS t FROM range(20_000) AS r(i)"
    run = run_of(plan(place.source, query, tiny_disk.folder / "to", format=written))
    with pytest.raises(ExportFailedError, match="No space left on device"):
        copy(run)
    found = [path.name for path in tiny_disk.folder.rglob("*") if path.is_file()]
    assert not [name for name in found if name.startswith((".tmp-", "main."))], found
    assert verify(run.store).damaged is False
    tiny_disk.remount("size=16m")
    assert copy(run).rows == 20_000
    assert verify(run.store, depth="full").faults == []
