"""The Spark session of a command: the options that choose it, and its early start."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Mapping

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.spark_settings import merged_settings, parse_spark_settings


def with_spark_options(plan: Plan, options: argparse.Namespace) -> Plan:
    """Return a plan whose Spark session is where `--spark-master` or `--spark-remote` place it.

    Raises:
        PlanError: An option is wrong, or both are given.
    """
    given = {"master": options.spark_master, "remote": options.spark_remote}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return plan
    try:
        settings = parse_spark_settings(given)
    except PlanError as error:
        raise PlanError(f"{' and '.join(f'--spark-{name}' for name in given)}: {error}") from None
    return plan.changed(spark=merged_settings(plan.spark, settings))


def start_spark_early(configuration: Configuration, plan: Plan) -> None:
    """Start Spark while Dagster is imported and the databases are opened, which takes as long.

    PySpark takes long to import, too, so that is done in the background as well.

    Args:
        configuration: The settings of the session.
        plan: A plan that moves rows between databases and files, which Spark's JVM never holds.
    """
    threading.Thread(target=_start, args=[configuration.spark_settings(plan)], daemon=True).start()


def _start(settings: Mapping[str, str]) -> None:
    from snapshot_assets.engine.session_start import start_early

    start_early(settings, no_rows=True)
