"""Reports that Spark's tasks wait for cores, of which Spark itself only logs a warning every 15 s."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from pyspark.sql import SparkSession

from snapshot_assets.engine.session import executors_of, is_classic, master_of, runs_in_driver

_LOG = logging.getLogger(__name__)
SECONDS = 15.0
"""After how many seconds without an executor a job counts as waiting; a cluster with free cores needs less."""
SECONDS_OF_CONNECT = 60.0
"""After how many seconds a short job of Spark Connect does, whose executors are not known."""

_reported: WeakSet[SparkSession] = WeakSet()


@contextmanager
def reporting_waits(spark: SparkSession, *, short: bool = False) -> Iterator[None]:
    """Log a warning, once for a session, if the Spark job of the context waits for cores.

    Args:
        spark: The session.
        short: Whether the job is short once it has a core. Only this shows that a job of Spark Connect waits, whose
            executors are not known.
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
