"""From a configuration to Dagster definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from snapshot_assets.pipeline.assets import snapshot_definitions
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_resource
from snapshot_assets.plan.configuration import Configuration


def build_definitions(
    configuration: Configuration,
    *,
    executor: dg.ExecutorDefinition | dg.Executor | None = None,
    resources: Mapping[str, Any] | None = None,
    s3: S3Resource | None = None,
    **settings: Any,
) -> dg.Definitions:
    """Return the definitions of all plans of a configuration; nothing connects.

    They need a Spark session under the resource key `pyspark`. A project that has one, or an executor, keeps its own:
    leave both out here, and merge.

    Args:
        configuration: Sources, storage options and plans.
        executor: Runs the steps; without one, that of the definitions these are merged with, else Dagster's default.
        resources: Resources to define beside the plans' own, such as `{"pyspark": spark_resource()}`.
        s3: Endpoint and credentials of `s3://` locations that the configuration gives none for.
        **settings: Further attributes of `Snapshots`.

    Raises:
        PlanError: A plan's windows cannot be Dagster partitions.

    Example:
        .. code-block:: python

            configuration = load_configuration("snapshots.yaml")
            alone = build_definitions(
                configuration,
                executor=dg.in_process_executor,
                resources={"pyspark": spark_resource(**{"spark.master": "local[8,4]"})},
                s3=S3Resource(endpoint_url="https://minio.example.com"),
            )
            beside_others = dg.Definitions.merge(your_definitions, build_definitions(configuration))
    """
    shared = dg.Definitions(
        resources={SNAPSHOTS: snapshots_resource(configuration, s3=s3, **settings), **(resources or {})},
        executor=executor,
    )
    return dg.Definitions.merge(shared, *(snapshot_definitions(plan) for plan in configuration.plans))
