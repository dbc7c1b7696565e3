"""Restores into existing tables, of an earlier restore or of another user."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.engine.restore.row_counts import differences
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import extracted, restore
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, only_duckdb
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(pair: tuple[Place, Into]) -> tuple[Place, Into]:
    """A source and a target of the same kind; the source has an empty schema `s`."""
    execute(pair[0].source, "CREATE SCHEMA s")
    return pair


ORDERS = Filters(tables=(TableName("s", "orders"),))
OTHERS = {"a": "bigint", "b": "integer", "c": "date"}


def test_a_sequence_is_set_past_what_a_later_import_loaded_too(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(
        place.source,
        "CREATE SEQUENCE s.numbers",
        "CREATE TABLE s.orders (t TIMESTAMPTZ, id BIGINT DEFAULT nextval('s.numbers'))",
        "INSERT INTO s.orders (t) SELECT '2025-01-01 01:00:00Z' FROM generate_series(1, 100)",
    )
    place.export()
    assert into.restore(place.store, filters=ORDERS).finished
    execute(place.source, "INSERT INTO s.orders (t) SELECT '2025-01-05 01:00:00Z' FROM generate_series(1, 100)")
    place.export(chunks=[5], replace=True)
    assert into.restore(place.store, filters=ORDERS, replace=True).finished
    execute(into.uri, "INSERT INTO s.orders (t) VALUES (NULL)")
    assert sorted(into.tables()["orders"]["id"].to_pylist()) == list(range(1, 202))


def test_columns_of_other_types_are_refused_by_name_before_anything_is_recorded(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(place.source, "CREATE TABLE s.orders (t TIMESTAMPTZ, n bigint, a bigint, b integer, c date)")
    place.export()
    there = "CREATE TABLE s.orders (t TIMESTAMPTZ, n bigint, a double precision, b real, c integer)"
    execute(into.uri, "CREATE SCHEMA s", there)
    a, b, c = (rf"s\.orders\.{name} is \w+(?: precision)?, not {kind}" for name, kind in OTHERS.items())
    with pytest.raises(RestoreError, match=rf"(?i)other types .*: {a}; {b}; {c}\. Alt"):
        into.run(place.store, filters=ORDERS).prepare()
    assert into.imports() == []


def test_types_that_differ_in_name_or_length_only_are_accepted(
    make_postgresql_database: MakeDatabase, tmp_path
) -> None:
    place, into = Place(make_postgresql_database(), tmp_path / "location"), Into(make_postgresql_database())
    execute(
        place.source,
        "CREATE SCHEMA s",
        'CREATE DOMAIN s."whole Number" AS int8',
        'CREATE DOMAIN s.positive AS s."whole Number"',
        "CREATE TYPE s.mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN s.money AS numeric(10, 2)",
        "CREATE TABLE s.orders (t timestamptz(3), id serial, n s.positive, name varchar(20), note text, mood s.mood,"
        " price numeric(10, 2), exact s.positive, cost s.money)",
        "INSERT INTO s.orders VALUES ('2025-01-01 01:00:00Z', 1, 2, 'a', 'b', 'sad', 1.25, 3, 4.75)",
    )
    place.export()
    execute(
        into.uri,
        "CREATE SCHEMA s",
        "CREATE DOMAIN s.own AS bigint",
        "CREATE TYPE s.mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE s.orders (t timestamptz, id int4, n int8, name text, note varchar, mood s.mood, price numeric,"
        " exact s.own, cost numeric(10, 2))",
    )
    assert into.restore(place.store, filters=ORDERS).finished
    [row] = into.tables()["orders"].to_pylist()
    assert (row["id"], row["n"], row["name"], row["note"], row["exact"]) == (1, 2, "a", "b", 3)


ROUNDING = (
    ("numeric(10, 2)", "numeric(10, 1)"),
    ("numeric", "numeric(10, 5)"),
    ("time", "time(3)"),
    ("interval", "interval(0)"),
    ("text", "text GENERATED ALWAYS AS (id::text) STORED"),
)


def test_columns_that_would_round_or_reject_values_are_refused(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place, into = Place(make_postgresql_database(), tmp_path / "location"), Into(make_postgresql_database())
    for uri, side in ((place.source, 0), (into.uri, 1)):
        columns = ", ".join(f"c{number} {both[side]}" for number, both in enumerate(ROUNDING))
        execute(uri, "CREATE SCHEMA s", f"CREATE TABLE s.orders (t timestamptz, id int, {columns})")
    place.export()
    with pytest.raises(RestoreError) as raised:
        into.run(place.store, filters=ORDERS).prepare()
    for number, (wanted, there) in enumerate(ROUNDING):
        assert re.search(rf"s\.orders\.c{number} is {there[:4]}.*, not {re.escape(wanted[:8])}", str(raised.value))
    assert into.imports() == []


@only_duckdb
@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("t TIMESTAMPTZ", 'the target lacks "my name", id'),
        ('t TIMESTAMPTZ, id bigint, "my name" text, more int, "a.b" int', 'the snapshot lacks "a.b", more'),
        ("t TIMESTAMPTZ, id bigint, more int", 'the target lacks "my name", and the snapshot lacks more'),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_columns_that_one_side_lacks(
    pair: tuple[Place, Into], columns: str, found: str
) -> None:
    place, into = pair
    execute(place.source, 'CREATE TABLE s.orders (t TIMESTAMPTZ, id bigint, "my name" text)')
    place.export()
    execute(into.uri, "CREATE SCHEMA s", f"CREATE TABLE s.orders ({columns})")
    with pytest.raises(RestoreError, match=rf"s\.orders is in the target with other columns: {found}\. Alter it"):
        into.run(place.store, filters=ORDERS).prepare()
    assert into.imports() == []


@only_duckdb
def test_a_view_with_the_name_of_a_table_is_refused_as_a_view(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(place.source, "CREATE TABLE s.orders (t TIMESTAMPTZ, id BIGINT)")
    place.export()
    execute(into.uri, "CREATE SCHEMA s", "CREATE VIEW s.orders AS SELECT 'x' AS t")
    with pytest.raises(RestoreError, match=r"s\.orders is a view in the target; expected a table"):
        into.run(place.store, filters=ORDERS, into_nonempty=True).prepare()
    assert into.imports() == []


AS_TEXTS = {"schemas": ("s",), "carriers": {"s.orders.t": "text"}, "null_time": "chunk0"}


def with_times_as_texts(source: str, folder: Path) -> tuple[Place, Into]:
    """Return a source whose times `AS_TEXTS` exports as text, with an untimed table, and an empty DuckDB target."""
    execute(
        source,
        "CREATE SCHEMA s",
        "CREATE TABLE s.orders (t timestamptz, id int)",
        "INSERT INTO s.orders SELECT '2025-01-01 01:00:00Z'::timestamptz + i * interval '1 day', i"
        " FROM generate_series(0, 2) i",
        "CREATE TABLE s.places (id int)",
        "INSERT INTO s.places VALUES (1)",
    )
    return Place(source, folder / "location"), Into(f"duckdb://{folder}/t.duckdb")


def test_tables_whose_times_become_texts_are_counted_whole_and_never_replaced(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place, into = with_times_as_texts(make_postgresql_database(), tmp_path)
    execute(place.source, "INSERT INTO s.orders VALUES (NULL, 7)", "CREATE TABLE s.without_columns ()")
    place.export(**AS_TEXTS)
    restored = into.restore(place.store)
    assert restored.finished
    prepared = into.run(place.store).prepare()
    assert any("s.without_columns is left out" in each for each in prepared.lost)
    assert any("Chunks of s.orders cannot be replaced" in each for each in prepared.lost)
    assert all(expected == found for expected, found in restored.run.check_counts().values())
    with restored.run.target() as target:
        assert differences(target, prepared, (0, 1, 2)) == {0: {}, 1: {}, 2: {}}
    execute(into.uri, "DELETE FROM s.orders WHERE id = 2")
    with restored.run.target() as target:
        assert differences(target, prepared, (0, 3)) == {0: {TableName("s", "orders"): (4, 3)}, 3: {}}
    with pytest.raises(RestoreError, match=r"Chunk 1 cannot be replaced: s\.orders has no time index"):
        into.restore(place.store, [1], again=True)


def test_replacing_chunk_0_keeps_the_rows_of_windows(make_postgresql_database: MakeDatabase, tmp_path: Path) -> None:
    place, into = with_times_as_texts(make_postgresql_database(), tmp_path)
    place.export(**AS_TEXTS)
    assert into.restore(place.store).finished
    execute(place.source, "INSERT INTO s.places VALUES (2)")
    place.export(chunks=[0], replace=True, **AS_TEXTS)
    assert into.restore(place.store, replace=True).finished
    assert sorted(into.tables()["places"]["id"].to_pylist()) == [1, 2]
    assert sorted(into.tables()["orders"]["id"].to_pylist()) == [0, 1, 2]


def test_tables_that_an_import_made_have_the_types_that_it_would_make(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    postgresql_server.psql_script(source, f"{DEFINITIONS} CREATE TABLE t ({columns});")
    definition = restore(extracted(source, Selection(time_columns={TableName("public", "t"): None})), target)
    with closing(open_target(DatabaseAddress("target", target))) as opened:
        assert opened.other_types(definition.tables) == []
        [table] = definition.tables
        every = [column.model_copy(update={"type": "public.nowhere"}) for column in table.columns]
        others = opened.other_types([table.model_copy(update={"columns": tuple(every)})])
        assert len(others) == len(TYPES)


def test_a_column_that_only_one_side_computes_is_refused(pair: tuple[Place, Into]) -> None:
    """Otherwise its values would be missing, or could not be written."""
    place, into = pair
    kind = "VIRTUAL" if place.source.startswith("duckdb") else "STORED"
    computed = f"b integer GENERATED ALWAYS AS (a * 2) {kind}"
    execute(place.source, f"CREATE TABLE s.orders (t TIMESTAMPTZ, a integer, {computed}, c integer)")
    place.export()
    there = computed.replace("b integer", "c integer")
    execute(into.uri, "CREATE SCHEMA s", f"CREATE TABLE s.orders (t TIMESTAMPTZ, a integer, b integer, {there})")
    with pytest.raises(RestoreError) as error:
        into.run(place.store, filters=ORDERS).prepare()
    message = str(error.value).lower()
    assert "s.orders.b is integer, not integer, generated" in message
    assert "s.orders.c is integer, generated, not integer" in message
