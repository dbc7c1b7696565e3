"""Plans an operation and executes the plan, as its command does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.delete import RowDeletionPlan, execute_row_deletion, plan_row_deletion
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import GarbagePlan, execute_collection, plan_collection
from snapshot_assets.catalog.operations.maintain_log import (
    PrunePlan,
    UpgradePlan,
    execute_pruning,
    execute_upgrade,
    plan_pruning,
    plan_upgrade,
)
from snapshot_assets.catalog.operations.rollback import RollbackPlan, execute_rollback, plan_rollback
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import TableName


def collect_garbage(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> GarbagePlan:
    return execute_collection(catalog, plan_collection(catalog, grace=grace, unsafe=unsafe))


def delete_rows(catalog: Catalog, table: TableName, predicate: Predicate | str) -> RowDeletionPlan:
    return execute_row_deletion(catalog, plan_row_deletion(catalog, table, predicate))


def expire(catalog: Catalog, **rules: Any) -> ExpiryPlan:
    retention = Retention(**rules) if rules else None
    return execute_expiry(catalog, plan_expiry(catalog, retention))


def prune(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> PrunePlan:
    return execute_pruning(catalog, plan_pruning(catalog, grace=grace, unsafe=unsafe))


def rollback(catalog: Catalog, revision: int, *, undelete: bool = False, discard_newer: bool = False) -> RollbackPlan:
    plan = plan_rollback(catalog, revision, undelete=undelete, discard_newer=discard_newer)
    return execute_rollback(catalog, plan)


def upgrade(catalog: Catalog, version: int | None = None) -> UpgradePlan:
    return execute_upgrade(catalog, plan_upgrade(catalog, version))
