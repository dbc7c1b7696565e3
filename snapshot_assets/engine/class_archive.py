"""The archive of Spark's classes: a session whose JVM has it starts in about half the time (Java's class-data sharing).

`make_archive` makes it once for a machine; every later session of this package with the same Spark uses it. A JVM that
it does not fit, because Java, Spark's jars or the class path have changed, starts without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from snapshot_assets.engine.session import same_rows, send_package
from snapshot_assets.engine.session_settings import API_MODE_VARIABLE, DEFAULT_JAVA_OPTIONS, GATEWAY
from snapshot_assets.engine.session_start import ARCHIVE_VARIABLE, archive_file, running_session, start_session
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.spark_settings import MASTER
from snapshot_assets.scratch_folders import scratch_folder

_NO_ARCHIVE = (
    "Java wrote no archive of classes. It must be OpenJDK 17 or newer with its default archive, which "
    "`java -Xshare:dump` makes, and Spark's class path must have jars only."
)


def make_archive() -> Path:
    """Make the archive of this machine, or replace it, and return its file.

    It starts a Spark session in this process, which must have none, and stops it.

    Raises:
        PlanError: A session runs already, or another program has started this process's JVM; this Java makes no
            archive; or the file cannot be written.
    """
    if running_session() is not None or GATEWAY in os.environ or API_MODE_VARIABLE in os.environ:
        raise PlanError(
            "This process has a Spark session, or is to use another program's. Archive Spark's classes in a process of"
            f" its own, without {GATEWAY} and {API_MODE_VARIABLE}."
        )
    file = archive_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(file.parent, "making") as folder:
            new = folder / file.name
            _dump(new, folder / "rows")
            new.replace(file)
    except OSError as error:
        raise PlanError(
            f"The archive of Spark's classes, {file}, cannot be written: {error.strerror}. Choose another file by"
            f" {ARCHIVE_VARIABLE}, for this command and for those that are to use it."
        ) from None
    return file


def _dump(file: Path, rows: Path) -> None:
    """Let a JVM load the classes and write the archive; it also writes some rows."""
    dump = f'"-XX:ArchiveClassesAtExit={file}" -Xlog:disable'
    try:
        spark = start_session({MASTER: "local[2]", DEFAULT_JAVA_OPTIONS: dump}, no_rows=True)
    except PySparkRuntimeError as error:  # that JVM does not start, unless Java is not there at all
        raise PlanError(f"{_NO_ARCHIVE} ({error})") from None
    try:
        ids = send_package(spark).range(0, 8, 1, 2)  # runs what exports, imports and compactions run
        ids.mapInArrow(same_rows, "id long").write.parquet(str(rows))
        spark.read.parquet(str(rows)).groupBy("id").count().toArrow()
    finally:
        _stop(spark)
    if not file.exists():
        raise PlanError(_NO_ARCHIVE)


def _stop(spark: SparkSession) -> None:
    """Stop a session and its JVM, which writes the archive when it ends."""
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
