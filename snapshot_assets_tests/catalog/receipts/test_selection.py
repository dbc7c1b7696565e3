"""Which receipts a rebuild lays over one another: compactions, replacements, and attempts that were refused."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.collect_garbage import collect_garbage
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk, receipts_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import Rebuild, rebuild
from snapshot_assets.catalog.receipts.receipts import CompactedTable, Compaction
from snapshot_assets.catalog.rules.chunks import FinishedChunk
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import data_file_stem, new_attempt, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import START, Writer
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import sealed_by
from snapshot_assets_tests.catalog.test_rebuild import lose


@dataclass
class Chunk:
    """Chunk 1 of a location, its attempts written as receipts and files only; files are called by letters."""

    writer: Writer
    files: dict[str, DataFile] = field(default_factory=dict)
    receipts: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> DataFile:
        """Return the file of a name such as `a2`, which is of table `a`; it is written when it is named first."""
        if name not in self.files:
            attempt, content = new_attempt(), name.encode()
            path = data_file_stem(1, TableName("main", name[0]), attempt) + "-0000.parquet"
            self.writer.store.put(path, content)
            self.files[name] = DataFile(path, "main", name[0], 1, attempt, 2, len(content), sha256_hex(content), 1, 0)
        return self.files[name]

    def attempt(self, name: str, base: int, files: str, supersedes: str = "", compacted: str = "") -> None:
        tables = tuple(CompactedTable("main", table) for table in compacted)
        _, ref = self.writer.receipt(
            1,
            *map(self.file, files.split()),
            base_revision=base,
            opened_at=START + timedelta(hours=len(self.receipts)),
            supersedes=tuple(self.file(each).attempt for each in supersedes.split()),
            compaction=Compaction("", tables) if tables else None,
            fence={"run": name},
        )
        self.receipts[name] = ref.path

    def lose(self, *names: str) -> None:
        lose(self.writer.store, *(self.file(name).path for name in names))

    def lose_receipts(self, *names: str) -> None:
        lose(self.writer.store, *(self.receipts[name] for name in names))

    def rebuilt(self) -> tuple[str, str, Rebuild]:
        """Lose the log and rebuild; returns the chunk's files and receipts by their names."""
        lose(self.writer.store, "transactions/", "manifest.json")
        done = rebuild(self.writer.store, accept_undeleted=True)
        state = read_state(self.writer.store)
        paths = state.files.chunk(1)
        files = " ".join(sorted(name for name, file in self.files.items() if file.path in paths))
        names = {path: name for name, path in self.receipts.items()}
        known = state.chunks.get(1)
        return files, " ".join(names[ref.path] for ref in known.chunk.receipts) if known else "", done


@pytest.fixture
def chunk(writer: Writer) -> Chunk:
    """An export of tables a, b and c."""
    chunk = Chunk(writer)
    chunk.attempt("export", 1, "a1 a2 b1 b2 c1")
    return chunk


def test_each_table_is_of_the_newest_that_speaks_for_it(chunk: Chunk) -> None:
    chunk.attempt("first", 3, "a3", "a1 a2", "a")
    chunk.attempt("second", 5, "b3", "b1 b2", "b")
    chunk.attempt("third", 7, "a4", "a3", "a")
    assert chunk.rebuilt()[:2] == ("a4 b3 c1", "export second third")


def test_a_replacement_speaks_for_all_tables_those_without_rows_too(chunk: Chunk) -> None:
    chunk.attempt("merge", 3, "a3", "a1 a2", "a")
    chunk.attempt("replacement", 5, "b9", "a3 b1 b2 c1")
    assert chunk.rebuilt()[:2] == ("b9", "replacement")
    assert read_state(chunk.writer.store).chunks[1].chunk.fence == {"run": "replacement"}


def test_what_a_compaction_emptied_stays_empty_and_its_receipt_is_kept(chunk: Chunk) -> None:
    chunk.attempt("emptied", 3, "", "a1 a2", "a")
    assert chunk.rebuilt()[:2] == ("b1 b2 c1", "export emptied")


def test_what_was_compacted_away_may_be_gone_and_its_receipts_too(chunk: Chunk) -> None:
    chunk.attempt("first", 3, "a3", "a1 a2", "a")
    chunk.attempt("second", 5, "a4", "a3", "a")
    chunk.lose("a1", "a2", "a3")
    chunk.lose_receipts("first")
    assert chunk.rebuilt()[:2] == ("a4 b1 b2 c1", "export second")


def test_compactions_of_everything_need_no_export(chunk: Chunk) -> None:
    chunk.attempt("all", 3, "a3 b3 c3", "a1 a2 b1 b2 c1", "abc")
    chunk.lose("a1", "a2", "b1", "b2", "c1")
    chunk.lose_receipts("export")
    chunk.writer.receipt(2)  # tells the plan
    assert chunk.rebuilt()[:2] == ("a3 b3 c3", "all")


def test_a_compaction_whose_files_are_missing_gives_way_to_what_it_was_made_of(chunk: Chunk) -> None:
    chunk.attempt("merge", 3, "a3 b3", "a1 a2 b1 b2", "ab")
    chunk.lose("a3")
    assert chunk.rebuilt()[:2] == ("a1 a2 b3 c1", "export merge")


def test_a_chunk_of_which_a_table_is_missing_stays_open_though_another_was_compacted(chunk: Chunk) -> None:
    chunk.attempt("merge", 3, "a3", "a1 a2", "a")
    chunk.lose("a1", "b2")
    files, _, done = chunk.rebuilt()
    assert (files, 1 in done.missing) == ("", True)
    assert any(chunk.file("b2").path in line and "is not complete" in line for line in done.lost)


def test_of_two_exports_the_one_that_was_compacted_was_committed(chunk: Chunk) -> None:
    """The other began later, and was refused."""
    chunk.attempt("refused", 2, "a8 b8 c8")
    chunk.attempt("merge", 4, "a3", "a1 a2", "a")
    assert chunk.rebuilt()[:2] == ("a3 b1 b2 c1", "export merge")


def test_a_compaction_of_files_that_a_replacement_removed_never_goes_with_that(chunk: Chunk) -> None:
    chunk.attempt("replacement", 3, "a9 b9 c9", "a1 a2 b1 b2 c1")
    chunk.attempt("merge", 4, "a3", "a1 a2", "a")
    assert chunk.rebuilt()[:2] == ("a3 b1 b2 c1", "export merge")


def test_of_two_that_replaced_the_same_files_both_are_named(chunk: Chunk) -> None:
    """Nothing tells which of them was committed, and which was refused."""
    chunk.attempt("replacement", 3, "a9 b9 c9", "a1 a2 b1 b2 c1")
    chunk.attempt("merge", 4, "a3", "a1 a2", "a")
    chunk.attempt("other", 5, "b3", "b1 b2", "b")
    _, _, done = chunk.rebuilt()
    named = [line.partition(" replaced ")[0] for line in done.lost if "only one of them was committed" in line]
    paths = chunk.receipts
    assert set(named) == {f"Chunk 1: {paths[name]} and {paths['replacement']}" for name in ("merge", "other")}


def test_what_another_was_made_of_was_committed_and_has_no_rival(chunk: Chunk) -> None:
    chunk.attempt("replacement", 3, "a9 b9 c9", "a1 a2 b1 b2 c1")
    chunk.attempt("refused", 4, "a3", "a1 a2", "a")
    chunk.attempt("merge", 6, "a8", "a9", "a")
    files, _, done = chunk.rebuilt()
    assert files == "a8 b9 c9"
    assert not any("only one of them" in line for line in done.lost)


@pytest.mark.parametrize("committed", ["replacement", "merge"])
def test_of_two_that_replaced_the_same_files_a_seal_proves_the_one_that_was_committed(
    writer: Writer, committed: str
) -> None:
    """The compaction was planned on the newer head, whichever won."""
    sealed_by(writer)
    catalog, old = writer.catalog, next(writer.catalog.state.live_files(1)).file
    file, token = writer.file(1, b"newer rows"), writer.catalog.token()
    receipt, ref = writer.receipt(1, file, supersedes=(old.attempt,))
    catalog.commit(rules.in_progress(token, [2], "another"))
    merge, merge_ref = writer.receipt(1, writer.file(1, b"merged"), supersedes=(old.attempt,), compaction=MERGED)
    if committed == "merge":
        revision = commit_merged(catalog, token, merge, merge_ref)
    else:
        done = FinishedChunk(1, (file,), (ref,), receipt.opened_at, receipt.fence, "r1", (old.path,))
        revision = catalog.commit(rules.complete_chunk(token, done, catalog.now))
    writer.complete(3, writer.file(3), replaces=(next(catalog.state.live_files(3)).file.path,))
    seal(catalog)
    before = read_state(writer.store)
    lose(writer.store, "manifest.json", transaction_path(revision))
    assert rebuild(writer.store).sealed
    assert manifest_of(read_state(writer.store)) == manifest_of(before)


def test_where_what_it_was_made_of_is_gone_the_replacement_counts_alone(chunk: Chunk) -> None:
    chunk.attempt("replacement", 3, "a9 b9 c9", "a1 a2 b1 b2 c1")
    chunk.attempt("merge", 4, "a3", "a1 a2", "a")
    chunk.lose("a1", "a2", "b1", "b2", "c1")
    assert chunk.rebuilt()[:2] == ("a9 b9 c9", "replacement")


def test_a_compaction_of_a_replacement_goes_with_it(chunk: Chunk) -> None:
    chunk.attempt("old", 2, "a3", "a1 a2", "a")
    chunk.attempt("replacement", 3, "a8 a9 b9", "a3 b1 b2 c1")
    chunk.attempt("merge", 5, "a8 a4", "a9", "a")
    assert chunk.rebuilt()[:2] == ("a4 a8 b9", "replacement merge")


def test_a_compaction_of_what_is_not_known_any_more_goes_with_the_newest_that_it_may_be_of(chunk: Chunk) -> None:
    chunk.attempt("replacement", 3, "a9 b9", "a1 a2 b1 b2 c1")
    chunk.attempt("collected", 5, "a4", "a9", "a")
    chunk.attempt("merge", 7, "a5", "a4", "a")
    chunk.lose("a4", "a9")
    chunk.lose_receipts("collected")
    assert chunk.rebuilt()[:2] == ("a5 b9", "replacement merge")


class History:
    """Random commits to chunks of several tables, with garbage collected in between."""

    def __init__(self, writer: Writer, seed: int) -> None:
        self.writer, self.choose = writer, random.Random(seed)
        for chunk in (1, 2, 3):
            self.replace(chunk)
        for _ in range(self.choose.randint(4, 12)):
            step = self.choose.choice([self.replace, self.compact, self.compact, self.compact, self.other])
            step(self.choose.choice([1, 1, 2]))
            if self.choose.random() < 0.3:
                self.collect()

    def file(self, chunk: int, table: str) -> DataFile:
        attempt, base = new_attempt(), self.writer.catalog.state.revision
        path = data_file_stem(chunk, TableName("main", table), attempt) + "-0000.parquet"
        content = path.encode()
        self.writer.store.put(path, content)
        return DataFile(path, "main", table, chunk, attempt, 2, len(content), sha256_hex(content), 1, base)

    def replace(self, chunk: int) -> None:
        catalog = self.writer.catalog
        live = list(catalog.state.live_files(chunk))
        tables = self.choose.choices("abc", k=self.choose.randint(0, 4))
        files = tuple(self.file(chunk, table) for table in tables)
        receipt, ref = self.writer.receipt(chunk, *files, supersedes=tuple({each.file.attempt for each in live}))
        paths = tuple(each.file.path for each in live) if catalog.state.completed(chunk) else None
        done = FinishedChunk(chunk, files, (ref,), receipt.opened_at, receipt.fence, "r1", paths)
        assert catalog.commit(rules.complete_chunk(catalog.token(), done, catalog.now))

    def compact(self, chunk: int) -> None:
        catalog = self.writer.catalog
        live = [each.file for each in catalog.state.live_files(chunk)]
        tables = sorted({file.table for file in live})
        if not tables:
            return
        tables = self.choose.sample(tables, self.choose.randint(1, len(tables)))
        mine = [file for file in live if file.table in tables]
        merged = [file for file in mine if self.choose.random() < 0.8 or file.table == tables[0]]
        kept = [file for file in mine if file not in merged]
        tables = sorted({file.table for file in merged})
        kept = [file for file in kept if file.table in tables]
        new = [self.file(chunk, table) for table in tables if self.choose.random() < 0.9]
        older = receipts_of(catalog.store, catalog.state.chunks[chunk].chunk)
        receipt, ref = self.writer.receipt(
            chunk,
            *kept,
            *new,
            supersedes=tuple({file.attempt for file in merged}),
            compaction=Compaction("", tuple(CompactedTable("main", table) for table in tables)),
            header=None,
            location_id="",
        )
        done = CompactedChunk(
            id=chunk,
            tables=frozenset(TableName("main", table) for table in tables),
            removed=frozenset(file.path for file in merged),
            kept=frozenset(file.path for file in kept),
            files=tuple(new),
            receipt=ref,
            older=older,
            opened_at=receipt.opened_at,
            run="r1",
        )
        assert catalog.commit(compact_chunk(catalog.token(), done, catalog.now))

    def other(self, chunk: int) -> None:
        self.writer.catalog.commit(rules.in_progress(self.writer.token, [chunk], "another"))

    def collect(self) -> None:
        if self.choose.random() < 0.4:
            seal(self.writer.catalog)
        collect_garbage(self.writer.catalog, grace=timedelta(0), unsafe=True)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))])
def test_whatever_was_replaced_and_compacted_receipts_give_the_files_that_it_had(writer: Writer, seed: int) -> None:
    """From receipts alone, from a manifest, and from a log with holes; and a rebuild of that gives them again."""
    history, store = History(writer, seed), writer.store
    if seed % 3 == 1:
        seal(writer.catalog)
    writer.catalog.commit(rules.in_progress(writer.token, [1], "last"))
    before = read_state(store)
    revisions = range(1, before.revision + 1)
    gone = history.choose.sample(revisions[:-1], history.choose.randint(1, len(revisions) - 1))
    lose(store, *map(transaction_path, gone if seed % 3 == 2 else revisions))
    lose(store, *["manifest.json"] * (seed % 3 != 1))
    for _ in range(2):  # garbage goes in between, with the receipts that the rebuild did not name
        done = rebuild(store, accept_undeleted=True)
        after = read_state(store)
        for chunk in (1, 2, 3):
            assert after.files.chunk(chunk).keys() == before.files.chunk(chunk).keys(), "; ".join(done.lost)
            assert after.completed(chunk)
        collect_garbage(Catalog.open_for_writing(store), grace=timedelta(0), unsafe=True)
        lose(store, "transactions/", "manifest.json")
