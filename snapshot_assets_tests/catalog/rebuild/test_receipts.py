"""What receipts alone give: each chunk's newest complete export, with the compactions that were made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.rebuild.rebuild import Rebuild, rebuild
from snapshot_assets.catalog.receipts import CompactedTable, Compaction
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.layout import data_file_stem, new_attempt, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.rebuild.test_rebuild import lose
from snapshot_assets_tests.catalog.tags import damage, sealed_by


class Chunk:
    """Chunk 1 of a location, its attempts written as receipts and files only; files are called by letters.

    The first letter of a file's name is its table.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.files: dict[str, DataFile] = {}
        self.receipts: dict[str, str] = {}

    def attempt(self, name: str, base: int, files: str, *, tables: str = "", replaces: str = "") -> None:
        """Write a receipt: of an export, or of a compaction of some tables."""
        named = [self._file(each) for each in files.split()]
        parts = tuple(CompactedTable("main", table) for table in tables.split())
        receipt, _ = self.writer.receipt(
            1,
            *named,
            base_revision=base,
            compaction=Compaction("", parts) if parts else None,
            supersedes=tuple(sorted(self.files[each].attempt for each in replaces.split())),
        )
        self.receipts[receipt.path] = name

    def _file(self, name: str) -> DataFile:
        if name not in self.files:
            attempt, content = new_attempt(), name.encode()
            path = data_file_stem(1, TableName("main", name[0]), attempt) + "-0000.parquet"
            self.writer.store.put(path, content)
            self.files[name] = DataFile(path, "main", name[0], 1, attempt, 1, 2, sha256_hex(content), 1, 0)
        return self.files[name]

    def lose(self, names: str) -> None:
        for name in names.split():
            self.writer.store.delete(self.files[name].path)

    def rebuilt(self) -> tuple[str, str, Rebuild]:
        """Lose the log and rebuild; returns the chunk's files and receipts by their names."""
        lose(self.writer.store, "transactions/", "manifest.json")
        done = rebuild(self.writer.store, accept_undeleted=True)
        state = read_state(self.writer.store)
        names = {file.path: name for name, file in self.files.items()}
        files = " ".join(sorted(names[path] for path in state.files.chunk(1)))
        known = state.chunks.get(1)
        refs = known.chunk.receipts if known else ()
        assert damage(self.writer.store) == {}
        return files, " ".join(self.receipts[ref.path] for ref in refs), done


@pytest.fixture
def chunk(writer: Writer) -> Chunk:
    """An export of tables a, b and c."""
    chunk = Chunk(writer)
    chunk.attempt("export", 1, "a1 b1 c1")
    return chunk


def test_compactions_replace_the_files_of_their_tables(chunk: Chunk) -> None:
    chunk.attempt("second", 3, "a2 b2", tables="a b", replaces="a1 b1")
    chunk.attempt("third", 5, "a3", tables="a", replaces="a2")
    chunk.lose("a1 b1 a2")
    assert chunk.rebuilt()[:2] == ("a3 b2 c1", "export second third")


def test_the_newest_export_counts_with_all_its_tables(chunk: Chunk) -> None:
    chunk.attempt("second", 3, "a2", tables="a", replaces="a1")
    chunk.attempt("replacement", 5, "b9", replaces="a2 b1 c1")
    assert chunk.rebuilt()[:2] == ("b9", "replacement")


def test_a_table_that_a_compaction_emptied_stays_empty(chunk: Chunk) -> None:
    chunk.attempt("emptied", 3, "", tables="a", replaces="a1")
    assert chunk.rebuilt()[:2] == ("b1 c1", "export emptied")


def test_a_compaction_without_its_files_gives_way_to_what_it_was_made_of(chunk: Chunk) -> None:
    chunk.attempt("second", 3, "a2", tables="a", replaces="a1")
    chunk.lose("a2")
    assert chunk.rebuilt()[:2] == ("a1 b1 c1", "export")


def test_a_compaction_is_never_laid_over_an_export_that_replaced_the_same_files(chunk: Chunk) -> None:
    """It was planned on the newer head, and refused."""
    chunk.attempt("replacement", 3, "a9 b9 c9", replaces="a1 b1 c1")
    chunk.attempt("refused", 4, "a2", tables="a", replaces="a1")
    assert chunk.rebuilt()[:2] == ("a9 b9 c9", "replacement")


def test_an_export_that_is_not_complete_gives_way_to_an_older_one(chunk: Chunk) -> None:
    chunk.attempt("replacement", 3, "a9 b9", replaces="a1 b1 c1")
    chunk.lose("b9")
    assert chunk.rebuilt()[:2] == ("a1 b1 c1", "export")


def test_a_chunk_of_which_only_a_compaction_is_left_is_named_and_stays_open(chunk: Chunk) -> None:
    chunk.attempt("second", 3, "a2", tables="a", replaces="a1")
    [path] = [path for path, name in chunk.receipts.items() if name == "export"]
    chunk.writer.store.delete(path)
    files, _, done = chunk.rebuilt()
    assert (files, done.missing) == ("", (1, 2, 3))
    assert "Chunk 1: no receipt of an export is complete; only compactions are left." in done.lost
    assert any(line.startswith("Neither the base nor a receipt names data/1/") for line in done.lost)


def test_receipts_that_the_base_names_and_that_are_gone_are_named(writer: Writer) -> None:
    sealed_by(writer)
    write_checkpoint(writer.store, writer.catalog.state)
    gone = writer.catalog.state.chunks[3].chunk.receipts[0].path
    writer.store.delete(gone)
    writer.store.put(transaction_path(6), b"torn")
    done = rebuild(writer.store)
    assert f"Receipts are missing or damaged and no longer named: {gone}." in done.lost
    assert damage(writer.store) == {}


def test_receipts_of_an_older_snapshot_do_not_count(writer: Writer) -> None:
    writer.fill()
    header = replace(writer.catalog.state.header, name="second")
    writer.begin(header, force=True)
    writer.complete(1, writer.file(1, b"of the second"))
    lose(writer.store, "transactions/", "manifest.json")
    done = rebuild(writer.store, accept_undeleted=True)
    assert (done.snapshot_id, done.missing) == (writer.catalog.state.snapshot_id, (2, 3))
    assert read_state(writer.store).header == header
