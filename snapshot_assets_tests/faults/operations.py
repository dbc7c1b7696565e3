"""All operations of the catalog, each with its starting location and the condition that it establishes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.maintain_log import plan_pruning
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import plan_compaction
from snapshot_assets.engine.compact.run import CompactRun
from snapshot_assets.engine.export.tasks import Provenance, write_table
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import DamageError, LocationDeletedError, LogWholeError, NoSnapshotError
from snapshot_assets.format.actions import DataFile, TagCreated
from snapshot_assets.format.layout import TRANSACTIONS, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, expire, prune, rollback, upgrade
from snapshot_assets_tests.catalog.next_version import next_version
from snapshot_assets_tests.catalog.tags import delete_savepoint
from snapshot_assets_tests.deleted_rows import deleting
from snapshot_assets_tests.faults.source import location
from snapshot_assets_tests.schema_documents import write_schema

CONTINUOUS = replace(HEADER, kind="continuous", requested_end="")
OTHER_SCHEMA = SCHEMA.model_copy(update={"database": "postgresql"})
_NOW = {"grace": timedelta(0), "unsafe": True}


def store_at(folder: Path) -> ObjectStore:
    return open_store(parse_location(location(folder)))


def opened(store: ObjectStore) -> Writer:
    """Open the existing snapshot like a new process."""
    writer = Writer(store)
    writer.token = writer.catalog.token()
    return writer


# Locations that operations start from


def _started(writer: Writer) -> None:
    writer.begin(CONTINUOUS)
    writer.complete(1, writer.file(1))


def _full(writer: Writer) -> None:
    writer.begin(CONTINUOUS)
    writer.fill()


def _tagged(writer: Writer) -> None:
    _full(writer)
    create_tag(writer.catalog, "kept", seal(writer.catalog).seal.revision)


def _saved(writer: Writer) -> None:
    _tagged(writer)
    create_savepoint(writer.catalog, writer.catalog.state.data_revision)


def _long(writer: Writer) -> None:
    """Three seals with checkpoints, a file that no seal has, and orphans of each kind."""
    _tagged(writer)
    for content in (b"second", b"never sealed", b"third"):
        writer.complete(1, writer.file(1, content), replaces=tuple(writer.catalog.state.files.chunk(1)))
        if content != b"never sealed":
            write_checkpoint(writer.store, writer.catalog.state)
            seal(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    writer.receipt(1, writer.file(1, b"too late"))
    writer.store.put("tag/tag-orphan-01234567", b"{}")
    writer.store.put("transactions/probe-" + "0" * 32, b"0")


def _scattered(writer: Writer) -> None:
    """One chunk has rows, in three files of real Parquet; some of them were deleted since."""
    writer.begin(CONTINUOUS)
    writer.complete(1, *(file for number in range(3) for file in parquet(writer, number)))
    writer.complete(2)
    writer.complete(3)
    seal(writer.catalog)
    delete_rows(writer.catalog, TableName("main", "m"), "t = '2025-01-01T01:00:00Z'")


def parquet(writer: Writer, number: int) -> list[DataFile]:
    """Write a file of three rows of window 1, in no order."""
    state, [table] = writer.catalog.state, SCHEMA.tables
    times = [START + timedelta(hours=hour + number) for hour in (5, 1, 3)]
    batches = pa.table({"t": pa.array(times, pa.timestamp("us", "UTC"))}).to_batches()
    schema = state.schemas[state.schema_id]
    head = state.revision
    origin = Provenance(state.location_id, state.snapshot_id, head, schema.schema_id, schema.sha256, "r1", head)
    return list(write_table(writer.store, origin, 1, str(state.window(1)), table, batches, 1 << 20))


def _sealed_twice(writer: Writer) -> None:
    _unsealed(writer)
    seal(writer.catalog)


def _with_a_hole(writer: Writer) -> None:
    _sealed_twice(writer)
    writer.store.delete(transaction_path(3))


def _without_a_log(writer: Writer) -> None:
    _sealed_twice(writer)
    for info in list(writer.store.list(TRANSACTIONS)):
        writer.store.delete(info.path)


def _unsealed(writer: Writer) -> None:
    """A chunk was replaced after the last seal; the hints are those of the seal."""
    _tagged(writer)
    writer.complete(1, writer.file(1, b"second"), replaces=tuple(writer.catalog.state.files.chunk(1)))


LOCATIONS: dict[str, Callable[[Writer], None]] = {
    "empty": lambda writer: None,
    "started": _started,
    "full": _full,
    "tagged": _tagged,
    "saved": _saved,
    "unsealed": _unsealed,
    "long": _long,
    "scattered": _scattered,
    "with a hole": _with_a_hole,
    "without a log": _without_a_log,
}


def prepare(folder: Path) -> dict[str, Path]:
    """Make every location once."""
    for name, make in LOCATIONS.items():
        make(Writer(store_at(folder / name)))
        (folder / name).mkdir(exist_ok=True)
    return {name: folder / name for name in LOCATIONS}


def place(prepared: Path, folder: Path) -> ObjectStore:
    """Put a prepared location into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    return store_at(folder)


# Operations


def _committing(rule: Callable[..., Any], *arguments: Any) -> Callable[[ObjectStore], None]:
    """Return the operation that commits the transaction of a rule."""

    def commit(store: ObjectStore) -> None:
        writer = opened(store)
        writer.catalog.commit(rule(writer.token, *arguments))

    return commit


def _add_schema(store: ObjectStore) -> None:
    writer = opened(store)
    writer.catalog.commit(rules.add_schema(writer.token, write_schema(store, OTHER_SCHEMA)))


def _chunk(store: ObjectStore) -> None:
    writer = opened(store)
    writer.complete(2, writer.file(2, b"rows of 2"))


def _replace(store: ObjectStore) -> None:
    writer = opened(store)
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))


def _compact(store: ObjectStore) -> None:
    catalog = Catalog.open_for_writing(store)
    plan = plan_compaction(catalog.store, catalog.require_snapshot(), CompactionOptions())
    for _ in CompactRun(catalog, InlineRunner(), "compact", retry=RetryPolicy(base=0)).execute(plan):
        pass


def _rebuild(store: ObjectStore) -> None:
    with suppress(LogWholeError):
        rebuild(store)


def _create_tag(store: ObjectStore) -> None:
    catalog = opened(store).catalog
    create_tag(catalog, "nightly", catalog.state.seals[-1].revision)


def _rename_tag(store: ObjectStore) -> None:
    catalog = opened(store).catalog
    if "kept" in catalog.state.tags:
        rename_tag(catalog, "kept", "renamed")


def _replace_tag(store: ObjectStore) -> None:
    catalog = opened(store).catalog
    replace_tag(catalog, "kept", catalog.state.seals[-1].revision, 7 * DAY)


def _create_savepoint(store: ObjectStore) -> None:
    catalog = opened(store).catalog
    if not catalog.state.pins.savepoints:
        create_savepoint(catalog, catalog.state.data_revision)


def _roll_back(store: ObjectStore) -> None:
    catalog = opened(store).catalog
    rollback(catalog, catalog.state.seals[0].revision, discard_newer=True)


def _delete(store: ObjectStore) -> None:
    with suppress(NoSnapshotError):  # a deletion that was finished
        delete_snapshot(store, with_tags=True)


# Conditions after an operation


def _hints_are_of_the_seal(store: ObjectStore) -> bool:
    return not [fault for fault in verify(store).faults if fault.kind == "stale"]


def _checkpoint_at_head(store: ObjectStore) -> bool:
    return list_log(store).checkpoints[-1:] == [read_state(store).revision]


def _nothing_to_collect(store: ObjectStore) -> bool:
    return not plan_collection(Catalog.open(store), **_NOW).deleted


def _nothing_to_prune(store: ObjectStore) -> bool:
    return not plan_pruning(Catalog.open(store), **_NOW).deleted


@dataclass(frozen=True)
class Operation:
    """One operation of the catalog, as its own process performs it.

    Attributes:
        start: The location it starts from.
        run: Opens the location and performs the operation; repeating it is no failure.
        done: A further condition that holds after the operation.
        code: The context in which it runs.
        between: Facts that the location may have between the states before and after. If there are any, the location
            may be damaged until the operation is repeated.
    """

    start: str
    run: Callable[[ObjectStore], object]
    done: Callable[[ObjectStore], bool] = lambda store: True
    code: Callable[[], AbstractContextManager[None]] = nullcontext
    between: tuple[str, ...] = ()


DAMAGED = "a log with a fault"

OPERATIONS = {
    "begin": Operation("empty", lambda store: Writer(store).begin(CONTINUOUS)),
    "begin by force": Operation(
        "tagged", lambda store: Writer(store).begin(replace(CONTINUOUS, name="forced"), force=True)
    ),
    "extend": Operation("started", _committing(rules.extend, START + 5 * DAY)),
    "add a schema": Operation("full", _add_schema),
    "record chunks in progress": Operation("started", _committing(rules.in_progress, [2, 3], "run")),
    "complete a chunk": Operation("started", _chunk),
    "replace a chunk": Operation("tagged", _replace),
    "fail a chunk": Operation("started", _committing(rules.fail_chunk, 2, "the source is gone", "run")),
    "seal": Operation("full", lambda store: seal(opened(store).catalog), _hints_are_of_the_seal),
    "seal again": Operation("unsealed", lambda store: seal(opened(store).catalog), _hints_are_of_the_seal),
    "create a tag": Operation("tagged", _create_tag),
    "delete a tag": Operation("tagged", lambda store: delete_tag(opened(store).catalog, "kept")),
    "rename a tag": Operation("tagged", _rename_tag),
    "replace a tag": Operation("unsealed", _replace_tag),
    "create a savepoint": Operation("tagged", _create_savepoint),
    "delete a savepoint": Operation("saved", lambda store: delete_savepoint(opened(store).catalog, 1)),
    "expire": Operation("long", lambda store: expire(opened(store).catalog, keep_last=1)),
    "roll back": Operation("long", _roll_back, _hints_are_of_the_seal),
    "delete rows": Operation(
        "tagged",
        lambda store: delete_rows(opened(store).catalog, TableName("main", "m"), "t is not null"),
        _hints_are_of_the_seal,
    ),
    "compact": Operation("scattered", _compact, _hints_are_of_the_seal),
    "upgrade": Operation("tagged", lambda store: upgrade(opened(store).catalog), code=next_version),
    "rebuild a log with a hole": Operation("with a hole", _rebuild, _hints_are_of_the_seal, between=(DAMAGED,)),
    "rebuild a lost log": Operation("without a log", _rebuild, _hints_are_of_the_seal, between=(DAMAGED,)),
    "checkpoint": Operation(
        "tagged", lambda store: write_checkpoint(store, opened(store).catalog.state), _checkpoint_at_head
    ),
    "collect garbage": Operation(
        "long", lambda store: collect_garbage(opened(store).catalog, **_NOW), _nothing_to_collect
    ),
    "prune": Operation("long", lambda store: prune(opened(store).catalog, **_NOW), _nothing_to_prune),
    "delete": Operation("long", _delete, lambda store: not list(store.list())),
}


def facts(store: ObjectStore) -> dict[str, Any] | str | None:
    """Return the state of a location without random names.

    Returns:
        None where there is no snapshot, `DAMAGED` where the log has a fault.
    """
    try:
        state = read_state(store)
    except LocationDeletedError:
        return None
    except DamageError:
        return DAMAGED
    if not state.has_snapshot:
        return None
    return {
        "version": state.format_version,
        "header": state.header,
        "schemas": {number: added.sha256 for number, added in state.schemas.items()},
        "chunks": {n: (known.chunk.status, known.chunk.rows, known.chunk.error) for n, known in state.chunks.items()},
        "in progress": dict(state.in_progress),
        "files": _contents(store, state),
        "known files": _known(store, state),
        "seals": [_contents(store, state.at(known.revision)) for known in state.readable()],
        "sealed": state.sealed,
        "tags": {name: _pinned(store, state, known) for name, known in state.tags.items()},
        "savepoints": {number: _pinned(store, state, known) for number, known in state.pins.savepoints.items()},
    }


def _pinned(store: ObjectStore, state: State, known: PinState) -> tuple[timedelta | None, list[tuple[int, str, int]]]:
    """Return the time to live of a tag or savepoint, and the contents of its revision."""
    ttl = known.pin.ttl if isinstance(known.pin, TagCreated) else None
    return ttl, _contents(store, state.at(known.pin.revision))


def _contents(store: ObjectStore, state: State) -> list[tuple[int, str, int]]:
    """Return chunk, content and number of tombstones of each live file."""
    return sorted(
        (known.file.chunk, _content(store, known.file.path, known.file.sha256), len(deleting(state, known.file)))
        for known in state.live_files()
    )


def _known(store: ObjectStore, state: State) -> set[str]:
    table = state.files.merged().table.select(["path", "sha256"])
    return {_content(store, each["path"], each["sha256"].hex()) for each in table.to_pylist()}


def _content(store: ObjectStore, path: str, sha256: str) -> str:
    """Return the rows of a Parquet file, because its footer is random, and the checksum of any other file."""
    data = store.get(path)
    return str(pq.read_table(BytesIO(data))["t"].to_pylist()) if data.startswith(b"PAR1") else sha256
