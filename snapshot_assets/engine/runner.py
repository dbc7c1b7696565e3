"""Runs tasks, in Spark or in this process."""

from __future__ import annotations

import logging
import pickle
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from snapshot_assets.engine.executors import prepare_session, reporting_waits
from snapshot_assets.engine.export.tasks import ChunkWork, Outcome, Task, write_table
from snapshot_assets.engine.reports import Driver, Report, Reports, reporter, reporting
from snapshot_assets.engine.session import (
    Session,
    cancel_jobs,
    driver_addresses,
    driver_tasks,
    spark_errors,
    tagged_jobs,
    task_frame,
)
from snapshot_assets.errors import InterruptedTaskError, SnapshotError
from snapshot_assets.format.relations import Table
from snapshot_assets.spans import recording_task, span, submission, without_spans

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_RESULT = StructType([StructField("result", BinaryType())])
GRACE = 3.0
"""Seconds that interrupted tasks have to undo what they began, before Spark kills them."""


class InlineRunner:
    """Runs tasks one after the other in this process, without Spark; no DataFrames."""

    def ready(self) -> None:
        """Do nothing: this process can run the tasks."""

    def readers(self) -> int:
        """Return that one task runs at a time."""
        return 1

    def interrupt(self) -> None:
        """Do nothing: tasks run in the thread that is interrupted."""

    def map(self, function: Callable[[Item], Iterable[Result]], items: Sequence[Item]) -> Iterable[Result]:
        """Call a function with every item; see `SparkRunner.map`."""
        for item in items:
            yield from function(item)


class SparkRunner:
    """Runs every task as one Spark task: the task itself opens the database, and rows never enter the JVM.

    Args:
        session: Called when there is something to run.
        on_report: Called with every report of a running task.
        modules: Modules that the tasks import beside those of all tasks.
        checked_early: Returns whether `ready` starts the session, to check its executors.
    """

    def __init__(
        self,
        session: Session,
        on_report: Callable[[Report], None] = lambda _: None,
        modules: Sequence[str] = (),
        checked_early: Callable[[], bool] = lambda: True,
    ) -> None:
        self.session = session
        self._on_report = on_report
        self._modules = tuple(modules)
        self._checked_early = checked_early
        self._tag = f"snapshots-{secrets.token_hex(8)}"
        self._spark: SparkSession | None = None
        self._reports: Reports | None = None
        self._interrupted = False
        self._killer: threading.Timer | None = None
        self._starting = threading.Lock()  # chunks are read in parallel, and only one thread may start Spark

    def ready(self) -> None:
        """Make sure that executors can run the tasks; see `MapRunner`."""
        if self._checked_early():
            self._started()

    def readers(self) -> int:
        """Return how many tasks run at a time on this machine; starts the session."""
        spark, _ = self._started()
        return driver_tasks(spark)

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
        (spark, driver), submitted = self._started(), submission()

        def run(item: Item) -> Iterator[pa.RecordBatch]:
            with reporting(driver), recording_task(submitted) as results:
                results += function(item)
            yield _as_batch(results)

        return self._collect(spark, task_frame(spark, items, _RESULT, run))

    def run_frames(self, task: Task, work: ChunkWork) -> Iterable[Outcome]:
        """Write a chunk's DataFrames; each partition writes its own files. See `Runner.run_frames`."""
        spark, driver = self._started()
        if work.check is not None:
            with self._jobs(spark):
                work.check()
        for table, frame in work.frames:
            write = partial(_write_frame, task, work.chunk, work.window, table, driver, submission())
            yield from self._collect(spark, frame.mapInArrow(write, _RESULT))

    def _started(self) -> tuple[SparkSession, Driver | None]:
        """Return the session, and where its tasks report."""
        with self._starting:
            if self._spark is None:
                self._spark = self._start()
                self._reports = _listening(self._spark, self._on_report)
            return self._spark, self._reports.driver if self._reports is not None else None

    def _start(self) -> SparkSession:
        """Start the session in a thread of its own: it takes long, and an interrupted run must not wait for it."""
        running, started = list[SparkSession](), Future[SparkSession]()

        def start() -> None:
            try:
                running.append(self.session())
                with tagged_jobs(running[0], self._tag):
                    started.set_result(prepare_session(running[0], self._modules))
            except BaseException as error:
                started.set_exception(error)

        threading.Thread(target=start, name="spark-start", daemon=True).start()
        while not self._interrupted:
            if wait([started], timeout=0.1).done:
                return started.result()
        for spark in running:
            cancel_jobs(spark, self._tag)
        raise _interrupted_error()

    def _collect(self, spark: SparkSession, frame: DataFrame) -> list[Any]:
        with self._jobs(spark), spark_errors():
            with span("tasks"):
                rows = frame.collect()
            return list(without_spans(pickle.loads(bytes(row["result"])) for row in rows))

    @contextmanager
    def _jobs(self, spark: SparkSession) -> Iterator[None]:
        """Let `interrupt` end the Spark jobs that this thread starts until the context ends."""
        if self._interrupted:
            raise _interrupted_error()
        with tagged_jobs(spark, self._tag), reporting_waits(spark):
            yield

    def interrupt(self) -> None:
        """Let running tasks end: at their next report, or killed by Spark after `GRACE` seconds."""
        self._interrupted = True
        if self._reports is not None:
            self._reports.stop()
        if self._spark is not None and self._killer is None:
            self._killer = threading.Timer(GRACE, cancel_jobs, (self._spark, self._tag))
            self._killer.daemon = True
            self._killer.start()

    def close(self) -> None:
        """Stop listening to tasks; nothing runs any more."""
        if self._killer is not None:
            self._killer.cancel()
        if self._reports is not None:
            self._reports.close()
            self._reports = None


def _interrupted_error() -> InterruptedTaskError:
    """Return the error of work that an interruption ends."""
    return InterruptedTaskError("The run was interrupted.")


def _listening(spark: SparkSession, on_report: Callable[[Report], None]) -> Reports | None:
    """Return the listener of a session's tasks; None where they cannot reach this process."""
    addresses = driver_addresses(spark)
    if addresses is None:
        return None
    try:
        return Reports(on_report, *addresses)
    except OSError as error:
        _LOG.warning("Tasks report no progress, and an interrupted run kills them, because of %s: %s", addresses, error)
        return None


def _write_frame(
    task: Task,
    chunk: int,
    window: str,
    table: Table,
    driver: Driver | None,
    submitted: int | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    opened_at, started = datetime.now(UTC), time.monotonic()
    cast = (_cast(batch, table.arrow_schema()) for batch in batches if batch.num_rows)
    try:
        with recording_task(submitted) as results, reporting(driver), reporter().work(chunk):
            files = write_table(task.store, task.provenance, chunk, window, table, cast, task.max_file_size)
        outcome = Outcome(chunk, "read", tuple(files), time.monotonic() - started, opened_at=opened_at)
    except SnapshotError as error:
        outcome = Outcome(chunk, "failed", error=error)
    yield _as_batch([outcome, *results])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the exact types of the files; Spark's Arrow types may be wider or have other names."""
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_batch(results: Iterable[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": pa.array([pickle.dumps(result) for result in results], pa.binary())})
