"""Excluded and masked columns: their values are nowhere in a location, and a restore has all else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import PlanError, SnapshotExistsError, UnknownRelationError
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.testing.restores import read_scan
from snapshot_assets_tests.cli.helpers import contents, export, store_of
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.restore.imports import Into

SECRET, PHONE = "kestrel-47", "555-0199"
RANGE: dict[str, Any] = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-02T00:00:00Z"}
STATEMENTS = (
    "CREATE TABLE users (id int PRIMARY KEY, email varchar(40) NOT NULL UNIQUE, password text NOT NULL,"
    " phone varchar(20) NOT NULL CHECK (phone LIKE '555%'), age int CHECK (age > 0))",
    "CREATE INDEX by_password ON users (password)",
    "CREATE INDEX by_age ON users (age)",
    "CREATE UNIQUE INDEX by_phone ON users (phone)",
    f"INSERT INTO users VALUES (1, 'a@x.org', '{SECRET}', '{PHONE}', 30)",
    f"INSERT INTO users VALUES (2, 'b@x.org', '{SECRET}2', '{PHONE}1', NULL)",
    "CREATE VIEW logins AS SELECT id, password FROM users",
    "CREATE VIEW ages AS SELECT id, age FROM users",
    "CREATE VIEW of_logins AS SELECT id FROM logins",
    "CREATE TABLE tmp_1 (a int)",
    "CREATE VIEW of_tmp AS SELECT a FROM tmp_1",
)


@pytest.fixture(params=["duckdb", "postgresql"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with a table of users, and views of it."""
    if request.param == "duckdb":
        return make_file(tmp_path / "source.duckdb", *STATEMENTS).uri
    uri: str = request.getfixturevalue("postgresql_database")
    execute(uri, *STATEMENTS)
    return uri


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "location"


@pytest.fixture
def target(people: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the same kind."""
    if people.startswith("duckdb"):
        return f"duckdb://{tmp_path}/target.duckdb"
    uri: str = request.getfixturevalue("make_postgresql_database")()
    return uri


def schema_of(uri: str) -> str:
    return "main" if uri.startswith("duckdb") else "public"


def plan_of(uri: str, location: Path, **fields: Any) -> Plan:
    schema = schema_of(uri)
    hidden: dict[str, Any] = {
        "exclude_columns": [f"{schema}.users.password"],
        "mask": {f"{schema}.users.phone": "'***' || right(phone, 1)", f"{schema}.users.email": "md5(email)"},
        "exclude_tables": [f"{schema}.tmp_*"],
    }
    return Plan(name="people", source=uri, to=location.as_uri(), **hidden | fields)


def documented(location: Path) -> Any:
    state = Catalog.open(store_of(location)).state
    return read_schema(store_of(location), state.schemas[state.schema_id])


def users(uri: str) -> tuple[Table, dict[int, dict[str, Any]]]:
    with_name = TableName(schema_of(uri), "users")
    database = open_database(DatabaseAddress("any", uri))
    try:
        table = database.extract(Selection(tables=(with_name,))).table(with_name)
        return table, {row["id"]: row for row in read_scan(database, Scan(table, AllRows())).to_pylist()}
    finally:
        database.close()


@pytest.mark.parametrize("written", ["parquet", "csv"])
def test_hidden_values_are_nowhere_and_everything_else_is_restored(
    people: str, target: str, location: Path, written: str
) -> None:
    export(plan_of(people, location, format=written), store_of(location))
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data or PHONE.encode() in data]
    assert verify(store_of(location)).damaged is False
    lost = Into(target).restore(store_of(location)).plan.lost
    table, rows = users(target)
    assert [column.name for column in table.columns] == ["id", "email", "phone", "age"]
    assert {key: (row["phone"], row["age"], len(row["email"])) for key, row in rows.items()} == {
        1: ("***9", 30, 32),
        2: ("***1", None, 32),
    }
    assert table.primary_key is not None  # of a column that is not hidden
    assert (table.unique, [index.name for index in table.indexes]) == ((), ["by_age"])
    assert [column.name for column in table.columns if not column.nullable] == ["id"]
    for name in ("password", "phone", "email", "by_password", "by_phone", "logins", "of_logins", "of_tmp"):
        assert any(name in sentence for sentence in lost), (name, lost)
    assert not any("by_age" in sentence or "view public.ages" in sentence for sentence in lost)


def test_documents_name_what_is_left_out_and_the_manifest_shows_the_plan(people: str, location: Path) -> None:
    export(plan_of(people, location), store_of(location))
    schema, name = documented(location), schema_of(people)
    assert [view.name for view in schema.views] == ["ages"]
    assert [table.name for table in schema.tables] == ["users"]
    assert schema.tables[0].options["masks"] == {"email": "md5(email)", "phone": "'***' || right(phone, 1)"}
    manifest = manifest_of(Catalog.open(store_of(location)).state)
    assert manifest["exclude_columns"] == [f"{name}.users.password"]
    assert manifest["mask"] == {f"{name}.users.email": "md5(email)", f"{name}.users.phone": "'***' || right(phone, 1)"}
    assert manifest["exclude_tables"] == [f"{name}.tmp_*"]
    state = Catalog.open(store_of(location)).state
    assert state.header is not None
    assert state.header.hidden == (
        f"excluded tables {name}.tmp_*",
        f"excluded column {name}.users.password",
        f"masked column {name}.users.email",
        f"masked column {name}.users.phone",
    )


def test_a_changed_mask_is_another_plan(people: str, location: Path) -> None:
    export(plan_of(people, location), store_of(location))
    for changed in ({"exclude_columns": []}, {"mask": {}}, {"exclude_tables": []}):
        with pytest.raises(SnapshotExistsError, match=f"{min(changed)} is .* there and none here.*--force"):
            export(plan_of(people, location, **changed), store_of(location))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"users.age": "'many'"}, "mask of .*users.age is refused"),
        ({"users.age": "nothing"}, "mask of .*users.age is refused"),
        ({"users.age": "max(age)"}, "mask of .*users.age is refused"),  # would make one row of all
        ({"users.agee": "1"}, "no column 'agee'.*'age'"),
        ({"ages.age": "1"}, "ages is exported as the view that it is"),
    ],
)
def test_a_mask_that_the_database_refuses_is_named_before_anything_is_written(
    people: str, location: Path, mask: dict[str, str], message: str
) -> None:
    named = {f"{schema_of(people)}.{column}": sql for column, sql in mask.items()}
    with pytest.raises((PlanError, UnknownRelationError), match=message):
        export(plan_of(people, location, mask=named), store_of(location))
    assert not (location / "transactions").exists()


def test_a_column_that_another_would_reveal_is_refused(tmp_path: Path, postgresql_database: str) -> None:
    statement = "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) {}, ts timestamp)"
    uris = [make_file(tmp_path / "g.duckdb", statement.format("VIRTUAL")).uri, postgresql_database]
    execute(postgresql_database, statement.format("STORED"))
    for number, uri in enumerate(uris):
        name = f"{schema_of(uri)}.t"
        place = tmp_path / str(number)
        for fields, message in (
            ({"exclude_columns": [f"{name}.a"]}, rf"{name}\.b is generated from {name}\.a and would reveal"),
            ({"mask": {f"{name}.a": "1"}}, rf"{name}\.b is generated from {name}\.a and would reveal"),
            ({"mask": {f"{name}.b": "1"}}, "a restore computes its values again"),
            ({"mask": {f"{name}.ts": "NULL"}}, "is the time index"),
        ):
            with pytest.raises(PlanError, match=message):
                export(Plan(name="g", source=uri, to=place.as_uri(), **fields), store_of(place))
        both = Plan(name="g", source=uri, to=place.as_uri(), exclude_columns=[f"{name}.a", f"{name}.b"], **RANGE)
        export(both, store_of(place))
        assert [column.name for column in documented(place).tables[0].columns] == ["ts"]


def test_a_copy_of_a_table_hides_columns_too(people: str, location: Path) -> None:
    schema = schema_of(people)
    fields: dict[str, Any] = {"kind": "query", "query": f"{schema}.users", "format": "csv", "exclude_tables": []}
    plan = plan_of(people, location, **fields)
    run = ExportRun(plan, Configuration().source(plan.source), store_of(location), InlineRunner(), "run")
    assert copy(run).rows == 2
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data or PHONE.encode() in data]


REVEALING = {
    "of_logins_2": "SELECT * FROM logins",
    "renamed": "SELECT b FROM users AS u (a, b)",
    "numbered": "SELECT d FROM (SELECT * FROM users) AS u (a, b, c, d)",
    "counted": "SELECT count(*) AS n FROM tmp_1",
    "star": "SELECT * FROM users",
}
OF_DUCKDB = {
    "whole": "SELECT users FROM users",
    "second": "SELECT #2 FROM users",
    "by_macro": "SELECT secret(1) AS s",
    "by_table_macro": "SELECT * FROM secrets()",
    "by_name": "SELECT * FROM query_table('users')",
}


def test_a_view_whose_rows_are_exported_must_hide_all_its_columns(people: str, location: Path, tmp_path: Path) -> None:
    views = REVEALING | (OF_DUCKDB if people.startswith("duckdb") else {})
    statements = [f"CREATE VIEW {name} AS {query}" for name, query in views.items()]
    if people.startswith("duckdb"):
        macros = (
            "MACRO secret(x) AS (SELECT max(password) FROM users)",
            "MACRO secrets() AS TABLE SELECT * FROM users",
        )
        make_file(tmp_path / "source.duckdb", *(f"CREATE {macro}" for macro in macros), *statements)
    else:
        execute(people, *statements)
    schema = schema_of(people)
    named = [f"{schema}.{view}" for view in ("logins", "of_logins", "of_tmp", *views)]
    with pytest.raises(PlanError) as raised:
        export(plan_of(people, location, tables=[f"{schema}.users", *named]), store_of(location))
    problems = [each for each in raised.value.attributes["problems"] if "is a view whose rows" in each]
    assert {each.split()[0] for each in problems} == set(named)
    assert not (location / "transactions").exists()
    hidden = [f"{schema}.users.password", f"{schema}.logins.password"]
    fields: dict[str, Any] = {"exclude_columns": hidden, "tables": [f"{schema}.users", f"{schema}.logins"]}
    with pytest.raises(PlanError, match=r"\(id are not\)"):
        export(plan_of(people, location, **fields), store_of(location))
    fields["mask"] = {f"{schema}.logins.id": "id", f"{schema}.users.phone": "'***'"}
    export(plan_of(people, location, **fields), store_of(location))
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data]


def test_excluded_names_must_exist_and_patterns_need_not(people: str, location: Path) -> None:
    name = schema_of(people)
    with pytest.raises(UnknownRelationError, match=rf"exclude_tables names {name}\.user, .*{name}\.users"):
        export(plan_of(people, location, exclude_tables=[f"{name}.user"]), store_of(location))
    export(plan_of(people, location, exclude_tables=["nowhere.*"]), store_of(location))


def test_a_type_that_only_a_hidden_column_uses_is_left_out_with_its_labels(people: str, location: Path) -> None:
    statements = (
        f"CREATE TYPE kind AS ENUM ('{SECRET}', 'b')",
        "CREATE TYPE shown AS ENUM ('seen', 'b')",
        "CREATE TABLE typed (id int, k kind[], s shown)",
        "CREATE TABLE tmp_typed (k kind)",
        f"CREATE TABLE defaults (id int, word text DEFAULT '{SECRET}')",
    )
    if people.startswith("duckdb"):
        make_file(Path(people.removeprefix("duckdb://")), *statements)
    else:
        execute(people, *statements)
    schema = schema_of(people)
    hidden = [f"{schema}.users.password", f"{schema}.typed.k"]
    masks = {f"{schema}.users.phone": "NULL", f"{schema}.defaults.word": "'x'"}
    plan = plan_of(people, location, exclude_columns=hidden, mask=masks)
    export(plan, store_of(location))
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data]
    assert any(b"seen" in data for data in contents(location).values())
    named = documented(location).schemas[0].options["not_carried"]
    assert any(each.startswith(f"type {schema}.kind") for each in named)
