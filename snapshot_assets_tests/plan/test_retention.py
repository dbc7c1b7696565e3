"""The retention fields of a plan."""

from datetime import time, timedelta

import pytest

from snapshot_assets.catalog.pins.automatic import SavepointRule, TagRule, Ticks
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan

DAY = timedelta(days=1)


def _plan(retention):
    return Plan(name="demo", source="flights", to="s3://backups/demo", retention=retention)


def _problems(retention):
    with pytest.raises(PlanError) as caught:
        _plan(retention)
    return {".".join(problem.path): problem.message for problem in caught.value.attributes["problems"]}


def test_nothing_is_asked_for_by_default():
    retention = Plan(name="demo", source="flights", to="s3://backups/demo").retention
    assert (retention.rule, retention.tag, retention.savepoint) == (None, None, None)


def test_the_fields_are_rules():
    plan = _plan(
        {
            "keep_last": 3,
            "keep_for": "30d",
            "tag": {
                "create_time": "02:30",
                "create_interval": "7d",
                "name": "weekly-{year}{month}{day}",
                "num_retained_max": 8,
                "default_time_retained": "90d",
            },
            "savepoint": {"create_time": "00:30", "create_interval": "30d", "num_retained_max": 4},
        }
    )
    assert plan.retention.rule == Retention(3, 30 * DAY)
    assert plan.retention.tag.rule == TagRule(Ticks(7 * DAY, time(2, 30)), "weekly-{year}{month}{day}", 8, 90 * DAY)
    assert plan.retention.savepoint.rule == SavepointRule(Ticks(30 * DAY, time(0, 30)), 4)
    document = plan.model_dump(mode="json")
    assert (document["retention"]["tag"]["create_time"], document["retention"]["keep_for"]) == ("02:30", "30d")
    assert Plan(**document) == plan
    assert _plan({"keep_for": "12h"}).retention.rule == Retention(None, DAY / 2)
    assert _plan({"keep_yearly": 2}).retention.rule == Retention(calendar=Calendar(yearly=2))
    assert _plan({"tag": {"keep_daily": 7, "keep_monthly": 12}}).retention.tag.rule == TagRule(
        calendar=Calendar(daily=7, monthly=12)
    )
    assert _plan({"tag": {}}).retention.tag.rule == TagRule()
    assert _plan({"savepoint": {}}).retention.savepoint.rule == SavepointRule()


def test_every_mistake_is_told_where_it_is():
    found = _problems(
        {
            "keep_last": 0,
            "keep_fo": "30d",
            "keep_for": "0s",
            "tag": {
                "create_time": "2:00",
                "create_interval": "36h",
                "name": "{day}",
                "num_retained_max": 0,
                "default_time_retained": "0d",
                "create_tim": "02:00",
            },
            "savepoint": {"create_interval": "0d", "create_time": "24:00", "num_retained_max": 0},
        }
    )
    assert found == {
        "retention.keep_last": "should be greater than or equal to 1, found 0",
        "retention.keep_fo": "is not a field. Did you mean 'keep_for' or 'keep_monthly' or 'keep_last'?",
        "retention.keep_for": "0s is no time; write one such as 12h or 30d, or leave it out",
        "retention.tag.create_time": "'2:00' is not a time of day; write hh:mm in UTC, such as 02:00",
        "retention.tag.create_interval": "36h is not a number of whole days; write 1d or more, such as 1d or 7d",
        "retention.tag.name": "'{day}' gives several days one name; write one with {date}, such as auto-{date}",
        "retention.tag.num_retained_max": "should be greater than or equal to 1, found 0",
        "retention.tag.default_time_retained": "0s is no time; write one such as 12h or 30d, or leave it out",
        "retention.tag.create_tim": "is not a field. Did you mean 'create_time' or 'create_interval'?",
        "retention.savepoint.create_time": "'24:00' is not a time of day; write hh:mm in UTC, such as 02:00",
        "retention.savepoint.num_retained_max": "should be greater than or equal to 1, found 0",
        "retention.savepoint.create_interval": "0s is not a number of whole days; write 1d or more, such as 1d or 7d",
    }
    assert "write such as {keep_for: 30d" in _problems(3)["retention"]


@pytest.mark.parametrize("name", ["{date}", "auto-{date", "auto-{date}-{hour}", "auto {date}", f"{'a' * 91}{{date}}"])
def test_a_name_that_is_no_tag_of_its_day_is_refused(name):
    assert "retention.tag.name" in _problems({"tag": {"name": name}})
