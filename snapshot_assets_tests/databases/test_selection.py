from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.selection import check_selection, near_names, selects
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.relations import Carrier, TableName

ORDERS = TableName("public", "orders")
SCHEMAS = ("public", "sales")
RELATIONS = {
    ORDERS: ("id", "created_at"),
    TableName("public", "order_items"): ("id",),
    TableName("sales", "invoices"): ("id",),
}


def test_similar_names_ignore_letter_case_and_come_best_first() -> None:
    assert near_names("ORDRES", ["orders", "order_items", "zebra"])[0] == "orders"
    assert near_names("qqq", ["orders"]) == ()


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(schemas=("pubic",)), r"'pubic' does not exist.*'public'"),
        (Selection(tables=(TableName("public", "ordres"),)), r"'ordres' does not exist in schema 'public'.*'orders'"),
        (Selection(tables=(TableName("public", "invoices"),)), r"Did you mean 'sales\.invoices'"),
        (Selection(tables=(TableName("salse", "invoices"),)), r"no schema 'salse'.*'sales'"),
    ],
)
def test_an_unknown_schema_or_table_is_refused_with_similar_names(selection: Selection, message: str) -> None:
    with pytest.raises(UnknownRelationError, match=message):
        check_selection(selection, SCHEMAS, RELATIONS)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(schemas=("public",), tables=(TableName("sales", "invoices"),)),
            "not among the schemas 'public'",
        ),
        (Selection(time_columns={ORDERS: "create_at"}), r"no column 'create_at'.*time index.*'created_at'"),
        (Selection(carriers={(ORDERS, "x"): Carrier.TEXT}), r"no column 'x'.*carrier"),
    ],
)
def test_a_contradictory_selection_or_an_unknown_column_is_refused(selection: Selection, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_selection(selection, SCHEMAS, RELATIONS)


def test_tables_restrict_the_schemas_and_an_empty_selection_includes_all() -> None:
    assert selects(Selection(), ORDERS)
    assert selects(Selection(schemas=("public",)), ORDERS)
    assert not selects(Selection(schemas=("sales",)), ORDERS)
    assert not selects(Selection(tables=(TableName("public", "order_items"),)), ORDERS)


def test_a_name_that_only_looks_like_one_of_the_database_is_shown_with_the_difference() -> None:
    looks_like_sales = "s\u0430les"

    with pytest.raises(UnknownRelationError) as refused:
        check_selection(Selection(schemas=(looks_like_sales,)), ["sales"], {})

    assert str(refused.value).startswith(r"Schema 's\u0430les' does not exist in the database. Did you mean 'sales'?")
