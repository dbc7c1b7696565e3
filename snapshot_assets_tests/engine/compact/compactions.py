"""Locations with many small files, and their rows compared whatever files they lie in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.receipts import Receipt, write_receipt
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import CompactionPlan, plan_compaction
from snapshot_assets.engine.compact.run import Compacted, CompactRun
from snapshot_assets.engine.export.tasks import Provenance, write_table
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.actions import AddFile, DataFile
from snapshot_assets.format.documents import chunk_checksum
from snapshot_assets.format.layout import new_attempt
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.schema_documents import write_schema

Change = Callable[[pa.Table, int], pa.Table]
"""Changes the rows of a part, given its number."""


def scatter(
    store: ObjectStore,
    *,
    parts: int = 3,
    chunks: Sequence[int] = (),
    table: str = "",
    change: Change = lambda rows, _: rows,
    sealed: bool = True,
    schema_ids: Sequence[int] = (1,),
) -> None:
    """Replace chunks by the same rows in more files and in no order, each file an attempt of its own.

    Args:
        store: The location.
        parts: Files of each table and chunk.
        chunks: The chunks; empty for all.
        table: Only this one is scattered.
        change: What becomes of the rows.
        sealed: Whether it is sealed then.
        schema_ids: Schemas that the parts are written with, in turn.
    """
    catalog = Catalog.open_for_writing(store)
    for chunk in chunks or catalog.state.files.chunks():
        files: list[DataFile] = []
        by_table: dict[str, list[DataFile]] = {}
        for known in catalog.state.live_files(chunk):
            by_table.setdefault(known.file.table, []).append(known.file)
        for name, old in by_table.items():
            count = parts if table in ("", name) else 1
            files += _scattered(catalog, chunk, old, count, change, schema_ids)
        _replace(catalog, chunk, files)
    if sealed:
        seal(catalog)
    else:
        write_hints(store, catalog.state, catalog.refresh)


def _scattered(
    catalog: Catalog, chunk: int, old: list[DataFile], parts: int, change: Change, schema_ids: Sequence[int]
) -> list[DataFile]:
    written = []
    for number in range(parts):
        schema_id = schema_ids[number % len(schema_ids)]
        table = table_of(catalog, TableName(old[0].schema, old[0].table), schema_id)
        batches = [batch for file in old for batch in read_batches(catalog.store, file, table.arrow_schema())]
        rows = pa.Table.from_batches(batches)
        picked = rows.take(pa.array(range(rows.num_rows - 1 - number, -1, -parts), pa.int64()))
        window = str(catalog.state.window(chunk)) if chunk else ""
        provenance = _provenance(catalog, schema_id)
        batches = change(picked, number).to_batches()
        written += write_table(catalog.store, provenance, chunk, window, table, batches, 1 << 28)
    return written


def _provenance(catalog: Catalog, schema_id: int) -> Provenance:
    state = catalog.state
    sha256 = state.schemas[schema_id].sha256
    facts = {"database": state.header.source, "writer": catalog.writer_id}
    head = state.revision
    return Provenance(state.location_id, state.snapshot_id, head, schema_id, sha256, "scatter", head, metadata=facts)


def append(store: ObjectStore, chunk: int, name: TableName, rows: pa.Table) -> None:
    """Add a file to a table of a completed chunk, in a revision of its own."""
    catalog = Catalog.open_for_writing(store)
    state = catalog.state
    table, window = table_of(catalog, name, state.schema_id), str(state.window(chunk))
    provenance = _provenance(catalog, state.schema_id)
    new = write_table(store, provenance, chunk, window, table, rows.to_batches(), 1 << 28)
    files = [*(known.file for known in state.live_files(chunk)), *new]
    done = replace(
        state.chunks[chunk].chunk,
        checksum=chunk_checksum((file.path, file.sha256) for file in files),
        rows=sum(file.rows for file in files),
        receipts=(write_receipt(store, _receipt(catalog, chunk, files)),),
    )
    assert catalog.commit(lambda _: [done, *map(AddFile, new)])


def _receipt(catalog: Catalog, chunk: int, files: Sequence[DataFile]) -> Receipt:
    state = catalog.state
    return Receipt(
        state.snapshot_id,
        state.revision,
        state.schemas[state.schema_id].sha256,
        chunk,
        new_attempt(),
        datetime.now(UTC),
        dict(state.chunks[chunk].chunk.fence),
        tuple(files),
        tuple(sorted({known.file.attempt for known in state.live_files(chunk)})),
        "scatter",
    )


def _replace(catalog: Catalog, chunk: int, files: Sequence[DataFile]) -> None:
    receipt = _receipt(catalog, chunk, files)
    ref, paths = write_receipt(catalog.store, receipt), tuple(catalog.state.files.chunk(chunk))
    finished = rules.FinishedChunk(chunk, tuple(files), (ref,), receipt.opened_at, receipt.fence, "scatter", paths)
    assert catalog.commit(rules.complete_chunks(catalog.token(), [finished], catalog.now))


def table_of(catalog: Catalog, name: TableName, schema_id: int) -> Table:
    return read_schema(catalog.store, catalog.state.schemas[schema_id]).table(name)


def add_schema(store: ObjectStore, change: Callable[[DatabaseSchema], DatabaseSchema]) -> None:
    """Give the snapshot another schema."""
    catalog = Catalog.open_for_writing(store)
    newest = read_schema(store, catalog.state.schemas[catalog.state.schema_id])
    assert catalog.commit(rules.add_schema(catalog.token(), write_schema(store, change(newest))))


@dataclass
class Meanwhile(InlineRunner):
    """A runner that lets something happen after its tasks have run and before anything of them is committed."""

    act: Callable[[], object]
    inner: Any = field(default_factory=InlineRunner)

    def map(self, function, items):
        found = list(self.inner.map(function, items))
        self.act()
        return found


def planned(store: ObjectStore, **options: Any) -> CompactionPlan:
    """Return the plan of a compaction of the head."""
    return plan_compaction(store, Catalog.open(store).require_snapshot(), CompactionOptions(**options))


def compact(store: ObjectStore, runner: Any = None, *, parallelism: int = 1, **options: Any) -> dict[int, Compacted]:
    """Compact and return the outcomes by chunk."""
    plan, catalog = planned(store, **options), Catalog.open_for_writing(store)
    run = CompactRun(catalog, runner or InlineRunner(), "compact", lambda: parallelism, RetryPolicy(base=0))
    return {outcome.chunk: outcome for outcome in run.execute(plan)}


def different_rows(folder: Path, one: State, other: State, name: str) -> list[tuple]:
    """Return the rows of a table that two states do not have equally often."""
    sides = [
        f"SELECT * FROM read_parquet({[str(folder / k.file.path) for k in state.live_files() if k.file.table == name]},"
        " union_by_name = true)"
        for state in (one, other)
    ]
    with duckdb.connect() as connection:
        both = (f"({a} EXCEPT ALL {b})" for a, b in (sides, reversed(sides)))
        return connection.sql(" UNION ALL ".join(both)).fetchall()
