"""Rules for chunks: start, complete, replace or fail them; see `rules`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from snapshot_assets.catalog.catalog import Actions, Token, rule
from snapshot_assets.catalog.receipts import check_age
from snapshot_assets.catalog.rules.begin import check_unchanged
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.chunk_parts import KeyRange, RowsErased, divisions
from snapshot_assets.format.documents import chunk_checksum
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName


@rule
def in_progress(state: State, token: Token, chunks: Sequence[int], run: str) -> Actions:
    """Record the chunks that a run works on."""
    check_unchanged(state, token)
    return [act.ChunksInProgress(tuple(chunks), run)] if chunks else None


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk whose files and receipt are on storage.

    Attributes:
        files: All its files; of a replacement, those that stay too.
        opened_at: When the oldest of its files was opened. A commit more than half a grace period later is refused.
        replaces: Paths of the files that a replacement was planned on; None for a first completion.
        base_revision: The base of an earlier run's receipt that is adopted; None for files of this run.
        erased: Rows of tables whose files stay that compactions have left out.
        ranges: The ranges of divided tables, also those whose files stay.
    """

    id: int
    files: tuple[DataFile, ...]
    receipts: tuple[act.ObjectRef, ...]
    opened_at: datetime
    fence: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    replaces: tuple[str, ...] | None = None
    base_revision: int | None = None
    erased: tuple[RowsErased, ...] = ()
    ranges: tuple[KeyRange, ...] = ()


class StaleReceiptError(ConflictError):
    """The chunk of an adopted receipt was committed again after the receipt's base."""


@rule
def complete_chunks(
    state: State, token: Token, finished: Sequence[FinishedChunk], clock: Callable[[], datetime]
) -> Actions:
    """Complete chunks in one transaction: for each, its chunk action, and the action that adds each file.

    Passes over chunks that another writer has completed. Their files are not deleted, and they count as done. The age
    of the files is checked again after each lost race.

    Raises:
        SupersededError: Another snapshot replaced this one.
        StaleReceiptError: A receipt is older than the chunk's last commit, so its files may be collected already.
        CompactedMeanwhileError: Compaction has replaced the files that were to be replaced.
        ConflictError: Another writer exported a chunk meanwhile, the files have waited for more than half the grace
            period, or the snapshot is schema-only.
    """
    header = check_unchanged(state, token)
    if header.schema_only:
        raise ConflictError("The snapshot is schema-only and takes no data; use --force to recreate it.")
    actions: list[act.Action] = []
    for each in finished:
        if each.replaces is not None or not state.completed(each.id):
            _check_adoptable(state, each)
            check_age(header, each.id, each.opened_at, clock())
            _check_ranges(each)
            names = ("fence", "receipts", "run", "erased", "ranges")
            facts = {name: getattr(each, name) for name in names}
            stay = state.files.chunk(each.id) if each.replaces is not None else {}
            added = [act.AddFile(file) for file in each.files if file.path not in stay]
            actions += [*_removals(state, each, token), completed_chunk(state, each.id, each.files, **facts), *added]
    return actions or None


def _check_adoptable(state: State, finished: FinishedChunk) -> None:
    """Check on the head that a receipt can still be adopted. While it can, garbage collection keeps its files."""
    last = state.last_change_of(finished.id)
    if finished.base_revision is not None and last > finished.base_revision:
        names = ", ".join(ref.path for ref in finished.receipts)
        change = "the location was rolled back" if last == state.rolled_back else f"chunk {finished.id} was committed"
        raise StaleReceiptError(
            f"{names} was made on revision {finished.base_revision}; {change} at revision {last}, so its files may "
            "be collected as garbage. Export the chunk again.",
            chunk=finished.id,
        )


def _check_ranges(finished: FinishedChunk) -> None:
    """Check that the ranges of divided tables have each row once, and that each file of these tables is of one."""
    attempts = {attempt for each in finished.ranges for attempt in each.attempts}
    for name, ranges in divisions(finished.ranges).items():
        own = (file for file in finished.files if (file.schema, file.table) == name)
        if ranges is None or any(file.attempt not in attempts for file in own):
            raise ConflictError(
                f"The ranges of table {table_text(TableName(*name))} in chunk {finished.id} were merged meanwhile by a"
                " compaction, so that one of them cannot be replaced. Run again.",
                chunk=finished.id,
            )


class CompactedMeanwhileError(ConflictError):
    """A chunk was compacted while it was being replaced, so its rows are in other files."""


def _removals(state: State, finished: FinishedChunk, token: Token) -> list[act.Action]:
    if finished.replaces is None:
        return []
    live = set(state.files.chunk(finished.id))
    committed = state.chunks.get(finished.id)
    if committed is not None and committed.exported > token.revision:
        raise ConflictError(
            f"Chunk {finished.id} was exported by another writer, at revision {committed.exported}, after this run "
            "opened the source; older rows would replace newer ones. Run again."
        )
    if live != set(finished.replaces):
        raise CompactedMeanwhileError(
            f"Chunk {finished.id} lies in other files than those that were to be replaced: another writer compacted it "
            "meanwhile. Run again.",
            chunk=finished.id,
        )
    return [act.RemoveFile(path) for path in sorted(live.difference(file.path for file in finished.files))]


@rule
def fail_chunk(state: State, token: Token, chunk: int, error: str, run: str) -> Actions:
    """Record that a chunk failed, unless another writer has completed it."""
    check_unchanged(state, token)
    if state.completed(chunk):
        return None
    return [chunk_action(state, chunk, act.ChunkStatus.FAILED, error=error, run=run)]


def completed_chunk(state: State, number: int, files: Collection[DataFile], **values: Any) -> act.Chunk:
    """Return the action that completes a chunk with these files; see `chunk_action`."""
    checksum = chunk_checksum((file.path, file.sha256) for file in files)
    rows = sum(file.rows for file in files)
    return chunk_action(state, number, act.ChunkStatus.COMPLETED, checksum=checksum, rows=rows, **values)


def chunk_action(state: State, number: int, status: act.ChunkStatus, **values: Any) -> act.Chunk:
    """Return an action on a chunk, with its window and other values; raise a PlanError if there is no such chunk."""
    window = None if number == UNTIMED_CHUNK else state.window(number)
    start, end = (window.start, window.end) if window else (None, None)
    return act.Chunk(number, start, end, status, **values)
