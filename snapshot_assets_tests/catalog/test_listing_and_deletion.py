from functools import reduce

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.listing import list_snapshots, summarize
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.errors import NoSnapshotError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer


@pytest.fixture
def parent(tmp_path):
    return parse_location(f"file://{tmp_path}/snapshots")


def listed(parent):
    return list_snapshots(open_store(parent), lambda *names: open_store(reduce(Location.child, names, parent)))


def test_only_locations_below_a_folder_are_listed(parent):
    for name in ("one", "two", "three"):
        writer = Writer(open_store(parent.child(name)))
        writer.begin()
        writer.complete(1, writer.file(1))
    writer.complete(2)
    writer.complete(3)
    seal(writer.catalog)
    open_store(parent).put("other/notes.txt", b"x")
    torn = open_store(parent.child("two"))
    torn.put(transaction_path(2), torn.get(transaction_path(2))[:-1])
    found = {summary.uri.rsplit("/", 1)[-1]: summary for summary in listed(parent)}
    assert set(found) == {"one", "two", "three"}
    assert (found["one"].status, found["one"].chunks_done, found["one"].chunks) == ("incomplete", 1, 3)
    assert found["two"].status == "unreadable"
    assert "0002.txn" in found["two"].error
    assert (found["three"].status, found["three"].rows, found["three"].sealed_revision) == ("complete", 2, 5)


def test_a_location_itself_is_listed(parent):
    Writer(open_store(parent)).begin()
    assert [summary.uri for summary in listed(parent)] == [parent.uri]


def test_locations_inside_and_beside_others_are_listed(parent):
    places = ("", "inside", "inside/deeper", "folder/beside", "data")
    for place in places:
        Writer(open_store(reduce(Location.child, filter(None, place.split("/")), parent))).begin()
    found = {summary.uri.removeprefix(parent.uri).strip("/") for summary in listed(parent)}
    assert found == {"", "inside", "inside/deeper", "folder/beside"}


def test_an_empty_folder_lists_nothing(parent):
    assert listed(parent) == []


def test_deletion_removes_only_objects_of_the_format(writer):
    writer.fill()
    writer.store.put("data/notes.txt", b"mine")
    deletion = delete_snapshot(writer.store)
    assert deletion.foreign == ("data/notes.txt",)
    assert [info.path for info in writer.store.list()] == ["data/notes.txt"]


def test_a_location_can_be_used_again_after_deletion(writer):
    delete_snapshot(writer.store)
    assert Writer(writer.store).begin() == 1


def test_deletion_without_a_snapshot_is_refused(store):
    store.put("data/notes.txt", b"mine")
    with pytest.raises(NoSnapshotError):
        delete_snapshot(store)


def test_a_deleted_snapshot_is_listed_as_deleted(writer, parent):
    writer.catalog.commit(rules.delete(writer.token))
    assert summarize(writer.store).status == "deleted"
