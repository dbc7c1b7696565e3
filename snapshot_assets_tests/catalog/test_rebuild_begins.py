"""Rebuilding a log in which snapshots were begun by force: every revision that can be read has the rows it had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.checkpoints import write_checkpoint
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.pins import create_tag
from snapshot_assets.catalog.rebuild import rebuild
from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.rollback import rollback
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.state import State
from snapshot_assets.errors import LogWholeError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.predicates import IsNull
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.tags import SEAL, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, lose
from snapshot_assets_tests.catalog.test_rebuild_pins import copied, put_back, reseal

GONE = act.Tombstone("main", "m", IsNull("t"))


def files(state: State) -> list[str]:
    return [known.file.path for known in state.live_files()]


def forced(writer: Writer, after: str) -> None:
    """Seal 5, begun anew at 6, seal 10, and something after it."""
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


AFTER = ("nothing", "tombstone", "replaced", "forced again", "back", "back and on")


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
            assert f"evision {known.revision} " in told or f" {known.revision}" in told, (lost, known.revision, told)


@pytest.mark.parametrize("after", AFTER)
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
