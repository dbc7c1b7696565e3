"""Rebuilding a log that had tags changed, savepoints, rollbacks and revisions that expired."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import checksum_of, manifest_of
from snapshot_assets.catalog.operations.collect_garbage import collect_garbage
from snapshot_assets.catalog.operations.expire import expire
from snapshot_assets.catalog.operations.rollback import rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.savepoints import delete_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipts.receipts import find_adoptable
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import LogWholeError, SnapshotError
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START, Writer
from snapshot_assets_tests.catalog.histories import some_history
from snapshot_assets_tests.catalog.tags import NOW, SEAL, Killed, file_of, readable, save, save_older, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, facts, flip, lose, rebuild_refuses


def reseal(writer: Writer, content: bytes = b"late rows") -> int:
    """Replace chunk 1 as an export does, whose receipt names what it replaces, and seal again."""
    [old] = (known.file for known in writer.catalog.state.live_files(1))
    file = writer.file(1, content)
    receipt, ref = writer.receipt(1, file, supersedes=(old.attempt,))
    done = rules.FinishedChunk(1, (file,), (ref,), receipt.opened_at, receipt.fence, "r1", (old.path,))
    writer.token = writer.catalog.token()
    writer.catalog.commit(rules.complete_chunk(writer.token, done, writer.catalog.now))
    return seal(writer.catalog).seal.revision


def copied(store: ObjectStore) -> dict[str, bytes]:
    return {info.path: store.get(info.path) for info in store.list()}


def put_back(store: ObjectStore, kept: dict[str, bytes]) -> None:
    lose(store, "")
    for path, data in kept.items():
        store.put(path, data)


def pins(state: State) -> set[tuple]:
    """What a rebuild has to keep of pins: everything but their objects."""
    tags = (known.tag for known in state.tags.values())
    savepoints = (known.savepoint for known in state.pins.savepoints.values())
    return {(tag.name, tag.revision, tag.created_at, tag.ttl, tag.automatic) for tag in tags} | {
        (each.id, each.revision, each.created_at, each.automatic) for each in savepoints
    }


def check(store: ObjectStore) -> State:
    """A rebuilt location is whole, its checkpoint says what it is, and collecting garbage takes nothing it needs."""
    state = read_state(store)
    assert damage(store) == []
    manifests = {seal.revision: manifest_of(state.at(seal.revision)) for seal in state.readable()}
    collect_garbage(Catalog.open_for_writing(store), grace=NOW, unsafe=True)
    assert damage(store) == []
    after = read_state(store)
    assert {seal.revision: manifest_of(after.at(seal.revision)) for seal in after.readable()} == manifests
    for manifest in manifests.values():
        assert all(store.head(file["path"]) for chunk in manifest["chunks"] for file in chunk["files"])
    return state


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Seals at 5 and 7."""
    sealed_by(writer)
    assert reseal(writer) == 7
    return writer


# Tags and savepoints


@pytest.fixture
def pinned(sealed: Writer) -> Writer:
    """Tags that were renamed and replaced, one by a rule, and savepoints, of which the last is deleted."""
    catalog = sealed.catalog
    create_tag(catalog, "first", SEAL, 7 * DAY, automatic=True)  # 8
    rename_tag(catalog, "first", "other")
    create_tag(catalog, "moving", SEAL)
    replace_tag(catalog, "moving", 7)
    create_tag(catalog, "gone", 7)  # 12
    delete_tag(catalog, "gone")
    save_older(catalog, SEAL, automatic=True)  # 14
    save(catalog)
    save(catalog)  # 16
    delete_savepoint(catalog, 3)
    assert catalog.state.revision == 17
    return sealed


def test_a_lost_log_leaves_the_pins_that_were_there_with_their_ids_and_kinds(pinned: Writer) -> None:
    before = read_state(pinned.store)
    lose(pinned.store, "transactions/")
    done = rebuild(pinned.store)
    assert (done.tags, done.savepoints, done.sealed, done.proved) == (("moving", "other"), (1, 2), True, 7)
    after = check(pinned.store)
    assert pins(after) == pins(before)
    assert facts(after) == facts(before)
    for revision in (SEAL, 7):
        assert manifest_of(after.at(revision)) == manifest_of(before.at(revision))
    assert save(Catalog.open_for_writing(pinned.store)).savepoint.id > 3


def test_savepoints_alone_prove_the_revisions_that_they_pin(pinned: Writer) -> None:
    before = read_state(pinned.store)
    lose(pinned.store, "transactions/", "tag/", "manifest.json", "SHA256SUMS")
    done = rebuild(pinned.store)
    assert (done.proved, done.sealed, done.savepoints) == (7, True, (1, 2))
    assert facts(check(pinned.store)) == facts(before)


@pytest.mark.parametrize(
    ("checkpoint", "revisions"),
    [
        (0, (6, 9, 11, 15)),
        *(pytest.param(each, range(6, 18), marks=pytest.mark.slow) for each in (0, 9, 15)),
    ],
)
def test_a_hole_anywhere_loses_no_pin_and_gives_no_number_twice(
    pinned: Writer, checkpoint: int, revisions: Iterable[int]
) -> None:
    store, before = pinned.store, read_state(pinned.store)
    if checkpoint:
        write_checkpoint(store, read_state(store, through=checkpoint))
    kept = copied(store)
    for revision in revisions:
        store.delete(transaction_path(revision))
        try:
            done = rebuild(store)
        except LogWholeError:
            assert revision == 17 or revision <= checkpoint
        else:
            after = check(store)
            assert facts(after) == facts(before)
            assert pins(after) >= pins(before), (revision, done.lost)
            extra = {name for name, *_ in pins(after) - pins(before)}
            assert extra <= {"gone", 3}, (revision, done.lost)  # what deleted these may be what was lost
            assert save(Catalog.open_for_writing(store)).savepoint.id > 3
        put_back(store, kept)


def test_savepoints_that_were_lost_before_known_ones_keep_their_numbers(pinned: Writer) -> None:
    """And the checkpoint that the rebuild writes can be read."""
    before = read_state(pinned.store)
    save(pinned.catalog)  # 18
    for revision in (14, 15):
        pinned.store.delete(transaction_path(revision))
    done = rebuild(pinned.store)
    assert done.savepoints == (1, 2, 4)
    after = check(pinned.store)
    assert pins(after) > pins(before)
    [one, two] = (after.pins.savepoints[number].committed for number in (1, 2))
    assert SEAL < one < two < after.pins.savepoints[4].committed


def test_a_tag_that_was_renamed_in_a_hole_is_not_there_twice(sealed: Writer) -> None:
    create_tag(sealed.catalog, "first", SEAL)
    rename_tag(sealed.catalog, "first", "other")
    lost = sealed.catalog.state.revision
    sealed.catalog.commit(rules.in_progress(sealed.catalog.token(), [1], "run"))
    sealed.store.delete(transaction_path(lost))
    assert rebuild(sealed.store).tags == ("other",)
    check(sealed.store)


def test_a_pin_whose_deletion_was_lost_is_told_and_comes_back_only_with_its_files(sealed: Writer) -> None:
    create_tag(sealed.catalog, "gone", SEAL)  # 8
    delete_tag(sealed.catalog, "gone")
    sealed.catalog.commit(rules.in_progress(sealed.catalog.token(), [1], "run"))
    sealed.store.delete(transaction_path(9))
    kept = copied(sealed.store)
    done = rebuild(sealed.store)
    assert done.tags == ("gone",)
    assert any("is missing and was made again; whether tag 'gone' was deleted is not proved." in x for x in done.lost)
    check(sealed.store)
    put_back(sealed.store, kept)
    sealed.store.delete(file_of(sealed, SEAL))
    done = rebuild(sealed.store)
    assert (done.tags, readable(sealed.store)) == ((), [7])
    assert any(line.startswith("Not there any more is tag 'gone': tag/tag-gone-") for line in done.lost)
    check(sealed.store)


# Rollback


@pytest.fixture
def rolled_back(sealed: Writer) -> Writer:
    """Seals at 5 and 7, and back to 5 at 8."""
    assert rollback(sealed.catalog, SEAL).revision == 8
    return sealed


@pytest.mark.parametrize("tagged", [False, True])
def test_a_lost_log_leaves_what_was_rolled_back_to(rolled_back: Writer, tagged: bool) -> None:
    """The receipt of what was given up replaces exactly what is there, and does not count."""
    store = rolled_back.store
    if tagged:
        create_tag(rolled_back.catalog, "old", SEAL)
        create_tag(rolled_back.catalog, "undone", 7)
    before = read_state(store)
    lose(store, "transactions/")
    done = rebuild(store)
    assert (done.proved, done.sealed, done.taken) == (8, True, {})
    after = check(store)
    assert manifest_of(after) == manifest_of(before)
    assert after.rolled_back == 8
    if tagged:
        assert manifest_of(after.at(7)) == manifest_of(before.at(7))


@pytest.mark.parametrize("hints", [True, False])
def test_a_hole_before_a_rollback_or_in_it_is_proved_by_what_it_says(rolled_back: Writer, hints: bool) -> None:
    store = rolled_back.store
    before, kept = read_state(store), copied(store)
    for lost in ([2], [5], [6], [7], [1, 2, 3, 4, 5, 6, 7], [8]):
        for revision in lost:
            store.delete(transaction_path(revision))
        lose(store, *[] if hints else ["manifest.json", "SHA256SUMS"])
        if hints or lost != [8]:  # without hints nothing tells of an end that was lost
            done = rebuild(store)
            after = check(store)
            assert (done.proved, done.sealed, done.taken) == (8, True, {}), (lost, done.lost)
            assert manifest_of(after) == manifest_of(before)
        put_back(store, kept)


@pytest.mark.parametrize("hints", [True, False])
def test_a_hole_behind_a_rollback_loses_nothing_that_something_else_proves(rolled_back: Writer, hints: bool) -> None:
    rolled_back.token = rolled_back.catalog.token()
    assert reseal(rolled_back, b"after it") == 10
    if hints:
        create_tag(rolled_back.catalog, "after", 10)  # whose object tells of the rollback too
    store = rolled_back.store
    before, kept = read_state(store), copied(store)
    for revision in (5, 7, 8, 9):
        store.delete(transaction_path(revision))
        lose(store, *[] if hints else ["manifest.json", "SHA256SUMS"])
        done = rebuild(store)
        after = check(store)
        assert (done.proved, done.sealed) == (10 + hints, True), (revision, done.lost)
        told = () if hints or revision != 8 else ("rolled_back",)  # what it led to is proved, but not that it was one
        assert facts(after) == {name: value for name, value in facts(before).items() if name not in told}
        put_back(store, kept)


def test_what_is_newer_than_a_rollback_expires_with_it_though_the_log_was_lost_before(sealed: Writer) -> None:
    rollback(sealed.catalog, SEAL, discard_newer=True)
    for revision in (3, 6):
        sealed.store.delete(transaction_path(revision))
    rebuild(sealed.store)
    check(sealed.store)
    assert readable(sealed.store) == [SEAL, 8]


def test_files_that_came_back_are_neither_lost_nor_garbage(rolled_back: Writer) -> None:
    """Behind a hole, and after everything that was given up expired and was collected."""
    late = file_of(rolled_back, 7)
    expire(rolled_back.catalog, keep_last=1)
    collect_garbage(rolled_back.catalog, grace=NOW, unsafe=True)
    before = read_state(rolled_back.store)
    for path in (transaction_path(3), transaction_path(6)):
        rolled_back.store.delete(path)
    done = rebuild(rolled_back.store)
    after = check(rolled_back.store)
    assert manifest_of(after) == manifest_of(before)
    assert not any(late in line and "missing" in line for line in done.lost)
    assert readable(rolled_back.store) == [8]


# Expiry


@pytest.fixture
def expired(sealed: Writer) -> Writer:
    """Seals at 5, 7, 9 and 11, of which 5 and 9 expired, and are collected; 7 is tagged."""
    for content in (b"third", b"fourth"):
        reseal(sealed, content)
    create_tag(sealed.catalog, "kept", 7)  # 12
    assert expire(sealed.catalog, keep_last=1).revision == 13
    collect_garbage(sealed.catalog, grace=NOW, unsafe=True)  # 14
    return sealed


@pytest.mark.parametrize("lost", [[3], [6], [8], [12], [13], [14], [13, 14], [5, 13], "all", "but receipts"])
def test_what_expired_and_is_gone_is_neither_damage_nor_readable_again(expired: Writer, lost: list[int] | str) -> None:
    store = expired.store
    before = read_state(store)
    if isinstance(lost, str):
        lose(store, "transactions/", *["manifest.json", "SHA256SUMS", "tag/"] * (lost != "all"))
    else:
        for revision in lost:
            store.delete(transaction_path(revision))
    try:
        done = rebuild(store, accept_undeleted=lost == "but receipts")
    except LogWholeError:
        assert lost in ([14], [13, 14])
        return
    after = check(store)
    assert facts(after) == facts(before)
    if lost != "but receipts":
        assert (readable(store), done.tags) == ([7, 11], ("kept",)), done.lost
    if lost == [13]:
        for revision in (5, 9):
            assert any(line.startswith(f"Revision {revision} expired: garbage") for line in done.lost), done.lost


def test_a_revision_of_which_files_are_missing_is_told_and_expires(sealed: Writer) -> None:
    """Nobody knows whether an expiry was lost; what the head needs too is damage and stays."""
    path = file_of(sealed, SEAL)
    sealed.catalog.commit(rules.in_progress(sealed.catalog.token(), [1], "run"))
    sealed.catalog.commit(rules.in_progress(sealed.catalog.token(), [1], "run"))
    sealed.store.delete(transaction_path(8))
    kept = copied(sealed.store)
    told = "Whether revision 5 had expired is not known; the files are there, so what expired can be read again."
    assert told in rebuild(sealed.store).lost
    assert readable(sealed.store) == [SEAL, 7]
    put_back(sealed.store, kept)
    sealed.store.delete(path)
    done = rebuild(sealed.store)
    assert any(line.startswith(f"Revision 5 cannot be read: {path} is missing.") for line in done.lost)
    assert readable(sealed.store) == [7]
    check(sealed.store)
    put_back(sealed.store, kept)
    sealed.store.delete(file_of(sealed, SEAL, 3))
    rebuild(sealed.store)
    assert readable(sealed.store) == [SEAL, 7]
    assert damage(sealed.store)


def test_the_same_rebuild_gives_the_same_state_whatever_it_is_read_from(pinned: Writer) -> None:
    rollback(pinned.catalog, SEAL)
    for revision in (6, 11, 14):
        pinned.store.delete(transaction_path(revision))
    rebuild(pinned.store)
    first = read_state(pinned.store)
    writer = Catalog.open_for_writing(pinned.store)
    writer.commit(rules.in_progress(writer.token(), [1], "run"))
    write_checkpoint(pinned.store, writer.state)
    again = read_state(pinned.store)
    assert same_states(again, writer.state)
    assert pins(again) == pins(first)
    assert (again.rolled_back, again.pins.last_savepoint) == (first.rolled_back, first.pins.last_savepoint)
    assert damage(pinned.store) == []


def test_an_end_of_the_range_that_was_undone_does_not_come_back(writer: Writer) -> None:
    """Nor is a receipt adopted that was made for it, once the range is extended again."""
    writer.begin(replace(HEADER, kind="continuous", requested_end=""), force=True)
    writer.fill()
    sealed = seal(writer.catalog).seal.revision
    writer.catalog.commit(rules.extend(writer.token, START + 4 * DAY))
    writer.complete(4, writer.file(4, b"undone"))
    seal(writer.catalog)
    rollback(writer.catalog, sealed)
    before = manifest_of(writer.catalog.state)
    lose(writer.store, "transactions/")
    done = rebuild(writer.store)
    assert (done.sealed, done.taken, done.missing) == (True, {}, ())
    state = check(writer.store)
    assert manifest_of(state) == before
    catalog = Catalog.open_for_writing(writer.store)
    catalog.commit(rules.extend(catalog.token(), START + 4 * DAY))
    assert find_adoptable(writer.store, catalog.state, [4], catalog.state.schemas[1].sha256) == {}


def test_of_two_objects_of_one_savepoint_one_is_taken_and_the_other_named(writer: Writer) -> None:
    """A writer was killed between its object and its commit."""
    sealed = sealed_by(writer)

    def killed(*_: object) -> None:
        raise Killed

    other = Catalog.open_for_writing(sealed.store)
    other.commit = killed
    with suppress(Killed):
        save(other)
    assert reseal(sealed) == 7
    save(sealed.catalog)
    lose(sealed.store, "transactions/")
    done = rebuild(sealed.store)
    assert done.savepoints == (1,)
    assert check(sealed.store).pins.savepoints[1].savepoint.revision == 7
    assert any("are both savepoint 1, and only one was committed" in line for line in done.lost)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))])
def test_whatever_is_lost_of_a_history_that_was_undone_and_expired_the_rest_is_whole(writer: Writer, seed: int) -> None:
    choose = random.Random(seed)
    sealed_by(writer)
    for part in range(8):
        with suppress(SnapshotError):  # what expired cannot be tagged, nor a name be taken twice
            some_history(writer, 6, seed * 10 + part)
        catalog, sealed = writer.catalog, writer.catalog.state.readable()
        if sealed:
            with suppress(SnapshotError):  # of another snapshot, a rollback may ask for what was deleted
                match choose.choice(("back", "back", "expire", "collect")):
                    case "back":
                        rollback(catalog, choose.choice(sealed).revision, discard_newer=choose.random() < 0.3)
                    case "expire":
                        expire(catalog, keep_last=choose.choice((1, 2)))
                    case "collect":
                        collect_garbage(catalog, grace=NOW, unsafe=True)
        writer.token = writer.catalog.token()
    store, before = writer.store, read_state(writer.store)
    paths = [info.path for info in store.list() if info.path.startswith(("transactions/", "manifest"))]
    for path in choose.sample(paths, choose.randint(1, len(paths) // choose.choice((1, 4)))):
        (store.delete if choose.random() < 0.5 else lambda path: flip(store, path))(path)
    try:
        rebuild(store, accept_undeleted=True)
    except LogWholeError:
        return
    assert rebuild_refuses(store)
    after = check(store)
    assert pins(after) >= {pin for pin in pins(before) if pin[1] in {seal.revision for seal in after.readable()}}
    for known in after.readable():
        assert checksum_of(after.at(known.revision)) == known.seal.checksum


def test_a_tag_whose_replacement_was_lost_untold_gets_its_object_again(writer: Writer) -> None:
    """The replacement deleted that object, and is at the log's end, so that nothing names it."""
    sealed_by(writer)
    assert reseal(writer) == 7
    create_tag(writer.catalog, "kept", SEAL)
    replace_tag(writer.catalog, "kept", 7)
    lose(writer.store, "tag/", transaction_path(4), transaction_path(9))
    [told] = [line for line in rebuild(writer.store).lost if line.startswith("tag/tag-kept-")]
    assert told.endswith(" is missing and was made again.")
    assert check(writer.store).tags["kept"].tag.revision == SEAL
