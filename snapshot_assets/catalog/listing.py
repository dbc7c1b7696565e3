"""Lists the snapshots below a URI, and what the log records about one: the metadata tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import has_log, is_there
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.catalog.pins.listing import ListedSavepoint, ListedTag, list_savepoints, list_tags
from snapshot_assets.catalog.state.diff import difference
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries
from snapshot_assets.errors import (
    DamageError,
    LocationDeletedError,
    NoSnapshotError,
    StorageError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from snapshot_assets.format.layout import MANIFEST, OWN_FOLDERS
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import in_parallel

_LEVELS = 2


@dataclass(frozen=True)
class SnapshotSummary:
    """One location as `snapshots export list` shows it; its pins are by commit time of the revisions that they pin.

    Attributes:
        status: `complete` (sealed), `incomplete`, `schema-only`, `deleted` or `unreadable`.
        error: Why it is unreadable, else "".
    """

    uri: str
    status: str
    snapshot_id: str = ""
    name: str = ""
    created_at: datetime | None = None
    catalog: str = ""
    schemas: tuple[str, ...] = ()
    chunks_done: int = 0
    chunks: int = 0
    rows: int = 0
    bytes: int = 0
    revision: int = 0
    sealed_revision: int | None = None
    tags: tuple[ListedTag, ...] = ()
    savepoints: tuple[ListedSavepoint, ...] = ()
    error: str = ""


def list_snapshots(store: ObjectStore, open_below: Callable[..., ObjectStore]) -> list[SnapshotSummary]:
    """Return the snapshots at a URI and up to two levels below it, newest first, unreadable ones last.

    A location may contain others. The second level holds the members of a federation: `<root>/<writer id>/<database>`.
    `open_below` opens the store of a folder below, given the names on its path.
    """
    summaries = _look_into(store, open_below, _LEVELS)
    return sorted(summaries, key=lambda item: (-(item.created_at.timestamp() if item.created_at else 0), item.uri))


def _look_into(store: ObjectStore, open_below: Callable[..., ObjectStore], levels: int) -> list[SnapshotSummary]:
    """Return the summaries of a folder with a snapshot, and of the folders in it."""
    found = _snapshot_at(store)
    names = [name for name in store.folders() if not (found and name in OWN_FOLDERS)] if levels else []

    def below(name: str) -> list[SnapshotSummary]:
        inner = open_below(name)
        try:
            return _look_into(inner, partial(open_below, name), levels - 1)
        except StoreUnavailableError:
            raise
        except StorageError as error:  # one folder that cannot be listed must not hide other snapshots
            return [SnapshotSummary(inner.uri, "unreadable", error=str(error))]

    inner = in_parallel(store, below, names) if levels == _LEVELS else map(below, names)  # no threads of threads
    return [*found, *chain.from_iterable(inner)]


def _snapshot_at(store: ObjectStore) -> list[SnapshotSummary]:
    """Return the summary of a location with a snapshot, also one whose log is lost; nothing for another folder."""
    if has_log(store):
        return [summarize(store)]
    # Other programs' folders are spared a whole listing.
    if not (any(name.isdecimal() for name in store.folders("data/")) or is_there(store, MANIFEST)):
        return []
    try:
        refuse_lost_log(store)
    except NoSnapshotError as error:  # a replica whose first copy has not ended
        return [SnapshotSummary(store.uri, "incomplete", error=str(error))]
    except (DamageError, UnsupportedVersionError) as error:
        return [SnapshotSummary(store.uri, "unreadable", error=str(error))]
    return []


def summarize(store: ObjectStore) -> SnapshotSummary:
    """Return the summary of one location."""
    try:
        state = read_state(store)
    except LocationDeletedError as error:
        return SnapshotSummary(store.uri, "deleted", error=str(error))
    except (DamageError, UnsupportedVersionError) as error:
        return SnapshotSummary(store.uri, "unreadable", error=str(error))
    if state.header is None:
        return SnapshotSummary(store.uri, "unreadable", error="The log is empty.")
    status = "schema-only" if state.header.schema_only else "complete"
    if not state.sealed:
        status = "incomplete"
    if state.deleted:
        status = "deleted"
    _, rows, size = state.files.totals()
    expected = state.counted_chunks()
    return SnapshotSummary(
        uri=store.uri,
        status=status,
        snapshot_id=state.snapshot_id,
        name=state.header.name,
        created_at=state.created_at,
        catalog=state.header.catalog,
        schemas=state.header.schemas,
        chunks_done=sum(state.completed(chunk) for chunk in expected),
        chunks=len(expected),
        rows=rows,
        bytes=size,
        revision=state.revision,
        sealed_revision=state.newest_seal.revision if state.newest_seal else None,
        tags=tuple(list_tags(state)),
        savepoints=tuple(list_savepoints(state)),
    )


_TYPES = {"int": pa.int64(), "text": pa.string(), "time": pa.timestamp("us", "UTC"), "bool": pa.bool_()}


@dataclass(frozen=True)
class TableRequest:
    """The states that a metadata table is read from: the head's, and that at the requested version, else the head's.

    `since` is the revision that `$diff` starts at; 0 without one.
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
