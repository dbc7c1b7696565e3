"""The Spark session of a command: the options that choose it, and its early start."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.spark_settings import MASTER, REMOTE, merged_settings, parse_spark_settings, shown_place

_PLACES = {
    MASTER,
    REMOTE,
    "MASTER",
    "SPARK_REMOTE",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
}
"""Settings and variables that may place Spark's tasks on other machines."""


def with_spark_options(plan: Plan, options: argparse.Namespace) -> Plan:
    """Return a plan whose Spark session is where `--spark-master` or `--spark-remote` place it.

    Raises:
        PlanError: An option is wrong, or both are given.
    """
    settings = place_of_options(options)
    return plan.changed(spark=merged_settings(plan.spark, settings)) if settings else plan


def place_of_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the setting that `--spark-master` or `--spark-remote` give; empty without them.

    Raises:
        PlanError: An option is wrong, or both are given.
    """
    given = {"master": options.spark_master, "remote": options.spark_remote}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        written = " and ".join(f"--spark-{name} {shown_place(value)}" for name, value in given.items())
        raise PlanError(f"{written} exclude each other: a Connect server has its own master; give one of them.")
    try:
        return parse_spark_settings(given)
    except PlanError as error:
        raise PlanError(f"--spark-{next(iter(given))}: {error}") from None


def refuse_unreachable_spark(configuration: Configuration, plan: Plan) -> None:
    """Refuse a Spark master or Connect server that does not answer, before a run starts.

    Args:
        configuration: The settings of the session.
        plan: A plan whose run needs Spark.

    Raises:
        SparkUnreachableError: Nothing answers at its address.
    """
    settings = configuration.spark_settings(plan)
    if not _PLACES & {*settings, *os.environ}:
        return
    from snapshot_assets.engine.spark_place import refuse_unreachable

    refuse_unreachable(settings)


def refuse_files_elsewhere(configuration: Configuration, plan: Plan) -> None:
    """Refuse an export from or to files of this machine by tasks of others, before the location is written.

    Only a Connect server itself knows where its tasks run, so it is asked. PySpark is imported only if the call or the
    environment chooses where Spark runs.

    Raises:
        PlanError: The source or the location is such a file.
    """
    settings = configuration.spark_settings(plan)
    if plan.schema_only or not (_PLACES & {*settings, *os.environ}):
        return
    from snapshot_assets.engine.session_settings import known_master
    from snapshot_assets.pipeline.local_files import refuse_local_files

    address = configuration.source(plan.source)
    refuse_local_files(plan, address, lambda: known_master(settings) or _master_of_session(settings))


def _master_of_session(settings: Mapping[str, str]) -> str:
    from snapshot_assets.engine.session import master_of
    from snapshot_assets.engine.session_start import start_session

    return master_of(start_session(settings))


def start_spark_early(configuration: Configuration, plan: Plan) -> None:
    """Start Spark while Dagster is imported and the databases are opened, which takes as long.

    Args:
        configuration: The settings of the session.
        plan: A plan that moves rows between databases and files, which Spark's JVM never holds.
    """
    # PySpark is imported here, before the thread starts: two threads that import it at once see halves of it.
    from snapshot_assets.engine.session_start import start_early

    start_early(configuration.spark_settings(plan), no_rows=True)
