"""Declarative automation and freshness of a plan's assets, where the plan asks for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg

from snapshot_assets.plan.plan import Plan


def when_missing(plan: Plan) -> dict[str, Any]:
    """Return the settings of an asset that Dagster materializes where it is missing and its last run did not fail."""
    condition = dg.AutomationCondition
    wanted = condition.missing() & ~condition.in_progress() & ~condition.execution_failed()
    return {"automation_condition": wanted.with_label("missing")} if plan.dagster.automation else {}


def when_updated(plan: Plan) -> dict[str, Any]:
    """Return the settings of an asset that Dagster materializes once all upstream partitions are there and newer.

    It waits while the newest result of any check of an upstream partition is that it failed:
    `all_deps_blocking_checks_passed` would be content with one partition whose checks passed.
    """
    condition = dg.AutomationCondition
    damaged = condition.any_deps_match(condition.any_checks_match(condition.check_failed()))
    wanted = condition.eager() & ~damaged
    return {"automation_condition": wanted.with_label("complete and whole")} if plan.dagster.automation else {}


def fresh(plan: Plan, interval: timedelta = timedelta()) -> dict[str, Any]:
    """Return the freshness policy of what a plan's seals make, if the plan has one.

    Args:
        plan: The plan.
        interval: How far apart it is made if all goes well, where that is not with each seal.
    """
    limit = plan.dagster.fresh_for
    return {"freshness_policy": dg.FreshnessPolicy.time_window(fail_window=limit + interval)} if limit else {}
