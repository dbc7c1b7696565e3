from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier, DatabaseSchema, TableName
from snapshot_assets.testing.restores import copy, extracted
from snapshot_assets_tests.databases.duckdb.files import make_file, opened, rows_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, fresh

STRANGE_NAME = 'we"ird. ; näme'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> DatabaseAddress:
    return make_file(
        tmp_path_factory.mktemp("extract") / "shop.duckdb",
        *SHOP,
        "CREATE VIEW self_named AS WITH child AS (SELECT * FROM child) SELECT * FROM child",
        """CREATE VIEW counting AS WITH RECURSIVE z_parent(n) AS
            (SELECT 1 UNION ALL SELECT n + 1 FROM z_parent WHERE n < 3)
            SELECT * FROM z_parent""",
    )


@pytest.fixture(scope="module")
def schema(shop: DatabaseAddress) -> DatabaseSchema:
    with opened(shop) as database:
        return database.extract(Selection())


def test_schemas_list_types_and_loose_sequences(schema: DatabaseSchema) -> None:
    assert [each.name for each in schema.schemas] == ["main", "out.side", "shop", STRANGE_NAME]
    options = schema.schemas[0].options
    assert [(each["name"], each["kind"], each["labels"], each["definition"]) for each in options["types"]] == [
        ("mood", "enum", ["sad", "it's", "größe"], {}),
        ("an_alias", "domain", [], {"type": "DECIMAL(9,2)"}),
        ("a_point", "composite", [], {"type": "STRUCT(x INTEGER, m ENUM('sad', 'it''s', 'größe'))"}),
    ]
    assert options["types"][0]["comment"] == "how it 'feels"
    assert [(each["name"], each["last_value"]) for each in options["sequences"]] == [("unused", None)]
    assert schema.schemas[1].options == {}


def test_columns_are_described_in_order(schema: DatabaseSchema) -> None:
    child = schema.table(TableName("main", "child"))
    assert [(each.name, each.type, each.nullable, each.default) for each in child.columns] == [
        ("id", "BIGINT", False, "nextval('numbers')"),
        ("parent", "INTEGER", True, None),
        ("name", "VARCHAR", False, None),
        ("price", "DECIMAL(10,2)", True, "1.5"),
        ("twice", "BIGINT", True, None),
        ("m", "ENUM('sad', 'it''s', 'größe')", True, None),
        ("ts", "TIMESTAMP", True, None),
        ("day", "DATE", True, None),
        ("d", "INTEGER", True, "nextval('down')"),
    ]
    assert (child.column("name").collation, child.column("m").collation) == ("NOCASE", None)
    assert (child.column("name").comment, child.comment) == ("its name", "a 'child'")
    assert child.column("twice").generated_kind == "virtual"
    assert child.column("twice").generated == "CAST((id * 2) AS BIGINT)"


def test_constraints_indexes_and_the_sequence_of_a_default(schema: DatabaseSchema) -> None:
    child, parent = schema.table(TableName("main", "child")), schema.table(TableName("main", "z_parent"))
    assert parent.primary_key is not None
    assert (parent.primary_key.columns, parent.unique[0].columns) == (("id",), ("code", "id"))
    assert [(each.name, each.definition) for each in child.checks] == [("child_price_check", "CHECK((price > 0))")]
    (key,) = child.foreign_keys
    assert (key.columns, key.referenced_schema, key.referenced_table, key.referenced_columns) == (
        ("parent",),
        "main",
        "z_parent",
        ("id",),
    )
    assert [(each.name, each.columns, each.unique) for each in child.indexes] == [
        ("by_day", ("day",), True),
        ("by_name", ("name",), False),
    ]
    assert child.indexes[1].definition.startswith("CREATE INDEX by_name ON child(")
    down, numbers = child.sequences
    assert (numbers.name, numbers.column, numbers.last_value, numbers.increment) == ("numbers", "id", 11, 3)
    assert (numbers.minimum, numbers.maximum, numbers.cycle) == (-10, 1000, True)
    assert (down.name, down.column, down.increment) == ("down", "d", -2)


def test_views_name_the_relations_that_they_read(schema: DatabaseSchema) -> None:
    views = {view.name: view for view in schema.views}
    assert {name: [each.dotted for each in view.depends_on] for name, view in views.items()} == {
        "a_second": ["main.z_first", "main.z_parent"],
        "broken": [],
        "counting": [],
        "self_named": ["main.child"],
        "v": ["main.child", "out.side.deep", f"{STRANGE_NAME}.{STRANGE_NAME}"],
        "z_first": ["main.child"],
    }
    assert [column.name for column in views["a_second"].columns] == ["Its Id", "n"]
    assert views["a_second"].comment == "the second"
    assert views["a_second"].definition.startswith("SELECT z.id, count_star() FROM (z_first AS z INNER JOIN z_parent")
    assert (views["broken"].columns, views["broken"].definition) == ((), "SELECT * FROM doomed")


def test_a_selected_view_is_exported_as_a_table(shop: DatabaseAddress) -> None:
    second = TableName("main", "a_second")
    with opened(shop) as database:
        schema = database.extract(Selection(tables=(second,)))
        assert rows_of(database, schema.table(second)).num_rows == 0
    assert ([table.name for table in schema.tables], schema.views) == (["a_second"], ())
    assert [each.name for each in schema.schemas] == ["main"]
    assert schema.tables[0].options == {"view": True}


def test_selected_schemas_limit_tables_and_views(shop: DatabaseAddress) -> None:
    with opened(shop) as database:
        schema = database.extract(Selection(schemas=("out.side",)))
    assert [table.table_name.dotted for table in schema.tables] == ["out.side.deep"]
    assert (schema.views, [each.name for each in schema.schemas]) == ((), ["out.side"])


def test_overrides_are_checked_and_obeyed(shop: DatabaseAddress) -> None:
    child = TableName("main", "child")
    with opened(shop) as database:
        table = database.extract(
            Selection(tables=(child,), carriers={(child, "ts"): Carrier.TEXT}, time_columns={child: "day"})
        ).table(child)
        with pytest.raises(PlanError, match="'tss'"):
            database.extract(Selection(carriers={(child, "tss"): Carrier.TEXT}))
    assert (table.column("ts").carrier, table.column("ts").arrow_type) == (Carrier.TEXT, "string")
    assert table.time_index == "day"


def test_two_timestamp_columns_need_a_choice(tmp_path: Path) -> None:
    address = make_file(tmp_path / "x.duckdb", "CREATE TABLE t (a TIMESTAMP, b TIMESTAMPTZ)")
    with opened(address) as database, pytest.raises(AmbiguousTimeIndexError) as caught:
        database.extract(Selection())
    assert caught.value.attributes["candidates"] == ("a", "b")


def test_a_schema_inside_another_one_is_refused(tmp_path: Path) -> None:
    address = make_file(tmp_path / "x.duckdb", "CREATE SCHEMA a", "CREATE SCHEMA a.b")
    with pytest.raises(UnsupportedTypeError, match="'b' is inside another schema"), opened(address) as database:
        database.extract(Selection())


def test_macros_and_comments_without_a_place_are_named_and_those_of_view_columns_are_restored(tmp_path: Path) -> None:
    origin = make_file(
        tmp_path / "origin.duckdb",
        "CREATE TABLE t (a INTEGER)",
        "CREATE INDEX i ON t (a)",
        "CREATE SEQUENCE s",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE MACRO Plus(x) AS x + 1, (x, y) AS x + y",
        "CREATE MACRO rows_of(x) AS TABLE SELECT x",
        "COMMENT ON INDEX i IS 'of an index'",
        "COMMENT ON SEQUENCE s IS 'of a sequence'",
        "COMMENT ON COLUMN v.a IS 'of a column'",
    )
    schema = extracted(origin)
    [main] = schema.schemas
    named = ["comment on index main.i", "comment on sequence main.s", "macro main.Plus", "table macro main.rows_of"]
    assert main.options["not_carried"] == named
    target = fresh(tmp_path)
    lost = copy(schema, origin, target).lost
    assert lost == tuple(f"{name[:1].upper()}{name[1:]} is not in a snapshot." for name in named)
    assert extracted(target).views == schema.views
