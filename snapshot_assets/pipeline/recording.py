"""Records a command's work in a Dagster instance: a run whose events are those of the plan's assets and checks."""

# Dagster reads the annotations of ops, so they must not be postponed here.
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.replication.replicate import Replication
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import NameRule
from snapshot_assets.pipeline.assets.checks import (
    FOUND_BY_SEAL,
    failed_chunks,
    record_report,
    record_written,
    recording_damage,
    suspects_all,
)
from snapshot_assets.pipeline.assets.replicas import record_replicated, replica_metadata
from snapshot_assets.pipeline.assets.tables import report_tables, warn_of_misplaced
from snapshot_assets.pipeline.assets.tags import show_tags
from snapshot_assets.pipeline.automation.exports import copy_metadata
from snapshot_assets.pipeline.dagster.dagster_internals import belonging_to_location, quiet_instance, store_events
from snapshot_assets.pipeline.dagster.failures import as_failure
from snapshot_assets.pipeline.dagster.metadata import (
    NEVER_SEEN,
    made_from_versions,
    materialization,
    report_chunks,
    schema_metadata,
    seal_metadata,
)
from snapshot_assets.pipeline.dagster.partitions import asset_key, chunk_assets
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.export.copy import Copied
    from snapshot_assets.engine.export.run import OpenExport

_Result = TypeVar("_Result")
CODE_LOCATION = "snapshot_assets.definitions"
"""The code location of the plans in `snapshots.yaml`, to which runs of the command line belong by default."""

CODE_LOCATION_VARIABLE = "SNAPSHOTS_CODE_LOCATION"
"""Names another code location: that of a project which merges the plans into its own definitions."""

_NOT_BY_THE_DAEMON = {"dagster/max_retries": "0"}
"""Dagster's daemon would run a failed run again on the plan of the configuration, without the command's options."""

_NEW_INSTANCE = "telemetry:\n  enabled: false\n"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run config: the command prints what it does, and a failure once; the run's log has its trace."""


def open_instance(home: Path) -> dg.DagsterInstance:
    """Return the instance of a folder, which is created if it does not exist.

    A new instance has telemetry turned off; an existing one keeps its configuration. Where that does not mention
    telemetry, this process sends none.
    """
    home.mkdir(parents=True, exist_ok=True)
    if not any(home.iterdir()):
        (home / "dagster.yaml").write_text(_NEW_INSTANCE, encoding="utf-8")
    os.environ["DAGSTER_HOME"] = str(home.resolve())
    return quiet_instance(dg.DagsterInstance.get())


def belongs_to_command(instance: dg.DagsterInstance, run_id: str) -> dict[str, str]:
    """Return the tags of a run that this process is about to execute, and show it below its code location."""
    location = os.environ.get(CODE_LOCATION_VARIABLE) or CODE_LOCATION
    return belonging_to_location(instance, run_id, location) | _NOT_BY_THE_DAEMON


def run_recorded(
    instance: dg.DagsterInstance, job: str, run_id: str, work: Callable[[dg.OpExecutionContext], _Result]
) -> _Result:
    """Do some work in this process as a run of an instance; raises the error of the work as it is.

    Raises:
        KeyboardInterrupt: The run was interrupted.
    """
    done: list[_Result] = []
    errors: list[BaseException] = []

    @dg.op(name="snapshots", description="The work of the command.")
    def command(context: dg.OpExecutionContext) -> None:
        try:
            done.append(work(context))
        except SnapshotError as error:
            errors.append(error)
            raise as_failure(error) from error
        except BaseException as error:
            errors.append(error)
            raise

    @dg.job(name=job)
    def recorded() -> None:
        command()

    tags = belongs_to_command(instance, run_id)
    result = recorded.execute_in_process(
        instance=instance, run_id=run_id, run_config=QUIET, raise_on_error=False, tags=tags
    )
    for error in errors:
        if isinstance(error, dg.DagsterExecutionInterruptedError):
            raise KeyboardInterrupt from None
        raise error
    if not done:
        raise SnapshotError(f"Dagster run {result.run_id} failed before it did anything; its log says why.")
    return done[0]


class ExportRecorder:
    """Reports an export or a copy in a step, as the plan's assets report them in their own runs."""

    def __init__(self, context: dg.OpExecutionContext, plan: Plan, names: NameRule) -> None:
        self._context, self._plan, self._names = context, plan, names

    def schema(self, export: "OpenExport") -> None:
        """Report the schema of a snapshot that was started or resumed."""
        made_from = made_from_versions({asset_key(self._plan, "source"): NEVER_SEEN})
        version = export.catalog.state.snapshot_id
        self._materialize("schema", schema_metadata(export), version, made_from)
        tables = {table.table_name: table for table in export.schema.tables}
        for name in chunk_assets(self._plan):
            warn_of_misplaced(self._context, asset_key(self._plan, name), self._plan, tables, self._names)

    def _materialize(
        self, name: str, facts: Mapping[str, Any], version: str = "", made_from: Mapping[str, str] | None = None
    ) -> None:
        event = materialization(asset_key(self._plan, name), facts, version=version, made_from=made_from)
        store_events(self._context, [event])

    def chunks(self, export: "OpenExport", outcomes: Sequence[Outcome]) -> None:
        """Report the chunks of a transaction, and those that failed."""
        context, plan, state = self._context, self._plan, export.catalog.state
        made_from = made_from_versions({asset_key(plan, "schema"): state.snapshot_id})
        done = [outcome for outcome in outcomes if outcome.error is None]
        for name, untimed in (("chunks", False), ("untimed_tables", True)):
            key = asset_key(plan, name)
            of_asset = [outcome for outcome in outcomes if (outcome.chunk == UNTIMED_CHUNK) is untimed]
            report_chunks(context, key, plan, [each for each in of_asset if each.error is None], state, made_from)
            record_written(context, key, plan, of_asset)
        report_tables(context, plan, done, {table.table_name: table for table in export.schema.tables}, self._names)

    def seal(self, export: "OpenExport") -> None:
        """Seal a snapshot, with the files hashed that Dagster's checks suspect, and report it, or its damage."""
        context, plan, catalog = self._context, self._plan, export.catalog
        suspicious = suspects_all(context.instance, plan, catalog.store, catalog.refresh())
        with recording_damage(context, plan, catalog.store):
            sealed = export.seal("full" if suspicious else None, failed_chunks(context.instance, plan))
        state = catalog.refresh()
        self._materialize("manifest", seal_metadata(sealed, state, plan.to), sealed.seal.seal.checksum)
        record_report(context, plan, state, sealed.report, FOUND_BY_SEAL)

    def tags(self, catalog: Catalog) -> None:
        """Report the tags of a location."""
        show_tags(self._context, self._plan, catalog.refresh(), catalog.store.uri)

    def replicated(self, done: Replication, target: ObjectStore) -> None:
        """Report a replication."""
        newest = Catalog.open(target).state.newest_seal
        self._materialize("replica", replica_metadata(done), newest.seal.checksum if newest else "")
        record_replicated(self._context, self._plan, done)

    def copied_windows(self, outcomes: Sequence[Outcome], state: State) -> None:
        """Report the windows of a transaction of a copy."""
        if self._plan.windowed:
            key = asset_key(self._plan, "copy")
            report_chunks(self._context, key, self._plan, outcomes, state, made_from_versions({}))

    def copied(self, copied: "Copied", uri: str) -> None:
        """Report a copy: its windows are reported already."""
        facts = copy_metadata(self._plan, copied, uri)
        if self._plan.windowed:
            self._context.log_event(dg.AssetObservation(asset_key(self._plan, "copy"), metadata=facts))
        else:
            self._materialize("copy", facts)
