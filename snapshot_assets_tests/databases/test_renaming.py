"""New names of schemas and tables: what is refused, and which name everything gets."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.convert.renaming import Renaming, check_renaming, derived_name
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.relations import DatabaseSchema, Schema, Table, TableName

A, B, C = (TableName("s", name) for name in "abc")


def documents(*names: TableName) -> DatabaseSchema:
    tables = tuple(Table(schema_name=name.schema, name=name.table, columns=()) for name in names)
    schemas = tuple(Schema(name=name) for name in sorted({name.schema for name in names}))
    return DatabaseSchema(database="postgresql", schemas=schemas, tables=tables)


def test_a_rule_for_a_table_precedes_that_of_its_schema() -> None:
    renaming = Renaming.of([("s", "t")], [(A, TableName("u", "x"))])
    assert (renaming.table(A), renaming.table(B)) == (TableName("u", "x"), TableName("t", "b"))
    assert Renaming.parse(renaming.values()) == renaming
    assert not Renaming.of([("s", "s")], [(A, A)])


@pytest.mark.parametrize(
    ("schemas", "tables", "message"),
    [
        ([("a", "c"), ("b", "c")], [], r"schemas a and b are both mapped to c"),
        ([("a", "b"), ("a", "c")], [], r"schema a is mapped to both b and c"),
        ([], [(A, C), (B, C)], r"tables s\.a and s\.b are both mapped to s\.c"),
        ([], [(A, B), (A, C)], r"table s\.a is mapped to both s\.b and s\.c"),
    ],
)
def test_two_names_of_one_and_one_name_of_two_are_refused(
    schemas: list[tuple[str, str]], tables: list[tuple[TableName, TableName]], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        Renaming.of(schemas, tables)


def test_old_names_must_be_in_the_snapshot_and_new_ones_free() -> None:
    schema = documents(A, B, TableName("t", "a"))
    every = {table.table_name for table in schema.tables}
    with pytest.raises(UnknownRelationError, match=r"Schema 'S' is mapped, but is not in the snapshot\. Did you mean"):
        check_renaming(Renaming.of([("S", "x")]), schema, every)
    with pytest.raises(UnknownRelationError, match=r"Table 's\.aa' is mapped, but is not in the snapshot"):
        check_renaming(Renaming.of((), [(TableName("s", "aa"), C)]), schema, every)
    with pytest.raises(PlanError, match=r"Table s\.b is mapped, but is not among the selected tables"):
        check_renaming(Renaming.of((), [(B, C)]), schema, {A})
    with pytest.raises(PlanError, match=r"Table s\.a and table s\.b would both be s\.b"):
        check_renaming(Renaming.of((), [(A, B)]), schema, every)
    with pytest.raises(PlanError, match=r"Table s\.a and table t\.a would both be t\.a"):
        check_renaming(Renaming.of([("s", "t")]), schema, every)
    with pytest.raises(PlanError, match=r"s\.a cannot be mapped into snapshot_assets_ledger"):
        check_renaming(Renaming.of([("s", "snapshot_assets_ledger")]), schema, every)
    objects = schema.tables[0].model_copy(update={"options": {"large_objects": {"page_bytes": 1}}})
    with pytest.raises(PlanError, match=r"s\.a holds large objects, .* do not map it"):
        check_renaming(Renaming.of([("s", "x")]), schema.model_copy(update={"tables": (objects,)}), {A})
    check_renaming(Renaming.of((), [(A, B)]), schema, {A})
    check_renaming(Renaming.of((), [(A, B), (B, A)]), schema, every)
    check_renaming(Renaming.of([("s", "t"), ("t", "s")]), schema, every)


def test_what_belongs_to_a_renamed_table_is_named_after_it() -> None:
    assert derived_name("orders_pkey", "orders", "sold") == "sold_pkey"
    assert derived_name("by_day", "orders", "sold") == "sold_by_day"
    assert derived_name("orders_pkey", "orders", "orders") == "orders_pkey"
    long = [derived_name(f"orders_{'é' * 20}_{number}", "orders", "sold" * 10) for number in range(2)]
    assert long[0] != long[1]
    assert all(len(name.encode()) <= 63 for name in long)
