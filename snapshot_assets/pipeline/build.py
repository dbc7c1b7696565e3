"""Builds Dagster definitions from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from snapshot_assets.pipeline.assets import snapshot_definitions
from snapshot_assets.pipeline.resources import SNAPSHOTS, Snapshots, snapshots_resource
from snapshot_assets.plan.configuration import Configuration

_SETTINGS = tuple(
    name
    for name in (each.name for each in fields(Snapshots))
    if not name.startswith("_") and name not in ("configuration", "run_id", "session", "s3")
)


def build_definitions(
    configuration: Configuration,
    *,
    executor: dg.ExecutorDefinition | dg.Executor | None = None,
    resources: Mapping[str, Any] | None = None,
    s3: S3Resource | None = None,
    **settings: Any,
) -> dg.Definitions:
    """Return the definitions of all plans of a configuration; nothing connects.

    They need a Spark session under the resource key `pyspark`. If your project has one, or an executor, omit it here
    and merge the definitions.

    Args:
        configuration: Sources, storage options and plans.
        executor: Runs the steps; by default the executor of the merged definitions, else Dagster's default.
        resources: Further resources, such as `{"pyspark": spark_resource()}`.
        s3: Endpoint and credentials of `s3://` locations without storage options in the configuration.
        **settings: Further attributes of `Snapshots`.

    Raises:
        PlanError: A plan's windows cannot be Dagster partitions.
        TypeError: An argument is unknown.

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
    _check_names(settings)
    shared = dg.Definitions(
        resources={SNAPSHOTS: snapshots_resource(configuration, s3=s3, **settings), **(resources or {})},
        executor=executor,
    )
    return dg.Definitions.merge(shared, *(snapshot_definitions(plan) for plan in configuration.plans))


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuse unknown settings before a run starts."""
    for name in settings:
        if name == "spark":
            remedy = "pass the Spark session as resources={'pyspark': spark_resource()}"
        elif name not in _SETTINGS:
            remedy = f"it has executor, resources, s3, {', '.join(_SETTINGS)}"
        else:
            continue
        raise TypeError(f"build_definitions() has no argument {name!r}; {remedy}.")
