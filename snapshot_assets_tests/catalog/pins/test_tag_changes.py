"""Renamed and replaced tags, automatic ones, and their list."""

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import summarize
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.pins.listing import list_tags
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.state.retained import end_of_pin
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import ConflictError, PlanError, TagExistsError, VersionNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import parse_json
from snapshot_assets_tests.catalog.tags import SEAL, Changed, faults, meeting, path_of, reseal, tag_objects

WEEK = timedelta(days=7)


def last_actions(store):
    return [type(action) for action in [*scan_log(store).entries][-1].transaction.actions]


def test_a_renamed_tag_is_one_transaction_and_keeps_its_revision_creation_and_life(sealed):
    before = create_tag(sealed.catalog, "nightly", SEAL, WEEK).known.pin
    renamed = rename_tag(Catalog.open_for_writing(sealed.store), "nightly", "friday")
    assert (renamed.new, renamed.known.committed) == (True, 7)
    assert last_actions(sealed.store) == [act.TagRenamed]
    state = read_state(sealed.store)
    assert state.tags == {"friday": renamed.known}
    after = renamed.known.pin
    assert (after.revision, after.created_at, after.ttl) == (before.revision, before.created_at, before.ttl)
    assert tag_objects(sealed.store) == [after.object.path]
    document = parse_json(sealed.store.get(after.object.path), "tag")
    assert (document["name"], document["created_by"]) == ("friday", renamed.known.created_by)
    assert faults(sealed.store) == set()


def test_a_replaced_tag_is_one_transaction_and_lives_from_now(sealed):
    before = create_tag(sealed.catalog, "nightly", SEAL, WEEK).known.pin
    newer = reseal(sealed)
    replaced = replace_tag(Catalog.open_for_writing(sealed.store), "nightly", newer, timedelta(days=1))
    assert last_actions(sealed.store) == [act.TagReplaced]
    state = read_state(sealed.store)
    assert state.tags == {"nightly": replaced.known}
    after = replaced.known.pin
    assert (after.revision, after.ttl, after.created_at > before.created_at) == (newer, timedelta(days=1), True)
    assert tag_objects(sealed.store) == [after.object.path]
    assert resolve_version("nightly", state) == newer
    assert faults(sealed.store) == set()


def test_a_rename_to_a_name_that_is_taken_or_none_is_refused_and_writes_nothing(sealed):
    create_tag(sealed.catalog, "nightly", SEAL, WEEK)
    create_tag(sealed.catalog, "friday", SEAL)
    before = tag_objects(sealed.store)
    with pytest.raises(TagExistsError, match=r"'friday' is there already: it pins revision 5 .* 'nightly' cannot be"):
        rename_tag(sealed.catalog, "nightly", "friday")
    with pytest.raises(TagExistsError, match="'nightly' has that name already"):
        rename_tag(sealed.catalog, "nightly", "nightly")
    with pytest.raises(PlanError, match="cannot name a tag"):
        rename_tag(sealed.catalog, "nightly", "a b")
    assert (tag_objects(sealed.store), read_state(sealed.store).revision) == (before, 7)


@pytest.mark.parametrize("name", ["nightl", "rev:5", ""])
def test_only_a_tag_that_is_there_can_be_renamed_or_replaced(sealed, name):
    create_tag(sealed.catalog, "nightly", SEAL)
    for change in (lambda: rename_tag(sealed.catalog, name, "new"), lambda: replace_tag(sealed.catalog, name, SEAL)):
        with pytest.raises(VersionNotFoundError, match="no tag"):
            change()
    assert len(tag_objects(sealed.store)) == 1


def test_a_tag_is_replaced_only_by_what_can_be_tagged(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    with pytest.raises(VersionNotFoundError, match="Revision 3 is not sealed"):
        replace_tag(sealed.catalog, "nightly", 3)
    with pytest.raises(PlanError, match="at least 1s"):
        replace_tag(sealed.catalog, "nightly", SEAL, timedelta(0))
    assert read_state(sealed.store).revision == 6


def test_an_automatic_tag_says_so_in_log_and_object_and_no_other_does(sealed):
    made = create_tag(sealed.catalog, "auto", SEAL, automatic=True).known
    create_tag(sealed.catalog, "own", SEAL)
    state = read_state(sealed.store)
    assert (state.tags["auto"].pin.automatic, state.tags["own"].pin.automatic) == (True, False)
    documents = {name: parse_json(sealed.store.get(path_of(sealed.store, name)), name) for name in ("auto", "own")}
    assert list(documents["auto"]) == ["version", "name", "created_at", "created_by", "ttl", "automatic", "manifest"]
    assert (documents["auto"]["automatic"], "automatic" in documents["own"]) == (True, False)
    with pytest.raises(TagExistsError, match="made by a rule"):
        create_tag(sealed.catalog, "auto", SEAL)
    assert not rename_tag(sealed.catalog, "auto", "kept").known.pin.automatic
    assert "automatic" not in parse_json(sealed.store.get(path_of(sealed.store, "kept")), "kept")
    assert not replace_tag(sealed.catalog, "kept", SEAL).known.pin.automatic
    assert made.pin.automatic
    assert faults(sealed.store) == set()


def test_tags_are_listed_by_commit_time_with_their_neighbours_and_end(sealed):
    assert list_tags(sealed.catalog.state) == []
    newer = reseal(sealed)
    sealed.catalog._clock = lambda: datetime(2125, 2, 1, 12, tzinfo=UTC)
    create_tag(sealed.catalog, "z-newest", newer)
    create_tag(sealed.catalog, "b", SEAL, WEEK)
    create_tag(sealed.catalog, "a", SEAL)
    state = read_state(sealed.store)
    tags = list_tags(state)
    assert [(tag.tag_name, tag.tagged_snapshot_id, tag.previous, tag.next) for tag in tags] == [
        ("a", SEAL, None, "z-newest"),
        ("b", SEAL, None, "z-newest"),
        ("z-newest", newer, "b", None),
    ]
    assert [tag.commit_time for tag in tags] == [state.seals[number].committed_at for number in (0, 0, 1)]
    assert [tag.expires_at for tag in tags] == [None, datetime(2125, 2, 8, 12, tzinfo=UTC), None]
    assert [tag.time_retained for tag in tags] == [None, "7d", None]
    assert summarize(sealed.store).tags == tuple(tags)


def test_a_rename_that_meets_a_replacement_renames_what_replaced_it(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    newer = reseal(sealed)
    met = []

    def create(path, data):
        sealed.store.create(path, data)
        if path.startswith("tag/tag-friday") and not met:
            met.append(replace_tag(sealed.catalog, "nightly", newer, WEEK).known.pin)

    renamed = rename_tag(Catalog.open_for_writing(Changed(sealed.store, create=create)), "nightly", "friday").known.pin
    assert (renamed.revision, renamed.ttl, renamed.created_at) == (newer, WEEK, met[0].created_at)
    assert {name: known.pin for name, known in read_state(sealed.store).tags.items()} == {"friday": renamed}
    assert tag_objects(sealed.store) == [renamed.object.path]
    assert faults(sealed.store) == set()


def test_a_deletion_deletes_only_the_tag_that_was_read(sealed):
    old = create_tag(sealed.catalog, "nightly", SEAL, WEEK).known
    new = replace_tag(Catalog.open_for_writing(sealed.store), "nightly", SEAL).known
    assert not delete_pin(sealed.catalog, old)
    assert (read_state(sealed.store).tags, tag_objects(sealed.store)) == ({"nightly": new}, [new.pin.object.path])
    assert delete_pin(sealed.catalog, new)
    assert not delete_pin(sealed.catalog, new)
    assert not delete_tag(sealed.catalog, "nightly")
    assert (read_state(sealed.store).tags, tag_objects(sealed.store)) == ({}, [])


def test_a_tag_stays_whose_revision_expires_after_its_deletion_was_planned(sealed):
    reseal(sealed)
    known = create_tag(sealed.catalog, "nightly", SEAL).known
    planned = end_of_pin(sealed.catalog.state, known)
    Catalog.open_for_writing(sealed.store).commit(lambda _: [act.Expired((SEAL,))])
    with pytest.raises(ConflictError, match="Revision 5 expired meanwhile, and only tag 'nightly' keeps it readable"):
        delete_pin(sealed.catalog, known, planned)
    assert read_state(sealed.store).tags == {"nightly": known}
    assert end_of_pin(sealed.catalog.state, known, replaced_by=SEAL).unreadable is None
    assert delete_pin(sealed.catalog, known, end_of_pin(sealed.catalog.state, known))


def test_a_tag_that_is_replaced_during_a_deletion_stays(sealed):
    old = create_tag(sealed.catalog, "nightly", SEAL, WEEK).known
    made = []

    def create(path, data):
        if not made:
            made.append(replace_tag(sealed.catalog, "nightly", SEAL, WEEK).known)
        sealed.store.create(path, data)

    other = Catalog(Changed(sealed.store, create=create), read_state(sealed.store))
    assert not delete_pin(other, old)
    assert read_state(sealed.store).tags == {"nightly": made[0]}
    assert faults(sealed.store) == set()


def test_a_revision_that_expires_while_a_tag_is_replaced_by_it_is_refused(sealed):
    newer = reseal(sealed)
    create_tag(sealed.catalog, "kept", newer)
    store = meeting(sealed.store, "tag/", lambda: sealed.catalog.commit(lambda _: [act.Expired((SEAL,))]))
    with pytest.raises(VersionNotFoundError, match="Revision 5 has expired, and no tag or savepoint pins it"):
        replace_tag(Catalog.open_for_writing(store), "kept", SEAL)
    assert {name: known.pin.revision for name, known in read_state(sealed.store).tags.items()} == {"kept": newer}
    assert tag_objects(sealed.store) == [path_of(sealed.store, "kept")]
    assert faults(sealed.store) == set()


def test_an_expired_revision_that_a_tag_pins_can_be_pinned_again(sealed):
    newer = reseal(sealed)
    create_tag(sealed.catalog, "kept", SEAL, WEEK)
    sealed.catalog.commit(lambda _: [act.Expired((SEAL,))])
    create_tag(sealed.catalog, "also", SEAL)
    replace_tag(sealed.catalog, "kept", SEAL)
    rename_tag(sealed.catalog, "kept", "for-ever")
    assert [seal.revision for seal in read_state(sealed.store).readable()] == [SEAL, newer]
    assert delete_tag(sealed.catalog, "also")
    assert delete_tag(sealed.catalog, "for-ever")
    with pytest.raises(VersionNotFoundError, match="has expired"):
        create_tag(sealed.catalog, "too-late", SEAL)
    assert tag_objects(sealed.store) == []
    assert faults(sealed.store) == set()
