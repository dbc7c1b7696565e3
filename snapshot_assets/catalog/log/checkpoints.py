"""Checkpoints on storage: whole states, so that opening a location needs no log from its beginning.

A checkpoint is never needed for correctness: a missing or damaged one is passed over for an older one, or for the log
from its first revision (InfluxDB IOx, "Checkpoints"; FORMAT.md, section 6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from snapshot_assets.catalog.state.chain import misnamed
from snapshot_assets.catalog.state.column_bounds import KINDS, Bounds, ByKind, schema_of
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.file_columns import COLUMNS, FileColumns
from snapshot_assets.catalog.state.fold import State, first_version
from snapshot_assets.catalog.state.retained_events import needed_events
from snapshot_assets.errors import DamageError, DocumentError, ObjectExistsError, ObjectNotFoundError
from snapshot_assets.format.checkpoint import (
    Checkpoint,
    ReadRange,
    Section,
    check_bytes,
    encode_checkpoint,
    read_header,
    read_section,
)
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.storage.base import ObjectStore

FILES, BOUNDS = "files", "bounds"
_LOG = logging.getLogger(__name__)


def write_checkpoint(store: ObjectStore, state: State) -> str:
    """Write the checkpoint of a state, unless there is one that can be read, and return its path.

    Args:
        store: The location.
        state: The state at a revision that is committed.
    """
    path, data = checkpoint_path(state.revision), checkpoint_bytes(state)
    try:
        store.create(path, data)
    except ObjectExistsError:  # another writer was quicker, or it is damaged
        if is_damaged(store, state.revision):
            _LOG.warning("%s in %s is damaged; it is written again.", path, store.uri)
            store.put(path, data)
    state.checkpointed = state.revision
    return path


def is_damaged(store: ObjectStore, revision: int) -> bool:
    """Return whether a checkpoint is there, but is not whole; reads all of it."""
    try:
        read_checkpoint(store, revision, statistics=True)
    except DamageError:
        return True
    except ObjectNotFoundError:
        pass
    return False


def checkpoint_bytes(state: State) -> bytes:
    """Return a state's checkpoint."""
    return encode_checkpoint(_header(state), _tables(state.files.merged()))


def same_states(one: State, other: State) -> bool:
    """Tell whether two states would have the same checkpoint; statistics are read for it."""
    if _header(one) != _header(other):
        return False
    first, second = one.files.merged(), other.files.merged()
    columns = first.bounds.columns | second.bounds.columns
    return _equal(first.table, second.table) and all(
        _equal_bounds(first.bounds.of(column), second.bounds.of(column)) for column in columns
    )


def _equal(one: pa.Table, other: pa.Table) -> bool:
    # Dictionaries may stand in another order.
    return all(_plain(one[name]).equals(_plain(other[name])) for name in one.schema.names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _equal_bounds(one: ByKind, other: ByKind) -> bool:
    return one.keys() == other.keys() and all(_equal(table, other[kind]) for kind, table in one.items())


def _header(state: State) -> Checkpoint:
    return Checkpoint(
        location_id=state.location_id,
        revision=state.revision,
        uuid=state.uuid,
        sha256=state.sha256,
        committed_at=state.committed_at,
        data_revision=state.data_revision,
        version=state.format_version,
        events=tuple(needed_events(state)),
    )


def _tables(files: FileColumns) -> Iterator[tuple[str, str, str, pa.Table]]:
    yield FILES, "", "", files.table
    for column in sorted(files.bounds.columns):
        for kind, table in files.bounds.of(column).items():
            yield BOUNDS, column, kind, table


def read_checkpoint(store: ObjectStore, revision: int, *, statistics: bool = False) -> State:
    """Return the state in a checkpoint; statistics are read from it when they are asked for.

    Args:
        store: The location.
        revision: The revision that it is of.
        statistics: Read all of them now, and refuse an object with bytes that belong to no section.

    Raises:
        ObjectNotFoundError: The checkpoint is missing.
        MisnamedError: It is of another revision.
        DamageError: It is not whole, or not what this code writes.
        UnsupportedVersionError: It is of a newer format.
    """
    path = checkpoint_path(revision)
    read = partial(store.get_range, path)
    if statistics:
        check_bytes(read, store.head(path).size, path, sections=False)
    header, start = read_header(read, path)
    if header.revision != revision:
        raise misnamed(path, header.revision, revision)
    state = State(location_id=header.location_id, format_version=first_version(header.events, header.version))
    for event in header.events:
        if event.revision <= state.revision or event.revision > revision:
            raise DocumentError(f"{path} has the events of revision {event.revision} out of order.", object=path)
        state.fold(event, path)
    if state.format_version != header.version:
        raise DocumentError(
            f"{path} has format version {header.version}; its events end with {state.format_version}.", object=path
        )
    state.revision, state.uuid, state.sha256 = revision, header.uuid, header.sha256
    state.committed_at, state.data_revision = header.committed_at, header.data_revision
    state.files = FileSet(_read_files(read, start, header, path, statistics))
    state.checkpointed = revision
    return state


def _read_files(read: ReadRange, start: int, header: Checkpoint, path: str, statistics: bool) -> FileColumns:
    found = [section for section in header.sections if section.name == FILES]
    if len(found) != 1:
        raise DocumentError(f"{path} has {len(found)} sections of files; expected one.", object=path)
    table = read_section(read, start, found[0], COLUMNS, path)
    bounds: dict[str, list[Section]] = {}
    for section in header.sections:
        if section.name == BOUNDS and section.kind in KINDS:
            bounds.setdefault(section.column, []).append(section)

    def of(column: str) -> ByKind:
        return {each.kind: read_section(read, start, each, schema_of(each.kind), path) for each in bounds[column]}

    known = {column: of(column) for column in bounds} if statistics else None
    return FileColumns(table, Bounds(bounds, known.__getitem__ if known is not None else of))
