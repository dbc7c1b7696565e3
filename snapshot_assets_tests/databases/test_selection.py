from __future__ import annotations

import pytest

from snapshot_assets.databases.selection import check_selection, near_names, selects
from snapshot_assets.databases.source import Selection
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.relations import Carrier, TableName

SCHEMAS = ("public", "sales")
RELATIONS = {
    TableName("public", "orders"): ("id", "created_at"),
    TableName("public", "order_items"): ("id",),
    TableName("sales", "invoices"): ("id",),
}


def test_near_names_ignore_letter_case_and_come_best_first() -> None:
    assert near_names("ORDRES", ["orders", "order_items", "zebra"])[0] == "orders"


def test_near_names_of_something_quite_different_are_none() -> None:
    assert near_names("qqq", ["orders"]) == ()


def test_a_selection_of_what_exists_passes() -> None:
    check_selection(
        Selection(
            schemas=("public",),
            tables=(TableName("public", "orders"),),
            time_columns={TableName("public", "orders"): "created_at"},
            carriers={(TableName("public", "orders"), "id"): Carrier.TEXT},
        ),
        SCHEMAS,
        RELATIONS,
    )


def test_an_unknown_schema_is_named_with_its_neighbour() -> None:
    with pytest.raises(UnknownRelationError, match=r"'pubic' does not exist.*'public'"):
        check_selection(Selection(schemas=("pubic",)), SCHEMAS, RELATIONS)


def test_an_unknown_table_is_named_with_its_neighbour() -> None:
    with pytest.raises(UnknownRelationError, match=r"'ordres' does not exist in schema 'public'.*'orders'"):
        check_selection(Selection(tables=(TableName("public", "ordres"),)), SCHEMAS, RELATIONS)


def test_a_table_that_lives_in_another_schema_is_pointed_at() -> None:
    with pytest.raises(UnknownRelationError, match=r"Did you mean 'sales\.invoices'"):
        check_selection(Selection(tables=(TableName("public", "invoices"),)), SCHEMAS, RELATIONS)


def test_a_table_of_an_unknown_schema_is_told_so() -> None:
    with pytest.raises(UnknownRelationError, match=r"no schema 'salse'.*'sales'"):
        check_selection(Selection(tables=(TableName("salse", "invoices"),)), SCHEMAS, RELATIONS)


def test_a_table_outside_the_named_schemas_is_refused() -> None:
    selection = Selection(schemas=("public",), tables=(TableName("sales", "invoices"),))
    with pytest.raises(PlanError, match="not among the schemas 'public'"):
        check_selection(selection, SCHEMAS, RELATIONS)


def test_an_unknown_time_column_is_refused_naming_its_neighbour() -> None:
    selection = Selection(time_columns={TableName("public", "orders"): "create_at"})
    with pytest.raises(PlanError, match=r"no column 'create_at'.*time index.*'created_at'"):
        check_selection(selection, SCHEMAS, RELATIONS)


def test_an_unknown_carrier_column_is_refused() -> None:
    selection = Selection(carriers={(TableName("public", "orders"), "x"): Carrier.TEXT})
    with pytest.raises(PlanError, match=r"no column 'x'.*carrier"):
        check_selection(selection, SCHEMAS, RELATIONS)


def test_tables_narrow_the_schemas_and_an_empty_selection_takes_all() -> None:
    name = TableName("public", "orders")
    assert selects(Selection(), name)
    assert selects(Selection(schemas=("public",)), name)
    assert not selects(Selection(schemas=("sales",)), name)
    assert not selects(Selection(tables=(TableName("public", "order_items"),)), name)
