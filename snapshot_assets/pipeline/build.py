"""From a configuration to Dagster definitions."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from snapshot_assets.configuration import Configuration
from snapshot_assets.pipeline.assets import snapshot_definitions
from snapshot_assets.pipeline.resources import SNAPSHOTS, SPARK, snapshots_resource, spark_resource


def build_definitions(
    configuration: Configuration,
    *,
    spark: dg.ConfigurableResource[Any] | None = None,
    s3: S3Resource | None = None,
    **settings: Any,
) -> dg.Definitions:
    """Return the definitions of all plans of a configuration; nothing connects.

    Args:
        configuration: Sources, storage options and plans.
        spark: The Spark session resource; `spark_resource()` by default.
        s3: Endpoint and credentials of `s3://` locations that the configuration gives none for.
        **settings: Further attributes of `Snapshots`.

    Raises:
        PlanError: A plan's windows cannot be Dagster partitions.

    Example:
        .. code-block:: python

            defs = build_definitions(
                load_configuration("snapshots.yaml"),
                spark=spark_resource(**{"spark.master": "local[8,4]"}),
                s3=S3Resource(endpoint_url="https://minio.example.com"),
            )
    """
    shared = dg.Definitions(
        resources={
            SPARK: spark or spark_resource(),
            SNAPSHOTS: snapshots_resource(configuration, s3=s3, **settings),
        },
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(shared, *(snapshot_definitions(plan) for plan in configuration.plans))
