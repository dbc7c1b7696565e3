"""Tags pin sealed revisions: on the local disk and on a real S3 server."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.deletion import delete_snapshot
from snapshot_assets.catalog.listing import TagSummary, summarize
from snapshot_assets.catalog.log import append, read_state, scan_log
from snapshot_assets.catalog.manifest import manifest_of, write_hints
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.verify import FaultKind, verify
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.errors import (
    DocumentError,
    LocationDeletedError,
    NoSnapshotError,
    ObjectExistsError,
    OutcomeUnknownError,
    PinnedError,
    PlanError,
    StoreUnavailableError,
    TagExistsError,
    UnsafePathError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import Writer

SEAL = 5
HINTS = ("manifest.json", "SHA256SUMS")


@pytest.fixture
def store(any_location):
    uri, options = any_location
    return open_store(parse_location(uri), options)


@pytest.fixture
def sealed(writer) -> Writer:
    """A snapshot whose revision 5 is its seal."""
    writer.fill()
    assert seal(writer.catalog).seal.revision == SEAL
    return writer


class Changed:
    """A real store with some methods replaced."""

    def __init__(self, store, **methods):
        self._store = store
        self._methods = methods

    def __getattr__(self, name):
        return self._methods.get(name) or getattr(self._store, name)


class Killed(BaseException):
    """What ends a process at once."""


def reseal(writer) -> int:
    """Replace chunk 1 and seal again; returns the new seal's revision."""
    old = next(writer.catalog.state.live_files(1)).file.path
    writer.complete(1, writer.file(1, b"late rows"), replaces=(old,))
    return seal(writer.catalog).seal.revision


def faults(store):
    return {(fault.kind, fault.object) for fault in verify(store).faults}


def tag_objects(store):
    return [info.path for info in store.list("tag/")]


def path_of(store, name="nightly"):
    return read_state(store).tags[name].tag.object.path


# Creating and deleting


def test_a_tag_is_one_object_and_one_revision_that_names_it(sealed):
    made = create_tag(sealed.catalog, "nightly", SEAL, timedelta(days=7))
    assert made.new
    known = read_state(sealed.store).tags["nightly"]
    assert known == made.known
    assert (known.committed, known.created_by, known.tag.revision) == (6, sealed.catalog.writer_id, SEAL)
    assert (known.tag.ttl, tag_objects(sealed.store)) == (timedelta(days=7), [known.tag.object.path])
    data = sealed.store.get(known.tag.object.path)
    assert (known.tag.object.sha256, known.tag.object.bytes) == (sha256_hex(data), len(data))
    assert faults(sealed.store) == set()


def test_the_object_of_a_tag_is_the_literal_document_of_the_format(sealed):
    """Literal text, so that nobody changes the format by accident."""
    sealed.catalog._clock = lambda: datetime(2025, 2, 1, 12, 0, 0, 123456, tzinfo=UTC)
    create_tag(sealed.catalog, "nightly", SEAL, timedelta(days=7))
    create_tag(sealed.catalog, "for-ever", SEAL)
    manifest = sealed.store.get("manifest.json").decode().removesuffix("\n").replace("\n", "\n  ")
    expected = f"""{{
  "version": 1,
  "name": "nightly",
  "created_at": "2025-02-01T12:00:00.123Z",
  "created_by": "{sealed.catalog.writer_id}",
  "ttl": "7d",
  "manifest": {manifest}
}}
"""
    assert sealed.store.get(path_of(sealed.store)).decode() == expected
    assert parse_json(sealed.store.get(path_of(sealed.store, "for-ever")), "x")["ttl"] is None


def test_a_tag_leaves_the_snapshot_sealed_and_its_hints_byte_for_byte_as_they_are(sealed):
    before = [sealed.store.get(name) for name in HINTS]
    create_tag(sealed.catalog, "nightly", SEAL)
    state = read_state(sealed.store)
    assert (state.sealed, state.data_revision) == (True, SEAL - 1)
    again = seal(sealed.catalog)
    assert (again.new, again.hashed_bytes) == (False, 0)
    write_hints(sealed.store, state, lambda: read_state(sealed.store))
    assert [sealed.store.get(name) for name in HINTS] == before
    delete_tag(sealed.catalog, "nightly")
    write_hints(sealed.store, read_state(sealed.store), lambda: read_state(sealed.store))
    assert [sealed.store.get(name) for name in HINTS] == before
    assert (verify(sealed.store).sealed, faults(sealed.store)) == (True, set())


def test_an_equal_tag_is_adopted_and_commits_nothing(sealed):
    first = create_tag(sealed.catalog, "import-0123", SEAL)
    again = create_tag(Catalog.open_for_writing(sealed.store), "import-0123", SEAL)
    assert (again.new, again.known) == (False, first.known)
    assert read_state(sealed.store).revision == 6
    assert len(tag_objects(sealed.store)) == 1


def test_a_name_that_is_taken_by_another_pin_is_refused_naming_both(sealed):
    create_tag(sealed.catalog, "nightly", SEAL, timedelta(days=7))
    newer = reseal(sealed)
    with pytest.raises(TagExistsError) as refused:
        create_tag(sealed.catalog, "nightly", newer)
    assert "'nightly' is there already: it pins revision 5 for 7d since 20" in str(refused.value)
    assert f"asked for is revision {newer} without time to live" in str(refused.value)
    assert refused.value.attributes["revision"] == SEAL
    with pytest.raises(TagExistsError, match="asked for is revision 5 for 1h"):
        create_tag(sealed.catalog, "nightly", SEAL, timedelta(hours=1))
    assert len(tag_objects(sealed.store)) == 1


@pytest.mark.parametrize("revision", [0, 1, SEAL - 1, SEAL + 1, 99])
def test_only_a_sealed_revision_can_be_tagged(sealed, revision):
    with pytest.raises(VersionNotFoundError, match=f"Revision {revision} is not sealed; sealed are 1 revisions"):
        create_tag(sealed.catalog, "nightly", revision)
    assert tag_objects(sealed.store) == []


@pytest.mark.parametrize("name", ["", "1st", "-x", ".x", "a/b", "a b", "a:b", "é", "x" * 101, "x\n"])
def test_a_name_that_is_none_is_refused(sealed, name):
    with pytest.raises(PlanError, match="cannot name a tag"):
        create_tag(sealed.catalog, name, SEAL)
    assert tag_objects(sealed.store) == []


@pytest.mark.parametrize("name", ["x", "_", "v1.2-rc_3", "a-01234567", "rev", "x" * 100])
def test_every_name_of_the_rule_makes_a_tag(sealed, name):
    create_tag(sealed.catalog, name, SEAL)
    assert resolve_version(f"tag:{name}", read_state(sealed.store)) == SEAL
    assert faults(sealed.store) == set()


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1500)])
def test_a_time_to_live_that_is_none_is_refused(sealed, ttl):
    with pytest.raises(PlanError, match=r"at least 1s|whole number of seconds"):
        create_tag(sealed.catalog, "nightly", SEAL, ttl)


def test_nothing_is_tagged_where_there_is_no_snapshot_or_a_deleted_one(store):
    with pytest.raises(NoSnapshotError):
        create_tag(Catalog.open_for_writing(store), "nightly", 1)
    writer = Writer(store)
    writer.begin()
    writer.catalog.commit(rules.delete(writer.token))
    with pytest.raises(LocationDeletedError):
        create_tag(writer.catalog, "nightly", 1)


def test_a_deleted_tag_is_gone_with_its_object_and_its_name_is_free(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    assert delete_tag(Catalog.open_for_writing(sealed.store), "nightly")
    assert (read_state(sealed.store).tags, tag_objects(sealed.store)) == ({}, [])
    assert not delete_tag(sealed.catalog, "nightly")
    assert read_state(sealed.store).revision == 7
    newer = reseal(sealed)
    assert create_tag(sealed.catalog, "nightly", newer).new
    assert faults(sealed.store) == set()


def test_a_tag_whose_object_is_missing_can_be_deleted(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    sealed.store.delete(path_of(sealed.store))
    assert delete_tag(sealed.catalog, "nightly")
    assert faults(sealed.store) == set()


def test_a_tag_is_committed_on_a_head_that_others_moved(sealed):
    late = Catalog.open_for_writing(sealed.store)
    newer = reseal(sealed)
    create_tag(late, "old", SEAL)
    create_tag(sealed.catalog, "new", newer)
    tags = read_state(sealed.store).tags
    assert {name: known.tag.revision for name, known in tags.items()} == {"old": SEAL, "new": newer}
    manifests = {name: parse_json(sealed.store.get(known.tag.object.path), name) for name, known in tags.items()}
    assert {name: document["manifest"]["revision"] for name, document in manifests.items()} == {
        "old": SEAL,
        "new": newer,
    }
    assert faults(sealed.store) == set()


# Races and crashes


def meeting_at_the_object(store, parties):
    """The store as racing writers see it: each has checked the log and written its object before any commits."""
    barrier = threading.Barrier(parties, timeout=60)

    def create(path, data):
        store.create(path, data)
        if path.startswith("tag/"):
            barrier.wait()

    return Changed(store, create=create)


def race(*calls):
    """Run calls side by side and return what each returned or raised."""
    results = [None] * len(calls)

    def run(number):
        try:
            results[number] = calls[number]()
        except TagExistsError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


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
    told = [result for result in results if isinstance(result, TagExistsError)]
    assert (len(won), len(told)) == (1, 2)
    assert won[0].new
    winner = read_state(sealed.store).tags["nightly"]
    assert winner == won[0].known
    assert {error.attributes["revision"] for error in told} == {winner.tag.revision}
    assert tag_objects(sealed.store) == [winner.tag.object.path]
    assert faults(sealed.store) == set()


def test_writers_that_create_an_equal_tag_at_once_share_it(sealed):
    store = meeting_at_the_object(sealed.store, 2)
    catalogs = [Catalog.open_for_writing(store) for _ in range(2)]
    results = race(*(lambda catalog=catalog: create_tag(catalog, "import-0123", SEAL) for catalog in catalogs))
    assert sorted(result.new for result in results) == [False, True]
    assert results[0].known == results[1].known
    assert tag_objects(sealed.store) == [results[0].known.tag.object.path]


def test_a_new_snapshot_that_begins_while_a_tag_is_created_is_ordered_before_it_by_the_log(sealed):
    """The tag's writer checked and wrote its object, then another began anew: the sealed revision outlives that."""
    other = Writer(sealed.store)
    created = []

    def create(path, data):
        sealed.store.create(path, data)
        if path.startswith("tag/"):
            created.append(other.begin(force=True))

    tagging = Catalog.open_for_writing(Changed(sealed.store, create=create))
    assert create_tag(tagging, "nightly", SEAL).known.committed == created[0] + 1 == 7
    state = read_state(sealed.store)
    assert (resolve_version("nightly", state), state.sealed) == (SEAL, False)
    assert faults(sealed.store) == set()


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


def test_a_snapshot_that_is_deleted_while_a_tag_is_created_takes_no_tag(sealed):
    def create(path, data):
        sealed.store.create(path, data)
        if path.startswith("tag/"):
            sealed.catalog.commit(rules.delete(sealed.catalog.token()))

    with pytest.raises(LocationDeletedError):
        create_tag(Catalog.open_for_writing(Changed(sealed.store, create=create)), "nightly", SEAL)
    assert tag_objects(sealed.store) == []


def test_a_writer_killed_between_object_and_commit_leaves_an_orphan_and_nothing_else(sealed):
    def create(path, data):
        if path == transaction_path(6):
            raise Killed
        sealed.store.create(path, data)

    with pytest.raises(Killed):
        create_tag(Catalog(Changed(sealed.store, create=create), read_state(sealed.store)), "nightly", SEAL)
    [orphan] = tag_objects(sealed.store)
    assert read_state(sealed.store).tags == {}
    assert faults(sealed.store) == {(FaultKind.ORPHAN, orphan)}
    assert not verify(sealed.store).damaged
    assert create_tag(Catalog.open_for_writing(sealed.store), "nightly", SEAL).new
    assert faults(sealed.store) == {(FaultKind.ORPHAN, orphan)}


def test_a_writer_killed_between_commit_and_deletion_of_the_object_leaves_it_behind_and_nothing_else(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    left = path_of(sealed.store)

    def delete(path):
        if path.startswith("tag/"):
            raise Killed
        sealed.store.delete(path)

    with pytest.raises(Killed):
        delete_tag(Catalog.open_for_writing(Changed(sealed.store, delete=delete)), "nightly")
    assert (read_state(sealed.store).tags, tag_objects(sealed.store)) == ({}, [left])
    assert not verify(sealed.store).damaged
    assert create_tag(sealed.catalog, "nightly", SEAL).known.tag.object.path != left


def test_a_lost_reply_to_the_object_or_to_the_commit_loses_no_tag(sealed):
    def create(path, data):
        sealed.store.create(path, data)
        raise ObjectExistsError("the client's own retry met what it had written")

    catalog = Catalog(Changed(sealed.store, create=create), read_state(sealed.store))
    assert create_tag(catalog, "nightly", SEAL).new
    assert faults(sealed.store) == set()


def test_while_the_outcome_of_the_commit_is_unknown_the_object_stays(sealed, monkeypatch):
    monkeypatch.setattr("snapshot_assets.catalog.log._SETTLE_WAIT", 0)
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


# What the log may say


def test_a_log_that_contradicts_itself_about_tags_is_damage(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    tag = sealed.catalog.state.tags["nightly"].tag
    other = replace(tag, name="other", object=replace(tag.object, path="tag/tag-other-01234567"))
    for action, error, message in (
        (tag, DocumentError, "creates tag 'nightly', which is there already"),
        (act.TagDeleted("never"), DocumentError, "deletes tag 'never', which is not there"),
        (replace(other, revision=3), DocumentError, "tags revision 3, which is not sealed"),
        (replace(other, name="x"), UnsafePathError, "does not follow the layout"),
        (replace(other, object=replace(tag.object, path="tag/../manifest.json")), UnsafePathError, "layout"),
        (replace(other, object=replace(tag.object, path="data/1/chunk-01234567.json")), UnsafePathError, "layout"),
    ):
        catalog = Catalog(sealed.store, read_state(sealed.store))
        append(sealed.store, catalog._transaction([action]))
        with pytest.raises(error, match=message):
            read_state(sealed.store)
        sealed.store.delete(transaction_path(7))


# Verification


def test_one_flipped_byte_in_the_object_of_a_tag_is_damage_naming_it(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    path = path_of(sealed.store)
    data = sealed.store.get(path)
    for position in (0, 20, len(data) // 2, len(data) - 1):
        sealed.store.put(path, data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert faults(sealed.store) == {(FaultKind.CHECKSUM, path)}
        assert verify(sealed.store, depth="quick").damaged
    sealed.store.put(path, data + b" ")
    assert faults(sealed.store) == {(FaultKind.SIZE, path)}
    sealed.store.put(path, data)
    assert faults(sealed.store) == set()


def test_the_missing_object_of_a_tag_is_damage_naming_it(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    path = path_of(sealed.store)
    sealed.store.delete(path)
    assert faults(sealed.store) == {(FaultKind.MISSING, path)}


def test_a_tag_that_is_deleted_while_verification_runs_is_no_damage(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    deleted = []

    def list_(prefix=""):
        if prefix == "" and not deleted:
            deleted.append(delete_tag(sealed.catalog, "nightly"))
        return sealed.store.list(prefix)

    assert verify(Changed(sealed.store, list=list_)).faults == []
    assert deleted == [True]


@pytest.mark.parametrize("field", ["name", "created_at", "created_by", "ttl", "manifest"])
def test_an_object_that_says_other_than_the_log_is_damage_though_its_checksum_is_right(sealed, field):
    """As a writer with a fault would leave it: the log names just these bytes."""
    create_tag(sealed.catalog, "nightly", SEAL)
    tag = read_state(sealed.store).tags["nightly"].tag
    document = parse_json(sealed.store.get(tag.object.path), "tag")
    document["name"] = "other"
    document[field] = document["manifest"] | {"rows": 1} if field == "manifest" else "wrong"
    data = pretty_json(document)
    path = "tag/tag-other-01234567"
    sealed.store.put(path, data)
    wrong = replace(tag, name="other", object=act.ObjectRef(path, sha256_hex(data), len(data)))
    sealed.catalog.commit(lambda _: [wrong])
    assert faults(sealed.store) == {(FaultKind.DOCUMENT, path)}


def test_a_file_that_only_a_tagged_revision_needs_is_missed(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    create_tag(sealed.catalog, "again", SEAL)
    old = next(sealed.catalog.state.live_files(1)).file.path
    reseal(sealed)
    assert faults(sealed.store) == set()
    data = sealed.store.get(old)
    sealed.store.put(old, data[:-1])
    assert faults(sealed.store) == {(FaultKind.SIZE, old)}
    sealed.store.delete(old)
    found = [fault for fault in verify(sealed.store, depth="quick").faults if fault.is_damage]
    assert [(fault.kind, fault.object, fault.chunk) for fault in found] == [(FaultKind.MISSING, old, 1)]
    assert "tag 'nightly' needs" in found[0].message
    delete_tag(sealed.catalog, "nightly")
    delete_tag(sealed.catalog, "again")
    assert faults(sealed.store) == set()


def test_a_broken_log_is_still_verified_with_the_tags_before_the_break(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    path = path_of(sealed.store)
    create_tag(sealed.catalog, "later", SEAL)
    delete_tag(sealed.catalog, "nightly")
    sealed.store.put(transaction_path(7), b"torn")
    named = faults(sealed.store)
    assert (FaultKind.LOG, transaction_path(7)) in named
    assert path not in {object_ for _, object_ in named}


# Versions, listing, deletion of the snapshot


def test_a_tag_is_a_version_by_prefix_or_bare_name(sealed):
    create_tag(sealed.catalog, "before-migration", SEAL)
    reseal(sealed)
    state = read_state(sealed.store)
    assert {resolve_version(text, state) for text in ("tag:before-migration", "before-migration")} == {SEAL}
    report = verify(sealed.store, at=lambda head: resolve_version("before-migration", head))
    assert (report.revision, report.sealed, report.faults) == (SEAL, True, [])


def test_a_tag_that_is_none_is_refused_with_near_names_or_what_there_is(sealed):
    create_tag(sealed.catalog, "before-migration", SEAL)
    state = read_state(sealed.store)
    with pytest.raises(
        VersionNotFoundError, match=r"no tag 'before-migratoin'; did you mean 'before-migration'\? seal"
    ):
        resolve_version("tag:before-migratoin", state)
    with pytest.raises(VersionNotFoundError, match=r"no tag 'x'; tags are 'before-migration'; sealed are 1 revisions"):
        resolve_version("x", state)
    with pytest.raises(VersionNotFoundError, match="no savepoint 'before-migration'; sealed are"):
        resolve_version("savepoint:before-migration", state)


def test_the_tags_of_a_location_are_listed_by_name(sealed):
    second = create_tag(sealed.catalog, "b", SEAL, timedelta(hours=1)).known.tag
    first = create_tag(sealed.catalog, "a", SEAL).known.tag
    assert summarize(sealed.store).tags == (
        TagSummary("a", SEAL, first.created_at),
        TagSummary("b", SEAL, second.created_at, timedelta(hours=1)),
    )


def test_a_snapshot_with_tags_is_deleted_only_with_them(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    create_tag(sealed.catalog, "before-migration", SEAL)
    objects = [info.path for info in sealed.store.list()]
    with pytest.raises(PinnedError, match=r"Tags before-migration, nightly pin revisions.*--with-tags") as refused:
        delete_snapshot(sealed.store)
    assert refused.value.attributes["tags"] == ["before-migration", "nightly"]
    assert [info.path for info in sealed.store.list()] == objects
    assert not read_state(sealed.store).deleted
    assert delete_snapshot(sealed.store, with_tags=True).foreign == ()
    assert list(sealed.store.list()) == []


def test_a_tag_that_is_created_while_the_snapshot_is_deleted_stops_the_deletion(sealed):
    """The deletion planned on a head without tags; the log orders the two."""
    planned = Catalog.open_for_writing(sealed.store)
    create_tag(sealed.catalog, "nightly", SEAL)
    with pytest.raises(PinnedError, match="Tag nightly pins"):
        planned.commit(rules.delete(planned.token()))
    assert not read_state(sealed.store).deleted


def test_a_tag_s_creation_is_on_the_writer_s_clock_in_whole_milliseconds(sealed):
    before = datetime.now(UTC)
    created = create_tag(sealed.catalog, "nightly", SEAL).known.tag.created_at
    assert before - timedelta(milliseconds=1) < created <= datetime.now(UTC)
    assert created.microsecond % 1000 == 0
    transaction = scan_log(sealed.store).entries[-1].transaction
    assert created <= transaction.committed_at
    document = parse_json(sealed.store.get(path_of(sealed.store)), "tag")
    assert document["created_at"] == time_text(created)
    assert document["manifest"] == manifest_of(read_state(sealed.store, through=SEAL))
