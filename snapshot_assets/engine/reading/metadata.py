"""The metadata tables: what the log says of a location, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from snapshot_assets.catalog.state import State
from snapshot_assets.format.windows import Window

_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class MetadataTable:
    """One metadata table.

    Attributes:
        schema: Its columns.
        rows: Returns its rows at a state, columns in order.
    """

    schema: pa.Schema
    rows: Callable[[State], Iterator[tuple[Any, ...]]]

    def read(self, state: State) -> pa.Table:
        """Return the table at a state."""
        columns = zip(*self.rows(state), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=False)]
        return pa.Table.from_arrays(arrays, schema=self.schema) if arrays else self.schema.empty_table()


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


def _snapshots(state: State) -> Iterator[tuple[Any, ...]]:
    for known in state.seals:
        outside = sum(item.rows for item in known.seal.rows_outside)
        yield (
            known.revision,
            known.snapshot_id,
            known.committed_at,
            known.seal.checksum,
            known.seal.consistency,
            outside,
        )


def _tags(state: State) -> Iterator[tuple[Any, ...]]:
    for name in sorted(state.tags):
        known = state.tags[name]
        tag = known.tag
        yield name, tag.revision, tag.created_at, tag.created_at + tag.ttl if tag.ttl else None, known.created_by


def _chunks(state: State) -> Iterator[tuple[Any, ...]]:
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


def _files(state: State) -> Iterator[tuple[Any, ...]]:
    for known in state.live_files():
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
        ),
        _snapshots,
    ),
    "$tags": MetadataTable(
        _schema(
            name=pa.string(),
            revision=pa.int64(),
            created_at=_TIME,
            expires_at=_TIME,
            created_by=pa.string(),
        ),
        _tags,
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
    ),
}
"""By name; what they show is the head, unsealed work included, unless a version is asked for."""
