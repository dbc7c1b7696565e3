"""The properties that InfluxDB IOx requires of a catalog (linearity, rebuildability, …)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.federation.federation import open_federation
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipts.selection import adoptable_receipts
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import UnsupportedVersionError
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, prune, upgrade
from snapshot_assets_tests.catalog.federation.test_federation import Root
from snapshot_assets_tests.catalog.operations.test_upgrade import next_version
from snapshot_assets_tests.catalog.tags import Killed
from snapshot_assets_tests.faults.store import Fault, FaultyStore

NOW = timedelta(0)


@dataclass
class DyingStore(FaultyStore):
    """A store whose process dies before or after one call. A dead process makes no more calls."""

    dead: bool = False

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[None]:
        if self.dead:
            raise Killed
        with super()._call(operation, path):
            yield

    def _strike_before(self, operation: str, path: str) -> None:
        if self.fault.kind == "kill-before":
            self.dead = True
            raise Killed

    def _strike_after(self, operation: str, path: str) -> None:
        if self.fault.kind == "kill-after":
            self.dead = True
            raise Killed


def damage(store: ObjectStore) -> set[str]:
    return {fault.object for fault in verify(store).faults if fault.is_damage}


def replaced(writer: Writer) -> None:
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))


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
    later.commit(rules.complete_chunk(later.token(), finished, later.now))
    assert [known.file for known in read_state(writer.store).live_files()] == [file]


OPERATIONS: dict[str, Callable[[Writer], object]] = {
    "complete": lambda writer: writer.complete(2, writer.file(2), replaces=()),
    "replace": replaced,
    "seal": lambda writer: seal(writer.catalog),
    "checkpoint": lambda writer: write_checkpoint(writer.store, writer.catalog.state),
    "collect": lambda writer: collect_garbage(writer.catalog, grace=NOW, unsafe=True),
    "prune": lambda writer: prune(writer.catalog, grace=NOW, unsafe=True),
}


def dying(source: Path, folder: Path, fault: Fault) -> Writer:
    """Return a writer of a fresh copy of a location whose process dies at a later call."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    writer = Writer(DyingStore(open_store(parse_location(folder.as_uri()))))
    writer.token = writer.catalog.token()
    writer.store.trace.clear()
    writer.store.fault = fault
    return writer


@pytest.mark.parametrize("name", OPERATIONS)
def test_defined_state(writer: Writer, tmp_path: Path, name: str) -> None:
    """At each point in time, especially after a writer crashed, the catalog must be in a usable, defined state."""
    history(writer)
    before = read_state(writer.store)
    source, operation = parse_location(writer.store.uri).local_path, OPERATIONS[name]
    whole = dying(source, tmp_path / "copy", Fault())
    operation(whole)
    changing = [at for at, call in enumerate(whole.store.trace, 1) if call.split()[0] in ("create", "put", "delete")]
    assert changing
    for fault in (Fault(kind, at) for at in changing for kind in ("kill-before", "kill-after")):
        killed = dying(source, tmp_path / "copy", fault)
        with pytest.raises(Killed):
            operation(killed)
        store = killed.store.inner
        found = read_state(store)
        assert found.revision in (before.revision, before.revision + 1)
        if found.revision == before.revision:
            assert manifest_of(found) == manifest_of(before)
        assert not damage(store)
        again = Writer(store)
        again.token = again.catalog.token()
        if found.revision == before.revision or name in ("seal", "collect", "prune"):
            operation(again)
        assert not damage(store)


def test_minimal_data_loss(writer: Writer) -> None:
    """Corrupting or losing objects belonging to the preserved catalog only leads to partial data loss."""
    history(writer)
    seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    store, state = writer.store, writer.catalog.state
    files = {known.file.path: known.file.sha256 for known in state.live_files()}
    named = {ref.path for known in state.chunks.values() for ref in known.chunk.receipts}
    named |= files.keys() | {ref.path for added in state.schemas.values() for ref in added.files}
    for path in [info.path for info in store.list()]:
        data = store.get(path)
        for content in (None, data[:-1] + bytes([data[-1] ^ 1])):
            if content is None:
                store.delete(path)
            else:
                store.put(path, content)
            assert {known.file.path for known in read_state(store).live_files()} == files.keys(), path
            assert all(sha256_hex(store.get(other)) == files[other] for other in files.keys() - {path}), path
            # A log without its first transactions looks pruned, and checkpoints repeat the log.
            optional = path in map(transaction_path, (1, 2, 3)) or path.endswith(".ckpt")
            if path in named or (path.startswith("transactions/") and not (content is None and optional)):
                assert path in damage(store)
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


def test_upgradability(writer: Writer) -> None:
    """The catalog must provide a way to upgrade to a new protocol without violating the other properties."""
    history(writer)
    seal(writer.catalog)
    store, before = writer.store, read_state(writer.store)
    objects = {info.path: store.get(info.path) for info in store.list()}
    with next_version():  # code of version 2 reads and writes version 1, until one transaction upgrades it
        catalog = Catalog.open_for_writing(store)
        assert manifest_of(catalog.state) == manifest_of(before)
        catalog.commit(rules.in_progress(catalog.token(), [2], "by newer code"))
        assert read_state(store).format_version == 1
    assert read_state(store).revision == before.revision + 1
    with next_version():
        assert upgrade(catalog).revision == before.revision + 2
        assert (read_state(store).format_version, damage(store)) == (2, set())
        assert {path: store.get(path) for path in objects} == objects  # nothing was rewritten
        for known in before.seals:
            assert manifest_of(catalog.state.at(known.revision)) == manifest_of(before.at(known.revision))
        replaced(Writer(store))
        seal(Catalog.open_for_writing(store))
        assert not damage(store)
    for refused in (lambda: read_state(store), lambda: Catalog.open_for_writing(store), lambda: seal(writer.catalog)):
        with pytest.raises(UnsupportedVersionError, match="format version 2; this code reads up to 1"):
            refused()


def test_forward_moving(writer: Writer) -> None:
    """A transaction that gets preserved is the basis for the next one. Defined transactions must never be lost."""
    writer.fill()
    for kind in ("kill-before", "kill-after"):
        for at in (1, 2):
            known = read_state(writer.store)
            dying = Catalog(DyingStore(writer.store, Fault(kind, at)), read_state(writer.store))
            with suppress(Killed):
                dying.commit(rules.in_progress(dying.token(), [2], f"{kind} {at}"))
            next_path = transaction_path(known.revision + 1)
            preserved = list_log(writer.store).transactions[-1] == known.revision + 1
            assert preserved is ((kind, at) != ("kill-before", 1))
            data = writer.store.get(next_path) if preserved else None
            after = Catalog.open_for_writing(writer.store)
            assert after.state.revision == known.revision + preserved
            after.commit(rules.in_progress(after.token(), [2], "next"))
            assert after.state.revision == known.revision + preserved + 1
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
    runs = {action.run for entry in scan.entries[1:] for action in entry.transaction.actions}
    assert runs == {f"{number} {turn}" for number in range(writers) for turn in range(each)}


def test_integration(any_location: tuple[str, StoreOptions]) -> None:
    """Simple integration with the supported storage backends. No additional service must be required."""
    uri, options = any_location
    writer = Writer(open_store(parse_location(uri), options))
    writer.begin()
    history(writer)
    seal(writer.catalog)
    assert verify(open_store(parse_location(uri), options)).faults == []
    operations = ("collect_garbage", "prune_log", "seal")
    modules = " ".join(f"catalog.operations.{name}" for name in operations)
    modules += " catalog.federation.federation storage.cloud storage.local"
    program = (
        f"import sys, importlib\nfor name in {modules.split()}: importlib.import_module('snapshot_assets.' + name)"
    )
    services = "{'dagster', 'pyspark', 'duckdb', 'adbc_driver_manager', 'sqlite3'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nsys.exit(str({services} & {{*sys.modules}} or ''))"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.strip() == ""


def test_writer_federation(tmp_path: Path) -> None:
    """Writers write into their own namespace. No inter-writer communication must be required."""
    root = Root(tmp_path / "root")
    first = root.sealed("a", START)
    untouched = {info.path: (info.modified, first.store.get(info.path)) for info in first.store.list()}
    traced = FaultyStore(root.store("b", "shop"))
    second = Writer(traced)
    second.begin(HEADER.__class__(**(vars(HEADER) | {"start": START + 3 * DAY, "end": START + 6 * DAY})))
    second.fill()
    seal(second.catalog)
    assert traced.uri.endswith("/b/shop")  # the second writer has access to nothing else
    assert {info.path: (info.modified, first.store.get(info.path)) for info in first.store.list()} == untouched
    assert first.catalog.state.location_id != second.catalog.state.location_id
    federation = open_federation(root.store(), root.store)
    files = [file.path for _, file in federation.table(TableName("main", "m")).files]
    live = [known.file.path for writer in (first, second) for known in writer.catalog.state.live_files()]
    assert sorted(files) == sorted(live)
