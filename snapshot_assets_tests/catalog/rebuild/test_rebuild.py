"""Rebuilding a lost or damaged log: its base, the new log, and who else is at work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.history import History
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ConflictError,
    DamageError,
    ForkError,
    LocationDeletedError,
    LogWholeError,
    NoSnapshotError,
    SupersededError,
    UnsupportedVersionError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path, seal_path, transaction_path
from snapshot_assets.format.transactions import encode_transaction
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import SEAL, Changed, damage, flip, reseal, sealed_by
from snapshot_assets_tests.schema_documents import write_schema


def lose(store: ObjectStore, *prefixes: str) -> None:
    for info in list(store.list()):
        if info.path.startswith(prefixes):
            store.delete(info.path)


def facts(state: State) -> dict:
    """Return the manifest without revision, times and writers: a rebuild must recover all of this."""
    left_out = ("revision", "updated_at", "created_at", "created_by", "consistency", "checksum")
    return {name: value for name, value in manifest_of(state).items() if name not in left_out}


@pytest.fixture
def tagged(writer: Writer) -> Writer:
    """Sealed at 5 and, with another file in chunk 1, at 7; tags of both."""
    sealed_by(writer)
    assert reseal(writer) == 7
    create_tag(writer.catalog, "old", SEAL)
    create_tag(writer.catalog, "new", 7)
    return writer


def test_a_lost_log_is_rebuilt_from_manifest_and_tags_to_the_same_sealed_states(tagged: Writer) -> None:
    before, tags = read_state(tagged.store), dict(tagged.catalog.state.tags)
    lose(tagged.store, "transactions/")
    assert rebuild(tagged.store, dry_run=True).committed is False
    assert list_log(tagged.store).transactions == []
    done = rebuild(tagged.store)
    assert (done.revision, done.proved, done.sealed, done.missing, done.tags) == (8, 7, True, (), ("new", "old"))
    assert (done.files, done.rows, done.bytes, done.taken) == (2, 4, 19, {})
    after = read_state(tagged.store)
    assert (after.location_id, after.snapshot_id) == (before.location_id, before.snapshot_id)
    assert (after.header, after.schemas) == (before.header, before.schemas)
    assert manifest_of(after) == manifest_of(before)
    for name, revision in (("old", SEAL), ("new", 7)):
        assert manifest_of(after.at(revision)) == manifest_of(before.at(revision))
        assert (after.tags[name].pin.revision, after.tags[name].pin.created_at) == (
            revision,
            tags[name].pin.created_at,
        )
    assert damage(tagged.store) == {}
    [lost] = [fault for fault in verify(tagged.store).faults if fault.kind is FaultKind.LOST]
    assert all(sentence in lost.message for sentence in done.lost)
    assert done.lost[0].startswith("Transactions 1 to 5 are lost; the state at revision 5 is recovered from tag/tag-")
    assert done.lost[1].startswith("Transactions 6 to 7 are lost; the state at revision 7 is recovered from ")
    assert any("tag 'old' is kept because tag/tag-old-" in sentence for sentence in done.lost)


def test_a_rebuilt_location_without_revision_1_takes_commits_of_writers_that_follow_each_other(tagged: Writer) -> None:
    lose(tagged.store, "transactions/")
    rebuild(tagged.store)
    writers = [Catalog(tagged.store, read_state(tagged.store)) for _ in range(2)]
    revisions = [writer.commit(rules.in_progress(writer.token(), [1], "run")) for writer in writers * 2]
    assert revisions == [9, 10, 11, 12]
    assert damage(tagged.store) == {}


def test_a_rebuilt_location_takes_commits_checkpoints_and_seals(tagged: Writer) -> None:
    lose(tagged.store, "transactions/")
    rebuild(tagged.store)
    writer = Writer(tagged.store)
    writer.token = writer.catalog.token()
    assert reseal(writer) == 10
    delete_tag(writer.catalog, "old")
    write_checkpoint(tagged.store, writer.catalog.state)
    assert damage(tagged.store) == {}
    head = read_state(tagged.store)
    assert (head.revision, head.plans_valid_from, list(head.tags)) == (11, 8, ["new"])
    with pytest.raises(LogWholeError, match="is whole up to revision 11"):
        rebuild(tagged.store)


def test_with_receipts_alone_consent_is_asked_for_and_the_next_seal_has_the_same_checksum(writer: Writer) -> None:
    sealed_by(writer)
    before = read_state(writer.store)
    lose(writer.store, "transactions/", "manifest.json", "SHA256SUMS")
    with pytest.raises(AcceptanceNeededError, match=r"receipts or data files alone .* --accept-undeleted"):
        rebuild(writer.store)
    assert list_log(writer.store).transactions == []
    done = rebuild(writer.store, accept_undeleted=True)
    assert (done.sealed, done.missing, sorted(done.taken), done.revision) == (
        False,
        (),
        [1, 2, 3],
        6,
    )  # a statement names 5
    after = read_state(writer.store)
    assert facts(after) == facts(before)
    assert after.header == before.header
    assert damage(writer.store) == {}
    assert seal(Catalog.open_for_writing(writer.store)).seal.seal.checksum == before.seals[-1].seal.checksum
    assert damage(writer.store) == {}


@pytest.mark.parametrize("spoil", ["gone", "torn"])
@pytest.mark.parametrize("checkpoint", [0, 4])
def test_a_hole_anywhere_before_a_sealed_head_loses_nothing(tagged: Writer, checkpoint: int, spoil: str) -> None:
    store, before = tagged.store, read_state(tagged.store)
    if checkpoint:
        write_checkpoint(store, read_state(store, through=checkpoint))
    kept = {info.path: store.get(info.path) for info in store.list()}
    for revision in (1, 3, 4, 7, 8, 9) if checkpoint else (1, 2, 5, 6, 9):
        (store.delete if spoil == "gone" else lambda path: flip(store, path, 40))(transaction_path(revision))
        try:
            done = rebuild(store)
        except LogWholeError:
            assert spoil == "gone"
            assert revision == 9 or revision <= checkpoint
        else:
            after = read_state(store)
            assert after.plans_valid_from == done.revision == (9 if (spoil, revision) == ("gone", 9) else 10)
            assert manifest_of(after) == manifest_of(before), (revision, done)
            assert (after.tags.keys(), after.header) == (before.tags.keys(), before.header)
            assert (after.sealed, [seal.revision for seal in after.seals]) == (True, [5, 7])
            assert damage(store) == {}
            assert rebuild_refuses(store)
        lose(store, "transactions/", "tag/", "manifest.json", "SHA256SUMS")
        for path, data in kept.items():
            store.put(path, data)


def rebuild_refuses(store: ObjectStore) -> bool:
    with suppress(LogWholeError):
        rebuild(store)
        return False
    return True


def test_schema_documents_that_are_missing_are_named(writer: Writer) -> None:
    writer.fill()
    other = SCHEMA.model_copy(update={"database": "postgresql"})
    writer.catalog.commit(rules.add_schema(writer.token, write_schema(writer.store, other)))
    file = replace(writer.file(1, b"by another schema"), schema_id=2)
    writer.receipt(1, file, schema_sha256=writer.catalog.state.schemas[2].sha256)
    lose(writer.store, "transactions/", writer.catalog.state.schemas[1].folder)
    done = rebuild(writer.store, accept_undeleted=True, dry_run=True)
    assert (done.missing, sorted(done.taken)) == ((3,), [1, 2])
    assert "Chunk 3 cannot be taken: the documents of its schema are missing or damaged." in done.lost


def test_without_schema_documents_the_next_export_adopts_or_reads_every_chunk(writer: Writer) -> None:
    """Never the receipt of an export that another replaced."""
    writer.fill()
    old = next(writer.catalog.state.live_files(3)).file
    writer.receipt(3, writer.file(3, b"newer"), supersedes=(old.attempt,))
    schema = writer.catalog.state.schemas[1]
    lose(writer.store, "transactions/", "manifest.json", "schema/")
    done = rebuild(writer.store, accept_undeleted=True)
    assert (done.missing, done.taken, done.files) == ((1, 2, 3), {}, 0)
    assert any(line.startswith("Chunk 3 was exported again (") for line in done.lost)
    again = Writer(writer.store)
    again.begin()
    state = again.catalog.state
    assert again.catalog.commit(rules.add_schema(again.token, write_schema(again.store, SCHEMA)))
    assert state.schemas[1].sha256 == schema.sha256
    assert find_adoptable(again.store, state, [1, 2, 3], schema.sha256).keys() == {1, 2}
    assert state.status(3) is act.ChunkStatus.FAILED
    assert damage(writer.store) == {}


def test_transactions_behind_a_sealed_manifest_are_followed(tagged: Writer) -> None:
    """Also where the seal's own transaction is lost: only one ever was that revision."""
    tagged.catalog.commit(rules.in_progress(tagged.token, [1], "run"))
    before = tagged.catalog.state
    for revision in (3, 7):
        tagged.store.delete(transaction_path(revision))
    done = rebuild(tagged.store)
    after = read_state(tagged.store)
    assert (done.proved, after.tags.keys(), after.in_progress) == (10, {"old", "new"}, before.in_progress)
    assert facts(after) == facts(before)
    assert damage(tagged.store) == {}


def test_what_was_committed_behind_the_base_is_named_and_not_guessed(tagged: Writer) -> None:
    old = next(tagged.catalog.state.live_files(1)).file
    replacement = tagged.file(1, b"newest")
    receipt, ref = tagged.receipt(1, replacement, supersedes=(old.attempt,))
    done = rules.FinishedChunk(1, (replacement,), (ref,), receipt.opened_at, receipt.fence, "r1", (old.path,))
    tagged.token = tagged.catalog.token()
    tagged.catalog.commit(rules.complete_chunks(tagged.token, [done], tagged.catalog.now))
    tagged.begin(replace(HEADER, name="second"), force=True)
    for revision in range(10, 12):
        tagged.store.delete(transaction_path(revision))
    tagged.receipt(2)
    rebuilt = rebuild(tagged.store)
    assert (rebuilt.proved, rebuilt.revision, rebuilt.sealed) == (9, 12, True)
    sentences = " ".join(rebuilt.lost)
    assert "Revisions 10 to 11 are lost; the chunks they replaced, the rows they deleted and their pins" in sentences
    assert f"Chunk 1 may have been exported again ({ref.path}); its older version stays." in sentences
    assert "`snapshots export create --replace 2025-01-01T00:00:00Z/2025-01-02T00:00:00Z`" in sentences
    assert f"Snapshot {tagged.catalog.state.snapshot_id} starts after revision 9 and is lost." in sentences
    assert damage(tagged.store) == {}


def test_a_chunk_that_the_base_lacks_is_adopted_by_the_next_export_and_kept_until_then(writer: Writer) -> None:
    """But not with the id of a lost schema that stands for another content since."""
    writer.complete(1, writer.file(1))
    seen = writer.catalog.state.schemas[1].sha256
    for database in ("postgresql", "spark"):
        content = write_schema(writer.store, SCHEMA.model_copy(update={"database": database}))
        writer.catalog.commit(rules.add_schema(writer.catalog.token(), content))
    writer.token = writer.catalog.token()
    kept, other = writer.finished(2, writer.file(2)), replace(writer.file(3), schema_id=3)
    writer.catalog.commit(rules.complete_chunks(writer.token, [kept], writer.catalog.now))
    writer.receipt(3, other, schema_sha256=writer.catalog.state.schemas[3].sha256)
    for revision in (3, 4, 5):
        writer.store.delete(transaction_path(revision))
    assert rebuild(writer.store).missing == (2, 3)
    again = Writer(writer.store)
    collect_garbage(again.catalog, grace=timedelta(0), unsafe=True)
    again.begin(schema=SCHEMA)
    again.catalog.commit(
        rules.add_schema(again.token, write_schema(writer.store, SCHEMA.model_copy(update={"database": "spark"})))
    )
    state = again.catalog.state
    assert find_adoptable(again.store, state, [2, 3], seen).keys() == {2}
    assert find_adoptable(again.store, state, [2, 3], state.schemas[2].sha256) == {}
    assert damage(writer.store) == {}


def test_a_location_that_is_whole_empty_or_deleted_is_refused(tagged: Writer, tmp_path: Path) -> None:
    with pytest.raises(LogWholeError, match="is whole up to revision 9; there is nothing to rebuild"):
        rebuild(tagged.store)
    write_checkpoint(tagged.store, tagged.catalog.state)
    flip(tagged.store, next(tagged.catalog.state.live_files()).file.path)
    assert rebuild_refuses(tagged.store)
    tagged.catalog.commit(rules.delete(tagged.catalog.token(), with_tags=True))
    tagged.store.delete(transaction_path(3))
    with pytest.raises(LocationDeletedError):
        rebuild(tagged.store)
    delete_snapshot(tagged.store)
    with pytest.raises(NoSnapshotError):
        rebuild(tagged.store, accept_undeleted=True)


def test_a_log_of_a_newer_format_is_not_damaged(tagged: Writer) -> None:
    newer = replace(tagged.catalog._transaction([act.ChunksInProgress((1,), "r")]), version=2)
    tagged.store.put(transaction_path(10), encode_transaction(newer))
    tagged.store.delete(transaction_path(3))
    with pytest.raises(UnsupportedVersionError, match=r"version 2; this code reads up to 1"):
        rebuild(tagged.store)


def rivals(store: ObjectStore, when: str, others: list[Callable[[], object]]) -> Changed:
    """A store where others are quicker by one create."""

    def create(path: str, data: bytes) -> None:
        if path.endswith(when) and others:
            others.pop(0)()
        store.create(path, data)

    return Changed(store, create=create)


@pytest.mark.parametrize("revision", [10**12, 2**63 - 1, 10**20 - 1])
@pytest.mark.parametrize("path_of_revision", [transaction_path, checkpoint_path, seal_path])
def test_a_forged_name_far_above_the_log_does_not_move_a_new_log_there(
    tagged: Writer, revision: int, path_of_revision: Callable[[int], str]
) -> None:
    """Whoever may write can name any revision; work and revisions must not grow with it."""
    store, forged = tagged.store, path_of_revision(revision)
    store.put(forged, b"forged")
    if path_of_revision is seal_path:
        with pytest.raises(LogWholeError):
            rebuild(store)
    store.delete(transaction_path(5))
    if path_of_revision is not seal_path:
        before = [info.path for info in store.list()]
        with pytest.raises(ForkError, match=f"{forged} in .* is too far above revision 9.* Move it away"):
            rebuild(store)
        assert [info.path for info in store.list()] == before
        store.delete(forged)
    assert rebuild(store).revision == 10
    assert not verify(store).damaged


def test_history_does_not_count_up_to_a_forged_checkpoint(tagged: Writer) -> None:
    tagged.store.put(checkpoint_path(10**12), b"forged")
    tagged.store.delete(transaction_path(2))
    assert History(tagged.store).pruned == 10**12 - 1


def test_a_writer_that_commits_meanwhile_wins(tagged: Writer) -> None:
    """One that has the location open: a hole below a checkpoint does not stop it."""
    write_checkpoint(tagged.store, tagged.catalog.state)
    tagged.store.delete(transaction_path(4))
    commit = partial(tagged.catalog.commit, rules.in_progress(tagged.token, [1], "run"))
    for when in ("10.txn", "11.ckpt"):
        with pytest.raises(ConflictError, match=r"took revision 1[01] while it was rebuilt"):
            rebuild(rivals(tagged.store, when, [commit]))
        assert read_state(tagged.store).revision == tagged.catalog.state.revision
        assert list_log(tagged.store).checkpoints == [9]
    assert rebuild(tagged.store).revision == 12
    assert damage(tagged.store) == {}


def test_of_two_rebuilds_one_wins(tagged: Writer) -> None:
    lose(tagged.store, "transactions/")
    for when in ("1.txn", "8.ckpt", "8.txn"):
        others = [lambda: rebuild(tagged.store)]
        with pytest.raises(LogWholeError if when == "8.txn" else ConflictError):  # a checkpoint makes the log whole
            rebuild(rivals(tagged.store, when, others))
        assert others == []
        assert (read_state(tagged.store).revision, damage(tagged.store)) == (8, {})
        lose(tagged.store, "transactions/")


def test_a_writer_that_slept_since_before_the_loss_commits_nothing(tagged: Writer) -> None:
    sleepers = []
    for revision in (2, 4, 8, 9):
        sleeper = Catalog.open_for_writing(tagged.store)
        sleeper.state = read_state(tagged.store, through=revision)
        sleepers.append((sleeper, sleeper.token()))
    for revision in (3, 5, 6, 9):
        tagged.store.delete(transaction_path(revision))
    rebuild(tagged.store)
    head = read_state(tagged.store).revision
    for sleeper, token in sleepers:
        with pytest.raises(SupersededError, match=r"upgraded or rebuilt at revision|taken back"):
            sleeper.commit(rules.in_progress(token, [1], "late"))
    assert read_state(tagged.store).revision == head
    assert damage(tagged.store) == {}


def test_a_rebuilt_log_needs_its_checkpoint_and_says_so(tagged: Writer) -> None:
    lose(tagged.store, "transactions/")
    rebuild(tagged.store)
    tagged.store.delete(checkpoint_path(8))
    with pytest.raises(DamageError, match="a later rebuild started a new log, and its checkpoint is unreadable"):
        read_state(tagged.store)
    tagged.store.delete(transaction_path(1))
    with pytest.raises(DamageError, match=transaction_path(1)):
        read_state(tagged.store)
    assert checkpoint_path(8) in damage(tagged.store)
    assert rebuild(tagged.store).revision == 9
    assert damage(tagged.store) == {}


def test_what_a_rebuild_left_out_is_no_garbage_until_the_grace_period_after_it_is_over(writer: Writer) -> None:
    writer.fill()
    orphan = writer.file(1, b"an orphan").path
    lose(writer.store, "transactions/", "manifest.json")
    rebuild(writer.store, accept_undeleted=True)
    when = writer.store.head(transaction_path(read_state(writer.store).revision)).modified
    found = plan_collection(Catalog.open(writer.store))
    assert (found.deleted, [(each.path, each.since) for each in found.waiting]) == ((), [(orphan, when)])
