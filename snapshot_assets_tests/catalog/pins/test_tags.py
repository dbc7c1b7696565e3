"""Tags pin sealed revisions."""

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import PlanError, TagExistsError, VersionNotFoundError
from snapshot_assets.format.documents import parse_json, sha256_hex
from snapshot_assets_tests.catalog.tags import SEAL, faults, path_of, reseal, tag_objects

HINTS = ("manifest.json", "SHA256SUMS")


def test_a_tag_is_one_object_and_one_revision_that_names_it(sealed):
    made = create_tag(sealed.catalog, "nightly", SEAL, timedelta(days=7))
    assert made.new
    known = read_state(sealed.store).tags["nightly"]
    assert known == made.known
    assert (known.committed, known.created_by, known.pin.revision) == (6, sealed.catalog.writer_id, SEAL)
    assert (known.pin.ttl, tag_objects(sealed.store)) == (timedelta(days=7), [known.pin.object.path])
    data = sealed.store.get(known.pin.object.path)
    assert (known.pin.object.sha256, known.pin.object.bytes) == (sha256_hex(data), len(data))
    assert faults(sealed.store) == set()


def test_the_object_of_a_tag_is_the_literal_document_of_the_format(sealed):
    """Literal text, so that the format does not change by accident."""
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
    assert not again.new
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
    assert "`snapshots tag replace nightly --at rev:" in str(refused.value)
    assert refused.value.attributes["revision"] == SEAL
    with pytest.raises(TagExistsError, match="asked for is revision 5 for 1h"):
        create_tag(sealed.catalog, "nightly", SEAL, timedelta(hours=1))
    assert len(tag_objects(sealed.store)) == 1


@pytest.mark.parametrize("revision", [0, SEAL - 1, 99])
def test_only_a_sealed_revision_can_be_tagged(sealed, revision):
    with pytest.raises(VersionNotFoundError, match=f"Revision {revision} is not sealed; sealed is 1 revision"):
        create_tag(sealed.catalog, "nightly", revision)
    assert tag_objects(sealed.store) == []


@pytest.mark.parametrize(
    ("name", "seconds", "message"),
    [
        ("", 1, "cannot name a tag"),
        ("a/b", 1, "cannot name a tag"),
        ("nightly", 0, "at least 1s"),
        ("nightly", -1, "at least 1s|whole number of seconds"),
        ("nightly", 1.5, "whole number of seconds"),
    ],
)
def test_an_invalid_name_or_time_to_live_is_refused(sealed, name, seconds, message):
    with pytest.raises(PlanError, match=message):
        create_tag(sealed.catalog, name, SEAL, timedelta(seconds=seconds))
    assert tag_objects(sealed.store) == []


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
