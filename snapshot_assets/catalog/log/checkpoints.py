"""Checkpoints on storage: whole states, so that opening a location does not read the log from its start.

No checkpoint is needed for correctness: without it, a reader uses an older one, or the log from its first revision
(InfluxDB IOx, "Checkpoints"; FORMAT.md, section 6). A checkpoint becomes the state as it is. One that was copied from
another location, or from a copy of this one, would turn this location's files into garbage: it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.state.fold import State, first_version, foreign_location, misnamed
from snapshot_assets.catalog.state.retained import needed_events
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    ForkError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from snapshot_assets.format.checkpoint import (
    Checkpoint,
    ReadRange,
    ReleasedHold,
    Section,
    check_bytes,
    encode_checkpoint,
    read_header,
    read_packed,
    read_section,
)
from snapshot_assets.format.layout import MANIFEST, checkpoint_path, transaction_path
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore, warn_once

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.catalog.state.bounds import Bounds, ByKind
    from snapshot_assets.catalog.state.file_columns import FileColumns

FILES, BOUNDS = "files", "bounds"
_DIGEST = 32
_HEAD_BYTES = 4096
_LOCATION = re.compile(rb'\n +"location_id": "([0-9a-f]{32})"')
_REVISION = re.compile(rb'\n +"revision": (\d{1,19})')


def write_checkpoint(store: ObjectStore, state: State) -> str:
    """Write the checkpoint of a committed state unless a whole one exists, and return its path."""
    state.files.move_to_columns()
    path, data = checkpoint_path(state.revision), checkpoint_bytes(state)
    try:
        store.create(path, data)
    except ObjectExistsError:  # another writer wrote it first, or it is damaged
        if not is_whole(store, state.revision):
            store.put(path, data)
    state.checkpointed = state.revision
    return path


def is_whole(store: ObjectStore, revision: int) -> bool:
    """Return whether a checkpoint is there and whole; reads all of it, and warns of a damaged one."""
    try:
        read_checkpoint(store, revision, whole=True)
    except DamageError as fault:
        warn_once(store.uri, f"A checkpoint is damaged: {fault}")
        return False
    except ObjectNotFoundError:
        return False
    return True


def checkpoint_bytes(state: State) -> bytes:
    """Return a state's checkpoint."""
    assert not state.partial, "a replica's state lacks what its log records"
    return encode_checkpoint(_header(state), _tables(state.files.merged()))


def same_states(one: State, other: State, *, statistics: bool = True) -> bool:
    """Return whether two states have the same checkpoint; reads all statistics, unless they need not be the same."""
    if replace(_header(one), released_holds=()) != replace(_header(other), released_holds=()):
        return False  # one may come from a checkpoint of a build that did not record released holds
    first, second = one.files.merged(), other.files.merged()
    return _equal(first.table, second.table) and (not statistics or same_bounds(first.bounds, second.bounds))


def same_bounds(one: Bounds, other: Bounds) -> bool:
    """Return whether two sets of bounds are the same."""
    import pyarrow as pa

    for column in one.columns | other.columns:  # all together may not fit into memory
        these, those = one.of(column), other.of(column)
        if these.keys() != those.keys() or not all(_equal(table, those[kind]) for kind, table in these.items()):
            return False
        del these, those
        pa.default_memory_pool().release_unused()
    return True


def _equal(one: pa.Table, other: pa.Table) -> bool:
    import pyarrow as pa

    def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:  # dictionaries may differ in their order
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    return all(plain(one[name]).equals(plain(other[name])) for name in one.schema.names)


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
        released_holds=tuple(ReleasedHold(*release) for release in sorted(state.pins.releases.items())),
    )


def _tables(files: FileColumns) -> Iterator[tuple[str, str, str, pa.Table]]:
    yield FILES, "", "", files.table
    for column in sorted(files.bounds.columns):
        for kind, table in files.bounds.of(column).items():
            yield BOUNDS, column, kind, table


def read_checkpoint(store: ObjectStore, revision: int, *, whole: bool = False) -> State:
    """Return the state in a checkpoint; it reads statistics when a caller needs them.

    With `whole`, read each section now, once, and refuse an object with bytes that belong to none. A checkpoint that is
    not whole, of another revision or invalid raises a DamageError.
    """
    from snapshot_assets.catalog.state.data_files import FileSet

    path = checkpoint_path(revision)
    read = partial(store.get_range, path)
    if whole:
        check_bytes(read, store.head(path).size, path)
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
    state.pins.releases = {each.name: each.revision for each in header.released_holds}
    state.files = FileSet(_read_files(read, start, header, path, whole))
    state.checkpointed = revision
    return state


def _read_files(read: ReadRange, start: int, header: Checkpoint, path: str, whole: bool) -> FileColumns:
    from snapshot_assets.catalog.state.bounds import KINDS, Bounds, schema_of
    from snapshot_assets.catalog.state.file_columns import COLUMNS, FileColumns

    found = [section for section in header.sections if section.name == FILES]
    if len(found) != 1:
        raise DocumentError(f"{path} has {counted(len(found), 'section')} of files; expected one.", object=path)
    table = read_section(read, start, found[0], COLUMNS, path)
    bounds: dict[str, list[Section]] = {}
    for section in header.sections:
        if section.name == BOUNDS and section.kind in KINDS:
            bounds.setdefault(section.column, []).append(section)
        elif section.name != FILES and whole:
            read_packed(read, start, section, path)  # of a later version

    def of(column: str) -> ByKind:
        return {each.kind: read_section(read, start, each, schema_of(each.kind), path) for each in bounds[column]}

    files = FileColumns(table, Bounds(lambda: bounds, of))
    return files.packed() if whole else files


def read_own_checkpoint(
    store: ObjectStore, revision: int, transactions: Sequence[int], *, whole: bool = False
) -> State:
    """Return the state in a checkpoint of this location that agrees with the log, whose revisions are given.

    Raises:
        ForeignLocationError: It belongs to another location.
        ForkError: It is of another past of this location.
    """
    state = read_checkpoint(store, revision, whole=whole)
    location, named_by = named_location(store, transactions)
    # Revisions below a rebuild are no part of the log, and may belong to another location.
    is_own = location in ("", state.location_id) or (
        state.rebuilt_at and manifest_facts(store, MANIFEST)[0] == state.location_id
    )
    if not is_own:
        raise foreign_location(checkpoint_path(revision), state.location_id, location, named_by)
    check_transaction(store, state, transactions)
    return state


def named_location(store: ObjectStore, transactions: Sequence[int]) -> tuple[str, str]:
    """Return the location that the first readable one of the log's transactions names, and its path; "" for none."""
    for revision in transactions:
        with suppress(DamageError, UnsupportedVersionError):
            return read_entry(store, revision).transaction.location_id, transaction_path(revision)
    return "", ""


def manifest_facts(store: ObjectStore, path: str) -> tuple[str, int]:
    """Return location and revision of a manifest, or of the manifest in a pin, from the object's first bytes.

    Returns "" and 0 if the object is missing or its first bytes lack them.
    """
    try:
        head = store.get_range(path, 0, _HEAD_BYTES)
    except ObjectNotFoundError:
        return "", 0
    location, revision = _LOCATION.search(head), _REVISION.search(head)
    return (location[1].decode(), int(revision[1])) if location and revision else ("", 0)


def check_transaction(store: ObjectStore, state: State, transactions: Sequence[int]) -> None:
    """Refuse a checkpoint of another past of this location, by a ForkError; a damaged transaction proves nothing."""
    path = transaction_path(state.revision)
    try:
        end = store.head(path).size
        if end >= _DIGEST and store.get_range(path, end - _DIGEST, _DIGEST).hex() == state.sha256:
            return
        found = read_entry(store, state.revision).sha256
    except ObjectNotFoundError:  # pruned, or lost with the log's end
        _check_past(store, state, transactions)
        return
    except (DamageError, UnsupportedVersionError):
        return
    if found != state.sha256:
        raise _fork(state, f"it is of a transaction with SHA-256 {state.sha256}; {path} has {found}")


def _check_past(store: ObjectStore, state: State, transactions: Sequence[int]) -> None:
    """Refuse a checkpoint above the log's last transaction that records another transaction in its place."""
    last = transactions[-1] if transactions else 0
    event = next((event for event in state.events if event.revision == last), None)
    if event is None or last > state.revision or state.rebuilt_at:
        return
    try:
        entry = read_entry(store, last).transaction
    except (DamageError, UnsupportedVersionError):
        return
    if (event.committed_at, event.writer_id) != (entry.committed_at, entry.writer_id):
        raise _fork(state, f"its revision {last} is not {transaction_path(last)}")


def _fork(state: State, why: str) -> ForkError:
    path = checkpoint_path(state.revision)
    return ForkError(
        f"{path} is not of this log: {why}. It may come from a copy of this location that others wrote to, or from "
        "before the log was replaced by an older copy: move it away.",
        object=path,
    )
