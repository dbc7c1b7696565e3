"""The Spark session: its configuration, the transfer of this package to executors, and Spark's errors.

Only this module depends on how Spark runs Python. Nothing needs RDDs, `sparkContext` or the JVM gateway, so that Spark
Connect works too. Executors import this module from a zip, so importing it opens no file of the package.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from snapshot_assets.databases.spark.failures import error_text
from snapshot_assets.databases.spark.session_zone import TIME_ZONE, why_not_utc
from snapshot_assets.errors import TaskFailedError, TaskLostError

Session = Callable[[], SparkSession]
"""Returns the Spark session, starting it on first use."""

_Item = TypeVar("_Item")

SPARK_CONFIG: dict[str, str] = {
    "spark.master": "local[*,4]",
    "spark.app.name": "snapshot_assets",
    TIME_ZONE: "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Required settings and defaults. With `local[*,4]`, Spark tries a dying task four times."""

_DAEMON = {"spark.python.daemon.module": "snapshot_assets.engine.worker_daemon"}
_PYTHON, _PYTHON_VARIABLE, _DRIVER_VARIABLE = "spark.pyspark.python", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_PLACES_OF_DEFAULTS = {"SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"}
"""Variables by which a session may get settings that its program does not name."""
_UNCHOSEN = "python3"
"""PySpark's default interpreter: the first in the path of the worker's machine."""


def session_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: `SPARK_CONFIG`, overridden by the given ones, and settings for the master."""
    settings = SPARK_CONFIG | _logging() | dict(config)
    # The daemon starts before the package is sent, so it needs this process's path; `local-cluster` runs elsewhere.
    beside_this = settings["spark.master"].partition("[")[0] == "local"
    preloaded = beside_this and worker_python(settings) == sys.executable
    return (_DAEMON if preloaded else {}) | settings


@cache
def _logging() -> dict[str, str]:
    """Return the option that configures the driver's log; unpacks its file if this package is in a zip."""
    unpacked = ExitStack()
    atexit.register(unpacked.close)
    path = unpacked.enter_context(as_file(files(__package__).joinpath("log4j2.properties")))
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={path.resolve().as_uri()}"}


_prepared: WeakSet[SparkSession] = WeakSet()
_preparing = threading.Lock()
_starting = threading.Lock()


def worker_python(settings: Mapping[str, str]) -> str | None:
    """Return the interpreter of a session's workers; None leaves the choice to the cluster.

    It is `spark.pyspark.python`, else `PYSPARK_PYTHON`, else for a local master this process's own interpreter.

    Args:
        settings: The session's settings, with its master.
    """
    chosen = settings.get(_PYTHON) or os.environ.get(_PYTHON_VARIABLE)
    return chosen or (sys.executable if is_local(settings["spark.master"]) else None)


@contextmanager
def worker_python_chosen(settings: Mapping[str, str]) -> Iterator[None]:
    """Run the workers of a session that starts inside the context with `worker_python`.

    PySpark reads the interpreter only from the environment; only `spark-submit` reads `spark.pyspark.python`. The
    environment is restored afterwards, because another session may be a cluster's.
    """
    with _starting, _python_variables(worker_python(settings)):  # two threads would restore each other's variables
        yield


@contextmanager
def worker_python_of_others_chosen(settings: Mapping[str, str]) -> Iterator[None]:
    """Choose `worker_python` for a session that other code starts inside the context, or has started before.

    It waits for no other session. Without a known master it chooses nothing, unless the master can only be Spark's
    default, which is local.

    Args:
        settings: The session's settings, as far as they are known.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        _correct_worker_python(running)
    pip_only = not _PLACES_OF_DEFAULTS & os.environ.keys()
    master = settings.get("spark.master") or ("local[*]" if pip_only else None)
    with _python_variables(worker_python({**settings, "spark.master": master}) if master else None):
        yield


@contextmanager
def _python_variables(python: str | None) -> Iterator[None]:
    before = dict(os.environ)
    if python:
        # Without the second variable, Spark's start script runs the workers' interpreter, which may not exist here.
        os.environ |= {_PYTHON_VARIABLE: python, _DRIVER_VARIABLE: before.get(_DRIVER_VARIABLE, sys.executable)}
    try:
        yield
    finally:
        for name in (_PYTHON_VARIABLE, _DRIVER_VARIABLE):
            os.environ.pop(name, None)
            os.environ |= {name: before[name]} if name in before else {}


def prepare_session(spark: SparkSession) -> SparkSession:
    """Check a session for writing rows, and send this package to its executors once.

    Executors need the same Python and the dependencies, not this package.

    Raises:
        TaskFailedError: The session's time zone is not UTC, so timestamps would shift.
    """
    if (reason := why_not_utc(spark)) is not None:
        raise TaskFailedError(reason)
    return send_package(spark)


def send_package(spark: SparkSession) -> SparkSession:
    """Send this package to a session's executors once."""
    with _preparing:
        if spark not in _prepared:
            _correct_worker_python(spark)
            spark.addArtifacts(str(_package_zip()), pyfile=True)
            _prepared.add(spark)
    return spark


def _correct_worker_python(spark: SparkSession) -> None:
    """Run further tasks of a session that was started without an interpreter with `worker_python`."""
    if _is_classic(spark) and spark.sparkContext.pythonExec == _UNCHOSEN:  # else the server has the workers
        settings = {name: spark.conf.get(name, None) or "" for name in ("spark.master", _PYTHON)}
        spark.sparkContext.pythonExec = worker_python(settings) or _UNCHOSEN


def is_local(master: str) -> bool:
    """Return whether the tasks of a Spark master run on this machine, so that they can open its files.

    Tasks of `local-cluster[…]` do, in separate executor processes.
    """
    return master.startswith("local")


def driver_addresses(spark: SparkSession) -> tuple[str, str] | None:
    """Return the address that this process listens on for a session's executors, and the one that they reach it by.

    Returns:
        The two hosts; None for Spark Connect, whose executors know only their server.
    """
    if not _is_classic(spark):
        return None
    if is_local(spark.conf.get("spark.master", "") or ""):
        return "127.0.0.1", "127.0.0.1"
    reached = spark.conf.get("spark.driver.host", "") or "127.0.0.1"
    return spark.conf.get("spark.driver.bindAddress", "") or reached, reached


@contextmanager
def tagged_jobs(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag the Spark jobs that this thread starts until the context ends, so that `cancel_jobs` finds them.

    Args:
        spark: The session.
        tag: Unique name.
    """
    if _is_classic(spark):
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
    if _is_classic(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)


def _is_classic(spark: SparkSession) -> bool:
    """Return whether a session runs in this process's JVM, rather than behind Spark Connect."""
    return getattr(spark, "_sc", None) is not None


@contextmanager
def spark_errors() -> Iterator[None]:
    """Convert Spark's errors: an error of Python code or analysis is permanent, a lost task is transient."""
    try:
        yield
    except (PythonException, AnalysisException) as cause:
        raise TaskFailedError(f"A Spark task failed: {error_text(cause)}") from cause
    except PySparkException as cause:
        raise TaskLostError(f"A Spark job was lost: {error_text(cause)}") from cause
    except Exception as cause:
        # Classic Spark reports an aborted job through py4j, whose exception is no PySparkException.
        if type(cause).__module__.startswith("py4j."):
            raise TaskLostError(f"A Spark job was lost: {error_text(cause)}") from cause
        raise


def task_frame(
    spark: SparkSession,
    items: Sequence[_Item],
    schema: StructType | str,
    read: Callable[[_Item], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return a DataFrame of the rows that tasks read, one task an item.

    Args:
        spark: The session.
        items: The items, which are sent to the tasks.
        schema: Schema of the rows.
        read: Yields the rows of one item, in a task.
    """
    shared = tuple(items)

    def execute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(shared[number])

    return spark.range(0, len(shared), 1, max(1, len(shared))).mapInArrow(execute, schema)


def _package_zip() -> Path:
    """Return a zip of this package that exists until this process ends.

    Its name contains the hash of its bytes: Spark refuses a second file with the same name and other bytes.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, file in _package_files(files("snapshot_assets"), "snapshot_assets"):
            # Without times, so that the same files are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), file, zipfile.ZIP_DEFLATED)
    folder = tempfile.mkdtemp(prefix="snapshot-assets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / f"snapshot_assets-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
    target.write_bytes(content.getvalue())
    return target


def _package_files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder, which may be in a zip, by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{path}/{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _package_files(entry, f"{path}/{entry.name}")
