"""Whether a target's ledger still fits: the tables it speaks of, and the windows that its chunks are numbered by.

A chunk's number means a window only together with where the windows start and how long they are. So every import
records its windows, and a revision that is cut otherwise is refused before anything of it is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.target import ExistingTable, LoadedFile, RestoreRecord
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.checksums import canonical_json
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.format.units import duration_text, parse_time, time_text
from snapshot_assets.format.windows import window_at

_ANEW = "Drop the tables, give --forget-ledger, and import anew."


@dataclass(frozen=True)
class PinnedWindows:
    """How an import's chunks are cut out of its tables.

    Attributes:
        start: Start of the first window; None where there are no windows.
        length: Their length.
        end: End of the last one, which may be shorter; None where that is open.
        zone: IANA zone of times without one.
        time_indexes: The column that each table is cut by; None where it is not.
    """

    start: datetime | None
    length: timedelta
    end: datetime | None
    zone: str
    time_indexes: Mapping[TableName, str | None]

    @classmethod
    def of(cls, state: State, schema: DatabaseSchema) -> PinnedWindows:
        """Return those of a revision's selected tables."""
        header = state.header
        assert header is not None
        indexes = {table.table_name: table.time_index for table in schema.tables}
        length = timedelta(microseconds=header.chunk_time_window)
        return cls(header.start, length, header.end, header.time_zone, indexes)

    @classmethod
    def parse(cls, text: str) -> PinnedWindows:
        """Return those that `text` wrote."""
        facts = json.loads(text)
        start, end = (parse_time(facts[name]) if facts[name] else None for name in ("start", "end"))
        indexes = {TableName(schema, table): column for schema, table, column in facts["time_indexes"]}
        return cls(start, timedelta(microseconds=facts["length"]), end, facts["zone"], indexes)

    def text(self) -> str:
        """Return them as canonical JSON, as the ledger holds them."""
        facts = {
            "start": time_text(self.start) if self.start else None,
            "length": self.length // timedelta(microseconds=1),
            "end": time_text(self.end) if self.end else None,
            "zone": self.zone,
            "time_indexes": [[*name, column] for name, column in sorted(self.time_indexes.items())],
        }
        return canonical_json(facts).decode()

    def cut_as(self, other: PinnedWindows) -> bool:
        """Tell whether a chunk's number means the same window in both, but for the ends of the last ones."""
        return (self.start, self.length, self.zone) == (other.start, other.length, other.zone)

    def end_of(self, chunk: int) -> datetime:
        """Return the end of a window."""
        assert self.start is not None
        return window_at(self.start, self.length, chunk, end=self.end).end

    def __str__(self) -> str:
        """Return them in words."""
        if self.start is None:
            return "no windows"
        return (
            f"windows of {duration_text(self.length)} from {time_text(self.start)} (times without a zone: {self.zone})"
        )


def check_windows(
    loaded: Sequence[LoadedFile],
    imports: Sequence[RestoreRecord],
    now: PinnedWindows,
    chunks: Collection[int],
    revision: int,
) -> None:
    """Refuse a revision whose chunks are other windows than those that the target's rows were loaded as.

    Args:
        loaded: Files of the revision's tables that the ledger has.
        imports: What the ledger knows.
        now: Windows of the revision.
        chunks: Its chunks.
        revision: For messages.

    Raises:
        RestoreError: A chunk's number would mean other rows (names both windows, or both time indexes), or the target
            holds rows of chunks that the revision lacks.
    """
    records = {record.id: record for record in imports}
    seen: dict[str, dict[int, set[TableName]]] = {}
    for entry in loaded:
        seen.setdefault(entry.import_id, {}).setdefault(entry.chunk, set()).add(entry.table)
    known = {import_id: _windows_of(records.get(import_id), import_id) for import_id in sorted(seen)}
    for import_id, before in known.items():
        _check_time_indexes(set().union(*seen[import_id].values()), before, now, revision)
        if set(seen[import_id]) != {UNTIMED_CHUNK} and not now.cut_as(before):
            raise RestoreError(
                f"The target's rows were loaded in {before}; revision {revision} has {now}, so its chunks are not"
                f" those that the target holds. {_ANEW}",
                revision=revision,
            )
    _check_held(loaded, chunks, revision)
    for import_id, before in known.items():
        for chunk in sorted(set(seen[import_id]) - {UNTIMED_CHUNK}):
            _check_end(chunk, before, now, revision)


def _windows_of(record: RestoreRecord | None, import_id: str) -> PinnedWindows:
    if record is None or not record.windows:
        raise RestoreError(
            f"The target's ledger does not say which windows import {import_id} was cut into, so chunks of another"
            f" revision cannot be told from its own: an earlier version of this program recorded it. {_ANEW}",
            import_id=import_id,
        )
    return PinnedWindows.parse(record.windows)


def _check_time_indexes(tables: set[TableName], before: PinnedWindows, now: PinnedWindows, revision: int) -> None:
    for name in sorted(tables):
        old, new = before.time_indexes.get(name), now.time_indexes.get(name)
        if old != new:
            raise RestoreError(
                f"The rows of {name} were loaded with the time index {old or 'none'}, which is now {new or 'none'} at"
                f" revision {revision}: other rows lie in each chunk. {_ANEW}",
                table=str(name),
            )


def _check_held(loaded: Iterable[LoadedFile], chunks: Collection[int], revision: int) -> None:
    outside = sorted({entry.chunk for entry in loaded} - set(chunks))
    if outside:
        raise RestoreError(
            f"The target holds rows of {numbered(outside)}, which revision {revision} does not have: they would be left"
            f" over. Import a revision that has them. Or: {_ANEW[0].lower()}{_ANEW[1:]}",
            chunks=outside,
        )


def _check_end(chunk: int, before: PinnedWindows, now: PinnedWindows, revision: int) -> None:
    old, new = before.end_of(chunk), now.end_of(chunk)
    if old > new:
        raise RestoreError(
            f"Chunk {chunk} was loaded up to {time_text(old)}; at revision {revision} it ends at {time_text(new)}, so"
            f" the rows between would be left over. {_ANEW}",
            chunk=chunk,
        )


def numbered(chunks: Sequence[int]) -> str:
    """Return chunk ids for a message."""
    return f"chunk{'s' * (len(chunks) > 1)} {', '.join(map(str, chunks))}"


def check_tables_are_there(
    tables: Collection[TableName],
    existing: Mapping[TableName, ExistingTable],
    loaded: Iterable[LoadedFile],
    *,
    resumed: bool,
) -> None:
    """Refuse to go on where a table is gone that an import made or filled.

    Args:
        tables: Tables of the import.
        existing: Those that the target has.
        loaded: Files of the tables that the ledger has.
        resumed: Whether the import has made its tables already.

    Raises:
        RestoreError: Names the tables.
    """
    filled = {entry.table for entry in loaded}
    gone = sorted(name for name in tables if name not in existing and (resumed or name in filled))
    if gone:
        names = ", ".join(map(str, gone))
        raise RestoreError(
            f"{names} is not there any more, though the target's ledger says that an import made it: it was dropped or"
            " renamed since. Bring it back, or drop the import's other tables too, give --forget-ledger, and import"
            " anew.",
            tables=names,
        )
