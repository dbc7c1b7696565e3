"""Log objects that were copied into a location: none becomes its state, and nothing is deleted because of one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import summarize
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.history import History
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, ForeignLocationError, ForkError
from snapshot_assets.format.layout import TRANSACTIONS, checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.tags import objects, replaced, wait_for_clock

NOW = timedelta(0)
HEAD = 7
"""The head of the location that others' objects are copied into."""


def at_head(writer: Writer) -> Writer:
    """Sealed at 5 and 7, with a checkpoint at 5."""
    writer.fill()
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    replaced(writer)
    seal(writer.catalog)
    return writer


def longer(writer: Writer) -> None:
    """Two more seals, and a checkpoint at each revision from the head on."""
    write_checkpoint(writer.store, writer.catalog.state)
    for _ in range(2):
        replaced(writer)
        write_checkpoint(writer.store, writer.catalog.state)
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)


@pytest.fixture
def own(writer: Writer) -> Writer:
    return at_head(writer)


@pytest.fixture
def other(tmp_path: Path) -> Writer:
    """Another location: its revisions go on to 11, and it has checkpoints at 5 and from 7 on."""
    other = Writer(open_store(parse_location(f"file://{tmp_path}/another location")))
    other.begin()
    longer(at_head(other))
    return other


@pytest.fixture
def pruned(other: Writer) -> Writer:
    """The other location, pruned: revision 1, and the log from 10 on."""
    assert prune(other.catalog, grace=NOW, unsafe=True).kept == 10
    return other


@pytest.fixture
def rebuilt(other: Writer) -> Writer:
    """The other location, which lost revision 9, and was rebuilt at 12."""
    for revision in range(8, 12):
        other.store.delete(checkpoint_path(revision))
    other.store.delete(transaction_path(9))
    assert rebuild(other.store).revision == 12
    return other


@pytest.fixture
def copy(own: Writer, tmp_path: Path) -> Writer:
    """A copy of the location without its last two revisions, with other revisions up to 11."""
    folder = tmp_path / "a copy"
    shutil.copytree(own.store.uri.removeprefix("file://").replace("%20", " "), folder)
    store = open_store(parse_location(folder.as_uri()))
    for path in (transaction_path(6), transaction_path(7), "manifest.json"):
        store.delete(path)
    for info in list(store.list("data/1/")):
        if info.path not in read_state(store).files.paths():
            store.delete(info.path)
    copy = Writer(store)
    copy.token = copy.catalog.token()
    replaced(copy)
    write_checkpoint(copy.store, copy.catalog.state)
    seal(copy.catalog)
    longer(copy)
    return copy


def bring(source: Writer, store: ObjectStore, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
    """Copy what is wanted of a log to where nothing lies yet, as `cp -n` does."""
    there = {info.path for info in store.list(TRANSACTIONS)}
    paths = [info.path for info in source.store.list(TRANSACTIONS) if info.path not in there and wanted(info.path)]
    for path in paths:
        store.put(path, source.store.get(path))
    assert paths
    return paths


def only(*paths: str) -> Callable[[str], bool]:
    return paths.__contains__


BROUGHT = {
    "a checkpoint of the head's revision": ("other", only(checkpoint_path(HEAD))),
    "a checkpoint of a later revision": ("other", only(checkpoint_path(9))),
    "the next transaction": ("other", only(transaction_path(8))),
    "a later transaction": ("other", only(transaction_path(9))),
    "a log": ("other", lambda _: True),
    "a log without checkpoints": ("other", lambda path: path.endswith(".txn")),
    "a pruned log": ("pruned", lambda _: True),
    "a rebuilt log": ("rebuilt", lambda _: True),
    "a checkpoint of an older revision, of a copy": ("copy", only(checkpoint_path(6))),
    "a checkpoint of the head's revision, of a copy": ("copy", only(checkpoint_path(HEAD))),
    "a checkpoint of a later revision, of a copy": ("copy", only(checkpoint_path(9))),
    "the next transaction, of a copy": ("copy", only(transaction_path(8))),
    "a log without checkpoints, of a copy": ("copy", lambda path: path.endswith(".txn")),
    "a log, of a copy": ("copy", lambda _: True),
}
OPENED = "a log, of a copy"
"""Its checkpoints have this location's id and are of its transactions; only reading the whole log shows what it is."""


@pytest.mark.slow
@pytest.mark.parametrize("case", BROUGHT)
def test_what_was_copied_here_is_no_state_and_nothing_is_deleted_or_committed(
    own: Writer, case: str, request: pytest.FixtureRequest
) -> None:
    source, wanted = BROUGHT[case]
    before, names = manifest_of(own.catalog.state), {known.file.path for known in own.catalog.state.live_files()}
    brought = bring(request.getfixturevalue(source), own.store, wanted)
    there = objects(own.store)
    wait_for_clock(own.store, own.catalog.state.committed_at)
    if case != OPENED:
        with pytest.raises(DamageError):
            Catalog.open_for_writing(own.store)
    for opened in (lambda: own.catalog, lambda: Catalog.open(own.store)):
        for change in (
            lambda catalog: collect_garbage(catalog, grace=NOW, unsafe=True),
            lambda catalog: prune(catalog, grace=NOW, unsafe=True),
            lambda catalog: expire(catalog, keep_last=1),
        ):
            with pytest.raises(DamageError) as refused:
                change(opened())
            assert refused.value.attributes["object"] in {*brought, transaction_path(HEAD + 1)}
    assert objects(own.store) == there

    found = {fault.object for fault in verify(own.store).faults if fault.is_damage}
    assert found & {*brought, transaction_path(HEAD + 1)}
    shown = summarize(own.store)
    assert case == OPENED or shown.error or (shown.revision, shown.snapshot_id) == (HEAD, before["snapshot_id"])
    readable = [each for each in History(own.store).revisions() if each.committed_at is not None]
    if "copy" not in case:
        assert [each.revision for each in readable] == [*range(HEAD, 0, -1)]

    for path in brought:
        own.store.delete(path)
    assert not verify(own.store).damaged
    assert manifest_of(Catalog.open_for_writing(own.store).state) == before
    collect_garbage(own.catalog, grace=NOW, unsafe=True)
    assert names <= objects(own.store)


def test_the_refusal_names_the_object_both_locations_and_the_remedy(own: Writer, other: Writer) -> None:
    [path] = bring(other, own.store, only(checkpoint_path(9)))
    mine, theirs = own.catalog.state.location_id, other.catalog.state.location_id
    expected = (
        rf"{path} belongs to location {theirs}; this one is {mine} \({transaction_path(1)}\)\. .*move that one.* away"
    )
    with pytest.raises(ForeignLocationError, match=expected):
        Catalog.open_for_writing(own.store)
    [fault] = (fault for fault in verify(own.store).faults if fault.is_damage)
    assert fault.object == path
    assert theirs in fault.message


def test_a_checkpoint_of_another_past_is_refused_with_the_transaction_that_it_denies(own: Writer, copy: Writer) -> None:
    bring(copy, own.store, only(checkpoint_path(HEAD)))
    with pytest.raises(ForkError, match=rf"{checkpoint_path(HEAD)} is not of this log: .*{transaction_path(HEAD)} has"):
        Catalog.open_for_writing(own.store)
    assert read_state(own.store).checkpointed == 5


@pytest.mark.parametrize("revision", [6, HEAD])
def test_a_rebuild_does_not_begin_with_a_checkpoint_of_another_past(own: Writer, copy: Writer, revision: int) -> None:
    own.store.delete(checkpoint_path(5))
    bring(copy, own.store, only(checkpoint_path(revision)))
    own.store.delete(transaction_path(4))
    before = manifest_of(own.catalog.state)
    done = rebuild(own.store)
    assert any(line.startswith(f"{checkpoint_path(revision)} is not of this log: ") for line in done.lost)
    assert manifest_of(read_state(own.store).at(HEAD)) == before
    assert not verify(own.store).damaged


def test_readers_pass_over_what_was_copied_here_for_an_older_checkpoint(own: Writer, other: Writer) -> None:
    before = manifest_of(own.catalog.state)
    bring(other, own.store, lambda path: path.endswith(".ckpt"))
    assert read_state(own.store).checkpointed == 5
    assert manifest_of(read_state(own.store)) == before
    assert manifest_of(read_state(own.store, through=5)) == manifest_of(own.catalog.state.at(5))


def test_others_checkpoints_in_place_of_those_of_a_pruned_log_are_named(pruned: Writer, tmp_path: Path) -> None:
    """No other state can be read then: not the empty one, nor the one that a longer log of others gives."""
    third = Writer(open_store(parse_location(f"file://{tmp_path}/a third location")))
    third.begin()
    longer(at_head(third))
    for revision in (10, 11):
        path = checkpoint_path(revision)
        pruned.store.put(path, third.store.get(path))
    for through in (None, 10, 11):
        with pytest.raises(ForeignLocationError, match=f"{checkpoint_path(11)} belongs to location"):
            read_state(pruned.store, through=through)
    with pytest.raises(ForeignLocationError):
        Catalog.open_for_writing(pruned.store)
    assert {checkpoint_path(10), checkpoint_path(11)} <= {fault.object for fault in verify(pruned.store).faults}
    assert not any(each.checkpoint for each in History(pruned.store).revisions())


def test_a_longer_log_of_others_below_a_pruned_one_is_no_part_of_it(own: Writer, pruned: Writer) -> None:
    """`cp -n` fills what was pruned: verification names it, and the state stays."""
    before = manifest_of(read_state(pruned.store))
    brought = bring(own, pruned.store)
    assert manifest_of(read_state(pruned.store)) == before
    assert set(brought) & {fault.object for fault in verify(pruned.store).faults if fault.is_damage}
    assert {each.revision for each in History(pruned.store).revisions() if not each.error} <= {1, *range(8, 12)}


@pytest.mark.parametrize("revision", [1, 7])
def test_a_damaged_transaction_denies_no_checkpoint(own: Writer, revision: int) -> None:
    write_checkpoint(own.store, own.catalog.state)
    path = transaction_path(revision)
    for cut in (0, 20, -1):
        own.store.put(path, own.store.get(path)[:cut])
        assert read_state(own.store).checkpointed == HEAD


def test_the_log_of_a_location_shows_a_stray_checkpoint_above_its_head(own: Writer, other: Writer) -> None:
    bring(other, own.store, only(checkpoint_path(9)))
    history = History(own.store)
    stray, *revisions = history.revisions()
    assert (history.head, stray.revision) == (HEAD, 9)
    assert "belongs to location" in stray.error
    assert [(each.revision, each.error) for each in revisions] == [(number, "") for number in range(HEAD, 0, -1)]


def test_a_stray_checkpoint_is_warned_of_once(own: Writer, other: Writer, caplog: pytest.LogCaptureFixture) -> None:
    bring(other, own.store, only(checkpoint_path(9)))
    for _ in range(3):
        read_state(own.store)
    assert len(caplog.records) == 1
