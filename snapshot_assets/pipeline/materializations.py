"""Reports chunks to Dagster when they are committed, and not when a step ends.

So a run that is terminated or killed leaves Dagster with what was committed. Dagster's own events at the end of a step
would come too late, and a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.chunks import Outcome
from snapshot_assets.pipeline.dagster_internals import store_materializations
from snapshot_assets.pipeline.metadata import chunk_metadata
from snapshot_assets.pipeline.partitions import key_of_chunk
from snapshot_assets.plan.plan import Plan

CODE_VERSION = "1"
"""Raise it when an asset writes something else, so that Dagster marks its partitions as made by older code."""


Context = dg.OutputContext | dg.AssetExecutionContext
"""A step that reports, or its output."""


def report_chunks(
    context: Context,
    plan: Plan,
    outcomes: Iterable[Outcome],
    state: State,
    inputs: Mapping[dg.AssetKey, str] | None,
) -> None:
    """Store the materializations of the partitions of committed chunks, with the chunks' checksums as their versions.

    Args:
        context: The step or output whose asset has the partitions.
        plan: The plan.
        outcomes: The chunks, of one transaction.
        state: The catalog's state after it.
        inputs: See `materialization`.
    """
    events = []
    for outcome in outcomes:
        metadata = chunk_metadata(outcome, state)
        version, partition = metadata["chunk_checksum"], key_of_chunk(plan, outcome.chunk)
        events.append(materialization(context.asset_key, metadata, partition, version, inputs))
    store_materializations(context, events)


def materialization(
    key: dg.AssetKey,
    metadata: Mapping[str, Any],
    partition: str | None = None,
    version: str = "",
    inputs: Mapping[dg.AssetKey, str] | None = None,
) -> dg.AssetMaterialization:
    """Return the materialization of an asset, or of one partition, for `store_materializations`.

    Args:
        key: The asset.
        metadata: The metadata.
        partition: The partition key; None for an asset without partitions.
        version: Identifies the data, such as a chunk's checksum: Dagster treats what was made from the same version as
            up to date.
        inputs: The version of each asset that it was made from, none of which has partitions. Dagster shows it as
            unsynced once one has another version; if they are None, once one was materialized later.
    """
    tags = {"dagster/code_version": CODE_VERSION} if inputs is not None else {}
    for upstream, known in (inputs or {}).items():
        name = upstream.to_user_string()
        tags |= {f"dagster/input_data_version/{name}": known, f"dagster/input_event_pointer/{name}": "NULL"}
    if version:
        tags |= {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}
    return dg.AssetMaterialization(key, partition=partition, metadata=metadata, tags=tags)
