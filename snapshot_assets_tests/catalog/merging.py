"""Compactions of files that are not Parquet."""

from __future__ import annotations

from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.operations.compact import CompactedChunk, compact_chunk, receipts_of
from snapshot_assets.catalog.receipts import CompactedTable, Compaction, Receipt
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import Writer

MERGED = Compaction("", (CompactedTable("main", "m"),))
"""The compaction in the receipt of such a file."""


def commit_merged(catalog: Catalog, token: Token, receipt: Receipt, ref: ObjectRef) -> int | None:
    """Replace all files of a chunk by those of a receipt, as a compaction does."""
    state = catalog.state
    older = receipts_of(catalog.store, state.chunks[receipt.chunk].chunk)
    compacted = CompactedChunk(
        id=receipt.chunk,
        tables=frozenset({TableName("main", "m")}),
        removed=frozenset(state.files.chunk(receipt.chunk)),
        kept=frozenset(),
        files=receipt.files,
        receipt=ref,
        older=older,
        opened_at=receipt.opened_at,
        run=receipt.run,
    )
    return catalog.commit(compact_chunk(token, compacted, catalog.now))


def merge(writer: Writer, chunk: int) -> int | None:
    """Compact a chunk, which seals it too."""
    catalog = writer.catalog
    older = tuple(sorted({known.file.attempt for known in catalog.refresh().live_files(chunk)}))
    file = writer.file(chunk, b"merged")
    receipt, ref = writer.receipt(chunk, file, compaction=MERGED, supersedes=older)
    return commit_merged(catalog, catalog.token(), receipt, ref)
