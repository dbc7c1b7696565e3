"""The section `dagster` of a plan: what has no effect is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan

START = "2025-01-01T00:00:00Z"
DAYS = {"query": "SELECT * FROM t WHERE at >= :start AND at < :end", "start_time": START}


def plan(**fields: Any) -> Plan:
    return Plan(**{"name": "demo", "source": "duckdb:///srv/a.duckdb", "to": "s3://first/demo"} | fields)


@pytest.mark.parametrize(
    ("dagster", "message"),
    [
        ({"automation": True}, "automation has no effect with kind: query"),
        ({"table_assets": False}, "table_assets has no effect with kind: query"),
        ({"verify_cron": "0 4 * * *"}, "verify_cron has no effect with kind: query"),
        ({"compare_cron": "0 4 * * *"}, "compare_cron has no effect with kind: query"),
        ({"verify_depth": "full"}, "verify_depth has no effect with kind: query"),
        ({"verify_sample": "5%"}, "verify_sample has no effect with kind: query"),
        ({"restore_on": "sealed"}, "restore_on needs a target"),
        ({"drill_cron": "0 4 * * *"}, "drill_cron needs a scratch database"),
    ],
)
@pytest.mark.parametrize("fields", [{"query": "SELECT 1"}, DAYS])
def test_what_has_no_effect_on_a_copy_is_refused(fields: dict[str, Any], dagster: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(kind="query", dagster=dagster, **fields)


@pytest.mark.parametrize("dagster", [{"export_cron": "0 4 * * *"}, {"default_status": "running"}])
def test_what_sets_a_schedule_is_refused_without_windows(dagster: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="only a query that names :start and :end, and is copied to one location"):
        plan(kind="query", query="SELECT 1", dagster=dagster)
    with pytest.raises(PlanError, match="has no effect: only a query"):
        plan(kind="query", to="s3://first/{date}", dagster=dagster, **DAYS)
    assert plan(kind="query", dagster=dagster, **DAYS).dagster.model_fields_set == set(dagster)


def test_late_windows_need_the_export_schedule() -> None:
    late = {"kind": "continuous", "start_time": START, "late_windows": 2}
    with pytest.raises(PlanError, match="remove automation and turn the export schedule on"):
        plan(dagster={"automation": True}, **late)
    assert plan(dagster={"default_status": "running"}, **late).late_windows == 2
    with pytest.raises(PlanError, match="automation: true does not look for what changed in the source; remove"):
        plan(dagster={"automation": True}, **late | {"late_windows": "changed"})


def test_a_plan_may_follow_its_source() -> None:
    follows = {"kind": "continuous", "start_time": START, "late_windows": "changed"}
    assert plan(refresh_for="90d", **follows).refresh_for == timedelta(days=90)
    assert plan(**follows).refresh_for is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "continuous", "late_windows": 2, "refresh_for": "90d"}, "refresh_for: .*write late_windows: changed"),
        (
            {"kind": "continuous", "late_windows": "newer"},
            "late_windows: 'newer' is no number of windows; write one from",
        ),
        ({"kind": "continuous", "late_windows": -1}, "late_windows: -1 is no number of windows"),
        ({"kind": "once", "late_windows": "changed"}, "late_windows: only a continuous plan"),
        ({"source": "asset:daily", "kind": "continuous", "late_windows": "changed"}, "late_windows: has no effect"),
    ],
)
def test_what_cannot_follow_a_source_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(**{"start_time": START} | fields)


@pytest.mark.parametrize("fields", [{"late_windows": 1}, {"lag": "1h"}])
def test_windows_of_a_copy_with_an_end_wait_for_nothing(fields: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="only windows without an end wait for late rows"):
        plan(kind="query", end_time="2025-02-01T00:00:00Z", **DAYS, **fields)
    assert plan(kind="query", **DAYS, **fields).range_kind == "continuous"


@pytest.mark.parametrize("depth", ["quick", "full"])
def test_a_share_needs_a_verification_of_samples(depth: str) -> None:
    with pytest.raises(PlanError, match=f"verify_sample has no effect with verify_depth: {depth}"):
        plan(dagster={"verify_depth": depth, "verify_sample": "5%"})
    assert plan(dagster={"verify_sample": "5%"}).dagster.verify_sample == "5%"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dagster": {"verify_cron": "daily"}}, "'daily' is no cron expression"),
        ({"dagster": {"compare_cron": "weekly"}}, "'weekly' is no cron expression"),
        ({"dagster": {"extend_locks_cron": "weekly"}}, "'weekly' is no cron expression"),
        (
            {"schema_only": True, "dagster": {"compare_cron": "0 4 * * 0"}},
            "no effect on a snapshot without rows; remove",
        ),
        (
            {"source": "asset:reports/daily", "dagster": {"compare_cron": "0 4 * * 0"}},
            "cannot be read again; remove it",
        ),
        ({"dagster": {"restore_on": "sealed"}}, "restore_on needs a target"),
        ({"target": "copy", "dagster": {"restore_on": "a b"}}, "'a b' is no key of an asset; write sealed"),
        ({"scratch": "copy", "dagster": {"drill_cron": "monthly"}}, "'monthly' is no cron expression"),
        ({"dagster": {"drill_cron": "0 4 * * 0"}}, "drill_cron needs a scratch database"),
        ({"target": "copy", "dagster": {"restore_on": "demo/restored"}}, "is what a restore makes"),
        ({"dagster": {"export_cron": "99 4 * * *"}}, "'99 4 [*] [*] [*]' is no cron expression"),
        ({"dagster": {"verify_sample": "a lot"}}, "'a lot' is not a share"),
        ({"dagster": {"export_cron": "0 4-2 * * *"}}, "is no cron expression"),
        ({"dagster": {"export_cron": "0 */0 * * *"}}, "is no cron expression"),
        ({"dagster": {"tags": {"bad key!": "v"}}}, "'bad key!': 'v' is no tag in Dagster"),
        ({"dagster": {"fresh_for": "0s"}}, "0s is no time"),
    ],
)
def test_what_is_wrong_or_has_no_effect_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(**fields)
