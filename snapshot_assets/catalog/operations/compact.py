"""Commits a compaction: files of some tables of a chunk are replaced by files with the same rows.

It aborts if a file that it removes is no longer live (FORMAT.md, section 6). On a sealed base the transaction includes
a seal, so that the newest sealed state can be read at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.manifest import checksum_of, consistency_of
from snapshot_assets.catalog.receipt_selection import compacted_tables
from snapshot_assets.catalog.receipts import Receipt, check_age, parse_receipt, stands_for
from snapshot_assets.catalog.rules import check_unchanged
from snapshot_assets.catalog.schemas import naming_lost_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import REPAIRED
from snapshot_assets.errors import ChecksumMismatchError, ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.chunk_parts import RowsErased
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, chunk_checksum, sha256_hex
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class CompactedChunk:
    """A chunk of which some tables were compacted; the new files and receipt are on storage.

    Attributes:
        removed: Paths of the files that were merged.
        kept: Paths of these tables' other files.
        older: The chunk's receipts before, by path.
        opened_at: When the first new file was opened.
    """

    id: int
    tables: frozenset[TableName]
    removed: frozenset[str]
    kept: frozenset[str]
    files: tuple[DataFile, ...]
    receipt: act.ObjectRef
    older: Mapping[str, Receipt]
    opened_at: datetime
    run: str


def compact_chunk(token: Token, compacted: CompactedChunk, clock: Callable[[], datetime]) -> Prepare:
    """Replace files by those they were merged into, in one transaction.

    Raises (on commit):
        SupersededError: The location has another snapshot now.
        ConflictError: Another writer changed the tables' files in this chunk, or the new files are older than half the
            grace period.
    """

    def prepare(state: State) -> Sequence[act.Action]:
        header = check_unchanged(state, token)
        live = state.files.chunk(compacted.id)
        tables = compacted.tables
        actual = {path for path, each in live.items() if TableName(each.file.schema, each.file.table) in tables}
        expected = compacted.removed | compacted.kept
        if changed := sorted(actual ^ expected):
            raise ConflictError(
                f"Chunk {compacted.id} was changed by another writer while it was being compacted: {changed[0]} is "
                f"{'no longer' if changed[0] in expected else 'now'} part of it. Its compaction was abandoned; "
                "garbage collection removes what it wrote. Run again.",
                chunk=compacted.id,
                changed=changed,
            )
        check_age(header, compacted.id, compacted.opened_at, clock())
        others = [known.file for path, known in live.items() if path not in compacted.removed]
        files, before = [*others, *compacted.files], state.chunks[compacted.id]
        known = before.chunk
        older = (ref for ref in known.receipts if _is_needed(compacted.older.get(ref.path), compacted.tables))
        chunk = replace(
            known,
            checksum=chunk_checksum((file.path, file.sha256) for file in files),
            rows=sum(file.rows for file in files),
            receipts=(*older, compacted.receipt),
            run=compacted.run,
            exported=before.exported,
            erased=_erased(known, [live[path].file for path in compacted.removed], compacted.files),
            ranges=tuple(each for each in known.ranges if (each.schema, each.table) not in tables),
        )
        removals = [act.RemoveFile(path) for path in sorted(compacted.removed)]
        actions: list[act.Action] = [*removals, chunk, *(act.AddFile(file) for file in compacted.files)]
        if not state.sealed or state.newest_seal is None:
            return actions
        # All files are verified: the last seal verified those that stay, and the writer hashed the new ones.
        after, newest = state.after(actions), state.newest_seal
        sealed = replace(
            newest.seal,
            verified_revision=after.revision,
            checksum=checksum_of(after),
            consistency=consistency_of(after),
            exported_at=newest.exported_at,
        )
        return [*actions, sealed]

    return prepare


def _erased(chunk: act.Chunk, removed: Iterable[DataFile], added: Iterable[DataFile]) -> tuple[RowsErased, ...]:
    """Return the rows that compactions left out, with those of one that is about to be committed."""
    rows = Counter({TableName(each.schema, each.table): each.rows for each in chunk.erased})
    for file in removed:
        rows[TableName(file.schema, file.table)] += file.rows
    for file in added:
        rows[TableName(file.schema, file.table)] -= file.rows
    return tuple(RowsErased(*table, number) for table, number in sorted(rows.items()) if number > 0)


def _is_needed(older: Receipt | None, tables: frozenset[TableName]) -> bool:
    """Return whether an older receipt still holds the latest entry for some table, or the chunk's plan."""
    return older is None or older.compaction is None or not compacted_tables(older) <= tables


def receipts_of(store: ObjectStore, chunk: act.Chunk) -> dict[str, Receipt]:
    """Return a chunk's receipts by path.

    Raises:
        ObjectNotFoundError: One is missing.
        DamageError: One is not what the log records.
    """
    receipts = {}
    for ref in chunk.receipts:
        with naming_lost_files():
            data = store.get(ref.path, limit=MAX_DOCUMENT_BYTES)
        if not stands_for(data, ref):
            found = f"{ref.path} has SHA-256 {sha256_hex(data)}; the log records {ref.sha256}."
            raise ChecksumMismatchError(f"{found} {REPAIRED}", object=ref.path)
        receipts[ref.path] = parse_receipt(data, ref.path)
    return receipts
