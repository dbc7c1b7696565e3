"""What reading a golden location gives."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa

from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.files.read import read_batches, text_schemas
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.deleted_rows import deleting


def expected(store: ObjectStore) -> dict[str, object]:
    """Return what reading a location gives: each revision's files, the manifests of sealed ones, and visible rows."""
    found: dict[str, object] = {"revisions": {}, "files": {}}
    log = list_log(store).transactions
    whole = len(log) == log[-1]
    for revision in range(1, log[-1] + 1):
        with suppress(SnapshotError):
            state = read_state(store, through=revision)
            if not whole and revision not in read_state(store).retained():
                continue
            found["revisions"][str(revision)] = [known.file.path for known in state.live_files()]
            found["files"] |= {known.file.path: facts(known.file) for known in state.live_files()}
    with suppress(SnapshotError):
        state = read_state(store)
        retained = [state.at(known.revision) for known in state.readable()]
        found["manifests"] = {str(each.revision): manifest_of(each) for each in retained}
        found["rows"] = {str(each.revision): rows(store, each) for each in retained}
        found["tags"] = {name: tag.pin.revision for name, tag in sorted(state.tags.items())}
        if state.pins.savepoints:
            found["savepoints"] = {str(number): each.pin.revision for number, each in state.pins.savepoints.items()}
    return found


def facts(file: object) -> dict[str, object]:
    """Return a file's entry of a listing."""
    return {name: getattr(file, name) for name in ("schema", "table", "chunk", "rows", "bytes", "sha256")}


def rows(store: ObjectStore, state: State) -> dict[str, list[str]]:
    """Return the visible rows of each table as text, sorted."""
    schemas = read_schemas(store, state)
    text_of, found = text_schemas(state.header, schemas), dict[str, list[str]]()
    for known in state.live_files():
        table = schemas[known.file.schema_id].table(TableName(known.file.schema, known.file.table))
        deleted_by = tuple(deleting(state, known.file).values())
        batches = read_batches(store, known.file, table.arrow_schema(), text_of(known.file), deleted=deleted_by)
        found.setdefault(known.file.table, []).extend(texts(batches))
    return {name: sorted(some) for name, some in sorted(found.items())}


def texts(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Return rows as texts that JSON keeps."""
    return [
        ", ".join(f"{name} {value}" for name, value in row.items()) for batch in batches for row in batch.to_pylist()
    ]
