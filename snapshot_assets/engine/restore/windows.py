"""Compares the windows of a revision with those that the target's rows were loaded in.

The windows give a chunk's number its meaning. So every restore records them, and other windows are refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.restore.target import TargetLedger
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.documents import canonical_json
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import duration_text, noun, parse_time, some_text, time_text
from snapshot_assets.format.windows import window_at

_IMPORT_AGAIN = "Drop the tables, give --forget-ledger, and import again."


@dataclass(frozen=True)
class PinnedWindows:
    """The windows that a restore's chunks stand for.

    Attributes:
        start: Start of the first window; None if there are no windows.
        end: End of the last window, which may be shorter; None if it is open.
        zone: IANA zone of times without one.
        time_indexes: The time index of each table; None for an untimed table.
    """

    start: datetime | None
    length: timedelta
    end: datetime | None
    zone: str
    time_indexes: Mapping[TableName, str | None]

    @classmethod
    def of(cls, state: State, tables: Sequence[Table]) -> PinnedWindows:
        """Return the windows of a revision, with its selected tables by their names in the target."""
        header = state.header
        assert header is not None
        indexes = {table.table_name: table.time_index for table in tables}
        length = timedelta(microseconds=header.chunk_time_window)
        return cls(header.start, length, header.end, header.time_zone, indexes)

    @classmethod
    def parse(cls, text: str) -> PinnedWindows:
        """Return the windows that `text` wrote."""
        values = json.loads(text)
        start, end = (parse_time(values[name]) if values[name] else None for name in ("start", "end"))
        indexes = {TableName(schema, table): column for schema, table, column in values["time_indexes"]}
        return cls(start, timedelta(microseconds=values["length"]), end, values["zone"], indexes)

    def text(self) -> str:
        """Return the windows as canonical JSON, as the ledger holds them."""
        values = {
            "start": time_text(self.start) if self.start else None,
            "length": self.length // timedelta(microseconds=1),
            "end": time_text(self.end) if self.end else None,
            "zone": self.zone,
            "time_indexes": [[*name, column] for name, column in sorted(self.time_indexes.items())],
        }
        return canonical_json(values).decode()

    def __str__(self) -> str:
        """Return the windows for a message."""
        if self.start is None:
            return "no windows"
        return (
            f"windows of {duration_text(self.length)} from {time_text(self.start)} (times without a zone: {self.zone})"
        )


def check_windows(ledger: TargetLedger, now: PinnedWindows, chunks: Collection[int], revision: int) -> None:
    """Refuse a revision whose chunks stand for other windows than those that were loaded into the target.

    Raises:
        RestoreError: A chunk's number would mean other rows (names both windows, or both time indexes), or the target
            holds rows of chunks that the revision lacks.
    """
    by_id = {record.id: record for record in ledger.earlier}
    tables: dict[str, dict[int, set[TableName]]] = {}
    for entry in ledger.loaded:
        tables.setdefault(entry.import_id, {}).setdefault(entry.chunk, set()).add(entry.table)
    windows: dict[str, PinnedWindows] = {}
    for import_id in sorted(tables):
        record = by_id.get(import_id)
        if record is None or not record.windows:
            raise RestoreError(
                f"The target's ledger does not record the windows of import {import_id}, so its chunks cannot be"
                " compared with those of another revision: an earlier version of this program recorded it."
                f" {_IMPORT_AGAIN}",
                import_id=import_id,
            )
        windows[import_id] = PinnedWindows.parse(record.windows)
    for import_id, before in windows.items():
        _check_same_windows(tables[import_id], before, now, revision)
    if outside := [entry for entry in ledger.loaded if entry.chunk not in chunks]:
        names, left = sorted({str(each.table) for each in outside}), sorted({each.chunk for each in outside})
        raise RestoreError(
            f"{some_text(names)} in the target {noun(len(names), 'holds', 'hold')} rows of {numbered(left)}, which"
            f" revision {revision} does not have: they would be left over. Import a revision that has them. Or:"
            f" {_IMPORT_AGAIN[0].lower()}{_IMPORT_AGAIN[1:]}",
            chunks=left,
        )
    for import_id, before in windows.items():
        for chunk in sorted(set(tables[import_id]) - {UNTIMED_CHUNK}):
            _check_end(chunk, before, now, revision)


def _check_same_windows(
    tables: Mapping[int, set[TableName]], before: PinnedWindows, now: PinnedWindows, revision: int
) -> None:
    """Refuse other time indexes or windows than an import's, of which `tables` has the tables of each chunk."""
    for name in sorted(set().union(*tables.values())):
        old, new = before.time_indexes.get(name), now.time_indexes.get(name)
        if old != new:
            raise RestoreError(
                f"The rows of {name} were loaded with the time index {old or 'none'}, which is now {new or 'none'} at"
                f" revision {revision}: other rows lie in each chunk. {_IMPORT_AGAIN}",
                table=table_text(name),
            )
    timed = set(tables) != {UNTIMED_CHUNK}
    if timed and (now.start, now.length, now.zone) != (before.start, before.length, before.zone):
        raise RestoreError(
            f"The target's rows were loaded in {before}; revision {revision} has {now}, so its chunks are not"
            f" those that the target holds. {_IMPORT_AGAIN}",
            revision=revision,
        )


def _check_end(chunk: int, before: PinnedWindows, now: PinnedWindows, revision: int) -> None:
    assert before.start is not None
    assert now.start is not None
    old = window_at(before.start, before.length, chunk, end=before.end).end
    new = window_at(now.start, now.length, chunk, end=now.end).end
    if old > new:
        raise RestoreError(
            f"Chunk {chunk} was loaded up to {time_text(old)}; at revision {revision} it ends at {time_text(new)}, so"
            f" the rows between would be left over. {_IMPORT_AGAIN}",
            chunk=chunk,
        )


def numbered(chunks: Sequence[int]) -> str:
    """Return chunk ids for a message."""
    return f"{noun(len(chunks), 'chunk')} {', '.join(map(str, chunks))}"
