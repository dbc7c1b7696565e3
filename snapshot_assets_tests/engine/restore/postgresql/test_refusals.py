"""A dry run and an import refuse all that the target cannot have, in one list, before anything is changed."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import AVAILABLE_EXTENSION, Need, ObjectKey, Statement
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.postgresql.ddl import checked_sql
from snapshot_assets.engine.restore.prepare import rehearse
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RefusedImportError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute

ORDERS = Filters(tables=(TableName("s", "orders"),))
EVERYTHING_FOR_ORDERS = (
    "CREATE FUNCTION s.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
    'CREATE COLLATION s.plain FROM "C"',
    "CREATE TABLE s.orders (t timestamptz, id int DEFAULT s.f(1) CHECK (s.f(id) > 0), label text COLLATE s.plain)",
    "CREATE INDEX by_f ON s.orders (s.f(id))",
    "INSERT INTO s.orders VALUES ('2025-01-01 01:00:00Z', 1, 'a')",
)


@pytest.fixture
def place(place: Place) -> Place:
    execute(place.source, "CREATE SCHEMA s")
    return place


NEW_CLAUSE = (
    "CREATE TABLE s.orders (t timestamptz, id int)",
    "CREATE INDEX by_id ON s.orders (id)",
    "CREATE UNIQUE INDEX by_id_and_time ON s.orders (id, t)",
    "CREATE VIEW s.seen AS SELECT id FROM s.orders",
    "INSERT INTO s.orders VALUES ('2025-01-01 01:00:00Z', 1)",
)


def test_an_index_that_cannot_be_checked_fails_alone_until_it_is_made_by_hand(
    place: Place, into: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(place.source, *NEW_CLAUSE)
    place.export()
    monkeypatch.setattr(checked_sql, "INDEX", re.compile(f"{checked_sql.INDEX.pattern}(?<!, t\\))", re.DOTALL))
    run = into.run(place.store)
    plan = run.prepare(depth="full", rehearse=True)
    [foreseen] = plan.rehearsal.failed
    assert str(foreseen.statement.key) == "index by_id_and_time of s.orders"
    run.begin()
    list(run.restore())
    with pytest.raises(SchemaIncompleteError) as raised:
        run.finish()
    [failed] = raised.value.attributes["steps"]
    assert failed["object"] == "index by_id_and_time of s.orders"
    assert failed["message"].startswith("index by_id_and_time of s.orders is refused: the snapshot gives ")
    assert failed["message"].endswith("Read the statement before you run it by hand")
    assert failed["statements"] == ["CREATE UNIQUE INDEX by_id_and_time ON s.orders USING btree (id, t)"]
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = 's'"
    with client(into.uri) as sql:
        assert sql(f"SELECT (SELECT count(*) FROM s.seen), ({indexes})") == [(1, 1)]
        sql(*failed["statements"])
    again = into.run(place.store)
    again.begin()
    list(again.restore())
    assert again.finish()
    assert again.failed_steps() == []


def test_tables_that_cannot_be_checked_are_refused_in_one_list(place: Place, into: Into) -> None:
    execute(
        place.source,
        "CREATE VIEW s.v AS SELECT 1 AS a",
        "CREATE TABLE s.one (t timestamptz, x s.v)",
        "CREATE TABLE s.two (t timestamptz, x s.v)",
        "CREATE TABLE s.three (t timestamptz, n int)",
    )
    place.export()
    reasons = raised_reasons(str(refusal(place, into)))
    assert [reason.partition(" could not be made: ")[0] for reason in reasons] == ["- table s.one", "- table s.two"]
    execute(into, "CREATE SCHEMA s", "CREATE TABLE s.one (t timestamptz, x text)")
    assert "table s.two could not be made: s.two.x holds rows of the type of view s.v" in str(refusal(place, into))


def refusal(place: Place, into: Into, **settings: object) -> SnapshotError:
    """Return the error of a dry run; an import ends with the same one, and neither changes the target."""
    before = objects(into)
    errors = []
    for attempt in (lambda run: run.prepare(depth="full", rehearse=True), lambda run: run.begin()):
        with pytest.raises(SnapshotError) as raised:
            attempt(into.run(place.store, **settings))
        errors.append(raised.value)
    assert (type(errors[0]), str(errors[0])) == (type(errors[1]), str(errors[1]))
    assert objects(into) == before
    return errors[0]


def raised_reasons(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def objects(into: Into) -> list[tuple[object, ...]]:
    with client(into.uri) as run:
        return run(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname !~ '^pg_' UNION ALL SELECT nspname, '' FROM pg_namespace WHERE nspname !~ '^pg_'"
            " ORDER BY 1, 2"
        )


def test_missing_objects_are_listed_with_their_users_and_statements(place: Place, into: Into) -> None:
    execute(place.source, *EVERYTHING_FOR_ORDERS)
    place.export()
    error = refusal(place, into)
    assert isinstance(error, RefusedImportError)
    found = {each["object"]: each for each in error.attributes["missing"]}
    assert set(found) == {"function s.f(integer)", "collation s.plain"}
    assert found["function s.f(integer)"]["tables"] == ["s.orders"]
    for words in ("check orders_id_check of s.orders", "default of column s.orders.id", "index by_f of s.orders"):
        assert words in str(error)
    execute(into.uri, *(statement for each in error.attributes["missing"] for statement in each["sql"]))
    assert into.restore(place.store).finished
    assert into.tables()["orders"]["label"].to_pylist() == ["a"]


def test_what_fails_because_of_a_missing_object_is_not_listed_again_and_all_else_is(into: Into) -> None:
    a, b, c, d, e, g = (TableName("s", name) for name in "abcdeg")
    needs = [
        Need("function", "s.f(integer)", (a,), ("default of column s.a.x",)),
        Need("operator", "s.=~(integer,integer)", (a, b)),
        Need("type", "s.f", (d,)),
        Need("function", "lib.g(integer)", (g,)),
        Need(AVAILABLE_EXTENSION, "nowhere", (e,), ("table s.e",)),
    ]
    statements = [
        Statement(ObjectKey("schema", "s"), "CREATE SCHEMA s"),
        Statement(ObjectKey("extension", "nowhere"), "CREATE EXTENSION nowhere"),
        Statement(ObjectKey("table", a), "CREATE TABLE public.a (x int DEFAULT s.f(1))", a),
        Statement(ObjectKey("table", b), "CREATE TABLE public.b (x int CHECK (x OPERATOR(s.=~) 1))", b),
        Statement(ObjectKey("table", c), "CREATE TABLE public.c (x int DEFAULT another_function())", c),
        Statement(ObjectKey("table", d), "CREATE TABLE public.d (x s.f)", d),
        Statement(ObjectKey("table", e), "CREATE TABLE public.e (x geometry)", e),
        Statement(ObjectKey("table", g), "CREATE TABLE public.g (x int DEFAULT lib.g(1))", g),
        Statement(ObjectKey("index", "i", c), "CREATE INDEX i ON public.c (x)", c),
    ]
    with closing(open_target(into.address)) as target:
        errors, rehearsal = rehearse(target, statements, needs)
        assert [error.attributes["makes"] for error in errors] == ["table s.c"]
        assert rehearsal.failed == ()
        errors, _ = rehearse(target, statements, ())
    assert len(errors) == 7


def test_renamed_tables_need_objects_of_the_old_names_and_their_own_statements_are_rehearsed(
    place: Place, into: Into
) -> None:
    execute(place.source, *EVERYTHING_FOR_ORDERS)
    place.export()
    renamed = Filters(renaming=Renaming.of(schemas=[("s", "t")]))
    execute(into.uri, "CREATE SCHEMA t", "CREATE TYPE t.orders AS (y int)")
    error = refusal(place, into, filters=renamed)
    found = {each["object"]: each for each in error.attributes["missing"]}
    assert set(found) == {"function s.f(integer)", "collation s.plain"}
    assert found["function s.f(integer)"]["tables"] == ["t.orders"]
    assert "t.orders is a type in the target" in str(error)
    made = (statement for each in found.values() for statement in each["sql"])
    execute(into.uri, "DROP TYPE t.orders", "CREATE SCHEMA IF NOT EXISTS s", *made)
    assert into.restore(place.store, filters=renamed).finished


def test_what_only_an_index_needs_is_listed_by_a_dry_run_and_fails_alone(place: Place, into: Into) -> None:
    execute(
        place.source,
        EVERYTHING_FOR_ORDERS[0],
        "CREATE TABLE s.orders (t timestamptz, id int)",
        "CREATE INDEX by_f ON s.orders (s.f(id))",
        "INSERT INTO s.orders VALUES ('2025-01-01 01:00:00Z', 1)",
    )
    place.export()
    plan = into.run(place.store).prepare(depth="full", rehearse=True)
    assert [str(each.statement.key) for each in plan.rehearsal.failed] == ["index by_f of s.orders"]
    [lacking] = plan.lacking
    assert lacking.label == "function s.f(integer)"
    with pytest.raises(SchemaIncompleteError, match=r"index by_f of s\.orders could not be made"):
        into.restore(place.store)
    assert into.tables()["orders"]["id"].to_pylist() == [1]
    execute(into.uri, *lacking.sql)
    assert into.restore(place.store).finished


def test_a_table_that_exists_needs_nothing(place: Place, into: Into) -> None:
    execute(place.source, *EVERYTHING_FOR_ORDERS)
    place.export()
    execute(into.uri, "CREATE SCHEMA s", "CREATE TABLE s.orders (t timestamptz, id int, label text)")
    assert into.restore(place.store).finished


def test_without_expressions_the_rest_is_restored(place: Place, into: Into) -> None:
    execute(place.source, *EVERYTHING_FOR_ORDERS)
    place.export()
    execute(into.uri, "CREATE SCHEMA s", 'CREATE COLLATION s.plain FROM "C"')
    assert into.restore(place.store, filters=Filters(expressions=False)).finished


def test_all_refusals_are_one_list(place: Place, into: Into) -> None:
    execute(
        place.source,
        *EVERYTHING_FOR_ORDERS,
        "CREATE TYPE s.mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE s.filled (id int, mood s.mood)",
        "CREATE TABLE s.viewed (id int)",
        "CREATE TABLE s.typed (id int)",
    )
    place.export()
    execute(
        into.uri,
        "CREATE SCHEMA s",
        "CREATE TYPE s.mood AS ENUM ('sad')",
        "CREATE TABLE s.filled (id int, mood s.mood)",
        "INSERT INTO s.filled VALUES (1, 'sad')",
        "CREATE VIEW s.viewed AS SELECT 1 AS id",
        "CREATE TABLE s.typed (id text)",
    )
    text = str(refusal(place, into))
    for words in (
        "function s.f(integer)",
        "Type s.mood is in the target without 'happy'",
        "Target tables hold rows that no import of this snapshot put there: s.filled",
        "s.viewed is a view in the target",
        "s.typed.id is text, not integer",
    ):
        assert words in text


def test_what_only_the_server_knows_is_refused_too(place: Place, into: Into) -> None:
    """A name that is taken, and a snapshot of an earlier version, which records no needs."""
    execute(
        place.source, "CREATE TYPE s.a_type AS (x int)", "CREATE TABLE s.b (x s.a_type)", "CREATE TABLE s.c (x int)"
    )
    place.export()
    execute(into.uri, "CREATE SCHEMA s", "CREATE TABLE s.other (x int)", "CREATE INDEX c ON s.other (x)")
    assert "s.c is a index in the target" in str(refusal(place, into))
    execute(into.uri, "DROP TABLE s.other", "CREATE TYPE s.b AS (y int)")
    assert "s.b is a type in the target" in str(refusal(place, into))


def test_a_user_without_rights_is_refused_before_anything_is_loaded(
    place: Place, into: Into, role: tuple[str, Into]
) -> None:
    execute(place.source, "CREATE TABLE s.orders (id int)", "CREATE TABLE s.others (id int)")
    place.export()
    execute(into.uri, "CREATE SCHEMA s")
    text = str(refusal(place, role[1]))
    assert "table s.orders could not be made: permission denied for schema s" in text
    assert "table s.others could not be made: permission denied for schema s" in text
    assert "the ledger's schema could not be made: permission denied for database" in text
    assert len(raised_reasons(text)) == 3


def test_a_dry_run_lists_what_would_fail_after_the_rows(place: Place, into: Into) -> None:
    execute(
        place.source,
        "CREATE TABLE s.orders (id int)",
        "CREATE TABLE s.others (id int)",
        "CREATE INDEX taken ON s.orders (id)",
        "CREATE VIEW s.seen AS SELECT id FROM s.orders",
    )
    place.export()
    execute(into.uri, "CREATE SCHEMA s", "CREATE TABLE s.taken (x int)")
    plan = into.run(place.store).prepare(depth="full", rehearse=True)
    assert [str(each.statement.key) for each in plan.rehearsal.failed] == ["index taken of s.orders"]
    assert "already exists" in plan.rehearsal.failed[0].message
    execute(into.uri, "CREATE VIEW s.others AS SELECT 1 AS id")
    with pytest.raises(RefusedImportError, match=r"taken of s\.orders would fail: .* exists") as raised:
        into.run(place.store).prepare(depth="full", rehearse=True)
    assert "s.others is a view in the target" in str(raised.value)


LONG = (
    ("varchar(20)", "varchar(5)", "'sixsix'", "'fives'"),
    ("text", "varchar(5)", "'größer'", "'größe'"),
    ("char(6)", "char(5)", "'sixsix'", "'five  '"),
    ("bit varying(9)", "bit varying(3)", "B'1010'", "B'101'"),
    ("numeric(10,2)", "numeric(4,2)", "-100.5", "-99.99"),
)
"""Types of the snapshot and of the target, a value that is too long for the latter, and one that fits."""


@pytest.mark.slow
def test_values_that_are_too_long_for_existing_columns_are_refused(place: Place, into: Into) -> None:
    wanted, there = (", ".join(f"v{number} {each[side]}" for number, each in enumerate(LONG)) for side in (0, 1))
    longer, fitting = (", ".join(each[which] for each in LONG) for which in (2, 3))
    insert = "INSERT INTO s.orders VALUES ('2025-01-0{} 01:00:00Z', 'x', {})"
    execute(
        place.source,
        f"CREATE TABLE s.orders (t timestamptz, other varchar(9), {wanted})",
        insert.format(1, fitting),
        insert.format(2, ", ".join(["NULL"] * len(LONG))),
    )
    place.export()
    execute(into.uri, "CREATE SCHEMA s", f"CREATE TABLE s.orders (t timestamptz, other varchar(5), {there})")
    into.run(place.store).prepare()
    execute(place.source, insert.format(3, longer))
    place.export(chunks=[3], replace=True)
    reasons = raised_reasons(str(refusal(place, into)))
    assert [reason.partition(" is ")[0] for reason in reasons] == [
        f"- Column s.orders.v{number}" for number in range(len(LONG))
    ]
    assert all("Values that are longer: 1; the longest has" in reason for reason in reasons)
    for number, (kind, *_) in enumerate(LONG):
        execute(into.uri, f"ALTER TABLE s.orders ALTER v{number} TYPE {kind}")
    assert into.restore(place.store).finished


def test_names_that_postgresql_would_cut_are_refused(into: Into, tmp_path: Path) -> None:
    place = Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location")
    name = "ü" * 32
    execute(place.source, "CREATE SCHEMA s", f'CREATE TABLE s."{name}" (id INTEGER)')
    place.export()
    assert f"Table s.{name} has a name of 64 bytes" in str(refusal(place, into))


def test_a_row_type_of_a_table_that_is_not_chosen_must_exist(place: Place, into: Into) -> None:
    execute(place.source, "CREATE TABLE s.zones (id int)", "CREATE TABLE s.orders (t timestamptz, zone s.zones)")
    place.export()
    named = refusal(place, into, filters=ORDERS)
    assert "type s.zones, for s.orders" in str(named)
