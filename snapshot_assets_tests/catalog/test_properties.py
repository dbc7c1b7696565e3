"""The properties that InfluxDB IOx requires of a catalog (linearity, rebuildability, …).

"Defined state" after a crash at any point is what the tests of faults prove, operation by operation. `test_upgrade` has
"upgradability", `test_federation` has "writer federation".
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipt_selection import adoptable_receipts
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, prune
from snapshot_assets_tests.catalog.tags import Killed, damage, dying, replaced

NOW = timedelta(0)


def history(writer: Writer) -> None:
    """Make two seals with a checkpoint each, and garbage for every kind of clean-up."""
    writer.fill()
    replaced(writer)
    for _ in range(2):
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)
        replaced(writer)


def test_eventual_preservation(writer: Writer) -> None:
    """After some time the parquet files a writer has written must appear in the catalog."""
    file = writer.file(2)
    writer.receipt(2, file)  # and here the writer dies
    later = Catalog.open_for_writing(writer.store)
    collect_garbage(later, grace=NOW, unsafe=True)
    [(receipt, ref)] = adoptable_receipts(writer.store, later.state, later.state.missing())
    finished = rules.FinishedChunk(receipt.chunk, receipt.files, (ref,), receipt.opened_at, receipt.fence, "later")
    later.commit(rules.complete_chunks(later.token(), [finished], later.now))
    assert [known.file for known in read_state(writer.store).live_files()] == [file]


def test_minimal_data_loss(writer: Writer) -> None:
    """Corrupting or losing objects belonging to the preserved catalog only leads to partial data loss."""
    history(writer)
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    store, state = writer.store, writer.catalog.state
    files = {known.file.path: known.file.sha256 for known in state.live_files()}
    for path in [info.path for info in store.list()]:
        data = store.get(path)
        for content in (None, data[:-1] + bytes([data[-1] ^ 1])):
            if content is None:
                store.delete(path)
            else:
                store.put(path, content)
            assert {known.file.path for known in read_state(store).live_files()} == files.keys(), path
        store.put(path, data)
    assert not damage(store)


@pytest.mark.parametrize("left", ["manifest", "receipts", "half"])
def test_rebuildability(writer: Writer, left: str) -> None:
    """It must be possible to rebuild the catalog from the in-store parquet files."""
    history(writer)
    seal(writer.catalog)
    store, before = writer.store, read_state(writer.store)
    torn = next(before.live_files(3)).file if left == "half" else None
    for info in list(store.list()):
        if info.path.startswith("transactions/") or (left != "manifest" and info.path == "manifest.json"):
            store.delete(info.path)
    if torn is not None:
        store.put(torn.path, b"")
    done = rebuild(store, accept_undeleted=True)
    after = read_state(store)
    expected = {known.file.path: known.file for known in before.live_files() if known.file != torn}
    assert {known.file.path: known.file for known in after.live_files()} == expected  # including rows and checksums
    assert (after.windows(), after.header, after.location_id) == (before.windows(), before.header, before.location_id)
    assert (done.sealed, done.missing) == (left == "manifest", (3,) if torn else ())
    assert bool(done.taken) == (left != "manifest")
    if torn is None:
        assert manifest_of(after)["chunks"] == manifest_of(before)["chunks"]
        checksum = seal(Catalog.open_for_writing(store)).seal.seal.checksum
        assert checksum == before.seals[-1].seal.checksum
        assert not damage(store)


def test_forward_moving(writer: Writer) -> None:
    """A transaction that gets preserved is the basis for the next one. Defined transactions must never be lost."""
    writer.fill()
    for after in (False, True):
        known = read_state(writer.store)
        killed = Catalog(dying(writer.store, 0, after), read_state(writer.store))
        with pytest.raises(Killed):
            killed.commit(rules.in_progress(killed.token(), [2], "killed"))
        next_path = transaction_path(known.revision + 1)
        assert (list_log(writer.store).transactions[-1] == known.revision + 1) is after
        data = writer.store.get(next_path) if after else None
        later = Catalog.open_for_writing(writer.store)
        assert later.state.revision == known.revision + after
        later.commit(rules.in_progress(later.token(), [2], "next"))
        assert later.state.revision == known.revision + after + 1
        assert data is None or writer.store.get(next_path) == data
    transactions = [entry.transaction for entry in scan_log(writer.store).entries]
    assert all(next_.previous_uuid == one.uuid for one, next_ in pairwise(transactions))
    write_checkpoint(writer.store, read_state(writer.store))
    writer.catalog.refresh()
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    assert prune(writer.catalog, grace=NOW, unsafe=True).deleted
    assert Catalog.open(writer.store).state.revision == writer.catalog.state.revision


def test_linearity(writer: Writer) -> None:
    """There exists one and only one linear timeline of transactions."""
    writers, each = 4, 12

    def work(number: int) -> list[int | None]:
        catalog = Catalog.open_for_writing(writer.store)
        token = catalog.token()
        return [catalog.commit(rules.in_progress(token, [2], f"{number} {turn}")) for turn in range(each)]

    with ThreadPoolExecutor(writers) as pool:
        won = [revision for revisions in pool.map(work, range(writers)) for revision in revisions]
    assert sorted(won) == list(range(2, 2 + writers * each))
    scan = scan_log(writer.store)
    assert (scan.faults, scan.state.revision) == ([], 1 + writers * each)
    runs = {action.run for entry in [*scan.entries][1:] for action in entry.transaction.actions}
    assert runs == {f"{number} {turn}" for number in range(writers) for turn in range(each)}


def test_integration(any_location: tuple[str, StoreOptions]) -> None:
    """Simple integration with the supported storage backends."""
    uri, options = any_location
    writer = Writer(open_store(parse_location(uri), options))
    writer.begin()
    history(writer)
    seal(writer.catalog)
    assert verify(open_store(parse_location(uri), options)).faults == []
