"""Tags among other writers: on the local disk and on a real S3 server."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, replace_tag
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import OutcomeUnknownError, StoreUnavailableError, TagExistsError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.tags import SEAL, Changed, faults, meeting, path_of, race, reseal, save, tag_objects


@pytest.fixture
def store(any_location):
    uri, options = any_location
    return open_store(parse_location(uri), options)


def meeting_at_the_object(store, parties):
    """The store as racing writers see it: each has checked the log and written its object before any commits."""
    return meeting(store, "tag/", threading.Barrier(parties, timeout=60).wait)


def test_of_writers_that_create_one_tag_at_once_one_wins_and_the_others_are_told(sealed):
    newer = reseal(sealed)
    store = meeting_at_the_object(sealed.store, 3)
    revisions = (SEAL, newer, SEAL)
    catalogs = [Catalog.open_for_writing(store) for _ in revisions]
    results = race(
        *(
            lambda catalog=catalog, revision=revision, ttl=ttl: create_tag(catalog, "nightly", revision, ttl)
            for catalog, revision, ttl in zip(catalogs, revisions, (None, None, timedelta(days=1)), strict=True)
        )
    )
    won = [result for result in results if not isinstance(result, TagExistsError)]
    taken = [result for result in results if isinstance(result, TagExistsError)]
    assert (len(won), len(taken)) == (1, 2)
    assert won[0].new
    winner = read_state(sealed.store).tags["nightly"]
    assert winner == won[0].known
    assert {error.attributes["revision"] for error in taken} == {winner.pin.revision}
    assert tag_objects(sealed.store) == [winner.pin.object.path]
    assert faults(sealed.store) == set()


def test_writers_that_create_an_equal_tag_at_once_share_it(sealed):
    store = meeting_at_the_object(sealed.store, 2)
    catalogs = [Catalog.open_for_writing(store) for _ in range(2)]
    results = race(*(lambda catalog=catalog: create_tag(catalog, "import-0123", SEAL) for catalog in catalogs))
    assert sorted(result.new for result in results) == [False, True]
    assert results[0].known == results[1].known
    assert tag_objects(sealed.store) == [results[0].known.pin.object.path]


def test_a_tag_survives_a_new_snapshot_and_its_deletion_by_force(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    old = sealed.catalog.state.snapshot_id
    sealed.begin(force=True)
    sealed.fill()
    newer = seal(sealed.catalog).seal.revision
    state = read_state(sealed.store)
    assert state.snapshot_id != old
    assert resolve_version("tag:nightly", state) == SEAL
    assert read_state(sealed.store, through=SEAL).snapshot_id == old
    create_tag(sealed.catalog, "late-word-on-the-old-one", SEAL)
    create_tag(sealed.catalog, "new", newer)
    assert faults(sealed.store) == set()
    assert verify(sealed.store, at=lambda head: resolve_version("nightly", head)).faults == []


def test_while_the_outcome_of_the_commit_is_unknown_the_object_stays(sealed, monkeypatch):
    monkeypatch.setattr("snapshot_assets.catalog.log.store._SETTLE_WAIT", 0)
    committed = []

    def create(path, data):
        sealed.store.create(path, data)
        if path == transaction_path(6):
            committed.append(path)
            raise StoreUnavailableError("the reply was lost")

    def get(path, **options):
        if path in committed:
            raise StoreUnavailableError("down")
        return sealed.store.get(path, **options)

    catalog = Catalog(Changed(sealed.store, create=create, get=get), read_state(sealed.store))
    with pytest.raises(OutcomeUnknownError):
        create_tag(catalog, "nightly", SEAL)
    assert tag_objects(sealed.store) == [path_of(sealed.store)]
    assert faults(sealed.store) == set()


@pytest.mark.parametrize("what", ["created", "replaced", "saved"])
def test_an_object_that_may_count_as_an_orphan_is_not_committed(sealed, what):
    """A writer slept for more than half a grace period after it had written the object."""
    create_tag(sealed.catalog, "nightly", SEAL)
    now, slept = [datetime.now(UTC)], []

    def create(path, data):
        sealed.store.create(path, data)
        if path.startswith(("tag/", "savepoint/")) and not slept:
            slept.append(path)
            now[0] += timedelta(hours=13)

    catalog = Catalog(Changed(sealed.store, create=create), read_state(sealed.store), clock=lambda: now[0])
    if what == "created":
        assert create_tag(catalog, "friday", SEAL).new
    elif what == "replaced":
        assert replace_tag(catalog, "nightly", SEAL, timedelta(days=1)).known.pin.ttl == timedelta(days=1)
    else:
        assert save(catalog).pin.id == 1
    assert slept[0] not in {info.path for info in sealed.store.list()}
    assert faults(sealed.store) == set()
