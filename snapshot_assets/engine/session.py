"""The Spark session: the transfer of this package to executors, its jobs, and Spark's errors.

Only this module depends on how Spark runs Python. Nothing needs RDDs, `sparkContext` or the JVM gateway, so that Spark
Connect works too. Executors import this module from a zip, so importing it opens no file of the package.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from pyspark import SparkContext, cloudpickle
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from snapshot_assets.databases.spark.failures import error_text, lacks_interpreter
from snapshot_assets.engine.session_settings import DYNAMIC_SETTINGS, is_dynamic, is_local, most_dynamic_tasks
from snapshot_assets.errors import SnapshotError, TaskFailedError, TaskLostError
from snapshot_assets.plan.spark_settings import DEFAULT_PARALLELISM, MASTER
from snapshot_assets.scratch_folders import process_folder
from snapshot_assets.spans import span

if TYPE_CHECKING:
    import pyarrow as pa

Session = Callable[[], SparkSession]
"""Returns the Spark session, starting it on first use."""

_Item = TypeVar("_Item")

_PYTHON, PYTHON_VARIABLE, DRIVER_VARIABLE = "spark.pyspark.python", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
DAEMON, WORKER_DAEMON = "spark.python.daemon.module", "snapshot_assets.engine.worker_daemon"
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1", "[::1]"))
_MANY = 1 << 16
"""Rows of a range that has a row in every partition."""
_UNCHOSEN = "python3"
"""PySpark's default interpreter: the first in the path of the worker's machine."""

_IN_PROCESS = re.compile(r"local(?:\[[\d*]|$)")
"""Masters whose tasks run in the driver."""
_VERSIONS = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([^\s,]+)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_WORKER = "Error from python worker"
"""What Spark reports of an interpreter that ends before it takes a task, such as one that is too old for PySpark."""
_REMEDY = (
    "On each worker, install this process's minor version of Python with the packages of requirements/run.txt, and name"
    " that interpreter: spark.pyspark.python in the configuration's section `spark`, or PYSPARK_PYTHON, which for Spark"
    " Connect is that of its server."
)
"""What makes executors able to run tasks."""
_QUIET_SECONDS, _MOST_SECONDS = 1.0, 30.0

_prepared: WeakSet[SparkSession] = WeakSet()
_counted: WeakSet[SparkSession] = WeakSet()
_preparing = threading.Lock()


def worker_python(settings: Mapping[str, str]) -> str | None:
    """Return the interpreter of a session's workers; None leaves the choice to the cluster.

    It is `spark.pyspark.python`, else `PYSPARK_PYTHON`, else for a local master this process's own interpreter.
    """
    chosen = settings.get(_PYTHON) or os.environ.get(PYTHON_VARIABLE)
    return chosen or (sys.executable if is_local(settings.get(MASTER, "")) else None)


def send_package(spark: SparkSession) -> SparkSession:
    """Send this package to a session's executors once; they need the same Python and the dependencies.

    Workers whose daemon belongs to this package have it.
    """
    with _preparing:
        if spark not in _prepared:
            correct_worker_python(spark)
            if spark.conf.get(DAEMON, None) != WORKER_DAEMON:
                with span("send package"):
                    spark.addArtifacts(str(_package_zip()), pyfile=True)
            _prepared.add(spark)
    return spark


def correct_worker_python(spark: SparkSession) -> None:
    """Run further tasks of a session that was started without an interpreter with `worker_python`."""
    if is_classic(spark) and spark.sparkContext.pythonExec == _UNCHOSEN:  # else the server has the workers
        settings = {name: spark.conf.get(name, None) or "" for name in (MASTER, _PYTHON)}
        spark.sparkContext.pythonExec = worker_python(settings) or _UNCHOSEN


def parallel_tasks(spark: SparkSession) -> int:
    """Return how many tasks the executors of a session run at a time, at least 2.

    A cluster's executors register one after the other once a session has started. The first call waits until none came
    for a second, so that the first chunks are not planned for the cores of the first executor. With dynamic allocation,
    executors come only once jobs wait for them: then those count that may come.
    """
    if is_classic(spark):
        settings = {name: spark.conf.get(name, None) or "" for name in DYNAMIC_SETTINGS}
        if not runs_in_driver(spark) and is_dynamic(settings):
            return max(2, most_dynamic_tasks(settings) or 0, spark.sparkContext.defaultParallelism)
        if spark not in _counted and not runs_in_driver(spark):
            _wait_for_executors(spark)
        _counted.add(spark)
        return max(2, spark.sparkContext.defaultParallelism)
    with spark_errors():  # Connect shows the number only by the partitions that Spark makes of a range
        [row] = spark.range(_MANY).select(spark_partition_id().alias("part")).agg({"part": "max"}).collect()
    return max(2, int(row[0]) + 1)


def parallel_chunks(spark: SparkSession) -> int:
    """Return how many chunks a run processes at a time if its plan does not say: each has at least one task."""
    return min(DEFAULT_PARALLELISM, parallel_tasks(spark))


def _wait_for_executors(spark: SparkSession) -> None:
    """Wait until a session has executors, and none came for a second; half a minute at most, as tasks wait anyway."""
    started = changed = time.monotonic()
    known = 0
    while (now := time.monotonic()) < started + _MOST_SECONDS and (not known or now < changed + _QUIET_SECONDS):
        executors = executors_of(spark)
        if executors != known:
            known, changed = executors, now
        time.sleep(0.1)


def executors_of(spark: SparkSession) -> int:
    """Return how many executors a classic session has now."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # one of them is the driver


def runs_in_driver(spark: SparkSession) -> bool:
    """Return whether a session's tasks run in this process's JVM, so that it has no executors."""
    return is_classic(spark) and bool(_IN_PROCESS.match(spark.conf.get(MASTER, "") or ""))


def driver_tasks(spark: SparkSession) -> int:
    """Return how many tasks run at a time in this process's JVM, whatever `spark.default.parallelism` says."""
    return int(spark.sparkContext._jsc.sc().schedulerBackend().totalCores()) if runs_in_driver(spark) else 0


def runs_this_python(spark: SparkSession) -> bool:
    """Return whether a session's tasks run in this environment, so that they have what this process has."""
    return runs_in_driver(spark) and spark.sparkContext.pythonExec == sys.executable


def master_of(spark: SparkSession) -> str:
    """Return the master of a session; for a Connect server on another machine, that server's address."""
    if not is_classic(spark) and (host := spark.client.host) not in _LOOPBACK:
        return f"sc://{host}"
    return spark.conf.get(MASTER, "") or ""


def driver_addresses(spark: SparkSession) -> tuple[str, str] | None:
    """Return the address that this process listens on for a session's executors, and the one that they reach it by.

    Returns:
        The two hosts; None for Spark Connect, whose executors know only their server.
    """
    if not is_classic(spark):
        return None
    if is_local(spark.conf.get(MASTER, "") or ""):
        return "127.0.0.1", "127.0.0.1"
    reached = spark.conf.get("spark.driver.host", "") or "127.0.0.1"
    return spark.conf.get("spark.driver.bindAddress", "") or reached, reached


@contextmanager
def tagged_jobs(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag the Spark jobs that this thread starts until the context ends, so that `cancel_jobs` finds them."""
    if is_classic(spark):
        spark.sparkContext.addJobTag(tag)
        spark.sparkContext.setInterruptOnCancel(True)
        remove = spark.sparkContext.removeJobTag
    else:
        spark.addTag(tag)
        remove = spark.removeTag
    try:
        yield
    finally:
        remove(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """End the Spark jobs with a tag; their tasks are killed."""
    if is_classic(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)


def is_classic(spark: SparkSession) -> bool:
    """Return whether a session runs in this process's JVM, rather than behind Spark Connect."""
    return getattr(spark, "_sc", None) is not None


@contextmanager
def spark_errors() -> Iterator[None]:
    """Convert Spark's errors: an error of Python code or analysis is permanent, a lost task is transient."""
    try:
        yield
    except PythonException as cause:
        raise _failed(cause) from cause
    except AnalysisException as cause:
        raise TaskFailedError(f"A Spark task failed: {error_text(cause)}") from cause
    except PySparkException as cause:
        raise _lost(cause) from cause
    except Exception as cause:
        # Classic Spark reports an aborted job through py4j, whose exception is no PySparkException.
        if type(cause).__module__.startswith("py4j."):
            raise _lost(cause) from cause
        raise


def _failed(cause: PythonException) -> TaskFailedError:
    """Return the error of a job whose Python code failed, which names what the interpreter lacks."""
    text = error_text(cause)
    if versions := _VERSIONS.search(text):
        context = SparkContext._active_spark_context  # None with Spark Connect, whose server has chosen
        python = context.pythonExec if context is not None else "their interpreter"
        return unfit(f"{python} is Python {versions[1]} there, and this process runs {versions[2]}")
    if missing := _MISSING.findall(text):
        return _unfit(f"A Spark task lacks the Python module {missing[-1]}.", text)
    return TaskFailedError(f"A Spark task failed: {text}")


def unfit(reason: str) -> TaskFailedError:
    """Return the error of executors whose Python cannot run the tasks."""
    return _unfit(f"Spark's executors cannot run the tasks of this package: {reason}.")


def _unfit(sentence: str, cause: str = "") -> TaskFailedError:
    text = f"{sentence} {_REMEDY}" + (f" ({cause})" if cause else "")
    return TaskFailedError(text, remedy=_REMEDY)


def _lost(cause: BaseException) -> SnapshotError:
    """Return the error of a job that ended without an error of its tasks' own code."""
    text = error_text(cause)
    if lacks_interpreter(cause):
        program = _PROGRAM.search(text)
        named = f", {program[1]}" if program else ""
        return _unfit(f"Spark's workers lack their Python interpreter{named}.", text)
    if _NO_WORKER in text:
        return _unfit("The Python interpreter of Spark's workers ends at its start.", text)
    return TaskLostError(f"A Spark job was lost: {text}")


def task_frame(
    spark: SparkSession,
    items: Sequence[_Item],
    schema: StructType | str,
    read: Callable[[_Item], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return a DataFrame of the rows that tasks read, one task an item; each unpacks its own item alone."""
    shared = tuple(map(cloudpickle.dumps, items))

    def execute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(pickle.loads(shared[number]))

    return spark.range(0, len(shared), 1, max(1, len(shared))).mapInArrow(execute, schema)


def same_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches as they are: a job that only makes Python workers start."""
    yield from batches


def _package_zip() -> Path:
    """Return a zip of this package that exists until this process ends.

    Its name contains the hash of its bytes: Spark refuses a second file with the same name and other bytes.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, file in _package_files(files("snapshot_assets"), "snapshot_assets"):
            # Without times, so that the same files are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), file, zipfile.ZIP_DEFLATED)
    target = process_folder() / f"snapshot_assets-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
    target.write_bytes(content.getvalue())
    return target


def _package_files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder, which may be in a zip, by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{path}/{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _package_files(entry, f"{path}/{entry.name}")
