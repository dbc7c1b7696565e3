"""Rebuilding a log in which something does not follow what is before it, or is of another location or another past."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.collect_garbage import collect_garbage
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import AcceptanceNeededError, LogWholeError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.predicates import IsNull
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.tags import SEAL, reseal, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, facts, flip, lose, rebuild_refuses


@pytest.fixture
def tagged(writer: Writer) -> Writer:
    """Sealed at 5 and 7, and both are tagged."""
    sealed_by(writer)
    reseal(writer)
    create_tag(writer.catalog, "old", SEAL)
    create_tag(writer.catalog, "new", 7)
    return writer


def forked(writer: Writer, seals: int) -> tuple[str, list]:
    """Sealed at 5, and anew at 7, 9 and so on; 6 is lost, and a process that held 5 takes it. Returns 7's new file."""
    sealed_by(writer)
    sleeper, manifests = Catalog.open_for_writing(writer.store), []
    for _ in range(seals):
        reseal(writer)
        manifests.append(manifest_of(writer.catalog.state))
    writer.store.delete(transaction_path(6))
    assert sleeper.commit(rules.in_progress(sleeper.token(), [1], "sleeper")) == 6
    return manifests[0]["chunks"][0]["files"][0]["path"], manifests


@pytest.mark.parametrize("hints", [True, False])
def test_a_seal_that_does_not_follow_what_is_there_needs_its_checksum(writer: Writer, hints: bool) -> None:
    """A fork: what it sealed was lost, and another revision took that place."""
    _, [sealed] = forked(writer, 1)
    lose(writer.store, *[] if hints else ["manifest.json", "SHA256SUMS"])
    done = rebuild(writer.store)
    assert (done.proved, done.sealed, done.missing) == (7, True, ())
    assert manifest_of(read_state(writer.store)) == sealed
    start = "Revision 7 does not follow what is there before it (ForkError: "
    [named] = [line for line in done.lost if line.startswith(start)]
    assert named.endswith("; revision 7 proves what that led to.")
    assert damage(writer.store) == []


def test_what_only_a_sealed_revision_behind_a_fork_has_is_no_garbage(writer: Writer) -> None:
    path, manifests = forked(writer, 2)
    assert rebuild(writer.store).lost
    state = read_state(writer.store)
    assert [manifest_of(state.at(revision)) for revision in (7, 9)] == manifests
    found = collect_garbage(Catalog.open_for_writing(writer.store), grace=timedelta(0), unsafe=True)
    assert path not in {each.path for each in found.deleted}
    assert damage(writer.store) == []


def test_a_fork_that_nothing_proves_leaves_what_was_lost_to_receipts(writer: Writer) -> None:
    """Revision 7 says nothing of chunk 1, which the lost 6 replaced; a tag of then is kept too."""
    sealed_by(writer)
    sleeper = Catalog.open_for_writing(writer.store)
    create_tag(writer.catalog, "lost", SEAL)
    writer.complete(1, writer.file(1, b"late rows"), replaces=(next(writer.catalog.state.live_files(1)).file.path,))
    writer.catalog.commit(rules.in_progress(writer.token, [3], "run"))
    for revision in (6, 7):
        writer.store.delete(transaction_path(revision))
        assert sleeper.commit(rules.in_progress(sleeper.token(), [1], "sleeper")) == revision
    before = facts(writer.catalog.state)
    done = rebuild(writer.store)
    assert (done.proved, list(done.taken), done.tags) == (7, [1], ("lost",))
    assert any(
        line.startswith("Revision 8 does not follow") and line.endswith("or undone is not known.") for line in done.lost
    )
    assert facts(read_state(writer.store))["chunks"][0]["files"] == before["chunks"][0]["files"]


def test_a_tag_that_was_prepared_before_the_last_known_commit_is_not_lost(writer: Writer) -> None:
    """And one that the log knows to be deleted stays deleted, though its object is there."""
    sealed_by(writer)
    create_tag(writer.catalog, "deleted", SEAL)
    delete_tag(writer.catalog, "deleted")
    early = writer.catalog.now()
    time.sleep(0.01)
    writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    writer.catalog.now = lambda: early
    create_tag(writer.catalog, "early", SEAL)
    flip(writer.store, transaction_path(writer.catalog.state.revision))
    assert rebuild(writer.store).tags == ("early",)


@pytest.fixture
def foreign(tmp_path: Path) -> Writer:
    """Another location, sealed at 5 and 7."""
    other = Writer(open_store(parse_location(f"file://{tmp_path}/another")))
    other.begin()
    sealed_by(other)
    reseal(other)
    create_tag(other.catalog, "foreign", 7)
    return other


def bring(foreign: Writer, store: ObjectStore, *prefixes: str) -> list[str]:
    paths = [info.path for info in foreign.store.list() if info.path.startswith(prefixes)]
    for path in paths:
        store.put(path, foreign.store.get(path))
    return paths


@pytest.mark.parametrize("revision", [1, 6, 7])
def test_a_transaction_of_another_location_is_as_good_as_lost(tagged: Writer, foreign: Writer, revision: int) -> None:
    """Of the two locations that the log names then, it is the one that most objects name."""
    lose(tagged.store, "manifest.json", "SHA256SUMS")
    before = read_state(tagged.store)
    [path] = bring(foreign, tagged.store, transaction_path(revision))
    done = rebuild(tagged.store)
    after = read_state(tagged.store)
    assert (after.location_id, facts(after)) == (before.location_id, facts(before))
    said = f"belongs to location {foreign.catalog.state.location_id}; this one is {before.location_id}"
    assert any(path in line and said in line for line in done.lost)
    assert damage(tagged.store) == []


def test_a_manifest_tags_and_receipts_of_another_location_do_not_count(tagged: Writer, foreign: Writer) -> None:
    """Nor do they make a whole log one that is to be rebuilt, or lend it a tag."""
    reseal(foreign)
    lose(tagged.store, "transactions/00000000000000000009", "transactions/00000000000000000008")
    before = read_state(tagged.store)
    lose(tagged.store, "tag/", "manifest.json")
    brought = bring(foreign, tagged.store, "manifest.json", "tag/", "data/1/chunk-")
    with pytest.raises(LogWholeError, match="is whole up to revision 7"):
        rebuild(tagged.store)
    assert [fault.object for fault in damage(tagged.store)] == ["manifest.json"]
    assert any("manifest.json belongs to location " in fault.message for fault in damage(tagged.store))
    tagged.store.delete(transaction_path(6))
    done = rebuild(tagged.store)
    after = read_state(tagged.store)
    assert (done.revision, done.sealed, done.tags) == (8, True, ())
    assert manifest_of(after) == manifest_of(before)
    for path in brought:
        assert any(line.startswith(f"{path} belongs to location ") for line in done.lost)
    assert damage(tagged.store) == []


def test_without_a_log_the_location_is_the_one_that_most_objects_name(tagged: Writer, foreign: Writer) -> None:
    before = facts(tagged.catalog.state)
    lose(tagged.store, "transactions/")
    brought = bring(foreign, tagged.store, "manifest.json")
    done = rebuild(tagged.store)
    after = read_state(tagged.store)
    assert (facts(after), done.tags) == (before, ("new", "old"))
    assert any(line.startswith(f"{brought[0]} belongs to location ") for line in done.lost)


@pytest.mark.parametrize("log", ["there", "lost"])
def test_a_checkpoint_of_another_location_is_passed_over(tagged: Writer, foreign: Writer, log: str) -> None:
    before = read_state(tagged.store)
    path = write_checkpoint(foreign.store, foreign.catalog.state)
    lose(tagged.store, *["transactions/"] * (log == "lost"))
    bring(foreign, tagged.store, path)
    done = rebuild(tagged.store)
    assert (done.proved, done.sealed) == (9 if log == "there" else 7, True)
    assert manifest_of(read_state(tagged.store)) == manifest_of(before)
    assert any(line.startswith(f"{path} belongs to location ") for line in done.lost)


def test_a_manifest_of_another_past_does_not_count(writer: Writer) -> None:
    """The log was set back to 5 and went on from there, before it got a hole."""
    sealed_by(writer)
    reseal(writer)
    past = writer.store.get("manifest.json")
    for revision in (6, 7):
        writer.store.delete(transaction_path(revision))
    writer.store.delete("manifest.json")  # it would tell a writer that the log's end is lost
    again = Writer(writer.store)
    again.token = again.catalog.token()
    assert reseal(again) == 7
    before = manifest_of(again.catalog.state)
    writer.store.put("manifest.json", past)
    writer.store.delete(transaction_path(4))
    done = rebuild(writer.store)
    assert any(
        line.startswith(f"manifest.json is of a revision 7 that {transaction_path(7)} does not") for line in done.lost
    )
    assert manifest_of(read_state(writer.store)) == before


def test_a_damaged_first_revision_below_a_rebuild_is_no_fault(tagged: Writer) -> None:
    flip(tagged.store, transaction_path(1))
    for revision in (2, 3):
        tagged.store.delete(transaction_path(revision))
    rebuild(tagged.store)
    assert damage(tagged.store) == []
    assert rebuild_refuses(tagged.store)


def test_tombstones_of_the_snapshot_before_a_lost_begin_ask_for_no_consent(writer: Writer) -> None:
    """Those of the snapshot before it delete nothing of its own."""
    gone = act.Tombstone("main", "m", IsNull("t"))
    sealed_by(writer)
    writer.catalog.commit(rules.tombstone(writer.catalog.token(), gone))
    begun = writer.begin(replace(HEADER, name="other"), force=True)
    writer.fill()
    before = facts(writer.catalog.state)
    writer.store.delete(transaction_path(begun))
    assert not any("were deleted at revision" in line for line in rebuild(writer.store).lost)
    assert facts(read_state(writer.store)) == before


def test_tombstones_behind_a_lost_begin_are_its_own(writer: Writer) -> None:
    sealed_by(writer)
    begun = writer.begin(replace(HEADER, name="other"), force=True)
    writer.fill()
    writer.catalog.commit(rules.tombstone(writer.catalog.token(), act.Tombstone("main", "m", IsNull("t"))))
    before = facts(writer.catalog.state)
    writer.store.delete(transaction_path(begun))
    assert not any("were deleted at revision" in line for line in rebuild(writer.store).lost)
    assert facts(read_state(writer.store)) == before


def test_tombstones_of_one_snapshot_or_another_ask_for_consent(writer: Writer) -> None:
    """The end is lost with a begin in it, and so is a revision before the tombstone, which may have begun it too."""
    sealed_by(writer)
    writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    tombstone = act.Tombstone("main", "m", IsNull("t"))
    buried = writer.catalog.commit(rules.tombstone(writer.catalog.token(), tombstone))
    writer.begin(replace(HEADER, name="other"), force=True)
    writer.fill()
    for revision in (6, *range(8, 12)):
        writer.store.delete(transaction_path(revision))
    with pytest.raises(AcceptanceNeededError, match=f"Rows of main.m were deleted at revision {buried}"):
        rebuild(writer.store)


def test_files_that_were_collected_in_a_lost_revision_are_not_known_any_more(writer: Writer) -> None:
    """No collection would ever find them again, for they are not there."""
    writer.fill()
    [gone] = writer.catalog.state.files.chunk(3)
    replaced = writer.complete(3, writer.file(3, b"newer"), replaces=(gone,))
    time.sleep(0.01)
    collect_garbage(writer.catalog, grace=timedelta(0), unsafe=True)
    seal(writer.catalog)
    lose(writer.store, *(transaction_path(replaced + each) for each in range(3)))
    assert rebuild(writer.store).sealed
    state = read_state(writer.store)
    assert gone not in state.files.paths()
    assert not state.files.unneeded(state.retained())
