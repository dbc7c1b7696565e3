"""A log that lost its newest revisions: objects written for one of them prove it (FORMAT.md, "Lost ends")."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipts import write_receipt
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ForeignLocationError, LostLogError
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import checkpoint_path, new_attempt, transaction_path
from snapshot_assets.storage.base import ObjectInfo
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.tags import Changed, objects, save, wait_for_clock

NOW = timedelta(0)
HINTS = ("manifest.json", "SHA256SUMS")


@dataclass(frozen=True)
class Lost:
    """A location whose log lost its end.

    Attributes:
        head: The last revision that is left.
        proof: What names a later one.
        revision: That one.
    """

    writer: Writer
    head: int
    proof: str
    revision: int


def cut(writer: Writer, head: int, *others: str) -> None:
    for revision in list_log(writer.store).transactions:
        if revision > head:
            writer.store.delete(transaction_path(revision))
    for path in others:
        writer.store.delete(path)


def replaced(writer: Writer) -> str:
    """Replace a chunk, and return its receipt."""
    writer.complete(1, writer.file(1), replaces=tuple(writer.catalog.state.files.chunk(1)))
    return writer.catalog.state.chunks[1].chunk.receipts[0].path


def chunks(writer: Writer) -> Lost:
    """The last two of three chunks were committed one after the other."""
    writer.fill()
    proof = writer.catalog.state.chunks[3].chunk.receipts[0].path
    cut(writer, 2)
    return Lost(writer, 2, proof, 3)


def many_chunks(writer: Writer) -> Lost:
    """One that is not the first of more windows than are looked at one by one."""
    writer.begin(replace(HEADER, chunk_time_window=60_000_000), force=True)  # 4,320 windows
    for chunk in (4000, 4001):
        writer.complete(chunk, writer.file(chunk))
    proof = writer.catalog.state.chunks[4001].chunk.receipts[0].path
    cut(writer, 2)
    return Lost(writer, 2, proof, 3)


def replacement(writer: Writer) -> Lost:
    """A completed chunk was replaced after other commits."""
    writer.fill()
    writer.catalog.checkpoint()
    seal(writer.catalog)
    proof = replaced(writer)
    cut(writer, 4, *HINTS)
    return Lost(writer, 4, proof, 5)


def beyond_the_range(writer: Writer) -> Lost:
    """A chunk of a window that only a lost revision added."""
    writer.fill()
    receipt, _ = writer.receipt(9)
    proof = write_receipt(writer.store, replace(receipt, attempt=new_attempt(), base_revision=6)).path
    return Lost(writer, 4, proof, 6)


def seal_and_manifest(writer: Writer) -> Lost:
    writer.fill()
    seal(writer.catalog)
    cut(writer, 4)
    return Lost(writer, 4, "manifest.json", 5)


def tag(writer: Writer) -> Lost:
    writer.fill()
    seal(writer.catalog)
    proof = create_tag(writer.catalog, "kept", 5).known.pin.object.path
    cut(writer, 4, *HINTS)
    return Lost(writer, 4, proof, 5)


def savepoint(writer: Writer) -> Lost:
    writer.fill()
    seal(writer.catalog)
    proof = save(writer.catalog).pin.object.path
    cut(writer, 4, *HINTS)
    return Lost(writer, 4, proof, 5)


def checkpoint(writer: Writer) -> Lost:
    writer.fill()
    proof = write_checkpoint(writer.store, writer.catalog.state)
    cut(writer, 3)
    return Lost(writer, 3, proof, 4)


def damaged_checkpoint(writer: Writer) -> Lost:
    """Its name is enough."""
    lost = checkpoint(writer)
    writer.store.put(lost.proof, writer.store.get(lost.proof)[:-1])
    return lost


KINDS = [
    chunks,
    many_chunks,
    replacement,
    beyond_the_range,
    seal_and_manifest,
    tag,
    savepoint,
    checkpoint,
    damaged_checkpoint,
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_for_a_lost_revision_stops_whatever_deletes_until_a_rebuild(
    writer: Writer, kind: Callable[[Writer], Lost]
) -> None:
    lost = kind(writer)
    stale = Catalog.open(writer.store)
    before = objects(writer.store)
    wait_for_clock(writer.store, writer.catalog.state.committed_at)
    for change in (
        lambda: collect_garbage(stale, grace=NOW, unsafe=True),
        lambda: prune(stale, grace=NOW, unsafe=True),
        lambda: expire(stale, keep_last=1),
    ):
        with pytest.raises(LostLogError) as refused:
            change()
        expected = f"ends at revision {lost.head}, but {lost.proof} is of revision {lost.revision}"
        assert expected in str(refused.value)
        assert "catalog rebuild" in str(refused.value)
    with pytest.raises(LostLogError, match=lost.proof):
        Catalog.open_for_writing(writer.store)
    assert objects(writer.store) == before
    damage = [fault for fault in verify(writer.store).faults if fault.is_damage]
    assert any(
        lost.proof in (fault.object, *fault.message.split()) or fault.object == transaction_path(lost.revision)
        for fault in damage
    )
    rebuild(writer.store, accept_undeleted=True)  # ends the refusal
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]
    catalog = Catalog.open_for_writing(writer.store)
    collect_garbage(catalog, grace=NOW, unsafe=True)
    expire(catalog, keep_last=1)
    prune(catalog, grace=NOW, unsafe=True)


def test_a_writer_that_opens_a_location_lists_its_data_once_and_reads_no_receipt_that_the_log_names(
    writer: Writer,
) -> None:
    writer.fill()
    replaced(writer)
    listed: list[str] = []
    read: list[str] = []

    def listing(prefix: str = "") -> Iterator[ObjectInfo]:
        listed.append(prefix)
        return writer.store.list(prefix)

    def reading(path: str, *, limit: int | None = None) -> bytes:
        read.append(path)
        return writer.store.get(path, limit=limit)

    named = {ref.path for known in writer.catalog.state.chunks.values() for ref in known.chunk.receipts}
    catalog = Catalog.open_for_writing(Changed(writer.store, list=listing, get=reading))
    assert [prefix for prefix in listed if prefix.startswith("data") or not prefix] == ["data/"]
    assert named
    assert named.isdisjoint(read)
    assert catalog.state.revision == 5


def test_a_receipt_of_another_location_is_refused_by_all_that_read_it(writer: Writer) -> None:
    """Either the receipt or the whole log was copied here: what a foreign log does not name must not go."""
    receipt, _ = writer.receipt(2)
    foreign = replace(receipt, base_revision=99, location_id="ab" * 16, attempt=new_attempt())
    proof = write_receipt(writer.store, foreign)
    for change in (
        lambda: Catalog.open_for_writing(writer.store),
        lambda: expire(writer.catalog, keep_last=1),
        lambda: prune(writer.catalog),
        lambda: collect_garbage(writer.catalog),
    ):
        with pytest.raises(ForeignLocationError, match=proof.path):
            change()


def test_receipts_that_prove_nothing_stop_nobody(writer: Writer) -> None:
    """One of no location and another snapshot, one that is torn, and one of the head."""
    writer.complete(1, writer.file(1))
    receipt, _ = writer.receipt(2)
    later = replace(receipt, base_revision=99)
    write_receipt(writer.store, replace(later, attempt=new_attempt(), location_id="", snapshot_id="cd" * 16))
    torn = write_receipt(writer.store, replace(later, attempt=new_attempt()))
    writer.store.put(torn.path, writer.store.get(torn.path)[:-3])
    assert Catalog.open_for_writing(writer.store).state.revision == 2
    assert not [fault for fault in verify(writer.store).faults if fault.is_damage]
    expire(writer.catalog, keep_last=1)
    collect_garbage(writer.catalog)


@pytest.mark.parametrize("changes", [{"snapshot_id": "cd" * 16}, {"location_id": ""}])
def test_a_receipt_of_this_location_or_of_its_snapshot_counts(writer: Writer, changes: dict[str, str]) -> None:
    """A lost revision may have started another snapshot."""
    receipt, _ = writer.receipt(2)
    proof = write_receipt(writer.store, replace(receipt, base_revision=2, attempt=new_attempt(), **changes))
    with pytest.raises(LostLogError, match=proof.path):
        Catalog.open_for_writing(writer.store)


def test_a_pin_of_an_older_revision_stops_no_writer_and_one_of_another_location_does(writer: Writer) -> None:
    writer.fill()
    seal(writer.catalog)
    create_tag(writer.catalog, "kept", 5)
    [path] = (info.path for info in writer.store.list("tag/"))
    document = json.loads(writer.store.get(path))
    writer.store.put("tag/tag-old-12345678", pretty_json(document))
    assert Catalog.open_for_writing(writer.store).state.revision == 6
    assert not verify(writer.store).damaged
    document["manifest"] |= {"location_id": "ab" * 16}
    writer.store.put("tag/tag-brought-12345678", pretty_json(document))
    with pytest.raises(ForeignLocationError, match="tag/tag-brought-12345678 belongs to location ab"):
        Catalog.open_for_writing(writer.store)


def test_commits_while_the_location_is_opened_verified_and_collected_are_no_loss(writer: Writer) -> None:
    """What another writer commits after the log was read is newer than the head that was read, and is not lost."""
    another = Writer(writer.store)
    another.token = another.catalog.token()
    turns: Iterator[int] = iter(range(3, 0, -1))

    def meanwhile(prefix: str = "") -> Iterator[ObjectInfo]:
        if not prefix.startswith("transactions") and (chunk := next(turns, None)):
            another.complete(chunk, another.file(chunk))
            another.finished(chunk, another.file(chunk))  # planned on that commit
        return writer.store.list(prefix)

    busy = Changed(writer.store, list=meanwhile)
    assert Catalog.open_for_writing(busy).state.revision in (1, 2)
    assert not [fault for fault in verify(busy).faults if fault.kind == "log"]
    plan_collection(Catalog.open(busy), grace=NOW, unsafe=True)
    assert next(turns, None) is None


def test_an_unfinished_rebuild_stops_writers_until_it_is_finished(writer: Writer) -> None:
    writer.fill()
    seal(writer.catalog)
    writer.store.delete(transaction_path(3))
    done = rebuild(writer.store)
    writer.store.delete(transaction_path(done.revision))  # as if it had been cut off before
    with pytest.raises(LostLogError, match=checkpoint_path(done.revision)):
        Catalog.open_for_writing(writer.store)
    assert read_state(writer.store).revision == done.revision
    again = rebuild(writer.store)
    assert again.revision > done.revision
    assert Catalog.open_for_writing(writer.store).state.revision == again.revision
