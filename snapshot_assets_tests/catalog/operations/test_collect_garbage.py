"""Garbage collection and pruning: what is needed stays, what is not goes, and only when it is old enough."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.garbage import execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import execute_pruning, plan_pruning
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.receipts import write_receipt, write_young_receipt
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.start_snapshot import start_snapshot
from snapshot_assets.errors import ConflictError, DamageError, PlanError
from snapshot_assets.format.layout import checkpoint_path, new_attempt, transaction_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.local import LocalStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.operations.test_unpinned import aged, working
from snapshot_assets_tests.catalog.tags import Changed, file_of, flip, replaced, reseal, sealed_by, wait_for_clock

NOW = timedelta(0)


def local_path(store: ObjectStore) -> Path:
    return parse_location(store.uri).local_path


def collected(writer: Writer, **options) -> dict[str, str]:
    options = {"grace": NOW, "unsafe": True} | options
    wait_for_clock(writer.store, writer.catalog.refresh().committed_at)
    return {each.path: each.reason for each in collect_garbage(writer.catalog, **options).deleted}


def test_a_file_that_was_replaced_before_anything_was_sealed_goes_and_leaves_the_state(writer: Writer) -> None:
    writer.fill()
    old, orphan = replaced(writer), writer.file(2).path
    gone = collected(writer)
    assert {path for path, reason in gone.items() if reason == "replaced"} >= old
    assert gone[orphan] == "orphan"
    assert old.isdisjoint(writer.catalog.state.files.paths())
    assert set(gone).isdisjoint(known.file.path for known in writer.catalog.state.live_files())
    seal(writer.catalog)
    assert verify(writer.store).faults == []
    assert collected(writer) == {}
    assert read_state(writer.store).revision == writer.catalog.state.revision


def test_what_a_sealed_revision_needs_stays(writer: Writer) -> None:
    writer.fill()
    sealed = seal(writer.catalog).seal.revision
    replaced(writer)
    seal(writer.catalog)
    before = manifest_of(read_state(writer.store, through=sealed))
    assert collected(writer) == {}
    write_checkpoint(writer.store, writer.catalog.state)
    assert collected(writer) == {}
    assert verify(writer.store, at=lambda _: sealed).faults == []
    assert manifest_of(read_state(writer.store, through=sealed)) == before


@pytest.mark.parametrize("pruned", [False, True])
def test_age_counts_on_the_stores_clock_and_not_on_a_writers_that_is_slow(store: ObjectStore, pruned: bool) -> None:
    writer = Writer(store)
    writer.catalog = Catalog(store, read_state(store), clock=lambda: datetime.now(UTC) - timedelta(days=2))
    writer.begin()
    writer.fill()
    [old] = writer.catalog.state.files.chunk(1)
    long_ago = (datetime.now(UTC) - timedelta(days=3)).timestamp()
    os.utime(local_path(writer.store) / old, (long_ago, long_ago))
    assert replaced(writer) == {old}
    if pruned:
        for _ in range(2):
            replaced(writer, 3)
            write_checkpoint(writer.store, writer.catalog.state)
        assert transaction_path(5) in prune(Catalog.open_for_writing(store), grace=NOW, unsafe=True).deleted
    found = collect_garbage(Catalog.open_for_writing(writer.store))
    assert found.deleted == ()
    assert old in {each.path for each in found.waiting}


def test_a_clock_that_is_ahead_does_not_shorten_the_grace_period(store: ObjectStore) -> None:
    writer, hour = Writer(store), timedelta(hours=1)
    working(writer, hour).begin()
    sealed_by(writer)
    reseal(writer)
    aged(writer, hour)
    gone = file_of(writer, 5)
    expire(working(writer, NOW).catalog, keep_last=1)
    ahead = working(writer, timedelta(minutes=-4)).catalog
    plan = plan_collection(ahead, grace=timedelta(minutes=2), unsafe=True)
    assert gone in {each.path for each in plan.deleted}
    done = execute_collection(ahead, plan)
    assert done.deleted == ()
    assert {each.path for each in done.waiting} == {each.path for each in (*plan.deleted, *plan.waiting)}
    assert read_state(store).files.paths() >= {gone}
    assert store.head(gone)


class SecondsStore(LocalStore):
    """A store whose times are whole seconds, as S3's."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (replace(info, modified=info.modified.replace(microsecond=0)) for info in super().list(prefix))


def test_what_just_expired_goes_at_once_from_a_store_whose_times_are_whole_seconds(tmp_path: Path) -> None:
    writer = Writer(SecondsStore(parse_location(f"file://{tmp_path}/location")))
    writer.begin()
    sealed_by(writer)
    reseal(writer)
    gone = file_of(writer, 5)
    time.sleep(1 - time.time() % 1)  # so that the log's times are later in one second than the store's
    time.sleep(0.5)
    expire(writer.catalog, keep_last=1)
    assert gone in collected(writer)


def test_a_shorter_grace_than_the_plans_is_refused_unless_called_unsafe(writer: Writer) -> None:
    for call in (collect_garbage, prune):
        with pytest.raises(PlanError, match=r"1h is shorter than the plan's 1d.*--unsafe"):
            call(writer.catalog, grace=timedelta(hours=1))
        call(writer.catalog, grace=timedelta(days=2))


def test_planning_changes_nothing_and_executing_deletes_what_was_planned(writer: Writer) -> None:
    writer.fill()
    replaced(writer)
    before = {info.path: info.modified for info in writer.store.list()}
    plan = plan_collection(writer.catalog, grace=NOW, unsafe=True)
    assert {info.path: info.modified for info in writer.store.list()} == before
    assert execute_collection(writer.catalog, plan) == plan
    assert {each.path for each in plan.deleted} == before.keys() - {info.path for info in writer.store.list()}


def test_nothing_is_collected_where_the_log_is_damaged_after_the_plan(writer: Writer) -> None:
    writer.fill()
    replaced(writer)
    write_checkpoint(writer.store, writer.catalog.state)
    wait_for_clock(writer.store, writer.catalog.state.committed_at)
    plan = plan_collection(writer.catalog, grace=NOW, unsafe=True)
    flip(writer.store, transaction_path(3))
    with pytest.raises(DamageError, match="The log has a fault, so nothing was deleted"):
        execute_collection(Catalog.open_for_writing(writer.store), plan)
    assert plan.deleted
    assert all(writer.store.head(each.path) for each in plan.deleted)


def test_a_receipt_that_a_resume_may_adopt_keeps_its_files_and_goes_when_the_chunk_is_done(writer: Writer) -> None:
    file = writer.file(2)
    receipt, _ = writer.receipt(2, file)
    assert collected(writer) == {}
    writer.complete(2, writer.file(2))
    assert collected(writer) == {file.path: "orphan", receipt.path: "orphan"}


def test_nothing_goes_when_a_tags_object_cannot_be_read(writer: Writer) -> None:
    writer.fill()
    tag = create_tag(writer.catalog, "friday", seal(writer.catalog).seal.revision).known.pin
    orphan = writer.file(2).path
    data = writer.store.get(tag.object.path)
    writer.store.delete(tag.object.path)
    with pytest.raises(DamageError, match="object of tag 'friday'"):
        collected(writer)
    assert writer.store.head(orphan)
    writer.store.put(tag.object.path, data)
    assert collected(writer) == {orphan: "orphan"}


def test_foreign_objects_are_named_and_stay(writer: Writer) -> None:
    writer.store.put("data/notes.txt", b"mine")
    assert collect_garbage(writer.catalog, grace=NOW, unsafe=True).foreign == ("data/notes.txt",)
    assert writer.store.get("data/notes.txt") == b"mine"


def test_a_file_that_is_committed_meanwhile_is_spared(writer: Writer, monkeypatch) -> None:
    """A writer that kept to no grace period at all commits between plan and deletion."""
    writer.fill()
    replaced(writer)
    late = writer.file(2)
    other = Catalog.open(writer.store)
    commit = writer.catalog.commit

    def race(prepare):
        revision = commit(prepare)
        monkeypatch.undo()
        writer.catalog = other
        other.refresh()
        writer.complete(2, late, replaces=tuple(other.state.files.chunk(2)))
        return revision

    monkeypatch.setattr(writer.catalog, "commit", race)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)
    assert writer.store.head(late.path)
    seal(writer.catalog)
    assert verify(writer.store).faults == []


def many(writer: Writer) -> list[int]:
    """Three seals with checkpoints between them."""
    writer.fill()
    seals = []
    for _ in range(3):
        seals.append(seal(writer.catalog).seal.revision)
        write_checkpoint(writer.store, writer.catalog.state)
        replaced(writer)
    return seals


def test_pruning_keeps_two_checkpoints_the_log_after_them_and_every_retained_state(writer: Writer) -> None:
    seals = many(writer)
    before = {revision: manifest_of(read_state(writer.store, through=revision)) for revision in seals}
    plan = plan_pruning(writer.catalog, grace=NOW, unsafe=True)
    done = prune(writer.catalog, grace=NOW, unsafe=True)
    assert (done, done.kept) == (plan, seals[1])
    expected = [path(r) for r in range(2, seals[1]) for path in (checkpoint_path, transaction_path)]
    assert set(done.deleted) == set(expected) & set(done.deleted)
    left = list_log(writer.store)
    assert (left.transactions, left.checkpoints) == ([1, *range(seals[1], seals[2] + 2)], seals[1:])
    assert {revision: manifest_of(read_state(writer.store, through=revision)) for revision in seals} == before
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]
    assert prune(writer.catalog, grace=NOW, unsafe=True).deleted == ()
    writer.begin(replace(HEADER, name="next"), force=True)
    assert read_state(writer.store).snapshot_id == writer.catalog.state.snapshot_id


def test_nothing_younger_than_the_grace_period_is_pruned(writer: Writer) -> None:
    many(writer)
    assert prune(writer.catalog).deleted == ()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("which", [1, 2])
def test_nothing_is_pruned_if_a_checkpoint_is_lost_after_the_plan(writer: Writer, which: int, missing: bool) -> None:
    seals = many(writer)
    plan = plan_pruning(writer.catalog, grace=NOW, unsafe=True)
    assert plan.kept == seals[1]
    path = checkpoint_path(seals[which])
    flip(writer.store, path)
    if missing:
        writer.store.delete(path)
    before = list_log(writer.store)
    with pytest.raises(ConflictError, match="since the pruning was planned; nothing was deleted"):
        execute_pruning(Catalog.open_for_writing(writer.store), plan)
    assert list_log(writer.store) == before


def test_nothing_is_pruned_from_a_log_that_is_damaged_after_the_plan(writer: Writer) -> None:
    many(writer)
    plan = plan_pruning(writer.catalog, grace=NOW, unsafe=True)
    flip(writer.store, transaction_path(3))
    before = list_log(writer.store)
    with pytest.raises(DamageError, match="The log has a fault, so nothing was pruned"):
        execute_pruning(writer.catalog, plan)
    assert list_log(writer.store) == before


def test_files_of_pruned_history_are_collected_all_the_same(writer: Writer) -> None:
    writer.fill()
    old = replaced(writer)
    for _ in range(2):
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)
        replaced(writer, 3)
    prune(writer.catalog, grace=NOW, unsafe=True)
    writer.catalog = Catalog.open(writer.store)
    assert writer.catalog.state.checkpointed
    assert old <= set(collected(writer))
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]
    assert write_receipt(writer.store, writer.receipt(1, attempt=new_attempt())[0])


def test_a_receipt_is_not_written_for_files_that_may_be_taken_for_orphans(writer: Writer) -> None:
    writer.begin()
    receipt = replace(writer.receipt(1, writer.file(1))[0], attempt=new_attempt())
    half = timedelta(microseconds=HEADER.grace) / 2
    with pytest.raises(ConflictError, match="half the grace period"):
        write_young_receipt(writer.store, receipt, receipt.opened_at + half + timedelta(seconds=1))
    assert receipt.path not in {info.path for info in writer.store.list()}
    assert write_young_receipt(writer.store, receipt, receipt.opened_at + half).path == receipt.path


def test_schema_documents_that_a_snapshot_names_while_they_go_are_written_back(writer: Writer) -> None:
    """The writer writes them again, commits, and finds them there, all after the collection's last scan."""
    writer.begin(replace(HEADER, name="other"), force=True, schema=SCHEMA.model_copy(update={"database": "postgresql"}))
    wait_for_clock(writer.store, writer.catalog.refresh().committed_at)
    started = list[ObjectStore]()

    def delete(path: str) -> None:
        if path.startswith("schema/") and not started:
            started.append(writer.store)
            start_snapshot(Catalog.open_for_writing(writer.store), HEADER, SCHEMA, force=True)
        writer.store.delete(path)

    catalog = Catalog.open_for_writing(Changed(writer.store, delete=delete))
    gone = collect_garbage(catalog, grace=NOW, unsafe=True).deleted
    assert started
    assert not [each for each in gone if each.path.startswith("schema/")]
    assert not verify(writer.store).damaged, verify(writer.store).faults
