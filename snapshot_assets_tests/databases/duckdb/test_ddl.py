from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.databases.duckdb import define, type_for
from snapshot_assets.databases.duckdb.types import LEAVES
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DocumentError, UnsupportedTypeError
from snapshot_assets.format.relations import DatabaseSchema, ForeignKey, PrimaryKey, Table, TableName, View
from snapshot_assets.testing.restores import copy, extracted
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, differences, fresh

EVIL = "DROP TABLE main.t"


def table(name: str = "t", *, column: dict[str, object] | None = None, **more: object) -> Table:
    x = {"name": "x", "type": "INTEGER", "arrow_type": "int32", **(column or {})}
    return Table.model_validate({"schema": "main", "name": name, "columns": [x], **more})


def documents(*tables: Table, **more: object) -> DatabaseSchema:
    return DatabaseSchema.model_validate({"database": "duckdb", "tables": tables, **more})


@pytest.mark.parametrize(
    "hostile",
    [
        table(column={"default": f"1); {EVIL}; --"}),
        table(column={"default": "1), evil INTEGER DEFAULT (2"}),
        table(column={"default": "1) FROM secrets WHERE (true"}),
        table(column={"default": "1 --"}),
        table(column={"default": "1 /*"}),
        table(column={"generated": f"x); {EVIL}; --", "generated_kind": "virtual"}),
        table(column={"type": f"INTEGER); {EVIL}; --"}),
        table(column={"type": "INTEGER DEFAULT 5"}),
        table(column={"type": "INTEGER, evil INTEGER"}),
        table(column={"type": "no_such_type"}),
        table(column={"collation": f"NOCASE); {EVIL}; --"}),
        table(checks=[{"name": "c", "definition": f"CHECK(x > 0)); {EVIL}; --"}]),
        table(checks=[{"name": "c", "definition": "PRIMARY KEY (x)"}]),
        table(indexes=[{"name": "i", "definition": f"CREATE INDEX i ON t((x)); {EVIL}; --)"}]),
        table(indexes=[{"name": "i", "definition": EVIL}]),
    ],
    ids=lambda hostile: hostile.model_dump_json(exclude_defaults=True)[:150],
)
def test_text_that_is_not_what_it_claims_to_be_is_refused(hostile: Table) -> None:
    with pytest.raises(DocumentError, match="is refused"):
        define(documents(hostile))


@pytest.mark.parametrize("query", [f"SELECT 1; {EVIL}", EVIL, "COPY t TO 'x'", "", "ATTACH 'x'", "SELECT 1; SELECT 2"])
def test_a_view_that_is_not_one_query_is_refused(query: str) -> None:
    view = View(schema_name="main", name="v", definition=query, columns=table().columns)
    with pytest.raises(DocumentError, match=r"view main\.v"):
        define(documents(views=(view,)))


def test_names_cannot_break_out_of_their_quotes(tmp_path: Path) -> None:
    name = f'x"; {EVIL}; --'
    evil = table(
        name,
        column={"name": name, "comment": f"'; {EVIL}; --"},
        primary_key={"columns": [name]},
        indexes=[{"name": name, "columns": [name], "definition": f"CREATE INDEX i ON t({identifier(name)})"}],
        sequences=[{"schema": name, "name": name, "start": 1, "increment": 1, "minimum": 1, "maximum": 9}],
        comment=f"'; {EVIL}; --",
    )
    definition = define(documents(evil, schemas=[{"name": name}]))
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS snapshot_assets_target; USE snapshot_assets_target")
        connection.execute("CREATE TABLE t (x INTEGER)")
        for statement in (*definition.before, *definition.after):
            connection.execute(statement.sql)
        assert connection.sql("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall() == [("t",), (name,)]


def test_without_expressions_nothing_of_the_documents_runs_as_sql_and_all_of_it_is_listed(tmp_path: Path) -> None:
    origin = make_file(tmp_path / "shop.duckdb", *SHOP)
    schema, again = extracted(origin), fresh(tmp_path)
    definition = copy(schema, origin, again, expressions=False)
    lost = "\n".join(definition.lost)
    for words in (
        "Default of column main.child.id",
        "Default of column main.child.price",
        "Check child_price_check of main.child",
        "Column main.child.twice is no longer generated",
        "Index by_name of main.child",
        "View main.z_first",
    ):
        assert words in lost
    found = extracted(again)
    assert (found.views, found.table(TableName("main", "child")).checks) == ((), ())
    child = found.table(TableName("main", "child"))
    assert [column.default or column.generated for column in child.columns] == [None] * len(child.columns)
    assert [index.name for index in child.indexes] == ["by_day"]
    assert differences(origin, again, schema) == {}


def test_types_are_checked_without_expressions_too() -> None:
    with pytest.raises(DocumentError, match=r"The type of main\.t\.x"):
        define(documents(table(column={"type": f"INTEGER); {EVIL}; --"})), expressions=False)


def test_foreign_keys_that_duckdb_cannot_have_are_listed_and_the_rest_is_made() -> None:
    def key(name: str, table_name: str, schema: str = "main", column: str = "x") -> ForeignKey:
        return ForeignKey(
            name=name,
            columns=("x",),
            referenced_schema=schema,
            referenced_table=table_name,
            referenced_columns=(column,),
        )

    primary = PrimaryKey(columns=("x",))
    one = table("one", primary_key=primary, foreign_keys=[key("circle", "two"), key("gone", "nowhere")])
    two = table("two", primary_key=primary, foreign_keys=[key("back", "one"), key("to_itself", "two")])
    bigger = table("bigger", column={"type": "BIGINT", "arrow_type": "int64"}, foreign_keys=[key("types", "one")])
    keyless = table("keyless", foreign_keys=[key("to_no_key", "bigger")])
    far = Table.model_validate(
        {"schema": "far", "name": "far", "columns": one.columns, "foreign_keys": [key("f", "one")]}
    )
    definition = define(documents(one, two, bigger, keyless, far))
    lost = "\n".join(definition.lost)
    for words in (
        "gone of main.one is left out: main.nowhere is not restored",
        "types of main.bigger is left out: DuckDB requires one type on both sides",
        "to_no_key of main.keyless is left out: its referenced columns are no key of main.bigger",
        "f of far.far is left out: DuckDB has no foreign keys between schemas",
        "to_itself of main.two is left out: DuckDB accepts no row that refers to itself",
        "circles",
    ):
        assert words in lost
    made = [statement.sql for statement in definition.after if "FOREIGN KEY" in statement.sql]
    assert len(made) == 1, made  # one of the two in the circle


SEQUENCES = {
    "a": (["CREATE SEQUENCE a", "CREATE TABLE ta (x INTEGER DEFAULT nextval('a'))", "INSERT INTO ta VALUES (41)"], 42),
    "b": (["CREATE SEQUENCE b START 10", "CREATE TABLE tb (x BIGINT DEFAULT nextval('b'))", "SELECT nextval('b')"], 11),
    "c": (["CREATE SEQUENCE c START 10", "CREATE TABLE tc (x BIGINT DEFAULT nextval('c'))"], 10),
    "d": (
        [
            "CREATE SEQUENCE d INCREMENT -1 MAXVALUE 5 MINVALUE -50 START 5",
            "CREATE TABLE td (x INTEGER DEFAULT nextval('d'))",
            "INSERT INTO td VALUES (-7), (-99), (100)",
        ],
        -8,
    ),
    "e": (["CREATE SEQUENCE e MAXVALUE 3 CYCLE", "SELECT count(nextval('e')) FROM range(4)"], 2),
    "f": (["CREATE SEQUENCE f", "SELECT nextval('f')"], 10),  # the target is further
}


def test_sequences_go_on_after_the_highest_value(tmp_path: Path) -> None:
    origin = make_file(
        tmp_path / "origin.duckdb", *(each for statements, _ in SEQUENCES.values() for each in statements)
    )
    again = make_file(tmp_path / "copy.duckdb", "CREATE SEQUENCE f", "SELECT count(nextval('f')) FROM range(9)")
    copy(extracted(origin), origin, again)
    with duckdb.connect(path_of(again)) as connection:
        found = {name: connection.sql(f"SELECT nextval('{name}')").fetchall()[0][0] for name in SEQUENCES}
    assert found == {name: expected for name, (_, expected) in SEQUENCES.items()}


def test_every_arrow_type_of_duckdbs_own_types_has_a_type_that_holds_it() -> None:
    with duckdb.connect() as connection:
        for leaf in LEAVES.values():
            assert connection.type(type_for(leaf.arrow)).id in LEAVES
        nested = pa.struct([('a "b', pa.list_(pa.map_(pa.string(), pa.decimal128(38, 3)))), ("b", pa.binary(16))])
        assert str(connection.type(type_for(nested))) == 'STRUCT("a ""b" MAP(VARCHAR, DECIMAL(38,3))[], b UUID)'
        assert type_for(pa.decimal256(50, 2)) == "VARCHAR"


@pytest.mark.parametrize("arrow_type", [pa.duration("ns"), pa.struct([]), pa.float16()])
def test_arrow_types_that_no_type_holds_are_refused(arrow_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match="holds"):
        type_for(arrow_type)
