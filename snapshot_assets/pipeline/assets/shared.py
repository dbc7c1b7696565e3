"""The Dagster resources that all plans share: `snapshots` and `snapshot_io_manager`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.pipeline.assets.io_manager import SnapshotIOManager
from snapshot_assets.pipeline.dagster.resources import IO_MANAGER, SNAPSHOTS, Snapshots
from snapshot_assets.pipeline.dagster.runs import start_of_run
from snapshot_assets.plan.configuration import Configuration


def shared_resources(configuration: Callable[[], Configuration], *, spark_key: str, **settings: Any) -> dict[str, Any]:
    """Return the resources that the assets, jobs and schedules of all plans need, by key, apart from Spark.

    Args:
        configuration: Returns the sources, storage options and plans; called in each run.
        spark_key: Resource key of the Spark session.
        **settings: Further attributes of `Snapshots`.
    """

    class SnapshotsResource(dg.ConfigurableResource[Snapshots]):
        """Locations and sources of the snapshot plans."""

        # Dagster copies a resource by its fields, which run config shows, so the configuration, with secrets, is none.
        spark_key: str = Field(description="Resource key of the Spark session.")

        def create_resource(self, context: dg.InitResourceContext) -> Snapshots:
            """Return what a run shares; nothing is opened."""
            run_id = context.run.run_id if context.run else ""
            given = {"started": start_of_run(context), **settings}
            return Snapshots(configuration(), run_id, spark_key=self.spark_key, **given)

        @contextmanager
        def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Snapshots]:
            """Close at the end of the run what its steps opened."""
            with closing(self.create_resource(context)) as snapshots:
                yield snapshots

    return {SNAPSHOTS: SnapshotsResource(spark_key=spark_key), IO_MANAGER: SnapshotIOManager(spark_key=spark_key)}
