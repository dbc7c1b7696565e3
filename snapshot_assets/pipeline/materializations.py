"""Reports chunks to Dagster when they are committed, and not when a step ends.

So a run that is terminated or killed leaves Dagster with what was committed. Dagster's own events at the end of a step
would come too late, and a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.chunks import Outcome
from snapshot_assets.pipeline.metadata import chunk_metadata
from snapshot_assets.pipeline.partitions import key_of_chunk
from snapshot_assets.plan.plan import Plan

CODE_VERSION = "1"
"""Raise it when an asset writes something else, so that Dagster marks its partitions as made by older code."""


def report_chunk(
    context: dg.OutputContext | dg.AssetExecutionContext,
    plan: Plan,
    outcome: Outcome,
    state: State,
    inputs: Mapping[dg.AssetKey, str] | None,
) -> None:
    """Store the materialization of the partition of a committed chunk, with the chunk's checksum as its version."""
    metadata = chunk_metadata(outcome, state)
    version, partition = metadata["chunk_checksum"], key_of_chunk(plan, outcome.chunk)
    report_materialization(context, metadata, partition=partition, version=version, inputs=inputs)


def report_materialization(
    context: dg.OutputContext | dg.AssetExecutionContext,
    metadata: Mapping[str, Any],
    *,
    partition: str | None = None,
    version: str = "",
    inputs: Mapping[dg.AssetKey, str] | None = None,
    key: dg.AssetKey | None = None,
) -> None:
    """Store the materialization of an asset, or of one partition, at once.

    Args:
        context: The asset's step or output.
        metadata: The metadata.
        partition: The partition key; None for an asset without partitions.
        version: Identifies the data, such as a chunk's checksum: Dagster treats what was made from the same version as
            up to date.
        inputs: The version of each asset that it was made from, none of which has partitions. Dagster shows it as
            unsynced once one has another version; if they are None, once one was materialized later.
        key: The asset, if it is not that of the context.
    """
    tags = {"dagster/code_version": CODE_VERSION} if inputs is not None else {}
    for upstream, known in (inputs or {}).items():
        name = upstream.to_user_string()
        tags |= {f"dagster/input_data_version/{name}": known, f"dagster/input_event_pointer/{name}": "NULL"}
    if version:
        tags |= {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}
    event = dg.AssetMaterialization(key or context.asset_key, partition=partition, metadata=metadata, tags=tags)
    context.log_event(event)
