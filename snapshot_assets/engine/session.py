"""The Spark session: how one is configured, how this package reaches its executors, and what Spark's errors mean.

Nothing else in the package knows how Spark runs Python, and nothing at all uses RDDs, `sparkContext` or the JVM
gateway, so that Spark Connect works too.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import SparkSession

import snapshot_assets
from snapshot_assets.errors import TaskFailedError, TaskLostError

_LOGGING = Path(__file__).with_name("log4j2.properties")

SPARK_CONFIG: dict[str, str] = {
    "spark.master": "local[*,4]",
    "spark.app.name": "snapshot_assets",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What a session needs, and sensible defaults. `local[*,4]` lets a task that dies be tried four times in all."""

_LOCAL_CONFIG = {"spark.python.daemon.module": "snapshot_assets.engine.worker_daemon"}


def session_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: `SPARK_CONFIG`, over it the given ones, and what suits their master."""
    settings = SPARK_CONFIG | dict(config)
    return (_LOCAL_CONFIG if is_local(settings["spark.master"]) else {}) | settings


_REQUIRED = {"spark.sql.session.timeZone": "UTC"}
_prepared: WeakSet[SparkSession] = WeakSet()
_preparing = threading.Lock()


def use_this_python() -> None:
    """Let Spark's workers on this machine be the interpreter that runs this; to be called before a session starts.

    PySpark reads the environment, and otherwise takes whatever `python3` is first on the path.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def prepare_session(spark: SparkSession) -> SparkSession:
    """Check a session that rows are written with, and send this package to its executors once.

    Executors need the same Python with the dependencies, not this package.

    Raises:
        TaskFailedError: The session's time zone is not UTC, so timestamps would shift.
    """
    for name, expected in _REQUIRED.items():
        found = spark.conf.get(name)
        if found != expected:
            raise TaskFailedError(f"The Spark session has {name} = {found!r}; set it to {expected!r}.")
    return send_package(spark)


def send_package(spark: SparkSession) -> SparkSession:
    """Send this package to a session's executors once."""
    with _preparing:
        if spark not in _prepared:
            spark.addArtifacts(str(_package_zip()), pyfile=True)
            _prepared.add(spark)
    return spark


def is_local(master: str) -> bool:
    """Tell whether the tasks of a Spark master run on this machine, so that local files are the same files."""
    return master.startswith("local")


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn Spark's errors into ours: what Python code or analysis raises is permanent, a lost task is not."""
    try:
        yield
    except (PythonException, AnalysisException) as cause:
        raise TaskFailedError(f"A Spark task failed: {_last_lines(cause)}") from cause
    except PySparkException as cause:
        raise TaskLostError(f"A Spark job was lost: {_last_lines(cause)}") from cause
    except Exception as cause:
        # Classic Spark reports an aborted job through py4j, whose exception is no PySparkException.
        if type(cause).__module__.startswith("py4j."):
            raise TaskLostError(f"A Spark job was lost: {_last_lines(cause)}") from cause
        raise


def _last_lines(error: Exception) -> str:
    return " | ".join(line.strip() for line in str(error).splitlines() if line.strip())[-2000:]


def _package_zip() -> Path:
    """Return a zip of this package's modules, named by its content, that stays until this process ends."""
    root = Path(snapshot_assets.__file__).parent
    sources = sorted(path for path in root.rglob("*") if path.suffix in {".py", ".pyi"} or path.name == "py.typed")
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    folder = tempfile.mkdtemp(prefix="snapshot-assets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / f"snapshot_assets-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sources:
            archive.write(source, Path("snapshot_assets") / source.relative_to(root))
    return target
