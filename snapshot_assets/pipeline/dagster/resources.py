"""Resources that the assets of a run share: configuration, Spark session, and one open export per plan.

The configuration is a Python object, not Dagster config, so that its secrets appear in no run config, tag or event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.seal import SealDepth, Sealed
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.progress import LoggedProgress, Progress
from snapshot_assets.engine.reports import Report
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.session import Session, master_of, parallel_chunks
from snapshot_assets.engine.session_settings import is_local, known_master
from snapshot_assets.engine.session_start import may_differ, running_session
from snapshot_assets.engine.spark_place import refuse_local_files
from snapshot_assets.errors import PlanError
from snapshot_assets.pipeline.dagster.spark_session import SparkResource
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.fields import DatabaseReference
from snapshot_assets.plan.location_template import resolve_location
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.spark_settings import MASTER
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource  # see `build`

    from snapshot_assets.engine.compact.run import CompactRun
    from snapshot_assets.engine.export.run import ExportRun, OpenExport
    from snapshot_assets.engine.restore.run import RestoreRun
    from snapshot_assets.engine.runner import SparkRunner

SNAPSHOTS = "snapshots"
"""Resource key of `Snapshots`."""

SPARK = "pyspark"
"""Default resource key of the Spark session, as in dagster-pyspark's examples."""

IO_MANAGER = "snapshot_io_manager"
"""Resource key of the IO manager of all plans."""

PLAN = "snapshots/plan"
"""Metadata of an asset that names the plan whose chunks it writes."""

TABLE = "snapshots/table"
"""Metadata of an asset that is one table of its plan."""


@dataclass
class Snapshots:
    """Opens locations and sources for the assets of one Dagster run.

    Attributes:
        session: Returns the Spark session; None until a step that requires it binds it.
        s3: Endpoint and credentials of `s3://` locations without storage options in the configuration.
        master: Spark's master, if it is known without starting a session.
        spark_key: Resource key of the Spark session.
        started: When the run started: its time in locations, and its windows are those that had closed.
    """

    configuration: Configuration
    run_id: str
    session: Session | None = None
    s3: S3Resource | None = None
    master: str = ""
    spark_key: str = SPARK
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _resource: SparkResource | None = None
    _counting: LoggedProgress | None = None
    _exports: dict[str, OpenExport] = field(default_factory=dict)
    _resources: ExitStack = field(default_factory=ExitStack)
    _restore_runs: dict[str, RestoreRun] = field(default_factory=dict)

    @contextmanager
    def counting(self, doing: str, chunks: int, log: Callable[[str], None]) -> Iterator[Progress]:
        """Count what tasks do until the context ends, and log it every 30 s."""
        self._counting = LoggedProgress(Progress(doing, chunks), log)
        try:
            yield self._counting.progress
        finally:
            self._counting = None

    def count_more(self, chunks: int) -> None:
        """Count with more chunks than `counting` began with."""
        if self._counting is not None:
            self._counting.progress.chunks += chunks

    def stage(self, doing: str, done: int, total: int) -> None:
        """Count what a run does before or after its chunks; see `Progress.stage`."""
        if (counting := self._counting) is not None:
            counting.stage(doing, done, total)

    def _runner(self, plan: str, *databases: DatabaseAddress) -> SparkRunner:
        """Return a runner of tasks that read or write a plan's location, and open databases."""
        from snapshot_assets.engine.executors import modules_of_tasks
        from snapshot_assets.engine.runner import SparkRunner

        def report(report: Report) -> None:
            if (counting := self._counting) is not None:
                counting.report(report)

        def differs() -> bool:
            """Return whether tasks may run in another environment than this process; starts no local session."""
            if self.session is None or self._resource is None:
                return self.session is not None and not (self.master and is_local(self.master))
            return may_differ(self._resource.settings(self._settings(plan)))

        modules = modules_of_tasks(self.store(plan), *(address.uri for address in databases))
        runner = SparkRunner(partial(self.spark, plan), report, modules, differs)
        self._resources.callback(runner.close)
        return runner

    def bind_spark(self, resource: Any) -> None:
        """Use the Spark session of a resource, which starts on first use."""

        def session() -> SparkSession:
            spark: SparkSession = resource.spark_session
            return spark

        self.session = session
        self._resource = resource if isinstance(resource, SparkResource) else None
        if self._resource is None:  # other kinds of resources reveal the master only once a session runs
            self.master = self.master or getattr(resource, "spark_config", {}).get(MASTER, "")

    def spark(self, name: str) -> SparkSession:
        """Return the Spark session of a plan. A project's own resource decides alone what its session is like.

        Raises:
            PlanError: The step does not require the Spark session's resource, or the session runs at another place.
        """
        if self.session is None:
            raise PlanError(f"This step needs Spark and does not require the resource {self.spark_key!r}; require it.")
        return self.session() if self._resource is None else self._resource.session_of(self._settings(name))

    def _settings(self, name: str) -> dict[str, str]:
        return self.configuration.spark_settings(self.configuration.plan(name))

    def plan(self, name: str) -> Plan:
        """Return a plan whose location is that of this run."""
        plan = self.configuration.plan(name)
        if plan.kind != "query":
            return plan
        return plan.changed(to=resolve_location(plan.to, now=self.started, plan=plan.name, run_id=self.run_id))

    def store(self, name: str) -> ObjectStore:
        """Return the store of a plan's location, with the configured storage options, else those of the S3 resource."""
        plan = self.plan(name)
        return self.open_store(plan.to, self.configuration.store_options(plan))

    def open_store(self, uri: str, options: StoreOptions | None) -> ObjectStore:
        """Return a location's store, with these storage options, else those of the S3 resource."""
        if self.s3 is not None and options is None and uri.startswith("s3://"):
            options = options_of(self.s3)
        return open_store(parse_location(uri), options)

    def export_run(self, name: str) -> ExportRun:
        """Return the export run of a plan; nothing is opened."""
        from snapshot_assets.engine.export.run import ExportRun

        plan = self.plan(name)
        address = self._address(plan, plan.source)
        return ExportRun(
            plan=plan,
            address=address,
            store=self.store(name),
            runner=self._runner(name, address),
            run_id=self.run_id,
            session=partial(self.spark, name),
            parallelism=None,
            most_parts=plan.parts_per_chunk,
            started=self.started,
            stage=self.stage,
        )

    def open_export(self, name: str, catalog: Catalog | None = None, *, check_rows: bool = False) -> OpenExport:
        """Return the plan's open export, which all assets of this Dagster run share; see `ExportRun.open`."""
        if name not in self._exports:
            run = replace(self.export_run(name), check_rows=check_rows)
            self._exports[name] = self._resources.enter_context(run.open(catalog))
        return self._exports[name]

    def seal(self, name: str, verify: SealDepth | None, suspects: Set[int]) -> Sealed:
        """Seal a plan's snapshot: from the open export if there is one, else as it is."""
        exported = self._exports.get(name) or self.export_run(name)
        return exported.seal(verify, suspects)

    def restore_run(self, name: str) -> RestoreRun:
        """Return this Dagster run's restore of a plan that has a target, created on first use."""
        if name not in self._restore_runs:
            plan = self.configuration.plan(name)
            if plan.target is None:
                raise PlanError(f"plan {name!r} has no target to restore into; write one", plan=name)
            address = self._address(plan, plan.target)
            self._restore_runs[name] = self.restore_into(plan, address, RestoreSettings.of(plan))
        return self._restore_runs[name]

    def restore_into(self, plan: Plan, address: DatabaseAddress, settings: RestoreSettings) -> RestoreRun:
        """Return a restore of a plan's location into any database; nothing is opened."""
        from snapshot_assets.engine.restore.run import RestoreRun

        return RestoreRun(
            store=self.store(plan.name),
            address=address,
            runner=self._runner(plan.name, address),
            parallelism=plan.parallelism,
            slots=plan.import_slots,
            settings=settings,
            session=partial(self.spark, plan.name),
            stage=self.stage,
        )

    def scratch(self, name: str) -> DatabaseAddress:
        """Return the database beside which a plan's restore drill creates one of its own.

        Raises:
            PlanError: The plan has none, or it is a file and Spark's tasks run on other machines.
        """
        plan = self.configuration.plan(name)
        if plan.scratch is None:
            raise PlanError(f"plan {name!r} has no scratch, beside which its drill creates a database", plan=name)
        return self._address(plan, plan.scratch)

    def compact_run(self, name: str, catalog: Catalog) -> CompactRun:
        """Return a compaction of a plan's location, opened for writing; Spark starts only to merge files."""
        from snapshot_assets.engine.compact.run import CompactRun

        plan = self.configuration.plan(name)
        refuse_local_files(plan.name, plan.to, None, partial(self._master, name))
        return CompactRun(
            catalog,
            self._runner(name),
            self.run_id,
            parallelism=lambda: plan.parallelism or parallel_chunks(self.spark(name)),
        )

    def _address(self, plan: Plan, reference: DatabaseReference) -> DatabaseAddress:
        """Return a database of a plan; refuse a file of this machine if Spark's tasks run on others."""
        address = self.configuration.source(reference)
        refuse_local_files(plan.name, plan.to, address, partial(self._master, plan.name))
        return address

    def _master(self, name: str) -> str | None:
        """Return Spark's master; None in a step without Spark, which starts no tasks."""
        if self.master or self.session is None:
            return self.master or None
        if self._resource is not None and running_session() is None:
            known = known_master(self._resource.settings(self._settings(name)))
            if known is not None:
                return known
        return master_of(self.spark(name))

    def close(self) -> None:
        """Close all open exports, with their connections and database snapshots, and stop listening to tasks."""
        self._exports.clear()
        self._resources.close()


def snapshots_of(context: Any) -> Snapshots:
    """Return the resource from the context of a step that requires it, with Spark if the step requires that, too."""
    snapshots: Snapshots = getattr(context.resources, SNAPSHOTS)
    if (spark := getattr(context.resources, snapshots.spark_key, None)) is not None:
        snapshots.bind_spark(spark)
    return snapshots


def options_of(s3: S3Resource) -> StoreOptions:
    """Return an S3 resource's endpoint, region, credentials and retries as options of a store.

    Raises:
        PlanError: The resource has an option that would have no effect.
    """
    resolved: Any = s3.process_config_and_initialize()
    plain = bool(resolved.endpoint_url and resolved.endpoint_url.startswith("http://"))
    for ignored, name, remedy in (
        (resolved.use_unsigned_session, "use_unsigned_session", "requests are signed; give keys"),
        (not resolved.use_ssl and not plain, "use_ssl=False", "give an endpoint_url that starts with http://"),
        (resolved.verify is False, "verify=False", "set SSL_CERT_FILE to the PEM file of the store's authority"),
    ):
        if ignored:
            raise PlanError(f"The S3Resource's {name} has no effect here: {remedy}.")
    return StoreOptions(
        endpoint=resolved.endpoint_url,
        region=resolved.region_name,
        access_key_id=resolved.aws_access_key_id,
        secret_access_key=resolved.aws_secret_access_key,
        session_token=resolved.aws_session_token,
        profile=resolved.profile_name or None,
        allow_http=plain,
        retries=resolved.max_attempts if "max_attempts" in s3.model_fields_set else None,
    )
