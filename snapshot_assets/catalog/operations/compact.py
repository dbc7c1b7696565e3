"""What a compaction may commit: files of some tables of a chunk are replaced by others that hold the same rows.

FORMAT.md, section 6: every file that it removes is still live, or it aborts. On a sealed base it carries a seal of its
own, so that the newest sealed state can be read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.manifest import checksum_of, consistency_of
from snapshot_assets.catalog.receipts.receipts import Receipt, check_age, read_receipt
from snapshot_assets.catalog.receipts.selection import compacted_tables
from snapshot_assets.catalog.rules import check_unchanged
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ChecksumMismatchError, ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class CompactedChunk:
    """A chunk some tables of which were compacted; files and receipt lie on storage.

    Attributes:
        tables: The tables concerned.
        removed: Paths of the files that were merged.
        kept: Paths of the tables' other files.
        files: The new files.
        receipt: The new receipt.
        older: Receipts that the chunk had, by path.
        opened_at: When the first of the new files was opened.
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
    """Put new files in the place of those that they were made of, in one transaction.

    Raises (on commit):
        SupersededError: Another snapshot began.
        ConflictError: Another writer changed the tables' files in this chunk meanwhile, or the new files have waited
            for longer than half the grace period.
    """

    def prepare(state: State) -> Sequence[act.Action]:
        header = check_unchanged(state, token)
        live = state.files.chunk(compacted.id)
        _check_live(compacted, live)
        check_age(header, compacted.id, compacted.opened_at, clock())
        others = [known.file for path, known in live.items() if path not in compacted.removed]
        files, before = [*others, *compacted.files], state.chunks[compacted.id]
        known = before.chunk
        older = (ref for ref in known.receipts if _still_speaks(compacted.older.get(ref.path), compacted.tables))
        chunk = replace(
            known,
            checksum=chunk_checksum((file.path, file.sha256) for file in files),
            rows=sum(file.rows for file in files),
            receipts=(*older, compacted.receipt),
            run=compacted.run,
            exported=before.exported,
        )
        removals = [act.RemoveFile(path) for path in sorted(compacted.removed)]
        actions: list[act.Action] = [*removals, chunk, *(act.AddFile(file) for file in compacted.files)]
        return [*actions, *_own_seal(state, actions)]

    return prepare


def _still_speaks(older: Receipt | None, tables: frozenset[TableName]) -> bool:
    """Tell whether an older receipt is the newest word on some table: that it has no rows, or the plan, if no more."""
    return older is None or older.compaction is None or not compacted_tables(older) <= tables


def _check_live(compacted: CompactedChunk, live: Mapping[str, FileState]) -> None:
    found = {path for path, known in live.items() if TableName(known.file.schema, known.file.table) in compacted.tables}
    expected = compacted.removed | compacted.kept
    if found != expected:
        changed = sorted(found ^ expected)
        raise ConflictError(
            f"Chunk {compacted.id} was changed by another writer while it was being compacted: {changed[0]} is "
            f"{'no longer' if changed[0] in expected else 'now'} part of it. The compaction of this chunk was given up,"
            " and garbage collection removes what it wrote. Run again.",
            chunk=compacted.id,
            changed=changed,
        )


def _own_seal(state: State, actions: Sequence[act.Action]) -> Sequence[act.Seal]:
    """Return the seal of what a sealed state becomes.

    It was verified: the files that stay by the last seal, and the new ones when they were written.
    """
    if not state.sealed or state.newest_seal is None:
        return []
    after = state.after(actions)
    sealed = replace(
        state.newest_seal.seal,
        verified_revision=after.revision,
        checksum=checksum_of(after),
        consistency=consistency_of(after),
    )
    return [sealed]


def receipts_of(store: ObjectStore, chunk: act.Chunk) -> dict[str, Receipt]:
    """Return a chunk's receipts by path, as the log has them.

    Raises:
        ObjectNotFoundError: One is missing.
        DamageError: One is not what was written.
    """
    found = {}
    for ref in chunk.receipts:
        receipt, read = read_receipt(store, ref.path)
        if read != ref:
            raise ChecksumMismatchError(
                f"{ref.path} has SHA-256 {read.sha256}; the log says {ref.sha256}. Replace chunk {chunk.id}.",
                object=ref.path,
            )
        found[ref.path] = receipt
    return found
