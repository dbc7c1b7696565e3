from __future__ import annotations

import pytest

from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName

TABLE = TableName("public", "orders")
OTHER = TableName("public", "other")


@pytest.mark.parametrize(
    ("configured", "timestamps", "dates", "dimension", "chosen"),
    [
        pytest.param({}, ["at"], ["day"], None, "at", id="the only timestamp"),
        pytest.param({}, [], ["birthday"], None, None, id="never a date by default"),
        pytest.param({}, ["a", "b"], [], "b", "b", id="the dimension among several timestamps"),
        pytest.param({TABLE: "a"}, ["a", "b"], [], "b", "a", id="the plan before the dimension"),
        pytest.param({TABLE: "day"}, ["at"], ["day"], None, "day", id="a date of the plan"),
        pytest.param({TABLE: None}, ["a", "b"], [], "b", None, id="untimed by the plan"),
        pytest.param({OTHER: None}, ["at"], [], None, "at", id="the plan for another table"),
    ],
)
def test_the_time_index_is_the_plans_or_the_dimension_or_the_only_timestamp(
    configured: dict[TableName, str | None],
    timestamps: list[str],
    dates: list[str],
    dimension: str | None,
    chosen: str | None,
) -> None:
    assert choose_time_index(TABLE, configured, timestamps=timestamps, dates=dates, dimension=dimension) == chosen


def test_a_configured_column_that_holds_no_time_is_refused_with_the_usable_columns() -> None:
    with pytest.raises(PlanError, match=r"'amount'.*'at', 'day'"):
        choose_time_index(TABLE, {TABLE: "amount"}, timestamps=["at"], dates=["day"])
