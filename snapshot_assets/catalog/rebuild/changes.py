"""Changes of a state that no readable transaction records: what a manifest, receipts or data files show instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.receipts.selection import ReceiptAt, receipts_behind
from snapshot_assets.catalog.state.fold import DATA_ACTIONS, State
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import chunk_of, transaction_path
from snapshot_assets.format.units import time_text

MICROSECOND = timedelta(microseconds=1)
_ASSUMED: dict[str, Any] = {
    "name": "",
    "source": "",
    "catalog": "",
    "kind": "once",
    "format": "parquet",
    "schema_only": False,
    "time_zone": "UTC",
    "null_time": "chunk0",
    "untimed_tables": "export",
    "grace": timedelta(days=1) // MICROSECOND,
}


def fold(
    state: State,
    event: tuple[int, datetime, str],
    actions: Sequence[act.Action],
    removed: Iterable[str] = (),
    added: Iterable[DataFile] = (),
) -> None:
    """Fold one revision into a state.

    Args:
        state: The state before it.
        event: The revision, the time of its commit, and its writer.
        actions: Its actions, but for those on files.
        removed: Paths of the files that it removes.
        added: Files that it adds or brings back.
    """
    revision, committed_at, writer = event
    gone, new = list(removed), {file.path: file for file in added}
    changes_data = bool(gone or new) or any(isinstance(action, DATA_ACTIONS) for action in actions)
    state.fold(Event(revision, committed_at, writer, tuple(actions), changes_data), transaction_path(revision))
    for path in gone:
        state.files.remove(chunk_of(path) or 0, path, revision, committed_at)
    for path in sorted(state.files.bring_back(new, revision)) if new else ():
        state.files.add(new[path], revision)


def completed_chunk(
    header: act.Header,
    number: int,
    files: Collection[DataFile],
    receipts: Sequence[ReceiptAt],
    fence: Mapping[str, str] | None = None,
) -> act.Chunk:
    """Return the action that completes a chunk with these files; of its receipts it names those that hold them.

    Raises:
        PlanError: The plan has no such chunk.
    """
    named = receipts_behind(receipts, files)
    return chunk_action(
        header,
        number,
        act.ChunkStatus.COMPLETED,
        checksum=chunk_checksum((file.path, file.sha256) for file in files),
        rows=sum(file.rows for file in files),
        fence=(named[-1][0].fence if named else {}) if fence is None else fence,
        receipts=tuple(ref for _, ref in named),
        run=named[-1][0].run if named else "",
    )


def chunk_action(header: act.Header, number: int, status: act.ChunkStatus, **facts: Any) -> act.Chunk:
    """Return an action on a chunk.

    Raises:
        PlanError: The plan has no such chunk.
    """
    window = State(header=header).window(number) if number else None
    return act.Chunk(number, window.start if window else None, window.end if window else None, status, **facts)


def assumed_header(start: datetime | None, end: datetime | None, **known: Any) -> act.Header:
    """Return a header of which only a part is known."""
    requested = {"requested_start": time_text(start) if start else "", "requested_end": time_text(end) if end else ""}
    return act.Header(start=start, end=end, **(_ASSUMED | requested | known))
