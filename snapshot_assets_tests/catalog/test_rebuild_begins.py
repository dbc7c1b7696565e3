"""Rebuilding a log in which snapshots were begun by force: every revision that can be read has the rows it had."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.operations.rollback import rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, replace_tag
from snapshot_assets.catalog.rebuild import pins as kept_pins
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import LogWholeError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.predicates import IsNull
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.operations.test_expire import readable
from snapshot_assets_tests.catalog.tags import SEAL, save_older, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, lose
from snapshot_assets_tests.catalog.test_rebuild_pins import copied, put_back, reseal

GONE = act.Tombstone("main", "m", IsNull("t"))


def files(state: State) -> list[str]:
    return [known.file.path for known in state.live_files()]


def forced(writer: Writer, after: str, *, sealed: bool = False) -> None:
    """Seal 5, begun anew at 6, seal 10, and something after it."""
    if not sealed:
        sealed_by(writer)
    assert writer.begin(replace(HEADER, name="second"), force=True) == 6
    writer.fill()
    assert seal(writer.catalog).seal.revision == 10
    match after:
        case "tombstone":
            writer.catalog.commit(rules.tombstone(writer.catalog.token(), GONE))
            seal(writer.catalog)
        case "replaced":
            reseal(writer)
        case "forced again":
            writer.begin(replace(HEADER, name="third"), force=True)
            writer.fill()
            seal(writer.catalog)
        case "back":
            rollback(writer.catalog, SEAL)
        case "back and on":
            rollback(writer.catalog, SEAL)
            writer.token = writer.catalog.token()
            reseal(writer)
    if after != "nothing":
        writer.catalog.commit(rules.in_progress(writer.catalog.token(), [1], "run"))


QUICK = ("tombstone", "replaced")
AFTER = ("nothing", "forced again", "back", "back and on")


def check_readable(writer: Writer, before: State, lost: list[int], *, accept: bool) -> None:
    """Rebuild: what can be read has the rows it had, and what cannot any more is named."""
    done = rebuild(writer.store, accept_undeleted=accept)
    after, told = read_state(writer.store), " ".join(done.lost)
    assert damage(writer.store) == []
    for known in after.readable():
        then = after.at(known.revision)
        assert checksum_of(then) == known.seal.checksum, (lost, known.revision, told)
        if known.revision != done.revision:
            assert files(then) == files(before.at(known.revision)), (lost, known.revision, told)
    readable = {known.revision for known in after.readable()}
    for known in before.readable():
        if known.revision not in readable:
            assert re.search(rf"\b{known.revision}\b", told), (lost, known.revision, told)


@pytest.mark.parametrize("after", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in AFTER)])
@pytest.mark.parametrize("hints", [True, False])
def test_each_lost_transaction_leaves_the_rows_of_what_can_be_read(writer: Writer, after: str, hints: bool) -> None:
    forced(writer, after)
    store, before = writer.store, read_state(writer.store)
    kept = copied(store)
    for revision in range(1, before.revision + 1):
        store.delete(transaction_path(revision))
        lose(store, *[] if hints else ["manifest.json", "SHA256SUMS"])
        try:
            check_readable(writer, before, [revision], accept=True)
        except LogWholeError:
            assert revision == before.revision
        put_back(store, kept)


@pytest.mark.parametrize("after", ["tombstone", "replaced", "forced again"])
def test_a_begin_whose_place_another_writer_took_leaves_the_rows_of_what_can_be_read(
    writer: Writer, after: str
) -> None:
    sealed_by(writer)
    sleeper = Catalog.open_for_writing(writer.store)
    forced(writer, after, sealed=True)
    before = read_state(writer.store)
    writer.store.delete(transaction_path(6))
    sleeper.commit(rules.in_progress(sleeper.token(), [1], "sleeper"))
    check_readable(writer, before, [6], accept=True)


def test_a_revision_that_is_not_what_was_sealed_expires_with_its_pins_and_is_named(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason; so that nobody reads other rows than were sealed."""
    forced(writer, "replaced")
    create_tag(writer.catalog, "kept", 10)
    save_older(writer.catalog, 10)
    writer.store.delete(transaction_path(6))
    right = kept_pins.checksum_of
    monkeypatch.setattr(kept_pins, "checksum_of", lambda state: "" if state.revision == 10 else right(state))
    done = rebuild(writer.store)
    assert readable(writer.store) == [SEAL, 12]
    assert (done.tags, done.savepoints, done.sealed) == ((), (), True)
    for start in (
        "Revision 10 cannot be read",
        "Not there any more is tag 'kept'",
        "Not there any more is savepoint 1",
    ):
        assert [line for line in done.lost if line.startswith(start) and "has not the checksum" in line], done.lost
    assert damage(writer.store) == []


# The end


def test_that_the_end_may_be_lost_is_said(writer: Writer) -> None:
    """A rollback was killed before its hints, and then the log was lost: what was undone is the head again."""
    sealed_by(writer)
    undone = reseal(writer)
    hints = {path: writer.store.get(path) for path in ("manifest.json", "SHA256SUMS")}
    rollback(writer.catalog, SEAL)
    put_back(writer.store, copied(writer.store) | hints)
    lose(writer.store, "transactions/")
    done = rebuild(writer.store)
    assert (done.proved, done.sealed) == (undone, True)
    assert f"Whether anything was committed after revision {undone} is not known." in done.lost


def test_a_tag_that_was_replaced_at_an_end_that_is_lost_is_what_its_object_says(writer: Writer) -> None:
    sealed_by(writer)
    new = reseal(writer)
    create_tag(writer.catalog, "moving", SEAL)
    replace_tag(writer.catalog, "moving", new)
    for revision in (6, writer.catalog.state.revision):
        writer.store.delete(transaction_path(revision))
    rebuild(writer.store)
    assert read_state(writer.store).tags["moving"].tag.revision == new
    assert damage(writer.store) == []
