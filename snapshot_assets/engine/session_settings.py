"""The settings of a Spark session that is about to start: chosen ones, those of its place, and ours for this machine.

Spark itself reads `spark-defaults.conf`, PYSPARK_SUBMIT_ARGS, MASTER and SPARK_REMOTE; they are read here too, because
a setting of ours may only stand where nobody chose another.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from snapshot_assets.databases.spark.session_zone import TIME_ZONE
from snapshot_assets.plan.spark_settings import MASTER, REMOTE

REMOTE_VARIABLE = "SPARK_REMOTE"
NEEDED = {TIME_ZONE: "UTC"}
"""Settings that every session needs."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
QUIET_SETTINGS = {"spark.ui.showConsoleProgress": "false"}
"""Settings of every session that has its JVM in this process, where nobody chose another value."""
LOCAL_SETTINGS = {
    MASTER: "local[*,4]",  # Spark tries a dying task four times
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
}
"""Conveniences of a session whose tasks run on this machine, where nobody chose another value."""

_NAME, _APPLICATION = "spark.app.name", "snapshot_assets"
API_MODE, API_MODE_VARIABLE = "spark.api.mode", "SPARK_API_MODE"
"""Setting and variable by which a session with a master may be one of Spark Connect."""
GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Variable of a program that `spark-submit` started: its JVM runs already, with settings that only it knows."""
_DYNAMIC = "spark.dynamicAllocation.enabled"
_MOST_EXECUTORS, _EXECUTOR_CORES = "spark.dynamicAllocation.maxExecutors", "spark.executor.cores"
DYNAMIC_SETTINGS = (MASTER, _DYNAMIC, _MOST_EXECUTORS, _EXECUTOR_CORES)
"""Settings that decide how many executors a session may get."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Options of a JVM that says nothing if an archive of classes does not fit it."""
_PROPERTY = re.compile(r"\s*([^\s#!=:][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")


def is_local(master: str) -> bool:
    """Return whether the tasks of a Spark master run on this machine, so that they can open its files.

    Tasks of `local-cluster[…]` do, in separate executor processes.
    """
    return master.startswith("local")


def is_dynamic(settings: Mapping[str, str]) -> bool:
    """Return whether a session asks its cluster for executors only while jobs wait for them, as EMR's does."""
    return settings.get(_DYNAMIC, "").lower() == "true"


def most_dynamic_tasks(settings: Mapping[str, str]) -> int | None:
    """Return how many tasks the executors of such a session may run at a time; None if nothing limits them.

    YARN and Kubernetes give an executor one core by default, a standalone cluster all that a worker has.
    """
    default = "" if settings.get(MASTER, "").startswith(("spark:", "local")) else "1"
    executors, cores = settings.get(_MOST_EXECUTORS), settings.get(_EXECUTOR_CORES) or default
    return int(executors) * int(cores) if executors and cores else None


def session_settings(chosen: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a session that is about to start, apart from those that Spark reads itself."""
    environment = os.environ if environment is None else environment
    known = settings_of_environment(environment)
    if REMOTE in chosen or (MASTER not in chosen and REMOTE in known):
        return NEEDED | dict(chosen)
    ours = {_NAME: _APPLICATION} | NEEDED
    if GATEWAY not in environment:
        local = is_local((known | dict(chosen)).get(MASTER, LOCAL_SETTINGS[MASTER]))
        ours = (LOCAL_SETTINGS if local else {}) | QUIET_SETTINGS | ours
    unchosen = {name: value for name, value in ours.items() if name in NEEDED or name not in known}
    return unchosen | dict(chosen)


def driver_settings(folder: Path, archive: Path) -> dict[str, str]:
    """Return the setting by which the JVM of a driver in this process puts temporary files into a folder.

    That is where the driver has its blocks, too, unless `spark.local.dir` is chosen. Executors elsewhere do not get the
    setting. Spark reads the driver's options before those of `JAVA_OPTIONS`, so that a user's own folder wins.

    Args:
        folder: The folder.
        archive: The archive that the JVM loads Spark's classes from, if that exists.
    """
    shared = [f"-XX:SharedArchiveFile={archive}", *_QUIET] if os.path.isfile(archive) else []
    options = [f"-Djava.io.tmpdir={folder}", *shared]
    return {DEFAULT_JAVA_OPTIONS: " ".join(map(_quoted, options))}


def _quoted(option: str) -> str:
    """Return an option of a JVM as Spark reads it among others."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def worker_settings(folder: Path) -> dict[str, str]:
    """Return the setting by which Python workers on this machine put temporary files into a folder."""
    return {"spark.executorEnv.TMPDIR": str(folder)}


def known_master(chosen: Mapping[str, str]) -> str | None:
    """Return the master of a session that is about to start; None if only the session knows it."""
    settings = session_settings(chosen)
    known = settings_of_environment(os.environ)
    elsewhere = REMOTE in settings or GATEWAY in os.environ or (REMOTE in known and MASTER not in chosen)
    return None if elsewhere else settings.get(MASTER) or known.get(MASTER)


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Spark reads by itself, as far as they can be known without starting it."""
    submitted = dict(_submitted(environment.get("PYSPARK_SUBMIT_ARGS", "")))
    remote = {REMOTE: environment[REMOTE_VARIABLE]} if environment.get(REMOTE_VARIABLE) else {}
    master = {MASTER: environment["MASTER"]} if environment.get("MASTER") else {}
    file = submitted.pop("", None)
    return master | dict(_defaults(Path(file) if file else _default_file(environment))) | submitted | remote


def has_log_settings(environment: Mapping[str, str]) -> bool:
    """Return whether Spark's configuration folder, or a variable, configures the log of a JVM that Spark starts."""
    folder = _default_file(environment).parent
    files = [file for file in folder.glob("log4j2*") if file.suffix != ".template"]
    return bool(files) or "LOG4J_CONFIGURATION_FILE" in environment


def _submitted(arguments: str) -> Iterator[tuple[str, str]]:
    """Yield the settings among `spark-submit`'s arguments; the name of its properties file is empty."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in ("--master", "--remote", "--properties-file"):
        parser.add_argument(option)
    parser.add_argument("--conf", "-c", action="append", default=[])
    try:
        found, _ = parser.parse_known_args(shlex.split(arguments))
    except (ValueError, argparse.ArgumentError):
        return  # Spark refuses them, with a message of its own
    for setting in found.conf:
        name, _, value = setting.partition("=")
        yield name, value
    for name, value in ((MASTER, found.master), (REMOTE, found.remote), ("", found.properties_file)):
        if value:
            yield name, value


def _default_file(environment: Mapping[str, str]) -> Path:
    installed = find_spec("pyspark")
    home = environment.get("SPARK_HOME") or (Path(installed.origin).parent if installed and installed.origin else "")
    return Path(environment.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"


def _defaults(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of a properties file; Spark reports one that it cannot read."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        if match := _PROPERTY.fullmatch(line):
            yield match[1], match[2]
