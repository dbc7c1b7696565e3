"""Rules for chunks: which actions complete, replace or fail a chunk on a newer head; see `rules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.receipts.receipts import check_age
from snapshot_assets.catalog.rules.preconditions import check_unchanged
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK


def in_progress(token: Token, chunks: Sequence[int], run: str) -> Prepare:
    """Say which chunks a run works on."""

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        return [act.ChunksInProgress(tuple(chunks), run)] if chunks else None

    return prepare


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk whose files and receipt lie on storage.

    Attributes:
        opened_at: When the oldest of its files was opened; a commit later than half a grace period is refused.
        replaces: Paths to remove, for a replace; None for a first completion.
        base_revision: Of an earlier run's receipt that is adopted; None for files of this run.
    """

    id: int
    files: tuple[DataFile, ...]
    receipts: tuple[act.ObjectRef, ...]
    opened_at: datetime
    fence: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    replaces: tuple[str, ...] | None = None
    base_revision: int | None = None


class StaleReceiptError(ConflictError):
    """A receipt was to be adopted whose chunk has had another commit since."""


def complete_chunk(token: Token, finished: FinishedChunk, clock: Callable[[], datetime]) -> Prepare:
    """Finish a chunk in one transaction: its chunk action and all its add-file actions.

    Prepares None where another writer completed it already: then nothing is deleted, and the chunk counts as done.

    Args:
        token: The snapshot it was exported for.
        finished: What lies on storage.
        clock: The present: a commit that lost races for hours is asked for the age of its files again.

    Raises (on commit):
        SupersededError: Another snapshot began.
        StaleReceiptError: A receipt is older than the chunk's last commit, so that its files may be collected already.
        CompactedMeanwhileError: The files to be replaced are others now.
        ConflictError: Another writer exported the chunk meanwhile, the files have waited for longer than half the grace
            period, or the snapshot is schema-only.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        header = check_unchanged(state, token)
        if header.schema_only:
            raise ConflictError("The snapshot is schema-only and takes no data; use --force to recreate it.")
        if finished.replaces is None and state.completed(finished.id):
            return None
        _check_adoptable(state, finished)
        check_age(header, finished.id, finished.opened_at, clock())
        window = None if finished.id == UNTIMED_CHUNK else state.window(finished.id)
        chunk = act.Chunk(
            id=finished.id,
            start=window.start if window else None,
            end=window.end if window else None,
            status=act.ChunkStatus.COMPLETED,
            checksum=chunk_checksum((file.path, file.sha256) for file in finished.files),
            rows=sum(file.rows for file in finished.files),
            fence=finished.fence,
            receipts=finished.receipts,
            run=finished.run,
        )
        return [*_removals(state, finished, token), chunk, *(act.AddFile(file) for file in finished.files)]

    return prepare


def _check_adoptable(state: State, finished: FinishedChunk) -> None:
    """Repeat on the head what made a receipt adoptable: as long as it holds, garbage collection spares the files."""
    last = state.last_change_of(finished.id)
    if finished.base_revision is not None and last > finished.base_revision:
        names = ", ".join(ref.path for ref in finished.receipts)
        what = "the location was rolled back" if last == state.rolled_back else f"chunk {finished.id} was committed"
        raise StaleReceiptError(
            f"{names} was made on revision {finished.base_revision}; {what} at revision {last} since, so its files may "
            "be collected as garbage. Export the chunk again.",
            chunk=finished.id,
        )


class CompactedMeanwhileError(ConflictError):
    """A chunk was compacted while it was being replaced: it holds the same rows, in other files."""


def _removals(state: State, finished: FinishedChunk, token: Token) -> list[act.Action]:
    if finished.replaces is None:
        return []
    live = set(state.files.chunk(finished.id))
    known = state.chunks.get(finished.id)
    if known is not None and known.exported > token.revision:
        raise ConflictError(
            f"Chunk {finished.id} was exported by another writer, at revision {known.exported}, after this run opened "
            "the source; older rows would replace newer ones. Run again."
        )
    if live != set(finished.replaces):
        raise CompactedMeanwhileError(
            f"Chunk {finished.id} lies in other files than those that were to be replaced: another writer compacted it "
            "meanwhile. Run again.",
            chunk=finished.id,
        )
    return [act.RemoveFile(path) for path in sorted(live)]


def fail_chunk(token: Token, chunk: int, error: str, run: str) -> Prepare:
    """Record that a chunk failed; one that another writer completed stays completed."""

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        if state.completed(chunk):
            return None
        window = None if chunk == UNTIMED_CHUNK else state.window(chunk)
        start, end = (window.start, window.end) if window else (None, None)
        return [act.Chunk(chunk, start, end, act.ChunkStatus.FAILED, error=error, run=run)]

    return prepare
