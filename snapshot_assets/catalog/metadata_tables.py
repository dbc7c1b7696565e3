"""The metadata tables: what the log records about a location, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from snapshot_assets.catalog.pins.listing import list_savepoints, list_tags
from snapshot_assets.catalog.state.diff import difference
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries

_TYPES = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("us", "UTC"), "bool": pa.bool_()}


@dataclass(frozen=True)
class TableRequest:
    """The states that a metadata table is read from.

    Attributes:
        head: The head's state.
        state: The state at the requested version; the head's without a version.
        since: The revision that `$diff` starts at; 0 without one.
    """

    head: State
    state: State
    since: int = 0


@dataclass(frozen=True)
class MetadataTable:
    """One metadata table.

    Attributes:
        columns: Its columns, as in `revision int, sealed_at time`.
        rows: Returns its rows, with values in the order of the columns.
        versioned: Whether it can be read at a version; other tables show the whole location.
    """

    columns: str
    rows: Callable[[TableRequest], Iterable[tuple[Any, ...]]]
    versioned: bool = False

    def read(self, request: TableRequest) -> pa.Table:
        """Return the table."""
        pairs = (column.split() for column in self.columns.split(","))
        schema = pa.schema([(name, _TYPES[kind]) for name, kind in pairs])
        values = zip(*self.rows(request), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=False)]
        return pa.Table.from_arrays(arrays, schema=schema) if arrays else schema.empty_table()


def _snapshots(request: TableRequest) -> Iterator[tuple[Any, ...]]:
    for summary in revision_summaries(request.head).values():
        sealed, seal = summary.sealed, summary.sealed.seal
        yield (
            sealed.revision,
            sealed.snapshot_id,
            sealed.committed_at,
            seal.checksum,
            seal.consistency,
            sum(item.rows for item in seal.rows_outside),
            summary.schema_id,
            summary.rows,
            summary.files,
            summary.bytes,
        )


def _chunks(request: TableRequest) -> Iterator[tuple[Any, ...]]:
    state = request.state
    windows = {window.id: window for window in state.windows()}
    for number in sorted({*state.expected_chunks(), *state.chunks, *state.in_progress}):
        window, committed = windows.get(number), state.chunks.get(number)
        chunk = committed.chunk if committed else None
        files = [live.file for live in state.live_files(number)]
        yield (
            number,
            window.start if window else None,
            window.end if window else None,
            state.status(number).value,
            chunk.rows if chunk else 0,
            len(files),
            sum(file.bytes for file in files),
            chunk.checksum or None if chunk else None,
            chunk.error or None if chunk else None,
            committed.revision if committed else None,
            chunk.run or None if chunk else state.in_progress.get(number),
        )


def _files(request: TableRequest) -> Iterator[tuple[Any, ...]]:
    for live in request.state.live_files():
        file = live.file
        identity = file.path, file.chunk, file.schema, file.table
        yield (*identity, file.rows, file.bytes, file.sha256, file.schema_id, live.added)


METADATA_TABLES: Mapping[str, MetadataTable] = {
    "$snapshots": MetadataTable(
        "revision int, snapshot_id text, sealed_at time, checksum text, consistency text, rows_outside int,"
        "schema_id int, record_count int, files int, bytes int",
        _snapshots,
    ),
    "$tags": MetadataTable(
        "tag_name text, tagged_snapshot_id int, schema_id int, commit_time time, record_count int,"
        "create_time time, time_retained text, expires_at time, automatic bool, previous text, next text,"
        "held_since time, held_by text, hold_reason text",
        lambda request: map(astuple, list_tags(request.head)),
    ),
    "$savepoints": MetadataTable(
        "savepoint_id int, saved_snapshot_id int, schema_id int, commit_time time, record_count int,"
        "create_time time, automatic bool, previous int, next int",
        lambda request: map(astuple, list_savepoints(request.head)),
    ),
    "$diff": MetadataTable(
        "kind text, change text, chunk int, schema text, table text, path text, detail text, files_added int,"
        "files_removed int, rows_added int, rows_removed int, bytes_added int, bytes_removed int",
        lambda request: map(astuple, difference(request.head, request.since, request.state.revision)),
        versioned=True,
    ),
    "$chunks": MetadataTable(
        "chunk int, start time, end time, status text, rows int, files int, bytes int, checksum text, error text,"
        "revision int, run text",
        _chunks,
        versioned=True,
    ),
    "$files": MetadataTable(
        "path text, chunk int, schema text, table text, rows int, bytes int, sha256 text, schema_id int, added int",
        _files,
        versioned=True,
    ),
}
"""By name. Without a version, `$chunks` and `$files` show the head, unsealed work included. `$diff` shows the changes
since a version. The columns of `$tags` up to `time_retained` are those of Paimon (PIP "Tags", `$tags`). `$savepoints`
uses the same names in place of Paimon's `save_time`, because a savepoint and its revision have different times.
"""
