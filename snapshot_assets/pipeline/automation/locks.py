"""The op of `<plan>_extend_locks`: extends the locks of a plan's location, and of its replica."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Sequence
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.locks import execute_extension, plan_extension
from snapshot_assets.format.units import time_text
from snapshot_assets.pipeline.assets.replicas import replica_store
from snapshot_assets.pipeline.dagster.failures import joined, showing_failures
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan


def extend_locks_op(plan: Plan, locked: Sequence[str]) -> dg.OpDefinition:
    """Return the op; `locked` are the location, the replica, or both."""

    @dg.op(
        name=f"{plan.name}_extend_all_locks",
        required_resource_keys={SNAPSHOTS},
        description="Locks what is needed for as long again as the storage option `lock` says.",
    )
    def extend_locks(context: dg.OpExecutionContext) -> None:
        facts, failures = dict[str, Any](), list[dg.Failure]()
        for name, uri in (("", plan.to), ("replica_", plan.replicate_to)):
            if uri not in locked:
                continue
            try:  # each whatever became of the other
                with showing_failures():
                    snapshots = snapshots_of(context)
                    catalog = Catalog.open(replica_store(snapshots, plan) if name else snapshots.store(plan.name))
                    done = execute_extension(catalog, plan_extension(catalog))
            except dg.Failure as failure:
                failures.append(failure)
            else:
                facts[f"{name}locked_objects"] = done.run.objects
                facts[f"{name}locked_until"] = time_text(done.run.until)
        if failures:
            raise joined(failures)
        context.add_output_metadata(facts)

    return extend_locks
