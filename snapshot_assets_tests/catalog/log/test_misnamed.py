"""Misnamed objects: none is the revision, tag or savepoint in its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.maintain_log import checkpoint_head
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import DamageError, MisnamedError, SupersededError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.format.predicates import IsNull
from snapshot_assets.format.transactions import decode_transaction, encode_transaction
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import damage, path_of, save, sealed_by

HEAD = 12


def copy(store: ObjectStore, source: str, target: str) -> None:
    store.put(target, store.get(source))


@pytest.fixture
def deleted(writer: Writer) -> Writer:
    """Sealed at 5 and later; tombstones at 6 and 12, a checkpoint at 8, a tag and a savepoint."""
    sealed_by(writer)
    writer.catalog.commit(rules.tombstone(writer.catalog.token(), act.Tombstone("main", "m", IsNull("t"))))
    create_tag(writer.catalog, "old", 5)
    save(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    for run in ("one", "two", "three"):
        writer.catalog.commit(rules.in_progress(writer.catalog.token(), [1], run))
    writer.catalog.commit(rules.tombstone(writer.catalog.token(), act.Tombstone("main", "m", IsNull("name"))))
    assert writer.catalog.state.revision == HEAD
    return writer


@pytest.mark.parametrize("revision", [10**12, 10**20 - 1])
@pytest.mark.parametrize("path_of_revision", [transaction_path, checkpoint_path])
@pytest.mark.parametrize("hidden", [(), (2, 3)])
def test_a_forged_object_far_above_the_log_is_named_as_soon_as_one_that_follows_it(
    deleted: Writer, revision: int, path_of_revision: Callable[[int], str], hidden: tuple[int, ...]
) -> None:
    """What a reader does must not grow with the number in a name, which whoever may write chooses."""
    forged = path_of_revision(revision)
    for each in hidden:
        deleted.store.delete(transaction_path(each))
    deleted.store.put(forged, b"forged")
    assert forged in damage(deleted.store)


@pytest.mark.parametrize(("source", "target"), [(1, HEAD + 1), (6, HEAD + 3), (HEAD, HEAD + 1)])
def test_a_transaction_copied_behind_the_log_brings_no_deleted_rows_back(
    deleted: Writer, source: int, target: int
) -> None:
    """Its revision counts as missing, and its actions are not applied."""
    store, before = deleted.store, read_state(deleted.store)
    copy(store, transaction_path(source), transaction_path(target))
    with pytest.raises(DamageError, match=f"holds revision {source}; expected {target}"):
        read_state(store)
    [fault] = damage(store).values()
    assert f"{transaction_path(target)} holds revision {source}; expected {target}" in fault
    assert "move it away. If it overwrote a transaction" in fault
    done = rebuild(store)
    assert not any(" lost" in sentence for sentence in done.lost)
    after = read_state(store)
    assert after.tombstones == before.tombstones
    assert manifest_of(after)["chunks"] == manifest_of(before)["chunks"]
    assert (after.tags.keys(), after.pins.savepoints.keys()) == (before.tags.keys(), before.pins.savepoints.keys())
    assert any(f"{transaction_path(target)} holds revision {source}" in sentence for sentence in done.lost)
    assert damage(store) == {}


@pytest.mark.parametrize("target", [3, 6, HEAD])
def test_a_transaction_copied_over_another_counts_as_lost(deleted: Writer, target: int) -> None:
    """A tombstone that is lost with it is named, and comes back only with consent."""
    store, before = deleted.store, read_state(deleted.store)
    store.delete(checkpoint_path(8))
    copy(store, transaction_path(1), transaction_path(target))
    with pytest.raises(DamageError, match=f"{transaction_path(target)} holds revision 1; expected {target}"):
        read_state(store)
    assert transaction_path(target) in {path for path, _ in scan_log(store).faults}
    done = rebuild(store, accept_undeleted=True)
    for revision in before.tombstones.keys() - read_state(store).tombstones.keys():
        lost, unknown = f"Revision {revision} is lost", f"unknown whether revisions after {revision - 1} were"
        named = (lost, unknown, f"deleted at revision {revision},")
        assert any(each in sentence for sentence in done.lost for each in named)
    assert damage(store) == {}


def test_a_copy_of_a_rebuilt_beginning_is_none(deleted: Writer) -> None:
    deleted.store.delete(transaction_path(HEAD - 1))
    revision = rebuild(deleted.store, accept_undeleted=True).revision
    writer = Writer(deleted.store)
    writer.catalog.commit(rules.in_progress(writer.catalog.token(), [1], "run"))
    head = writer.catalog.state
    copy(deleted.store, transaction_path(revision), transaction_path(head.revision + 1))
    scan = scan_log(deleted.store)
    assert (scan.state.revision, [path for path, _ in scan.faults]) == (
        head.revision,
        [transaction_path(head.revision + 1)],
    )
    with pytest.raises(DamageError, match=f"holds revision {revision}"):
        Catalog(deleted.store, head).refresh()


@pytest.mark.parametrize("target", [7, HEAD + 1, HEAD + 5])
def test_a_checkpoint_copied_to_another_revision_gives_no_state(deleted: Writer, target: int) -> None:
    store, before = deleted.store, read_state(deleted.store)
    copy(store, checkpoint_path(8), checkpoint_path(target))
    assert manifest_of(read_state(store)) == manifest_of(before)
    assert any(f"{checkpoint_path(target)} holds revision 8" in fault for fault in damage(store).values())
    if target < HEAD:  # the log is whole, and gives the checkpoint of that revision
        assert checkpoint_head(Catalog.open_for_writing(store)).mended == (checkpoint_path(target),)
    else:
        with pytest.raises(MisnamedError, match="move it away"):
            Catalog.open_for_writing(store)
        [fault] = damage(store).values()
        assert "move it away" in fault
        assert not any(" lost" in sentence for sentence in rebuild(store).lost)
    assert read_state(store).tombstones == before.tombstones
    assert damage(store) == {}


@pytest.mark.parametrize("log", [True, False])
def test_a_pin_copied_to_another_name_is_no_other_pin(deleted: Writer, log: bool) -> None:
    store, before = deleted.store, read_state(deleted.store)
    savepoint = before.pins.savepoints[1].pin.object.path
    copy(store, path_of(store, "old"), "tag/tag-new-00000000")
    copy(store, path_of(store, "old"), "tag/tag-old-er-00000000")
    copy(store, savepoint, "savepoint/savepoint-7-00000000")
    copy(store, savepoint, "savepoint/savepoint-11-00000000")
    for info in list(store.list("transactions/")):
        if not log or info.path == transaction_path(HEAD - 1):
            store.delete(info.path)
    done = rebuild(store, accept_undeleted=True)
    after = read_state(store)
    assert (after.tags.keys(), after.pins.savepoints.keys()) == ({"old"}, {1})
    assert sum("cannot be used: " in sentence for sentence in done.lost) == 4, done.lost
    assert damage(store) == {}


@pytest.mark.parametrize("source", [HEAD - 1, HEAD + 5])
def test_a_commit_behind_a_misnamed_transaction_is_taken_back(deleted: Writer, source: int) -> None:
    """The one that it follows is gone, so it counts for nothing, and its writer learns that it does not."""
    store = deleted.store
    other = decode_transaction(store.get(transaction_path(HEAD)), "")
    store.put(transaction_path(HEAD), encode_transaction(replace(other, revision=source)))
    with pytest.raises(SupersededError, match="taken back"):
        deleted.catalog.commit(rules.in_progress(deleted.catalog.token(), [1], "late"))
    assert list_log(store).transactions[-1] == HEAD


@pytest.mark.parametrize("source", [1, 9])
def test_a_commit_of_revision_2_before_a_misnamed_transaction_is_taken_back(writer: Writer, source: int) -> None:
    first = decode_transaction(writer.store.get(transaction_path(1)), "")
    writer.store.put(transaction_path(3), encode_transaction(replace(first, revision=source)))
    with pytest.raises(SupersededError, match="taken back"):
        writer.catalog.commit(rules.in_progress(writer.token, [1], "late"))
    assert list_log(writer.store).transactions == [1, 3]
