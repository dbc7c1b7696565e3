"""Chunks that no state proves: taken from their newest complete receipts, or from the footers of data files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from snapshot_assets.catalog.rebuild.changes import chunk_action, completed_chunk
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.receipts.selection import (
    ReceiptAt,
    age_of,
    by_chunk,
    newest_complete,
    newest_header,
    schema_checksums,
)
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile


@dataclass
class Recovered:
    """A snapshot's chunks as receipts and data files show them, to be folded at the new log's revision.

    Attributes:
        snapshot_id: The snapshot, "" if nothing shows one.
        header: Its header; None if nothing has it.
        schemas: Its schemas whose documents are there, by id.
        actions: What completes the chunks, after what begins the snapshot.
        added: The chunks' files.
        removed: Paths of files that leave the base.
        taken: By chunk, the receipts or files that it rests on.
        lost: What could not be taken, in sentences.
    """

    snapshot_id: str = ""
    header: act.Header | None = None
    schemas: dict[int, act.SchemaAdded] = field(default_factory=dict)
    actions: list[act.Action] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    taken: dict[int, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def begin(self, inventory: Inventory, snapshot_id: str, header: act.Header, checksums: dict[int, str]) -> None:
        """Begin a snapshot that no state has, with those of its schemas whose documents are there."""
        self.snapshot_id, self.header = snapshot_id, header
        for number, sha256 in sorted(checksums.items()):
            if content := inventory.schemas.get(sha256):
                self.schemas[number] = act.SchemaAdded(number, content.folder, content.sha256, content.files)
            else:
                self.lost.append(f"The documents of schema {number} are missing or damaged.")
        self.actions += [act.Begin(snapshot_id, header), *self.schemas.values()]

    def complete(
        self, chunk: int, files: Collection[DataFile], receipts: Sequence[ReceiptAt], *, fenced: bool = True
    ) -> None:
        """Complete a chunk, unless a schema is missing; footers record no fence."""
        assert self.header is not None
        if not self.schemas or not {file.schema_id for file in files} <= self.schemas.keys():
            self.lost.append(f"Chunk {chunk} cannot be taken: the documents of its schema are missing or damaged.")
            return
        done = completed_chunk(self.header, chunk, files, receipts, None if fenced else {})
        self.actions.append(done)
        self.added += files
        self.taken[chunk] = ", ".join(ref.path for ref in done.receipts) or ", ".join(file.path for file in files)

    def read_again(self, inventory: Inventory, state: State, *, end_is_known: bool) -> None:
        """Let the next export read chunks again whose files were, or may have been, replaced in lost revisions.

        These are chunks of which it would adopt what was replaced, and chunks of the base that lack a file.
        """
        assert self.header is not None
        expected = State(header=self.header).expected_chunks()
        missing = {chunk for chunk in expected if not state.completed(chunk)} - self.taken.keys()
        again = {
            receipt.chunk: f"was exported again ({ref.path})"
            for receipt, ref in inventory.receipts
            if (receipt.snapshot_id, bool(receipt.supersedes), receipt.compaction) == (self.snapshot_id, True, None)
            and receipt.chunk in missing
        }
        for known in state.live_files() if not end_is_known else ():
            if not inventory.has(known.file):
                again[known.file.chunk] = f"lacks {known.file.path}, which may have been replaced"
        for chunk, why in sorted(again.items()):
            sentence = f"Chunk {chunk} {why}; the next export reads it again."
            self.actions.append(chunk_action(self.header, chunk, act.ChunkStatus.FAILED, error=sentence))
            self.removed += state.files.chunk(chunk)
            self.lost.append(sentence)


def take_receipts(inventory: Inventory) -> Recovered:
    """Take the newest snapshot that receipts show: each chunk's newest complete files."""
    recovered = Recovered()
    newest = max((receipt for receipt, _ in inventory.receipts if receipt.header), key=age_of, default=None)
    header = newest_header(inventory.receipts, newest.snapshot_id) if newest else None
    if newest is None or header is None:
        return recovered
    chunks = by_chunk(inventory.receipts, newest.snapshot_id)
    headers = [receipt.header for some in chunks.values() for receipt, _ in some if receipt.header]
    header = replace(header, end=max((each.end for each in headers if each.end), default=header.end))
    recovered.begin(inventory, newest.snapshot_id, header, schema_checksums(inventory.receipts, newest.snapshot_id))
    for chunk, receipts in sorted(chunks.items()):
        files = newest_complete((receipt for receipt, _ in receipts), inventory.has)
        if files is not None:
            recovered.complete(chunk, files, receipts)
            continue
        missing = sorted({file.path for receipt, _ in receipts for file in receipt.files if not inventory.has(file)})
        why = f"missing or of another size: {', '.join(missing)}" if missing else "only compactions are left"
        recovered.lost.append(f"Chunk {chunk}: no receipt of an export is complete; {why}.")
    return recovered
