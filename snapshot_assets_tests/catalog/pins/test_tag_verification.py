"""What verification, versions, listing and deletion make of tags."""

from dataclasses import replace

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import append
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DocumentError, UnsafePathError, VersionNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import parse_json, pretty_json, sha256_hex
from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.catalog.execute import expire
from snapshot_assets_tests.catalog.tags import SEAL, Changed, faults, path_of, reseal


def test_a_log_that_contradicts_itself_about_tags_is_damage(sealed):
    create_tag(sealed.catalog, "nightly", SEAL)
    tag = sealed.catalog.state.tags["nightly"].pin
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
    tag = read_state(sealed.store).tags["nightly"].pin
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
    sealed.store.delete(old)
    [fault] = (fault for fault in verify(sealed.store, depth="quick").faults if fault.is_damage)
    assert (fault.kind, fault.object, fault.chunk, fault.revisions) == (FaultKind.MISSING, old, 1, (SEAL,))
    assert fault.message.endswith(" is missing; revision 5 (tag 'again', tag 'nightly') needs it.")
    delete_tag(sealed.catalog, "nightly")
    delete_tag(sealed.catalog, "again")
    expire(sealed.catalog, keep_last=1)
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


def test_a_tag_that_is_none_is_refused_with_near_names_or_what_there_is(sealed):
    create_tag(sealed.catalog, "before-migration", SEAL)
    state = read_state(sealed.store)
    with pytest.raises(
        VersionNotFoundError, match=r"no tag 'before-migratoin'; did you mean 'before-migration'\? seal"
    ):
        resolve_version("tag:before-migratoin", state)
    with pytest.raises(VersionNotFoundError, match=r"no tag 'x'; tags are 'before-migration'; sealed is 1 revision"):
        resolve_version("x", state)
    with pytest.raises(VersionNotFoundError, match="no savepoint 'before-migration'; sealed is"):
        resolve_version("savepoint:before-migration", state)
