"""Runs tasks, in Spark or in this process."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from snapshot_assets.engine.export.tasks import ChunkResult, Task, write_table
from snapshot_assets.engine.session import Session, prepare_session, spark_errors, task_frame
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Table

Item = TypeVar("Item")
Result = TypeVar("Result")
_RESULT = "result binary"


class InlineRunner:
    """Runs tasks one after the other in this process, without Spark; no DataFrames."""

    def map(self, function: Callable[[Item], Iterable[Result]], items: Sequence[Item]) -> Iterable[Result]:
        """Call a function with every item; see `SparkRunner.map`."""
        for item in items:
            yield from function(item)


class SparkRunner:
    """Runs every task as one Spark task: the task itself opens the database, and rows never enter the JVM.

    Args:
        session: Called when there is something to run.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._starting = threading.Lock()  # chunks are read in parallel, and only one thread may start Spark

    def map(self, function: Callable[[Item], Iterable[Result]], items: Sequence[Item]) -> Iterable[Result]:
        """Call a function with every item, as one Spark job with a task per item.

        Args:
            function: Called in the executors; it and the items are pickled.
            items: The function's arguments.

        Returns:
            The results of all calls.

        Raises:
            TaskLostError: A task died and Spark stopped retrying it; a retry may help.
            TaskFailedError: A task raised an error of another package.
        """
        if not items:
            return []
        with self._starting:
            spark = prepare_session(self._session())
        return _collect(task_frame(spark, items, _RESULT, lambda item: iter([_as_batch(function(item))])))

    def run_frames(
        self, task: Task, chunk: int, window: str, frames: Sequence[tuple[Table, DataFrame]]
    ) -> Iterable[ChunkResult]:
        """Write DataFrames as one chunk; each partition writes its own files. See `Runner.run_frames`."""
        with self._starting:
            prepare_session(self._session())
        for table, frame in frames:
            yield from _collect(frame.mapInArrow(partial(_write_frame, task, chunk, window, table), _RESULT))


def _write_frame(
    task: Task, chunk: int, window: str, table: Table, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    opened_at, started = datetime.now(UTC), time.monotonic()
    cast = (_cast(batch, table.arrow_schema()) for batch in batches if batch.num_rows)
    try:
        files = write_table(task.store, task.provenance, chunk, window, table, cast, task.max_file_size)
        result = ChunkResult(chunk, opened_at, tuple(files), seconds=time.monotonic() - started)
    except SnapshotError as error:
        result = ChunkResult(chunk, opened_at, error=error)
    yield _as_batch([result])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the exact types of the files; Spark's Arrow types may be wider or have other names."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_batch(results: Iterable[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": pa.array([pickle.dumps(result) for result in results], pa.binary())})


def _collect(frame: DataFrame) -> list[Any]:
    with spark_errors():
        return [pickle.loads(bytes(row["result"])) for row in frame.collect()]
