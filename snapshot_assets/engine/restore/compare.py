"""Compares the rows of a target with the snapshot's.

A count cannot prove that rows are the same; values can. Each side becomes the sum of its rows' hashes, because neither
keeps an order. DuckDB computes them, and so treats as equal what it treats as equal: 0.0 and -0.0, and intervals of one
length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, Scan
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.files import as_carried, changed_carriers
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.row_counts import TableRows, expected_rows, rows_of_chunk
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.tasks import Task, batches_of, errors_naming, stored_schema
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "192MiB",
}
"""Settings of DuckDB in memory. Without external access it would end the process where the working folder is gone."""


class ChunkRows(NamedTuple):
    """One table's rows of a chunk; its columns are carried as in the files."""

    chunk: int
    rows: TableRows


@dataclass(frozen=True)
class ComparedRows:
    """The comparison of one table's rows of a chunk.

    Attributes:
        expected: Rows in the snapshot.
        found: Rows in the target.
        equal: Whether these are the same rows, each equally often.
        error: Why they could not be compared.
    """

    chunk: int
    table: TableName
    expected: int = 0
    found: int = 0
    equal: bool = False
    error: SnapshotError | None = None


def compare(run: RestoreRun) -> Iterator[ComparedRows]:
    """Compare the rows of a target with those of the snapshot; yields each table of each chunk.

    A target of the snapshot's own kind is compared by value. Another kind holds values in other types, so only its rows
    are counted; so are those of a chunk whose files carry a column in several ways. Rows that other programs wrote to
    the target count as different. Tables that could not be made are left out.
    """
    plan = run.current()
    valued: list[ChunkRows] = []
    counted: list[ChunkRows] = []
    for chunk in plan.chunks:
        for rows in rows_of_chunk(plan, chunk.chunk):
            if rows.table.table_name not in plan.absent:
                carried = _as_carried(plan, rows) if plan.same_kind else None
                (counted if carried is None else valued).append(ChunkRows(chunk.chunk, carried or rows))
    jobs = shared_jobs(valued, lambda each: sum(file.file.bytes for file in each.rows.files))
    try:
        yield from run.runner.map(compare_rows, [Task(run.address, run.store, tuple(job)) for job in jobs])
    except BaseException:
        run.runner.interrupt()
        raise
    with run.target() as target:
        for chunk_id, (table, which, files) in counted:
            expected, found = sum(expected_rows(plan, each) for each in files), target.counts([(table, which)])[0]
            yield ComparedRows(chunk_id, table.table_name, expected, found, expected == found)


def _as_carried(plan: RestorePlan, rows: TableRows) -> TableRows | None:
    """Return rows with the table's columns carried as in their files; None if the files differ in that."""
    documents = plan.source.documents
    changes = [changed_carriers(documents[each.file.schema_id], each.source, each.table) for each in rows.files] or [{}]
    same = all(change == changes[0] for change in changes)
    return rows._replace(table=as_carried(rows.table, changes[0])) if same else None


def compare_rows(task: Task[ChunkRows]) -> Iterator[ComparedRows]:
    """Compare rows in the target with those in the snapshot's files, one table of a chunk after the other."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (ComparedRows(work.chunk, work.rows.table.table_name, error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            yield _compare(task.store, work, database)


def _compare(store: ObjectStore, work: ChunkRows, database: Database) -> ComparedRows:
    table, rows, files = work.rows
    name = table.table_name
    try:
        with reporter().work(work.chunk, database.interrupt), errors_naming(str(name)):
            schema = stored_schema(table)
            restored = (batch for file in files for batch in batches_of(store, file, table, schema))
            expected = _sum_of(schema, reporter().counted(restored))
            with database.scan(Scan(table, rows)) as batches:
                found = _sum_of(schema, (batch.select(schema.names) for batch in batches))
        return ComparedRows(work.chunk, name, expected[0], found[0], expected == found)
    except SnapshotError as error:
        return ComparedRows(work.chunk, name, error=error)


def _sum_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes."""
    import duckdb  # here, because whatever restores would load it, and so would definitions

    if not schema.names:  # PostgreSQL has tables without columns
        return sum(batch.num_rows for batch in batches), 0
    # SQL must not take the name of a column for that of the rows.
    numbered = pa.schema([field.with_name(f"c{number}") for number, field in enumerate(schema)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=numbered) for batch in batches)
    with duckdb.connect(config=_CONFIG) as connection:
        connection.register("given", pa.RecordBatchReader.from_batches(numbered, renamed))
        query = "SELECT count(*), coalesce(sum(hash(given)::HUGEINT), 0) FROM given"
        [(rows, total)] = connection.execute(query).fetchall()
        return rows, total
