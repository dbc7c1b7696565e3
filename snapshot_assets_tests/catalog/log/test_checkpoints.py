"""Checkpoints: what is read from one is what the log gives, and none is needed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, read_checkpoint, same_states, write_checkpoint
from snapshot_assets.catalog.log.history import History
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.file_pruning import match_files, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    DamageError,
    LimitExceededError,
    SnapshotError,
    TornObjectError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import read_header
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.format.predicates import Comparison, Literal, Operator
from snapshot_assets.format.transactions import encode_transaction
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import SCHEMA, Writer
from snapshot_assets_tests.catalog.execute import prune
from snapshot_assets_tests.catalog.histories import some_history, with_bounds
from snapshot_assets_tests.catalog.tags import Changed, flip


def same(one: State, other: State) -> bool:
    return (
        same_states(one, other)
        and manifest_of(one) == manifest_of(other)
        and (one.tags, one.seals, one.in_progress) == (other.tags, other.seals, other.in_progress)
        and (one.uuid, one.sha256, one.data_revision) == (other.uuid, other.sha256, other.data_revision)
    )


def without(store: ObjectStore, folder: Path, checkpoints: list[int]) -> ObjectStore:
    """Return a copy of a location without some of its checkpoints."""
    copy = folder / "a copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store.uri.removeprefix("file://").replace("%20", " "), copy)
    found = open_store(parse_location(f"file://{folder}/a copy"))
    for revision in checkpoints:
        found.delete(checkpoint_path(revision))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_state_is_the_same_from_a_checkpoint_and_from_the_log(writer: Writer, tmp_path: Path, seed: int) -> None:
    some_history(writer, 60, seed)
    write_checkpoint(writer.store, writer.catalog.state)
    checkpoints = list_log(writer.store).checkpoints
    replayed = without(writer.store, tmp_path, checkpoints)
    head = read_state(replayed)
    assert head.checkpointed == 0
    newest = read_state(writer.store)
    assert newest.checkpointed == newest.revision
    assert same(newest, head)
    assert same(writer.catalog.state, head)
    for known in head.seals:
        then = manifest_of(read_state(replayed, through=known.revision))
        assert manifest_of(newest.at(known.revision)) == then
        assert manifest_of(head.at(known.revision)) == then
        assert manifest_of(read_state(writer.store, through=known.revision)) == then
    for kept in checkpoints:
        assert same(read_state(without(writer.store, tmp_path, [c for c in checkpoints if c > kept])), head)
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    writer.fill()
    write_checkpoint(writer.store, writer.catalog.state)
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    create_tag(writer.catalog, "last", 5)
    return writer


def test_a_checkpoint_at_any_revision_makes_the_log_before_it_needless(sealed: Writer) -> None:
    state = read_state(sealed.store)
    for revision in range(2, 6):
        sealed.store.delete(transaction_path(revision))
    assert same(read_state(sealed.store), state)
    assert manifest_of(read_state(sealed.store, through=5)) == manifest_of(state.at(5))


@pytest.mark.parametrize("place", [0, 9, 40, None])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(sealed: Writer, place: int | None) -> None:
    """Without a place, it is cut."""
    state, path = read_state(sealed.store), checkpoint_path(5)
    if place is None:
        sealed.store.put(path, sealed.store.get(path)[:100])
    else:
        flip(sealed.store, path, place)
    found = read_state(sealed.store)
    assert found.checkpointed == 4
    assert same(found, state)


def test_a_revision_whose_checkpoint_is_damaged_and_whose_log_is_pruned_is_read_from_a_later_one(
    sealed: Writer,
) -> None:
    state = manifest_of(read_state(sealed.store, through=4))
    for revision in (2, 3, 4):
        sealed.store.delete(transaction_path(revision))
    path = checkpoint_path(4)
    sealed.store.put(path, sealed.store.get(path)[:-1])
    assert manifest_of(read_state(sealed.store, through=4)) == state


def test_bounds_are_read_only_when_asked_for(sealed: Writer) -> None:
    sealed.complete(
        1, with_bounds(sealed, 1, 7), replaces=tuple(f.file.path for f in sealed.catalog.state.live_files(1))
    )
    path = write_checkpoint(sealed.store, sealed.catalog.state)
    flip(sealed.store, path, -3)  # in the last section, which is one of bounds
    state = read_state(sealed.store)
    assert state.checkpointed == 7
    assert state.files.base is not None
    bounds = state.files.base.bounds
    assert bounds.columns == {"t", "name", "mixed"}
    assert bounds.of("name")["binary"].to_pylist()[0]["minimum"] == b"a"
    assert bounds.of("absent") == {}
    with pytest.raises(TornObjectError, match=f"Section bounds t integer of {path}"):
        bounds.of("t")


def test_a_gap_in_the_log_is_named_though_a_checkpoint_lies_behind_it(sealed: Writer) -> None:
    sealed.store.delete(checkpoint_path(4))
    sealed.store.delete(transaction_path(4))
    assert read_state(sealed.store).revision == 6
    report = verify(sealed.store)
    [fault] = (fault for fault in report.faults if fault.is_damage)
    assert (fault.kind, fault.object, report.revision, report.files) == (FaultKind.LOG, transaction_path(4), 6, 2)


def test_a_checkpoint_without_its_transaction_is_a_gap_and_the_head_is_not_lost(sealed: Writer) -> None:
    write_checkpoint(sealed.store, sealed.catalog.state)
    sealed.store.delete(transaction_path(6))
    assert read_state(sealed.store).revision == 6
    assert transaction_path(6) in {fault.object for fault in verify(sealed.store).faults if fault.is_damage}


def test_a_checkpoint_that_tells_another_story_is_named(sealed: Writer) -> None:
    state = read_state(sealed.store)
    state.created_by = "x"
    state.events = [event for event in state.events if event.revision != 6]
    path = checkpoint_path(6)
    sealed.store.put(path, checkpoint_bytes(state))
    assert path in {fault.object for fault in verify(sealed.store).faults if fault.is_damage}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: b"no checkpoint", TornObjectError),
        (lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:], LimitExceededError),
        (lambda data: data[:-40], TornObjectError),
    ],
)
def test_bytes_that_are_no_checkpoint_are_refused_by_name(sealed: Writer, change, error) -> None:
    path = checkpoint_path(5)
    sealed.store.put(path, change(sealed.store.get(path)))
    with pytest.raises(error, match=path):
        read_checkpoint(sealed.store, 5)


def test_a_checkpoint_of_a_newer_format_is_refused_with_both_numbers(sealed: Writer) -> None:
    sealed.store.delete(checkpoint_path(5))
    state = read_state(sealed.store, through=5)
    state.format_version = 2
    write_checkpoint(sealed.store, state)
    with pytest.raises(UnsupportedVersionError, match="version 2; this code reads up to 1"):
        read_state(sealed.store)


def test_a_writer_that_woke_in_a_pruned_slot_has_committed_nothing(sealed: Writer) -> None:
    """Also not in the second slot, whose predecessor is never pruned."""
    for slot in (2, 3):
        sleeper = Writer(without(sealed.store, Path(sealed.store.uri[7:].replace("%20", " ")).parent, [4, 5]))
        sleeper.catalog.state = read_state(sleeper.store, through=slot - 1)
        sleeper.token = sleeper.catalog.token()
        write_checkpoint(sleeper.store, read_state(sleeper.store, through=5))
        for revision in range(2, 5):
            sleeper.store.delete(transaction_path(revision))
        with pytest.raises(SnapshotError, match="taken back"):
            sleeper.catalog.commit(rules.in_progress(sleeper.token, [1], "late"))
        assert list_log(sleeper.store).transactions == [1, 5, 6]


@pytest.mark.parametrize("slot", [2, 3])
def test_a_void_commit_whose_writer_died_is_no_part_of_the_log_and_is_pruned(writer: Writer, slot: int) -> None:
    """A writer that slept while the log was pruned died before it took back what it had created there."""
    writer.fill()
    asleep = read_state(writer.store, through=slot - 1)
    seal(writer.catalog)
    for run in range(3):
        write_checkpoint(writer.store, writer.catalog.state)
        writer.catalog.commit(rules.in_progress(writer.token, [1], f"run{run}"))
    kept = prune(writer.catalog, grace=timedelta(0), unsafe=True).kept
    head, then = manifest_of(writer.catalog.state), manifest_of(read_state(writer.store, through=5))
    dying = Catalog(writer.store, asleep)
    transaction = dying._transaction([act.ChunksInProgress((2,), "late")])
    writer.store.create(transaction_path(slot), encode_transaction(transaction))
    assert not verify(writer.store).damaged
    assert manifest_of(read_state(writer.store)) == head
    assert manifest_of(read_state(writer.store, through=5)) == then
    history = History(writer.store)
    assert history.pruned == kept - 2
    assert "late" not in str([revision.actions for revision in history.revisions()])
    assert prune(writer.catalog, grace=timedelta(0), unsafe=True).deleted == (transaction_path(slot),)


def test_a_hole_after_transactions_that_pruning_would_have_deleted_first_is_damage(writer: Writer) -> None:
    writer.fill()
    for run in range(8):
        writer.catalog.commit(rules.in_progress(writer.token, [1], f"run{run}"))
    write_checkpoint(writer.store, writer.catalog.state)
    for hole in (2, 5, 8):
        writer.store.delete(transaction_path(hole))
    damaged = {fault.object for fault in verify(writer.store).faults if fault.is_damage}
    assert {transaction_path(5), transaction_path(8)} <= damaged
    with pytest.raises(DamageError, match=f"{transaction_path(5)} is missing"):
        refuse_faults(scan_log(writer.store), "nothing was pruned")
    assert rebuild(writer.store).lost == ()
    assert not verify(writer.store).damaged


def test_checkpoints_are_written_by_the_way(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", 4)
    for number in range(10):
        writer.catalog.commit(rules.in_progress(writer.token, [1], f"run{number}"))
    assert list_log(writer.store).checkpoints == [4, 8]
    assert read_state(writer.store).in_progress == {1: "run9"}
    # Commits of one millisecond count on from it.
    assert datetime.now(UTC) + timedelta(seconds=1) > read_state(writer.store).committed_at


def test_a_run_that_works_on_a_chunk_again_is_told_of_once_wherever_checkpoints_lie(writer: Writer) -> None:
    writer.catalog.commit(rules.in_progress(writer.token, [1, 2], "run"))
    writer.catalog.commit(rules.fail_chunk(writer.token, 1, "no", "run"))
    write_checkpoint(writer.store, writer.catalog.state)
    writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    write_checkpoint(writer.store, read_state(writer.store))
    assert not verify(writer.store).damaged


NONE_YET = Comparison("t", Operator.LESS, Literal("timestamp[us, tz=UTC]", 0))


def matched(state: State) -> int:
    name = SCHEMA.tables[0].table_name
    return match_files(state, name, NONE_YET, written_schemas({1: SCHEMA}, name)).totals()[0]


def damaged(writer: Writer) -> None:
    """A bit of the newest checkpoint's statistics of `t` is flipped."""
    flip(writer.store, checkpoint_path(read_state(writer.store).checkpointed), -3)


def pruned(writer: Writer) -> None:
    """The checkpoint that is the newest by now is pruned later."""
    for run in range(2):
        writer.catalog.commit(rules.in_progress(writer.token, [1], f"r{run}"))
        write_checkpoint(writer.store, writer.catalog.state)
    assert prune(writer.catalog, grace=timedelta(0), unsafe=True).deleted


@pytest.mark.parametrize("lose", [damaged, pruned])
def test_statistics_that_are_lost_exclude_nothing_and_are_found_again_for_the_next_checkpoint(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lose
) -> None:
    writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    writer.complete(1, with_bounds(writer, 1, 1))
    write_checkpoint(writer.store, writer.catalog.state)
    long_lived = Catalog.open_for_writing(writer.store)
    assert matched(long_lived.state) == 0
    lose(writer)
    long_lived.refresh()
    assert matched(long_lived.state) == 1
    assert "of column t cannot be read" in caplog.text
    monkeypatch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", 1)
    done = long_lived.commit(rules.in_progress(long_lived.token(), [2], "run"))
    assert list_log(writer.store).checkpoints[-1] == done
    assert matched(long_lived.state) == matched(read_state(writer.store)) == 0
    assert same_states(read_checkpoint(writer.store, done), long_lived.state)


def test_a_state_with_statistics_reads_each_section_once(writer: Writer) -> None:
    writer.complete(1, with_bounds(writer, 1, 1))
    path, read = write_checkpoint(writer.store, writer.catalog.state), list[int]()

    def get_range(name: str, start: int, length: int) -> bytes:
        read.extend([start] if name == path else [])
        return writer.store.get_range(name, start, length)

    state = read_state(Changed(writer.store, get_range=get_range), statistics=True)
    assert matched(state) == 0
    header, start = read_header(partial(writer.store.get_range, path), path)
    assert sorted(each for each in read if each >= start) == [start + each.offset for each in header.sections]


def test_states_of_one_checkpoint_share_its_rows_and_each_checks_its_bytes(writer: Writer) -> None:
    writer.complete(1, with_bounds(writer, 1, 1))
    path, revision = write_checkpoint(writer.store, writer.catalog.state), writer.catalog.state.revision
    one, other = (read_checkpoint(writer.store, revision).files.base for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.table is other.table
    header, start = read_header(partial(writer.store.get_range, path), path)
    data = bytearray(writer.store.get(path))
    data[start + header.sections[0].offset] ^= 1
    writer.store.put(path, bytes(data))
    with pytest.raises(TornObjectError, match="does not match its checksum"):
        read_checkpoint(writer.store, revision)


def test_a_commit_that_won_is_no_failure_where_its_checkpoint_cannot_be_written(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer.complete(1, with_bounds(writer, 1, 1))
    write_checkpoint(writer.store, writer.catalog.state)
    damaged(writer)
    catalog = Catalog.open_for_writing(writer.store)
    writer.store.put(transaction_path(1), b"torn")
    monkeypatch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", 1)
    assert catalog.commit(rules.in_progress(catalog.token(), [2], "run")) == 3
    assert "checkpoint of revision 3 was not written" in caplog.text


def test_several_writers_write_one_checkpoint_for_all(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_assets.catalog.catalog.CHECKPOINT_INTERVAL", 6)
    writers = [Catalog.open_for_writing(writer.store) for _ in range(4)]
    for number in range(14):
        catalog = writers[number % 4]
        catalog.commit(rules.in_progress(writer.token, [1], f"run{number}"))
    assert list_log(writer.store).checkpoints == [6, 12]
