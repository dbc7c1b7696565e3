"""Prepares a session for writing rows: its executors get this package, and must be able to run its tasks.

Tasks that wait for cores are reported, because Spark itself only logs a warning every 15 s.

One small task for each session imports what the others need; it needs none of it itself. It finds an executor that
lacks something before anything is written, if it runs on that one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from weakref import WeakKeyDictionary, WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, udf

from snapshot_assets.databases.open import modules_of
from snapshot_assets.databases.spark.session_zone import why_not_utc
from snapshot_assets.engine.session import (
    executors_of,
    is_classic,
    master_of,
    runs_in_driver,
    runs_this_python,
    send_package,
    spark_errors,
    unfit,
)
from snapshot_assets.engine.task_python import TASK_MODULES, TASK_PACKAGES, TaskPython, describe_python
from snapshot_assets.errors import TaskFailedError
from snapshot_assets.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
SECONDS = 15.0
"""After how many seconds without an executor a job counts as waiting; a cluster with free cores needs less."""
SECONDS_OF_CONNECT = 60.0
"""After how many seconds a short job of Spark Connect does, whose executors are not known."""

_reported: WeakSet[SparkSession] = WeakSet()


@contextmanager
def reporting_waits(spark: SparkSession, *, short: bool = False) -> Iterator[None]:
    """Log a warning, once for a session, if the Spark job of the context waits for cores.

    Only a job that is short once it has a core shows that Spark Connect waits, whose executors are not known.
    """
    if runs_in_driver(spark) or not (short or is_classic(spark)):
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_watch, args=(spark, ended), name="spark-waiting", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(spark: SparkSession, ended: threading.Event) -> None:
    """Wait until the job has ended; warn if its session lacks executors at two moments in succession."""
    seconds, lacking = SECONDS if is_classic(spark) else SECONDS_OF_CONNECT, 0
    while spark not in _reported and not ended.wait(seconds / 2):
        lacking = 0 if is_classic(spark) and executors_of(spark) else lacking + 1
        if lacking > 1:
            _reported.add(spark)
            _LOG.warning(_text(spark, seconds))


def _text(spark: SparkSession, seconds: float) -> str:
    master = master_of(spark)
    if not is_classic(spark):
        found = f"A first task of Spark at {master} has not ended after {seconds:.0f} s. Perhaps it waits for a core"
    else:
        found = f"Spark waits for a core of {master}, which has given none for {seconds:.0f} s"
    page = ""
    if master.startswith("spark://"):
        page = " The master's page, port 8080 unless it was given another, lists workers and applications."
    return (
        f"{found}: either no worker with enough memory is there, or other applications hold all cores, as a Spark"
        f" Connect server does until it stops.{page} Start a worker, lower spark.executor.memory, or limit the other"
        " applications by spark.cores.max: this one then goes on."
    )


_checked: WeakKeyDictionary[SparkSession, frozenset[str]] = WeakKeyDictionary()


def modules_of_tasks(store: ObjectStore, *uris: str) -> tuple[str, ...]:
    """Return the modules that tasks import for a store and for databases, beside those that all tasks import."""
    libraries = (getattr(store, "library", None),)
    databases = dict.fromkeys(chain.from_iterable(map(modules_of, uris)))
    return (type(store).__module__, *filter(None, libraries), *databases)


def prepare_session(spark: SparkSession, modules: Sequence[str] = ()) -> SparkSession:
    """Check a session for writing rows, and send this package to its executors once.

    Executors need the same Python and the dependencies, not this package. Further modules of its tasks are those of
    `modules_of_tasks`.

    Raises:
        TaskFailedError: The session's time zone is not UTC, so timestamps would shift; or its executors cannot run the
            tasks.
    """
    if (reason := why_not_utc(spark)) is not None:
        raise TaskFailedError(reason)
    send_package(spark)
    if not runs_this_python(spark):
        checked = _checked.get(spark, frozenset())
        if not checked or not checked.issuperset(modules):
            python_of_tasks(spark, modules)
            _checked[spark] = checked.union(modules, TASK_MODULES)
    return spark


def python_of_tasks(spark: SparkSession, modules: Sequence[str] = ()) -> TaskPython:
    """Run one task that imports what tasks need, and return its interpreter.

    It is no task of Arrow batches, which an interpreter without pyarrow could not start.

    Raises:
        TaskFailedError: The interpreter lacks a module, does not exist, or has another minor version.
        TaskLostError: The task died, and Spark stopped retrying it.
    """
    names = json.dumps([*TASK_PACKAGES, *TASK_MODULES, *modules])
    describe = udf(describe_python, "string", useArrow=False)
    with reporting_waits(spark, short=True), spark_errors():
        [row] = spark.range(0, 1, 1, 1).select(describe(lit(names))).collect()
    python = TaskPython.parse(row[0])
    if python.lacks:
        raise unfit(f"{python} lacks {', '.join(python.lacks)}")
    return python
