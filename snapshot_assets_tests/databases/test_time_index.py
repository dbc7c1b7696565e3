from __future__ import annotations

import pytest

from snapshot_assets.databases.columns import choose_time_index
from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError
from snapshot_assets.format.relations import TableName

TABLE = TableName("public", "orders")


def test_the_only_timestamp_column_is_the_time_index() -> None:
    assert choose_time_index(TABLE, {}, timestamps=["at"], dates=["day"]) == "at"


def test_a_table_without_timestamps_is_untimed_even_with_a_date() -> None:
    assert choose_time_index(TABLE, {}, timestamps=[], dates=["birthday"]) is None


def test_the_dimension_decides_among_several_timestamps() -> None:
    assert choose_time_index(TABLE, {}, timestamps=["a", "b"], dimension="b") == "b"


def test_the_plan_overrules_the_dimension() -> None:
    configured = {TABLE: "a"}
    assert choose_time_index(TABLE, configured, timestamps=["a", "b"], dimension="b") == "a"


def test_the_plan_may_name_a_date() -> None:
    assert choose_time_index(TABLE, {TABLE: "day"}, timestamps=["at"], dates=["day"]) == "day"


def test_the_plan_may_declare_a_table_untimed() -> None:
    assert choose_time_index(TABLE, {TABLE: None}, timestamps=["a", "b"], dimension="b") is None


def test_another_tables_configuration_counts_for_nothing() -> None:
    assert choose_time_index(TABLE, {TableName("public", "other"): None}, timestamps=["at"]) == "at"


def test_several_timestamps_without_a_choice_are_an_error_that_lists_them() -> None:
    with pytest.raises(AmbiguousTimeIndexError, match=r"public\.orders.*'created', 'paid'") as caught:
        choose_time_index(TABLE, {}, timestamps=["created", "paid"])
    assert caught.value.attributes["candidates"] == ("created", "paid")


def test_a_configured_column_without_time_is_refused_naming_the_usable_ones() -> None:
    with pytest.raises(PlanError, match=r"'amount'.*'at', 'day'"):
        choose_time_index(TABLE, {TABLE: "amount"}, timestamps=["at"], dates=["day"])
