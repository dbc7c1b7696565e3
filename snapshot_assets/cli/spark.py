"""The Spark session of a command: the options that choose it, and its early start."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.spark_settings import MASTER, REMOTE, merged_settings, parse_spark_settings, shown_place
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.cli.recorded_runs import Run
    from snapshot_assets.engine.export.run import ExportRun, OpenExport
    from snapshot_assets.engine.progress import Progress
    from snapshot_assets.engine.runner import SparkRunner
    from snapshot_assets.plan.configuration import Configuration

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


def refuse_unreachable_spark(settings: Mapping[str, str]) -> None:
    """Refuse a Spark master or Connect server that does not answer, before a run starts.

    Args:
        settings: Settings of the session.

    Raises:
        SparkUnreachableError: Nothing answers at its address.
    """
    if not _PLACES & {*settings, *os.environ}:
        return
    from snapshot_assets.engine.spark_place import refuse_unreachable

    refuse_unreachable(settings)


def refuse_files_elsewhere(
    settings: Mapping[str, str], name: str, to: str, database: DatabaseAddress | None = None
) -> None:
    """Refuse to work on files of this machine by tasks of others, before anything is written.

    Only a Connect server itself knows where its tasks run, so it is asked. PySpark is imported only if the call or the
    environment chooses where Spark runs.

    Args:
        settings: Settings of the session.
        name: Name of the plan.
        to: URI of the location.
        database: A database that tasks open.

    Raises:
        PlanError: The database or the location is such a file.
    """
    if not _PLACES & {*settings, *os.environ}:
        return
    from snapshot_assets.engine.session_settings import known_master
    from snapshot_assets.engine.spark_place import refuse_local_files

    def master() -> str:
        if known := known_master(settings):
            return known
        from snapshot_assets.engine.session import master_of
        from snapshot_assets.engine.session_start import start_session

        return master_of(start_session(settings))

    refuse_local_files(name, to, database, master)


@contextmanager
def spark_runner(
    settings: Mapping[str, str], run: Run, store: ObjectStore, *databases: DatabaseAddress
) -> Iterator[SparkRunner]:
    """Run tasks in Spark until the context ends; the session starts on first use.

    Args:
        settings: Settings of the session.
        run: Takes the tasks' reports.
        store: The location that tasks read or write.
        databases: The databases that they open.
    """
    from snapshot_assets.engine.executors import modules_of_tasks
    from snapshot_assets.engine.runner import SparkRunner
    from snapshot_assets.engine.session_start import may_differ, start_session

    modules = modules_of_tasks(store, *(each.uri for each in databases))
    session = partial(start_session, settings)
    with closing(SparkRunner(session, run.watch.report, modules, partial(may_differ, settings))) as runner:
        yield runner


@contextmanager
def opened_export_run(run: Run, configuration: Configuration, plan: Plan, **own: Any) -> Iterator[ExportRun]:
    """Return an export run of a plan, whose tasks run in Spark until the context ends.

    Args:
        run: The command's run.
        configuration: The sources and storage options.
        plan: The plan, its range and location resolved.
        **own: Further attributes of `ExportRun`.
    """
    from snapshot_assets.engine.export.run import ExportRun

    address, store = configuration.source(plan.source), configuration.store(plan)
    with spark_runner(configuration.spark_settings(plan), run, store, address) as runner:
        yield ExportRun(
            plan=plan,
            address=address,
            store=store,
            runner=runner,
            run_id=run.id,
            session=runner.session,
            parallelism=None,
            most_parts=plan.parts_per_chunk,
            stage=run.watch.stage,
            **own,
        )


@contextmanager
def opened_to_look(
    doing: str, options: argparse.Namespace, configuration: Configuration, plan: Plan
) -> Iterator[tuple[OpenExport, Progress]]:
    """Open the source and the snapshot of a plan, of which nothing is written; yields them, and what shows progress.

    Args:
        doing: The activity, such as `comparing`.
        options: The call.
        configuration: The sources and storage options.
        plan: The plan.

    Raises:
        PlanError: The snapshot has no rows, or tasks of other machines would work on files of this one.
        SparkUnreachableError: Nothing answers at the address of Spark.
        SnapshotError: See `ExportRun.look`.
    """
    if plan.schema_only:
        raise PlanError("A schema-only snapshot has no rows to compare.")
    settings = configuration.spark_settings(plan)
    refuse_files_elsewhere(settings, plan.name, plan.to, configuration.source(plan.source))
    refuse_unreachable_spark(settings)
    from snapshot_assets.cli.progress import progress
    from snapshot_assets.cli.recorded_runs import Run

    with (
        progress(doing, 0, [], options.progress) as watch,
        opened_export_run(Run("", watch), configuration, plan) as export_run,
        export_run.look() as opened,
    ):
        yield opened, watch


def start_spark_early(settings: Mapping[str, str]) -> None:
    """Start Spark while the databases are opened, for work that moves rows which Spark's JVM never holds.

    Args:
        settings: Settings of the session.
    """
    # PySpark is imported here, before the thread starts: two threads that import it at once see halves of it.
    from snapshot_assets.engine.session_start import start_early

    start_early(settings, no_rows=True)
