"""Rebuilding a location whose log an earlier rebuild began anew."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.rollback import rollback
from snapshot_assets.catalog.pins.savepoints import delete_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import SEAL, reseal, save, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, flip, lose
from snapshot_assets_tests.catalog.test_rebuild_pins import check


@pytest.fixture
def rebuilt(writer: Writer) -> Writer:
    """Sealed at 5, and the log begins anew at 6, because 5 was lost."""
    sealed_by(writer)
    writer.store.delete(transaction_path(SEAL))
    assert rebuild(writer.store).revision == SEAL + 1
    return Writer(writer.store)


def lose_transactions(store: ObjectStore) -> None:
    lose(store, *map(transaction_path, list_log(store).transactions))


def test_a_rebuild_that_only_its_checkpoint_is_left_of_is_finished_and_whole(rebuilt: Writer) -> None:
    before = read_state(rebuilt.store)
    lose_transactions(rebuilt.store)
    assert rebuild(rebuilt.store).revision == before.revision
    assert manifest_of(check(rebuilt.store)) == manifest_of(before)


def test_a_rebuild_that_was_lost_with_what_followed_it_is_not_taken_for_one_that_was_cut_off(rebuilt: Writer) -> None:
    """What was tagged since comes back, and what was untagged goes: its object is gone."""
    create_tag(rebuilt.catalog, "early", SEAL)
    lose(rebuilt.store, checkpoint_path(6), transaction_path(6))
    assert rebuild(rebuilt.store).tags == ("early",)
    catalog = Catalog.open_for_writing(rebuilt.store)
    begun = catalog.state.revision
    delete_tag(catalog, "early")
    create_tag(catalog, "late", SEAL)
    lose_transactions(rebuilt.store)
    done = rebuild(rebuilt.store)
    assert done.revision == begun + 1
    assert "late" in done.tags
    assert any(line.startswith("Tag 'late' is taken from tag/tag-late-") for line in done.lost)
    assert any("whether tag 'early' was deleted is not proved" in line for line in done.lost)
    assert check(rebuilt.store).tags.keys() == {"early", "late"}  # 5 can be read, so the object was made again


def test_a_rebuild_that_was_lost_with_its_checkpoint_tells_that_the_end_was(rebuilt: Writer) -> None:
    """What it filled a hole with at 5 is not the log's end, though a manifest proves 5."""
    savepoint = save(rebuilt.catalog).savepoint
    lose(rebuilt.store, checkpoint_path(6), transaction_path(6), transaction_path(7))
    done = rebuild(rebuilt.store)
    assert done.savepoints == (savepoint.id,)
    assert any(line.startswith(f"Savepoint {savepoint.id} is taken from ") for line in done.lost)
    check(rebuilt.store)


def test_no_number_is_given_twice_where_all_that_tells_of_the_rebuild_that_passed_some_over_is_lost(
    rebuilt: Writer,
) -> None:
    """What filled the hole is lost too."""
    passed = rebuilt.catalog.state.pins.last_savepoint
    assert passed == SEAL
    rebuilt.catalog.commit(rules.in_progress(rebuilt.catalog.token(), [2], "run"))
    lose(rebuilt.store, transaction_path(SEAL), transaction_path(6), checkpoint_path(6))
    rebuild(rebuilt.store)
    assert check(rebuilt.store).pins.last_savepoint >= passed


def test_no_number_is_given_twice_where_only_the_deletion_of_an_older_savepoint_is_left(writer: Writer) -> None:
    sealed_by(writer)
    one, two = (save(writer.catalog).savepoint.id for _ in range(2))
    delete_savepoint(writer.catalog, two)
    deleted = writer.catalog.state.revision
    delete_savepoint(writer.catalog, one)
    lose(writer.store, *(transaction_path(revision) for revision in range(SEAL + 1, deleted + 1)))
    rebuild(writer.store)
    assert check(writer.store).pins.last_savepoint >= two


def test_no_number_is_given_twice_where_the_checkpoint_that_passed_some_over_is_lost(rebuilt: Writer) -> None:
    catalog = rebuilt.catalog
    given = save(catalog).savepoint.id
    delete_savepoint(catalog, given)
    catalog.commit(rules.in_progress(catalog.token(), [1], "run"))
    lose(rebuilt.store, checkpoint_path(6), transaction_path(7), transaction_path(8))
    rebuild(rebuilt.store)
    assert save(Catalog.open_for_writing(rebuilt.store)).savepoint.id > given
    check(rebuilt.store)


def test_what_a_lost_rollback_expired_comes_back_only_with_a_word(writer: Writer) -> None:
    """A manifest proves all else of it."""
    sealed_by(writer)
    assert reseal(writer) == 7
    assert rollback(writer.catalog, SEAL, discard_newer=True).revision == 8
    flip(writer.store, transaction_path(8))
    done = rebuild(writer.store)
    assert any(line.startswith("Whether revisions 5, 7 had expired is not known") for line in done.lost)
    assert [seal.revision for seal in check(writer.store).readable()] == [5, 7, 8]
    assert damage(writer.store) == []


def test_a_sealed_revision_that_nothing_proves_any_more_is_named_though_a_later_one_is_proved(writer: Writer) -> None:
    sealed_by(writer)
    assert reseal(writer) == 7
    receipts = writer.catalog.state.at(SEAL).chunks[1].chunk.receipts
    lose(writer.store, transaction_path(2), *(ref.path for ref in receipts))
    done = rebuild(writer.store)
    assert any(line.startswith(f"Revision {SEAL} cannot be read: ") for line in done.lost)
    assert [seal.revision for seal in read_state(writer.store).readable()] == [7]


def test_what_a_rebuild_did_not_take_a_later_one_does_not_take_either(writer: Writer) -> None:
    """Nothing of a plan from before it was committed after it; here the log's last revision was lost untold."""
    sealed_by(writer)
    files = tuple(writer.catalog.state.files.chunk(3))
    writer.complete(3, writer.file(3, b"lost"), replaces=files)
    lose(writer.store, transaction_path(SEAL - 1), transaction_path(SEAL + 1))
    assert rebuild(writer.store).taken == {}
    lose_transactions(writer.store)
    assert rebuild(writer.store).taken == {}
    assert tuple(check(writer.store).files.chunk(3)) == files
