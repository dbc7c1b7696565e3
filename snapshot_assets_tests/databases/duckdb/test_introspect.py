from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases.source import DatabaseAddress, Selection
from snapshot_assets.errors import AmbiguousTimeIndexError, PlanError, UnknownRelationError, UnsupportedTypeError
from snapshot_assets.format.relations import Carrier, DatabaseSchema, TableName
from snapshot_assets_tests.databases.duckdb.files import make_file, opened, rows_of

STRANGE = 'we"ird. ; name'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> DatabaseAddress:
    quoted = '"we""ird. ; name"'
    return make_file(
        tmp_path_factory.mktemp("extract") / "shop.duckdb",
        "CREATE TYPE mood AS ENUM ('sad', 'it''s')",
        "CREATE TYPE a_point AS STRUCT(x INTEGER, m mood)",
        "CREATE TYPE an_alias AS DECIMAL(9, 2)",
        "COMMENT ON TYPE mood IS 'how it feels'",
        "CREATE SEQUENCE numbers START 5 INCREMENT 3 MINVALUE -10 MAXVALUE 1000 CYCLE",
        "CREATE SEQUENCE unused",
        "CREATE TABLE parent (id INTEGER, code VARCHAR, PRIMARY KEY (id), UNIQUE (code, id))",
        """CREATE TABLE child (
            id BIGINT PRIMARY KEY DEFAULT nextval('numbers'), parent INTEGER REFERENCES parent (id),
            name VARCHAR COLLATE NOCASE NOT NULL, price DECIMAL(10, 2) DEFAULT 1.5 CHECK (price > 0),
            twice BIGINT GENERATED ALWAYS AS (id * 2) VIRTUAL, m mood, ts TIMESTAMP, day DATE)""",
        "COMMENT ON TABLE child IS 'a ''child'''",
        "COMMENT ON COLUMN child.name IS 'its name'",
        "CREATE INDEX by_name ON child (name, (price + 1))",
        "CREATE UNIQUE INDEX by_day ON child (day)",
        "INSERT INTO parent VALUES (1, 'x')",
        "INSERT INTO child (parent, name, ts) VALUES (1, 'A', '2024-01-01'), (1, 'b', NULL)",
        f"CREATE SCHEMA {quoted}",
        f'CREATE TABLE {quoted}.{quoted} ({quoted} INTEGER, "rowid" VARCHAR)',
        f"INSERT INTO {quoted}.{quoted} VALUES (7, 'x')",
        "CREATE SCHEMA outside",
        "CREATE SCHEMA outside.inside",
        "CREATE TABLE outside.inside.deep AS SELECT 1 AS one",
        "CREATE VIEW z_first AS SELECT id, name FROM child",
        """CREATE VIEW a_second ("Its Id", n) AS
            SELECT z.id, count(*) FROM z_first z JOIN parent p ON p.id = z.id GROUP BY 1""",
        "COMMENT ON VIEW a_second IS 'the second'",
        f"""CREATE VIEW {quoted}.v AS WITH parent AS (SELECT * FROM main.child), r AS (SELECT * FROM parent)
            SELECT * FROM r, {quoted} WHERE EXISTS (SELECT 1 FROM outside.inside.deep)""",
        "CREATE VIEW self_named AS WITH child AS (SELECT * FROM child) SELECT * FROM child",
        """CREATE VIEW counting AS WITH RECURSIVE parent(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM parent WHERE n < 3)
            SELECT * FROM parent""",
        "CREATE TABLE doomed AS SELECT 1 AS x",
        "CREATE VIEW broken AS SELECT * FROM doomed",
        "DROP TABLE doomed",
    )


@pytest.fixture(scope="module")
def schema(shop: DatabaseAddress) -> DatabaseSchema:
    with opened(shop) as database:
        return database.extract(Selection())


def test_schemas_carry_what_belongs_to_no_table(schema: DatabaseSchema) -> None:
    assert [each.name for each in schema.schemas] == ["main", "outside", "outside.inside", STRANGE]
    options = schema.schemas[0].options
    assert [(each["name"], each["kind"], each["labels"], each["definition"]) for each in options["types"]] == [
        ("mood", "enum", ["sad", "it's"], {}),
        ("an_alias", "domain", [], {"type": "DECIMAL(9,2)"}),
        ("a_point", "composite", [], {"type": "STRUCT(x INTEGER, m ENUM('sad', 'it''s'))"}),
    ]
    assert options["types"][0]["comment"] == "how it feels"
    assert [(each["name"], each["last_value"]) for each in options["sequences"]] == [("unused", None)]
    assert schema.schemas[1].options == {}


def test_columns_in_order_with_all_that_hangs_on_them(schema: DatabaseSchema) -> None:
    child = schema.table(TableName("main", "child"))
    assert [(each.name, each.type, each.nullable, each.default) for each in child.columns] == [
        ("id", "BIGINT", False, "nextval('numbers')"),
        ("parent", "INTEGER", True, None),
        ("name", "VARCHAR", False, None),
        ("price", "DECIMAL(10,2)", True, "1.5"),
        ("twice", "BIGINT", True, None),
        ("m", "ENUM('sad', 'it''s')", True, None),
        ("ts", "TIMESTAMP", True, None),
        ("day", "DATE", True, None),
    ]
    assert (child.column("name").collation, child.column("m").collation) == ("NOCASE", None)
    assert (child.column("name").comment, child.comment) == ("its name", "a 'child'")
    assert child.column("twice").generated_kind == "virtual"
    assert child.column("twice").generated == "CAST((id * 2) AS BIGINT)"


def test_constraints_indexes_and_the_sequence_of_a_default(schema: DatabaseSchema) -> None:
    child, parent = schema.table(TableName("main", "child")), schema.table(TableName("main", "parent"))
    assert parent.primary_key is not None
    assert (parent.primary_key.columns, parent.unique[0].columns) == (("id",), ("code", "id"))
    assert [(each.name, each.definition) for each in child.checks] == [("child_price_check", "CHECK((price > 0))")]
    (key,) = child.foreign_keys
    assert (key.columns, key.referenced_schema, key.referenced_table, key.referenced_columns) == (
        ("parent",),
        "main",
        "parent",
        ("id",),
    )
    assert [(each.name, each.columns, each.unique) for each in child.indexes] == [
        ("by_day", ("day",), True),
        ("by_name", ("name",), False),
    ]
    assert child.indexes[1].definition.startswith("CREATE INDEX by_name ON child(")
    (sequence,) = child.sequences
    assert (sequence.name, sequence.column, sequence.last_value, sequence.increment) == ("numbers", "id", 8, 3)
    assert (sequence.minimum, sequence.maximum, sequence.cycle) == (-10, 1000, True)


def test_definitions_make_the_same_table_again(schema: DatabaseSchema) -> None:
    child = schema.table(TableName("main", "child"))
    with duckdb.connect() as connection:
        connection.execute("CREATE SEQUENCE numbers; CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        parts = [
            f'"{each.name}" {each.type}'
            + (f" COLLATE {each.collation}" if each.collation else "")
            + (f" DEFAULT ({each.default})" if each.default else "")
            + (f" GENERATED ALWAYS AS ({each.generated}) VIRTUAL" if each.generated else "")
            + ("" if each.nullable else " NOT NULL")
            for each in child.columns
        ]
        assert child.primary_key is not None
        parts += [child.primary_key.definition or "", *(each.definition for each in child.checks)]
        parts += [each.definition or "" for each in child.foreign_keys]
        connection.execute(f"CREATE TABLE child ({', '.join(parts)})")
        for index in child.indexes:
            connection.execute(index.definition)
        assert connection.sql("SELECT count(*) FROM duckdb_constraints() WHERE table_name = 'child'").fetchall() == [
            (5,)
        ]


def test_views_name_what_must_exist_before_them(schema: DatabaseSchema) -> None:
    views = {view.name: view for view in schema.views}
    assert {name: [str(each) for each in view.depends_on] for name, view in views.items()} == {
        "a_second": ["main.parent", "main.z_first"],
        "broken": [],
        "counting": [],
        "self_named": ["main.child"],
        "v": ["main.child", "outside.inside.deep", f"{STRANGE}.{STRANGE}"],
        "z_first": ["main.child"],
    }
    assert [column.name for column in views["a_second"].columns] == ["Its Id", "n"]
    assert views["a_second"].comment == "the second"
    assert views["a_second"].definition.startswith("SELECT z.id, count_star() FROM (z_first AS z INNER JOIN parent")


def test_a_view_that_works_no_longer_keeps_its_definition(schema: DatabaseSchema) -> None:
    (broken,) = (view for view in schema.views if view.name == "broken")
    assert (broken.columns, broken.definition) == ((), "SELECT * FROM doomed")


def test_tables_of_strange_and_nested_names_are_read(shop: DatabaseAddress, schema: DatabaseSchema) -> None:
    with opened(shop) as database:
        strange = rows_of(database, schema.table(TableName(STRANGE, STRANGE)))
        deep = rows_of(database, schema.table(TableName("outside.inside", "deep")))
    assert strange.to_pylist() == [{STRANGE: 7, "rowid": "x"}]
    assert deep.to_pylist() == [{"one": 1}]


def test_generated_columns_are_read_too(shop: DatabaseAddress, schema: DatabaseSchema) -> None:
    with opened(shop) as database:
        rows = rows_of(database, schema.table(TableName("main", "child")))
    assert sorted(zip(*rows.select(["id", "twice"]).to_pydict().values(), strict=True)) == [(5, 10), (8, 16)]


def test_the_time_index_is_the_only_timestamp_column(schema: DatabaseSchema) -> None:
    assert schema.table(TableName("main", "child")).time_index == "ts"
    assert schema.table(TableName("main", "parent")).time_index is None


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
        schema = database.extract(Selection(schemas=("outside.inside",)))
    assert [str(table.table_name) for table in schema.tables] == ["outside.inside.deep"]
    assert (schema.views, [each.name for each in schema.schemas]) == ((), ["outside.inside"])


def test_unknown_names_are_refused_with_near_ones(shop: DatabaseAddress) -> None:
    with opened(shop) as database, pytest.raises(UnknownRelationError, match="'child'"):
        database.extract(Selection(tables=(TableName("main", "chidl"),)))


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


def test_schemas_whose_names_would_be_the_same_text_are_refused(tmp_path: Path) -> None:
    address = make_file(tmp_path / "x.duckdb", "CREATE SCHEMA a", "CREATE SCHEMA a.b", 'CREATE SCHEMA "a.b"')
    with pytest.raises(UnsupportedTypeError, match=r"'a\.b'"), opened(address):
        pass
