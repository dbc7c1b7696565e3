"""The metadata tables: what the log says of a location, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from snapshot_assets.catalog.pins.listing import list_savepoints, list_tags
from snapshot_assets.catalog.state.diff import difference
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries
from snapshot_assets.format.windows import Window

_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class TableRequest:
    """What a metadata table is read of.

    Attributes:
        head: The head's state.
        state: The state at the version that was asked for; the head's without one.
        since: The revision that `$diff` begins at; 0 where none was named.
    """

    head: State
    state: State
    since: int = 0


@dataclass(frozen=True)
class MetadataTable:
    """One metadata table.

    Attributes:
        schema: Its columns.
        rows: Returns its rows, columns in order.
        versioned: Whether it can be read at a version; the others show the whole location.
    """

    schema: pa.Schema
    rows: Callable[[TableRequest], Iterator[tuple[Any, ...]]]
    versioned: bool = False

    def read(self, asked: TableRequest) -> pa.Table:
        """Return the table."""
        columns = zip(*self.rows(asked), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=False)]
        return pa.Table.from_arrays(arrays, schema=self.schema) if arrays else self.schema.empty_table()


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


def _snapshots(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    facts = revision_summaries(asked.head)
    for known in asked.head.readable():
        fact, seal = facts[known.revision], known.seal
        outside = sum(item.rows for item in seal.rows_outside)
        yield (
            known.revision,
            known.snapshot_id,
            known.committed_at,
            seal.checksum,
            seal.consistency,
            outside,
            fact.schema_id,
            fact.rows,
            fact.files,
            fact.bytes,
        )


def _tags(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    yield from map(astuple, list_tags(asked.head))


def _savepoints(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    yield from map(astuple, list_savepoints(asked.head))


def _diff(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    yield from map(astuple, difference(asked.head, asked.since, asked.state.revision).rows)


def _chunks(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    state = asked.state
    windows: dict[int, Window] = {window.id: window for window in state.windows()}
    for number in sorted({*state.expected_chunks(), *state.chunks, *state.in_progress}):
        window, known = windows.get(number), state.chunks.get(number)
        chunk = known.chunk if known else None
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
            known.revision if known else None,
            chunk.run or None if chunk else state.in_progress.get(number),
        )


def _files(asked: TableRequest) -> Iterator[tuple[Any, ...]]:
    for known in asked.state.live_files():
        file = known.file
        yield (
            file.path,
            file.chunk,
            file.schema,
            file.table,
            file.rows,
            file.bytes,
            file.sha256,
            file.schema_id,
            known.added,
        )


METADATA_TABLES: Mapping[str, MetadataTable] = {
    "$snapshots": MetadataTable(
        _schema(
            revision=pa.int64(),
            snapshot_id=pa.string(),
            sealed_at=_TIME,
            checksum=pa.string(),
            consistency=pa.string(),
            rows_outside=pa.int64(),
            schema_id=pa.int64(),
            record_count=pa.int64(),
            files=pa.int64(),
            bytes=pa.int64(),
        ),
        _snapshots,
    ),
    "$tags": MetadataTable(
        _schema(
            tag_name=pa.string(),
            tagged_snapshot_id=pa.int64(),
            schema_id=pa.int64(),
            commit_time=_TIME,
            record_count=pa.int64(),
            create_time=_TIME,
            time_retained=pa.string(),
            expires_at=_TIME,
            automatic=pa.bool_(),
            previous=pa.string(),
            next=pa.string(),
        ),
        _tags,
    ),
    "$savepoints": MetadataTable(
        _schema(
            savepoint_id=pa.int64(),
            saved_snapshot_id=pa.int64(),
            schema_id=pa.int64(),
            commit_time=_TIME,
            record_count=pa.int64(),
            create_time=_TIME,
            automatic=pa.bool_(),
            previous=pa.int64(),
            next=pa.int64(),
        ),
        _savepoints,
    ),
    "$diff": MetadataTable(
        _schema(
            kind=pa.string(),
            change=pa.string(),
            chunk=pa.int64(),
            schema=pa.string(),
            table=pa.string(),
            path=pa.string(),
            detail=pa.string(),
            files_added=pa.int64(),
            files_removed=pa.int64(),
            rows_added=pa.int64(),
            rows_removed=pa.int64(),
            bytes_added=pa.int64(),
            bytes_removed=pa.int64(),
        ),
        _diff,
        versioned=True,
    ),
    "$chunks": MetadataTable(
        _schema(
            chunk=pa.int64(),
            start=_TIME,
            end=_TIME,
            status=pa.string(),
            rows=pa.int64(),
            files=pa.int64(),
            bytes=pa.int64(),
            checksum=pa.string(),
            error=pa.string(),
            revision=pa.int64(),
            run=pa.string(),
        ),
        _chunks,
        versioned=True,
    ),
    "$files": MetadataTable(
        _schema(
            path=pa.string(),
            chunk=pa.int64(),
            schema=pa.string(),
            table=pa.string(),
            rows=pa.int64(),
            bytes=pa.int64(),
            sha256=pa.string(),
            schema_id=pa.int64(),
            added=pa.int64(),
        ),
        _files,
        versioned=True,
    ),
}
"""By name. `$chunks` and `$files` show the head, unsealed work included, unless a version is asked for; `$diff` what
changed since a version. The columns of `$tags` up to `time_retained` are those of Paimon's (PIP "Tags", `$tags`); those
of `$savepoints` have the same names, where Paimon has `save_time`: a savepoint has its own time and its revision's.
"""
