"""Rollback: the head gets an older revision's data again, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of, sums_of
from snapshot_assets.catalog.operations.rollback import execute_rollback, plan_rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import AcceptanceNeededError, ConflictError, IncompleteError, VersionNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.predicates import IsNull
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.execute import delete_rows, expire, rollback
from snapshot_assets_tests.catalog.tags import SEAL, Changed, collected, file_of, flip, readable, reseal, sealed_by

M = TableName("main", "m")
MOVED = ("revision", "updated_at", "rolled_back")
"""The content in which a sealed state and a rollback to it must agree."""


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Seals at 5 and 7."""
    sealed_by(writer)
    assert reseal(writer) == 7
    return writer


def content(state: State) -> dict[str, object]:
    """Return a sealed state's manifest without when it was sealed."""
    return {name: value for name, value in manifest_of(state).items() if name not in MOVED}


def same(one: State, other: State) -> bool:
    """Return whether two states are equal apart from expired revisions."""
    return (
        same_states(one, other)
        and manifest_of(one) == manifest_of(other)
        and (one.readable(), one.pins, one.tombstones) == (other.readable(), other.pins, other.tombstones)
        and (one.plans_valid_from, one.rolled_back) == (other.plans_valid_from, other.rolled_back)
    )


def check(writer: Writer) -> None:
    """The log, its checkpoint and the hints agree, and nothing is missing."""
    writer.catalog.refresh()
    replayed = scan_log(writer.store)
    assert not replayed.faults
    assert same(replayed.state, writer.catalog.state)
    write_checkpoint(writer.store, writer.catalog.state)
    assert same(read_state(writer.store), replayed.state)
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]


def test_the_head_gets_the_data_of_an_older_revision_in_one_transaction(any_location) -> None:
    uri, options = any_location
    sealed = Writer(open_store(parse_location(uri), options))
    sealed.begin()
    sealed_by(sealed)
    reseal(sealed)
    then, before = read_state(sealed.store, through=SEAL), read_state(sealed.store)
    late, first = file_of(sealed, 7), file_of(sealed, 5)
    done = rollback(sealed.catalog, SEAL)
    assert (done.revision, done.reversal.head) == (8, 7)
    assert (done.reversal.leaving, done.reversal.returning) == ((late,), (first,))
    state = read_state(sealed.store)
    assert content(state) == content(then)
    assert (state.sealed, state.newest_seal.seal.checksum) == (True, then.newest_seal.seal.checksum)
    assert json.loads(sealed.store.get("manifest.json"))["revision"] == 8
    assert sealed.store.get("SHA256SUMS") == sums_of(then)
    actions = [*scan_log(sealed.store).entries][-1].transaction.actions
    assert [type(action) for action in actions] == [
        act.Rollback,
        act.SchemaAdded,
        *[act.Chunk] * 3,
        act.RemoveFile,
        act.ReturnedFiles,
        act.Seal,
    ]
    assert manifest_of(state.at(7)) == manifest_of(before)  # nothing that was is lost
    assert manifest_of(state.at(SEAL)) == manifest_of(then)
    assert collected(sealed) == set()
    check(sealed)


@pytest.mark.parametrize("again", ["at once", "later", "from a checkpoint"])
def test_there_and_back_and_there_again(sealed: Writer, again: str) -> None:
    manifests = {revision: content(sealed.catalog.state.at(revision)) for revision in (5, 7)}
    for target, head in ((5, 8), (7, 9), (5, 10), (8, None), (9, 11)):
        if again == "from a checkpoint":
            write_checkpoint(sealed.store, sealed.catalog.state)
        if again != "at once":
            sealed.catalog = Catalog.open_for_writing(sealed.store)
        assert rollback(sealed.catalog, target).revision == head
        assert content(read_state(sealed.store)) == manifests[5 if target in (5, 8) else 7]
    check(sealed)
    reseal(Writer(sealed.store))
    assert collected(sealed) == set()
    check(sealed)


def test_a_rollback_to_what_the_head_is_commits_nothing(sealed: Writer) -> None:
    assert rollback(sealed.catalog, 7).revision is None
    create_tag(sealed.catalog, "a", SEAL)  # changes no data
    assert rollback(sealed.catalog, 7).revision is None
    assert rollback(sealed.catalog, SEAL).revision == 9
    assert rollback(sealed.catalog, SEAL).revision is None
    assert rollback(sealed.catalog, 9).revision is None
    assert read_state(sealed.store).revision == 9


def test_a_plan_names_every_change_and_changes_nothing(sealed: Writer) -> None:
    objects = {info.path: info.size for info in sealed.store.list()}
    plan = plan_rollback(Catalog.open(sealed.store), SEAL, discard_newer=True)
    assert (plan.revision, plan.reversal.expired) == (None, (7,))
    assert {info.path: info.size for info in sealed.store.list()} == objects
    assert execute_rollback(sealed.catalog, plan).reversal == plan.reversal


def test_a_rollback_drops_an_unsealed_head(sealed: Writer) -> None:
    sealed.complete(1, sealed.file(1, b"not sealed"), replaces=tuple(sealed.catalog.state.files.chunk(1)))
    assert rollback(sealed.catalog, 7).revision == 9
    assert content(read_state(sealed.store)) == content(read_state(sealed.store, through=7))
    assert len(collected(sealed)) == 1  # what was not sealed
    check(sealed)


def test_a_snapshot_that_another_took_the_place_of_comes_back(sealed: Writer) -> None:
    before = content(sealed.catalog.state)
    schema = SCHEMA.model_copy(update={"database": "postgresql"})
    sealed.begin(
        replace(HEADER, name="other", chunk_time_window=2 * HEADER.chunk_time_window), force=True, schema=schema
    )
    sealed.complete(1, sealed.file(1, b"of another"))
    sealed.complete(2)
    other = content(read_state(sealed.store, through=seal(sealed.catalog).seal.revision))
    assert rollback(sealed.catalog, 7).revision == 12
    assert content(read_state(sealed.store)) == before
    check(sealed)
    assert rollback(sealed.catalog, 11).revision == 13
    assert content(read_state(sealed.store)) == other
    check(sealed)


def test_an_extended_range_shrinks_again_and_its_chunk_is_never_adopted(writer: Writer) -> None:
    writer = Writer(writer.store)
    writer.begin(replace(HEADER, kind="continuous", requested_end=""), force=True)
    writer.fill()
    first = seal(writer.catalog).seal.revision
    writer.catalog.commit(rules.extend(writer.token, START + 4 * DAY))
    finished = writer.finished(4, writer.file(4))
    writer.catalog.commit(rules.complete_chunks(writer.token, [finished], writer.catalog.now))
    seal(writer.catalog)
    rollback(writer.catalog, first)
    assert writer.catalog.state.header.end == START + 3 * DAY
    check(writer)
    writer.token = writer.catalog.token()
    writer.catalog.commit(rules.extend(writer.token, START + 4 * DAY))
    base = writer.catalog.state.revision - 3
    adopted = replace(finished, base_revision=base)
    with pytest.raises(ConflictError, match="the location was rolled back at revision"):
        writer.catalog.commit(rules.complete_chunks(writer.token, [adopted], writer.catalog.now))
    writer.complete(4, writer.file(4, b"exported again"))
    seal(writer.catalog)
    check(writer)


def test_only_a_sealed_revision_that_can_be_read_is_gone_back_to(sealed: Writer) -> None:
    for revision in (6, 99, 0):
        with pytest.raises(VersionNotFoundError, match=f"Revision {revision} is not sealed"):
            rollback(sealed.catalog, revision)
    create_tag(sealed.catalog, "old", SEAL)
    reseal(sealed)
    expire(sealed.catalog, keep_last=1)
    with pytest.raises(VersionNotFoundError, match="Revision 7"):
        rollback(sealed.catalog, 7)
    assert rollback(sealed.catalog, SEAL).revision == 12  # its tag keeps it
    check(sealed)


def test_rows_that_were_deleted_come_back_only_when_asked_for(sealed: Writer) -> None:
    deleted = delete_rows(sealed.catalog, M, "t is not null").revision
    for merge in (False, True):  # nor after a compaction or a new snapshot, in which the tombstone is no more
        if merge:
            sealed.begin(replace(HEADER, name="other"), force=True)
            sealed.fill()
            seal(sealed.catalog)
        with pytest.raises(AcceptanceNeededError, match=rf"deleted, by revision {deleted} \(rows of main.m\)"):
            rollback(sealed.catalog, 7)
        with pytest.raises(AcceptanceNeededError):
            plan_rollback(sealed.catalog, 7)
    assert rollback(sealed.catalog, deleted).reversal.undeleted == {}
    assert list(sealed.catalog.state.tombstones) == [deleted]
    check(sealed)
    done = rollback(sealed.catalog, 7, undelete=True)
    assert list(done.reversal.undeleted) == [deleted]
    assert sealed.catalog.state.tombstones == {}
    check(sealed)
    assert rollback(sealed.catalog, SEAL).reversal.undeleted == {}  # undone on purpose already
    assert rollback(sealed.catalog, deleted).revision
    assert list(sealed.catalog.state.tombstones) == [deleted]  # by its first revision: it filters the same files
    check(sealed)
    with pytest.raises(AcceptanceNeededError):
        rollback(sealed.catalog, done.revision)


def test_deleted_rows_need_undelete_after_any_number_of_rollbacks(writer: Writer) -> None:
    """A snapshot that begins ends a tombstone, but nothing forgets it: neither a rollback, nor a checkpoint."""
    deleted = delete_rows(sealed_by(writer).catalog, M, IsNull("t")).revision
    writer.begin(force=True)
    writer.fill()
    forced = seal(writer.catalog).seal.revision
    assert (deleted, forced) == (6, 11)
    with pytest.raises(AcceptanceNeededError, match=r"deleted, by revision 6 \(rows"):
        rollback(writer.catalog, SEAL)
    assert rollback(writer.catalog, SEAL, undelete=True).revision == 12
    assert rollback(writer.catalog, forced).revision == 13
    for older in (SEAL, 12):  # 12 has the rows of 5
        write_checkpoint(writer.store, writer.catalog.state)
        writer.catalog = Catalog.open_for_writing(writer.store)
        with pytest.raises(AcceptanceNeededError, match=r"deleted, by revision 6 \(rows"):
            rollback(writer.catalog, older)
    assert rollback(writer.catalog, deleted).revision == 14
    with pytest.raises(AcceptanceNeededError, match=r"deleted, by revision 6 \(rows"):
        rollback(writer.catalog, forced)  # it does not have the current tombstone
    check(writer)


def test_newer_revisions_are_discarded_but_for_pinned_ones(sealed: Writer) -> None:
    for _ in range(2):
        reseal(sealed)
    create_tag(sealed.catalog, "keep", 9)
    gone = file_of(sealed, 7)
    done = rollback(sealed.catalog, SEAL, discard_newer=True)
    assert (done.revision, done.reversal.expired) == (13, (7, 9, 11))
    assert readable(sealed.store) == [5, 9, 13]
    assert gone in collected(sealed)
    check(sealed)
    assert rollback(sealed.catalog, SEAL, discard_newer=True).revision is None
    assert rollback(sealed.catalog, 9).revision == 15  # 14 is the collection's
    assert rollback(sealed.catalog, 9, discard_newer=True).reversal.expired == (13,)  # 15 is the newest seal
    assert readable(sealed.store) == [5, 9, 15]
    check(sealed)


def test_a_revision_whose_files_are_missing_is_named_and_not_gone_back_to(sealed: Writer) -> None:
    lost, before = file_of(sealed, 5), read_state(sealed.store).revision
    sealed.store.delete(lost)
    with pytest.raises(IncompleteError, match=f"Revision 5 is damaged, .*{lost} is missing"):
        rollback(sealed.catalog, SEAL)
    assert read_state(sealed.store).revision == before


def test_a_revision_that_a_verification_found_damaged_is_not_gone_back_to(sealed: Writer) -> None:
    damaged, before = file_of(sealed, 5), read_state(sealed.store).revision
    flip(sealed.store, damaged)
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))
    with pytest.raises(IncompleteError, match=f"Revision 5 is damaged, .*{damaged} has SHA-256"):
        rollback(sealed.catalog, SEAL)
    assert read_state(sealed.store).revision == before


@pytest.mark.parametrize("when", ["before", "during"])
def test_data_that_changed_since_the_plan_is_not_undone(sealed: Writer, when: str) -> None:
    slow, other, raced = Catalog.open_for_writing(sealed.store), Writer(sealed.store), list[int]()
    plan = plan_rollback(slow, SEAL)

    def create(path: str, data: bytes) -> None:
        if not raced:
            raced.append(reseal(other))
        sealed.store.create(path, data)

    if when == "before":
        reseal(other)
    else:
        slow.store = Changed(sealed.store, create=create)
    with pytest.raises(ConflictError, match="Revision 8 changed data after the rollback to revision 5 was planned on"):
        execute_rollback(slow, plan)
    assert read_state(sealed.store).revision == 9
    check(sealed)


def test_a_revision_that_is_sealed_after_the_plan_does_not_expire(sealed: Writer) -> None:
    other = Writer(sealed.store)
    sealed.complete(1, sealed.file(1, b"not sealed"), replaces=tuple(sealed.catalog.state.files.chunk(1)))
    plan = plan_rollback(sealed.catalog, SEAL, discard_newer=True)
    assert plan.reversal.expired == (7,)
    assert seal(other.catalog).seal.revision == 9
    with pytest.raises(ConflictError, match="Revision 9 would expire too: it was sealed after the rollback to"):
        execute_rollback(sealed.catalog, plan)
    assert readable(sealed.store) == [5, 7, 9]
    check(sealed)
