"""The asset `replica`: a plan's location, copied to a second store after each export."""

# Dagster reads the annotations of assets, so they must not be postponed here.
from collections.abc import Iterator
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.replication.replicate import Replication, replicate
from snapshot_assets.pipeline.assets.checks import INTACT
from snapshot_assets.pipeline.assets.conditions import fresh, when_updated
from snapshot_assets.pipeline.dagster.dagster_internals import CheckResult, StepContext, check_events, store_results
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import with_sizes
from snapshot_assets.pipeline.dagster.partitions import asset_key, plan_asset
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, Snapshots, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

_KEEPS = "What the source deletes stays in the replica."


def replica_asset(plan: Plan) -> dg.AssetsDefinition:
    """Return the asset `<plan>/replica` of a plan that has `replicate_to`."""

    @plan_asset(
        plan,
        "replica",
        **when_updated(plan),
        **fresh(plan),
        required_resource_keys={SNAPSHOTS},
        deps=[asset_key(plan, "manifest")],
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"location": plan.replicate_to, "dagster/uri": plan.replicate_to},
        description=f"Copies what `{plan.replicate_to}` lacks of `{plan.to}`, byte for byte. Every object is hashed on"
        " the way; damage fails the run. "
        + ("Then deletes there what the source deleted." if plan.replicate_delete else _KEEPS),
    )
    def replica(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        snapshots = snapshots_of(context)
        with showing_failures():
            source, target = snapshots.store(plan.name), replica_store(snapshots, plan)
            done = replicate(source, target, delete=plan.replicate_delete, single_writer=plan.single_writer)
            newest = Catalog.open(target).state.newest_seal
        version = dg.DataVersion(newest.seal.checksum) if newest else None
        yield dg.MaterializeResult(metadata=replica_metadata(done), data_version=version)
        record_replicated(context, plan, done)

    return replica


def record_replicated(context: StepContext, plan: Plan, done: Replication) -> None:
    """Record that the replica is whole: a replication fails on damage, and reads again what is on record as damaged."""
    check = dg.AssetCheckKey(asset_key(plan, "replica"), INTACT)
    text = "The replication found every object with its size, and hashed what it copied."
    result = CheckResult(None, True, with_sizes({"hashed_bytes": done.bytes}), text)
    store_results(context, check_events(context.instance, check, [result]))


def replica_store(snapshots: Snapshots, plan: Plan) -> ObjectStore:
    """Return the store of a plan's replica; storage options are found as for its location."""
    return snapshots.open_store(*snapshots.configuration.replica_of(plan))


def replica_metadata(done: Replication) -> dict[str, Any]:
    """Return the metadata of a replica's materialization."""
    return with_sizes(
        {
            "location": dg.MetadataValue.text(done.replica),
            "source": dg.MetadataValue.text(done.source),
            "revision": str(done.revision),
            "previous_revision": str(done.previous),
            "sealed": done.sealed,
            "object_count": done.objects,
            "bytes": done.bytes,
            "transaction_count": done.transactions,
            "deleted_objects": done.deleted,
            "deleted_bytes": done.deleted_bytes,
        }
    )
