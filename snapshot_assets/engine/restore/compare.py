"""Compares the rows of a restored database with those of the snapshot, by value: it proves what a count cannot.

Each side becomes the sum of its rows' hashes, because neither keeps an order. DuckDB computes them, and so treats as
equal what it treats as equal: 0.0 and -0.0, and intervals of one length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.source import DatabaseAddress, Scan
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.row_counts import TableRows
from snapshot_assets.errors import SnapshotError, TaskFailedError
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "192MiB",
    "enable_external_access": False,
}


@dataclass(frozen=True)
class CompareTask:
    """One table's rows of a chunk."""

    address: DatabaseAddress
    store: ObjectStore
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


def compare_rows(task: CompareTask) -> Iterator[ComparedRows]:
    """Compare rows in the target with those in the snapshot's files."""
    name = task.rows.table.table_name
    try:
        with closing(open_database(task.address)) as database, reporter().work(task.chunk, database.interrupt):
            schema = _stored(task.rows.table)
            expected = _sum_of(schema, reporter().counted(_batches(task, schema)))
            with database.scan(Scan(task.rows.table, task.rows.rows)) as batches:
                found = _sum_of(schema, (batch.select(schema.names) for batch in batches))
        yield ComparedRows(task.chunk, name, expected[0], found[0], expected == found)
    except SnapshotError as error:
        yield ComparedRows(task.chunk, name, error=error)
    except Exception as error:  # of a driver or of Arrow
        described = TaskFailedError(f"{name}: {type(error).__name__}: {error}", table=str(name))
        yield ComparedRows(task.chunk, name, error=described)


def _batches(task: CompareTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for plan in task.rows.files:
        yield from read_batches(task.store, plan.file, schema, plan.text, zone=plan.zone, deleted=plan.deleted)


def _stored(table: Table) -> pa.Schema:
    return pa.schema([column.arrow_field() for column in table.columns if column.generated is None])


def _sum_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes."""
    import duckdb  # here, because whatever restores would load it, and so would definitions

    if not schema.names:  # PostgreSQL has tables without columns
        return sum(batch.num_rows for batch in batches), 0
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    with duckdb.connect(config=_CONFIG) as connection:
        connection.register("given", reader)
        query = "SELECT count(*), coalesce(sum(hash(given)::HUGEINT), 0) FROM given"
        [(rows, total)] = connection.execute(query).fetchall()
        return rows, total
