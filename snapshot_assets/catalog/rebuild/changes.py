"""Changes of a state that no readable transaction records, but a manifest, receipts or data files show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.receipts.selection import ReceiptAt, receipts_behind
from snapshot_assets.catalog.rules import chunks
from snapshot_assets.catalog.state.fold import DATA_ACTIONS, State
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
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
        event: The revision, its commit time and its writer.
        actions: Its actions, except those on files.
        removed: Paths of the files that it removes.
        added: Files that it adds or returns.
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
    """Return the action that completes a chunk with these files, and names the receipts that list them.

    Raises:
        PlanError: The plan has no such chunk.
    """
    named = receipts_behind(receipts, files)
    last = named[-1][0] if named else None
    if fence is None:
        fence = last.fence if last else {}
    refs, run = tuple(ref for _, ref in named), last.run if last else ""
    return chunks.completed_chunk(State(header=header), number, files, fence=fence, receipts=refs, run=run)


def assumed_header(start: datetime | None, end: datetime | None, **known: Any) -> act.Header:
    """Return a header with defaults for all fields that are not given."""
    requested = {"requested_start": time_text(start) if start else "", "requested_end": time_text(end) if end else ""}
    return act.Header(start=start, end=end, **(_ASSUMED | requested | known))
