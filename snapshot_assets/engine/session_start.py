"""Starts the Spark session of this process, or takes the one that runs: where it runs, and with which interpreter."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from snapshot_assets.engine.jvm_output import start_jvm
from snapshot_assets.engine.session import (
    DAEMON,
    DRIVER_VARIABLE,
    PYTHON_VARIABLE,
    WORKER_DAEMON,
    correct_worker_python,
    is_classic,
    runs_this_python,
    same_rows,
    send_package,
    worker_python,
)
from snapshot_assets.engine.session_settings import (
    API_MODE,
    API_MODE_VARIABLE,
    GATEWAY,
    JAVA_OPTIONS,
    LOCAL_SETTINGS,
    NEEDED,
    REMOTE_VARIABLE,
    driver_settings,
    has_log_settings,
    is_local,
    known_master,
    session_settings,
    settings_of_environment,
    worker_settings,
)
from snapshot_assets.engine.spark_place import no_master, refuse_unreachable
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.spark_settings import MASTER, REMOTE
from snapshot_assets.scratch_folders import process_folder
from snapshot_assets.spans import span

_LOG = logging.getLogger(__name__)
ARCHIVE_VARIABLE = "SNAPSHOTS_CLASS_ARCHIVE"
"""Names the archive of Spark's classes, such as one in a container's image."""
_STOPPED = "stopped SparkContext"
"""What Spark reports of a master that registered no application for two minutes."""
_CONNECT_RETRIES = 6
"""After 0.05, 0.2, 0.8, 3.2, 12.8 and 51.2 seconds."""
_RELEASES_AT_EXIT = "SPARK_CONNECT_RELEASE_SESSION_ON_EXIT"
_LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
_LOG_LEVEL = "snapshots.log.level"
"""Property of the JVM that log4j2.properties reads."""
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Option of a JVM that runs too briefly for a second compilation."""

_starting = threading.Lock()


def session_config(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that is about to start, with those that only this process can give it."""
    settings, known = session_settings(chosen), settings_of_environment(os.environ)
    in_jvm_of_ours = known_master(chosen) is not None and not _connects(settings)
    ours = driver_settings(process_folder(), archive_file()) if in_jvm_of_ours else {}
    local = not LOCAL_SETTINGS.keys().isdisjoint(settings) or is_local(settings.get(MASTER, ""))
    if local:
        # The daemon imports this package, so it needs this process's path; `local-cluster` runs elsewhere.
        master = settings.get(MASTER) or known.get(MASTER, "")
        in_process = master.partition("[")[0] == "local"
        if in_process and worker_python({**known, **settings}) == sys.executable:
            ours[DAEMON] = WORKER_DAEMON
        if in_process and GATEWAY not in os.environ:  # that JVM runs already
            ours |= worker_settings(process_folder())
    if (in_jvm_of_ours or local) and not has_log_settings(os.environ):
        # The driver logs errors, and warnings where this package logs information.
        level = f" -D{_LOG_LEVEL}=warn" if _LOG.isEnabledFor(logging.INFO) else ""
        ours[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_log_configuration()}{level}"
    return {name: value for name, value in ours.items() if name not in known} | settings


def archive_file() -> Path:
    """Return the file of the archive of Spark's classes: that of `ARCHIVE_VARIABLE`, else one in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    default = f"{cache}/snapshot_assets/spark-{pyspark.__version__}.jsa"
    return Path(os.environ.get(ARCHIVE_VARIABLE) or default).absolute()


@cache
def _log_configuration() -> str:
    """Return the URI of the file that configures the driver's log, unpacked if this package is in a zip."""
    unpacked = ExitStack()
    atexit.register(unpacked.close)
    path = unpacked.enter_context(as_file(files(__package__).joinpath("log4j2.properties")))
    return path.resolve().as_uri()


def start_session(chosen: Mapping[str, str], *, no_rows: bool = False) -> SparkSession:
    """Return the running session of this process, else start one, in this process's JVM or by Spark Connect.

    A running session keeps its settings, apart from its time zone and those chosen ones that Spark can change.

    Args:
        chosen: Settings of the user.
        no_rows: Promise that no rows enter the JVM, which then compiles less and starts earlier.

    Raises:
        PlanError: A session runs already, at another place than the chosen one.
        SparkUnreachableError: Nothing answers at its place.
    """
    with _starting:  # two threads would restore each other's variables
        if (running := running_session()) is not None:
            return _with_settings(running, chosen)
        refuse_unreachable(chosen)
        settings = session_config(chosen)
        if no_rows and JAVA_OPTIONS in settings and JAVA_OPTIONS not in chosen:
            settings[JAVA_OPTIONS] += f" {_SHORT_LIVED}"
        with span("start Spark"), variables_of_start(settings):
            return _started(settings)


def _started(settings: Mapping[str, str]) -> SparkSession:
    try:
        # A JVM of this process: it has none yet, and the session is no Connect client.
        if SparkContext._gateway is None and known_master(settings) is not None and not _connects(settings):
            start_jvm(settings)
        spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except ImportError as error:  # PySpark checks for the packages of Connect only now
        raise PlanError(
            f"Spark Connect needs the extra `connect`: pip install 'snapshot-assets[connect]' ({error})"
        ) from None
    except Exception as error:
        master = known_master(settings) or ""
        if type(error).__module__.startswith("py4j.") and master.startswith("spark://") and _STOPPED in str(error):
            raise no_master(master) from None
        raise
    if not is_classic(spark):
        _give_up_soon(spark)
    return spark


def _give_up_soon(spark: SparkSession) -> None:
    """Let a Connect client report in about a minute, in place of ten, that its server is gone.

    A server that was started again does not know the session. PySpark's function for the exit, which runs after the one
    that is registered here, makes no request of a client that is closed.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_RETRIES)])
    if _RELEASES_AT_EXIT not in os.environ:
        atexit.register(spark.client.close)


def _connects(settings: Mapping[str, str]) -> bool:
    """Return whether a session with a master may be one of Spark Connect."""
    return API_MODE in settings or API_MODE_VARIABLE in os.environ


def running_session() -> SparkSession | None:
    """Return the session that this process has, whichever thread started it."""
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def _with_settings(running: SparkSession, chosen: Mapping[str, str]) -> SparkSession:
    """Apply settings that Spark can change to a running session."""
    place = chosen.get(REMOTE) if is_classic(running) else chosen.get(MASTER)
    found = running.conf.get(MASTER, "") or ""
    if place is None and is_classic(running) and (master := chosen.get(MASTER, found)) != found:
        place = None if is_local(master) and is_local(found) else master
    if not is_classic(running):
        place = place or _other_server(running, chosen.get(REMOTE, ""))
    if place is not None:
        raise PlanError(
            f"This process has a Spark session already, on {found or 'a Connect server'}, and the configuration names "
            "another place for it. Stop that session first, run in a process of its own, or configure the same place."
        )
    for name, value in (NEEDED | dict(chosen)).items():
        if running.conf.get(name, None) != value and running.conf.isModifiable(name):
            running.conf.set(name, value)
    return running


def _other_server(running: SparkSession, remote: str) -> str | None:
    """Return the address of a Connect server if a session has another server, else None."""
    if not remote.startswith("sc://"):
        return None
    from pyspark.sql.connect.client import DefaultChannelBuilder

    wanted, used = DefaultChannelBuilder(remote), running.client._builder
    same = wanted.endpoint == used.endpoint if isinstance(used, DefaultChannelBuilder) else wanted.host == used.host
    return None if same else remote


def start_early(chosen: Mapping[str, str], *, no_rows: bool) -> None:
    """Start the session in the background, with this package and warm workers, while this process does other work.

    Only for a local master: a cluster's resources are not reserved for work that may yet be refused. Whoever needs the
    session calls `start_session`, which waits for this one, and meets a failure again.
    """

    def start() -> None:
        try:
            spark = send_package(start_session(chosen, no_rows=no_rows))
            if runs_this_python(spark):  # another one is checked before it runs anything
                with span("start workers"):
                    spark.range(0, 1, 1, 1).mapInArrow(same_rows, "id long").collect()
        except Exception as error:  # the work itself meets it again, and reports it
            _LOG.info("Spark could not start early: %s", error)

    if running_session() is not None or not is_local(known_master(chosen) or ""):
        return
    threading.Thread(target=start, name="spark-early-start", daemon=True).start()


@contextmanager
def worker_python_of_others_chosen(settings: Mapping[str, str]) -> Iterator[None]:
    """Choose `worker_python` for a session that other code starts inside the context, or has started before.

    It waits for no other session. Without a known master it chooses nothing, unless the master can only be Spark's
    default, which is local.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        correct_worker_python(running)
    known = settings_of_environment(os.environ) | dict(settings)
    elsewhere = REMOTE in known or GATEWAY in os.environ
    with _variables({} if elsewhere else _python_variables({MASTER: "local[*]"} | known)):
        yield


def _python_variables(settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables by which PySpark runs workers with `worker_python`.

    PySpark reads the interpreter only from the environment; only `spark-submit` reads `spark.pyspark.python`.
    """
    remote = settings.get(REMOTE, "")
    if remote and not is_local(remote):
        return {}
    if not (python := worker_python({MASTER: remote} | dict(settings))):  # `local` starts a Connect server here
        return {}
    # Without the second variable, Spark's start script runs the workers' interpreter, which may not exist here.
    return {PYTHON_VARIABLE: python, DRIVER_VARIABLE: os.environ.get(DRIVER_VARIABLE, sys.executable)}


@contextmanager
def variables_of_start(settings: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables of a session's start until the context ends.

    They choose the workers' interpreter, and let a chosen master win over SPARK_REMOTE. The launcher, a short-lived
    JVM, compiles little.
    """
    launcher = {} if _LAUNCHER_OPTIONS in os.environ else {_LAUNCHER_OPTIONS: _SHORT_LIVED}
    with _variables(_python_variables(settings) | launcher | ({REMOTE_VARIABLE: None} if MASTER in settings else {})):
        yield


@contextmanager
def _variables(changed: Mapping[str, str | None]) -> Iterator[None]:
    """Change environment variables until the context ends; None removes one. Another session may be a cluster's."""
    before = {name: os.environ.get(name) for name in changed}
    _set_variables(changed)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def may_differ(settings: Mapping[str, str]) -> bool:
    """Return whether tasks may run in another environment than this process; starts no local session to know it."""
    settings = settings_of_environment(os.environ) | dict(settings)
    master = known_master(settings)
    return master is None or not is_local(master) or worker_python({**settings, MASTER: master}) != sys.executable
