"""Promotes a replica: it becomes a location of its own, which writers accept."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import faults_of_log, scan_log
from snapshot_assets.catalog.replica import Replica, read_marker
from snapshot_assets.errors import DamageError, ReplicaError
from snapshot_assets.format.layout import REPLICA


@dataclass(frozen=True)
class PromotionPlan:
    """What a promotion ends.

    Attributes:
        replica: The marker that it deletes.
        revision: The revision that the location goes on from.
        sealed: Whether that revision is sealed.
    """

    replica: Replica
    revision: int
    sealed: bool


def plan_promotion(catalog: Catalog, *, incomplete: bool = False) -> PromotionPlan:
    """Return what a promotion would do; changes nothing.

    Args:
        catalog: The replica, opened for reading.
        incomplete: Accept a log of which a part was not copied; it must be rebuilt then.

    Raises:
        ReplicaError: The location is no replica.
        DamageError: Its log has a fault, for example because the last replication was interrupted.
    """
    marker = read_marker(catalog.store)
    if marker is None:
        raise ReplicaError(f"{catalog.store.uri} is not a replica; there is nothing to promote.", uri=catalog.store.uri)
    fault = next(iter(faults_of_log(scan_log(catalog.store))), None)
    if fault is not None and not incomplete:
        raise DamageError(
            f"The log of the replica {catalog.store.uri} has a fault, so it was not promoted: {fault[1]} Replicate "
            "again. If the source is lost, promote with --incomplete, and rebuild the log with `snapshots catalog "
            "rebuild`.",
            object=fault[0],
        )
    return PromotionPlan(marker, catalog.state.revision, catalog.state.sealed)


def execute_promotion(catalog: Catalog, plan: PromotionPlan) -> PromotionPlan:
    """Delete the marker."""
    catalog.store.delete(REPLICA)
    return plan
