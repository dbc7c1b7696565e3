"""Reports chunks to Dagster when they are committed, and not when a step ends.

So a run that is terminated or killed leaves Dagster with what was committed. Dagster's own events at the end of a step
would come too late, and a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.pipeline.dagster.dagster_internals import Context, store_events
from snapshot_assets.pipeline.dagster.metadata import chunk_metadata
from snapshot_assets.pipeline.dagster.partitions import key_of_chunk
from snapshot_assets.plan.plan import Plan

CODE_VERSION = "1"
"""Raise it when an asset writes something else, so that Dagster marks its partitions as made by older code."""


NEVER_SEEN = "INITIAL"
"""Dagster's data version of an asset that it never saw materialized or observed."""


def report_chunks(
    context: Context,
    key: dg.AssetKey,
    plan: Plan,
    outcomes: Iterable[Outcome],
    state: State,
    made_from: Mapping[str, str],
) -> None:
    """Store the materializations of the partitions of committed chunks, with the chunks' checksums as their versions.

    Args:
        context: The step or output.
        key: The asset that has the partitions.
        plan: The plan.
        outcomes: The chunks, of one transaction.
        state: The catalog's state after it.
        made_from: Tags; see `made_from_versions`.
    """
    events = []
    for outcome in outcomes:
        metadata = chunk_metadata(outcome, state)
        version, partition = metadata["chunk_checksum"], key_of_chunk(plan, outcome.chunk)
        events.append(materialization(key, metadata, partition, version, made_from))
    store_events(context, events)


def materialization(
    key: dg.AssetKey,
    metadata: Mapping[str, Any],
    partition: str | None = None,
    version: str = "",
    made_from: Mapping[str, str] | None = None,
) -> dg.AssetMaterialization:
    """Return the materialization of an asset, or of one partition, for `store_events`.

    Args:
        key: The asset.
        metadata: The metadata.
        partition: The partition key; None for an asset without partitions.
        version: Identifies the data, such as a chunk's checksum: Dagster treats what was made from the same version as
            up to date.
        made_from: Tags that tell what it was made from; without them, Dagster shows it as unsynced once an upstream
            asset was materialized later.
    """
    tags = dict(made_from or {})
    if version:
        tags |= {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}
    return dg.AssetMaterialization(key, partition=partition, metadata=metadata, tags=tags)


def made_from_versions(inputs: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Return the tags of an event of this package's own assets: Dagster shows it as unsynced once an input differs.

    Args:
        inputs: The version of each upstream asset, none of which has partitions.
    """
    tags = {"dagster/code_version": CODE_VERSION}
    for upstream, known in inputs.items():
        name = upstream.to_user_string()
        tags |= {f"dagster/input_data_version/{name}": known, f"dagster/input_event_pointer/{name}": "NULL"}
    return tags


def made_from_seal(instance: dg.DagsterInstance, manifest: dg.AssetKey, checksum: str) -> dict[str, str]:
    """Return the tags of an event of what was made from a seal, which another deployment may have made.

    Args:
        instance: The instance that has the event.
        manifest: The asset of the seals.
        checksum: That of the seal.
    """
    seen = instance.get_latest_materialization_event(manifest) is not None
    return made_from_versions({manifest: checksum if seen else NEVER_SEEN})
