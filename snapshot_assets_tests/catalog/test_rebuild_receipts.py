"""What a rebuild makes of receipts that are missing or damaged, where something else tells of their chunks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import SEAL, reseal, sealed_by
from snapshot_assets_tests.catalog.test_rebuild import damage, flip
from snapshot_assets_tests.catalog.test_rebuild_pins import check

SAID = "Receipts that are missing or damaged are not named any more; their chunks stay: {}."


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Sealed at 5 and, with another file in chunk 1, at 7."""
    sealed_by(writer)
    assert reseal(writer) == 7
    return writer


@pytest.mark.parametrize("harm", [lambda store, path: store.delete(path), flip], ids=["gone", "damaged"])
def test_a_receipt_that_is_gone_is_not_named_any_more_and_its_chunk_stays(
    sealed: Writer, harm: Callable[[ObjectStore, str], None]
) -> None:
    """Verification names it until then; afterwards the chunk rests on its checksum, and can be replaced."""
    store, before = sealed.store, read_state(sealed.store)
    [ref] = before.chunks[3].chunk.receipts
    harm(store, ref.path)
    assert [fault.object for fault in damage(store)] == [ref.path]
    store.delete(transaction_path(2))
    assert SAID.format(ref.path) in rebuild(store).lost
    after = check(store)
    assert after.chunks[3].chunk == replace(before.chunks[3].chunk, receipts=())
    assert after.chunks[1].chunk == before.chunks[1].chunk
    assert manifest_of(after) == manifest_of(before)
    writer = Writer(store)
    writer.token = writer.catalog.token()
    writer.complete(3, writer.file(3, b"again"), replaces=tuple(after.files.chunk(3)))
    seal(writer.catalog)
    check(store)


def test_receipts_of_a_past_that_can_be_read_are_told_too(sealed: Writer) -> None:
    """What revision 5 had in chunk 1 was replaced since."""
    store, before = sealed.store, read_state(sealed.store)
    [ref] = before.at(SEAL).chunks[1].chunk.receipts
    assert ref not in before.chunks[1].chunk.receipts
    store.delete(ref.path)
    store.delete(transaction_path(3))
    assert SAID.format(ref.path) in rebuild(store).lost
    after = check(store)
    assert after.at(SEAL).chunks[1].chunk.receipts == ()
    assert manifest_of(after.at(SEAL)) == manifest_of(before.at(SEAL))


def test_a_receipt_that_is_not_what_the_log_names_is_no_evidence(writer: Writer) -> None:
    """One digit makes it look newer than what replaced its files."""
    store = writer.store
    writer.fill()
    older = writer.catalog.state
    writer.complete(3, writer.file(3, b"newer"), replaces=tuple(older.files.chunk(3)))
    files = read_state(store).files.chunk(3).keys()
    [ref] = older.chunks[3].chunk.receipts
    said = json.loads(store.get(ref.path))
    store.put(ref.path, pretty_json(said | {"base_revision": 9}))
    store.delete(transaction_path(2))
    done = rebuild(store)
    assert done.revision == 6
    assert any(line.startswith(f"{ref.path} has SHA-256 ") for line in done.lost)
    assert read_state(store).files.chunk(3).keys() == files


def test_a_chunk_that_was_filled_and_emptied_in_lost_revisions_stays_empty(writer: Writer) -> None:
    """What emptied it says just what is known from before."""
    writer.fill()
    filled = writer.complete(2, writer.file(2), replaces=())
    emptied = writer.complete(2, replaces=tuple(writer.catalog.state.files.chunk(2)))
    writer.catalog.commit(rules.in_progress(writer.token, [3], "run"))
    for revision in (filled, emptied):
        writer.store.delete(transaction_path(revision))
    assert rebuild(writer.store).taken.keys() == {2}
    assert check(writer.store).files.chunk(2) == {}
