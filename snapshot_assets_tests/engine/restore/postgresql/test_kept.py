"""An import changes nothing in its target that no import made, and names what it left as it was."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.cli.import_report import kept_facts, left_lines
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets_tests.databases.postgresql.helpers import extracted
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow

RESTORE = RestoreRecord("a" * 32, "loc", "s3://b/p", 1, "c" * 64, "{}", ())


CHANGED = (
    ("TYPE x AS (city text, street text)", "TYPE x AS (street text, city text)", r'as \("street" text, "city" t'),
    ("TYPE x AS (a int, b text)", "TYPE x AS (a bigint, b text)", r'as \("a" bigint'),
    ("TYPE x AS (a int)", "TYPE x AS (a int, b int)", r'"b" integer\), not \("a" integer\)'),
    ("DOMAIN x AS numeric(9,2)", "DOMAIN x AS numeric(9,1)", r"over numeric\(9,1\), not over numeric\(9,2\)"),
    ("DOMAIN x AS int", "DOMAIN x AS int NOT NULL", "with NOT NULL"),
    ("TYPE x AS RANGE (subtype = numeric)", "TYPE x AS RANGE (subtype = int4)", "range over integer"),
)
"""Types of the snapshot, those of the target that would change values, and what an import says of them."""


def test_types_that_would_change_values_are_refused(place: Place, into: Into) -> None:
    names = [f"x{number}" for number in range(len(CHANGED))]
    for name, (snapshot, target, _) in zip(names, CHANGED, strict=True):
        execute(place.source, f"CREATE {snapshot.replace(' x ', f' {name} ')}", f"CREATE TABLE t_{name} (x {name})")
        execute(into, f"CREATE {target.replace(' x ', f' {name} ')}")
    place.export()
    with pytest.raises(SnapshotError) as refused:
        into.restore(place.store)
    for name, (_, _, message) in zip(names, CHANGED, strict=True):
        sentence = rf"Type public\.{name} is in the target .*{message}.*Drop or rename it"
        assert re.search(sentence, str(refused.value)), name
    assert into.imports() == []
    execute(into, *(f"DROP {target.split()[0]} {name}" for name, (_, target, _) in zip(names, CHANGED, strict=True)))
    assert into.restore(place.store).finished


SEQUENCE = """SELECT last_value, is_called, (SELECT refobjid::regclass FROM pg_depend
    WHERE objid = 'counter'::regclass AND deptype = 'a') FROM counter"""


def test_a_sequence_of_the_target_is_not_taken_over(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    execute(place.source, "CREATE SEQUENCE counter", "CREATE TABLE t (id int DEFAULT nextval('counter'))")
    execute(place.source, "ALTER SEQUENCE counter OWNED BY t.id", "SELECT setval('counter', 50)")
    place.export()
    execute(into, "CREATE SEQUENCE counter", "CREATE TABLE production (id int DEFAULT nextval('counter'))")
    execute(into, "ALTER SEQUENCE counter OWNED BY production.id", "SELECT setval('counter', 7)")
    before = postgresql_server.psql(into.uri, SEQUENCE)
    with pytest.raises(RestoreError, match=r"Sequence public\.counter is in the target, .*: public\.t would draw"):
        into.restore(place.store)
    assert (postgresql_server.psql(into.uri, SEQUENCE), into.imports()) == (before, [])
    execute(into, "ALTER SEQUENCE counter RENAME TO own_counter")
    assert into.restore(place.store).finished
    assert postgresql_server.psql(into.uri, SEQUENCE) == "50|t|t"


def test_what_the_target_has_is_kept_and_named(place: Place, into: Into, postgresql_server: PostgresqlServer) -> None:
    execute(
        place.source,
        "CREATE SEQUENCE alone START 40",
        "COMMENT ON SEQUENCE alone IS 'of the snapshot'",
        "CREATE DOMAIN d AS int",
        "ALTER DOMAIN d ADD CONSTRAINT small CHECK (VALUE < 100) NOT VALID",
        "COMMENT ON DOMAIN d IS 'of the snapshot'",
        "CREATE SCHEMA s",
        "COMMENT ON SCHEMA s IS 'of the snapshot'",
        "CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql AS 'SELECT x + 1'",
        "COMMENT ON FUNCTION f(int) IS 'of the snapshot'",
        "CREATE FUNCTION same() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TABLE t (d d)",
        "INSERT INTO t VALUES (1)",
    )
    place.export()
    execute(
        into,
        "CREATE SCHEMA s",
        "CREATE SEQUENCE alone",
        "CREATE DOMAIN d AS int",
        "CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql AS 'SELECT x + 1000'",
        "CREATE FUNCTION same() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    )
    planned = into.run(place.store, filters=Filters(code=True)).prepare(rehearse=True)
    restored = into.restore(place.store, filters=Filters(code=True))
    assert restored.finished
    facts = kept_facts(restored.run.current())
    assert kept_facts(planned) == facts
    assert {step.name for step in planned.to_create()}.isdisjoint([*facts["kept"], *facts["not_compared"]])
    assert facts["differs"] == {
        "type public.d": "The target has it with another definition.",
        "function public.f(integer)": "The target has it with another definition.",
    }
    assert {"sequence public.alone", "function public.same()"} <= set(facts["kept"])
    assert facts["not_compared"]["check small of domain public.d"] == "The target had type public.d."
    assert "check small of domain public.d" not in facts["kept"]  # the target lacks it
    now = """SELECT f(1), 500::d, (SELECT last_value FROM alone), (SELECT count(*) FROM pg_description
        WHERE description = 'of the snapshot')"""
    assert postgresql_server.psql(into.uri, now) == "1001|500|1|0"
    execute(place.source, "INSERT INTO t VALUES (2)")
    place.export(replace=True)
    assert into.restore(place.store, filters=Filters(code=True), replace=True).finished
    assert postgresql_server.psql(into.uri, now) == "1001|500|1|0"


def test_what_a_table_that_existed_does_not_get_is_named(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    execute(
        place.source,
        "CREATE TABLE o (id int PRIMARY KEY)",
        "CREATE TABLE t (id serial PRIMARY KEY, a int NOT NULL CHECK (a > 0) REFERENCES o, b int UNIQUE)",
        "CREATE TABLE u (id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY -1), a int)",
        "CREATE INDEX i ON t (a)",
        "INSERT INTO o VALUES (1)",
        "INSERT INTO t (a) VALUES (1), (1), (1)",
        "INSERT INTO u (a) VALUES (1), (1), (1)",
    )
    place.export()
    execute(into, "CREATE TABLE t (id serial, a int, b int)", "ALTER SEQUENCE t_id_seq RENAME TO other")
    execute(into, "CREATE TABLE u (id bigint GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY -1), a int)")
    planned = into.run(place.store).prepare(rehearse=True)
    restored = into.restore(place.store)
    assert restored.finished
    facts = kept_facts(restored.run.current())
    assert kept_facts(planned) == facts
    assert facts["kept_by_kind"]["table"] == 2
    assert facts["not_compared_by_kind"].items() >= {"primary key": 1, "foreign key": 1, "index": 1}.items()
    assert (facts["not_made"], facts["not_made_by_kind"]) == ({}, {})  # parts that the target has
    assert facts["not_compared"]["unique constraint t_b_key of public.t"] == "The target had public.t."
    assert not any("of public." in each for each in facts["kept"])  # the target lacks what belongs to its tables
    short, long = (list(left_lines(restored.run.current(), verbose=verbose)) for verbose in (False, True))
    [counts] = [line for line in short if line.startswith("parts of what the target had, left as they are there and ")]
    assert "1 primary key" in counts
    assert "neither made nor compared: unique constraint t_b_key of public.t: The target had public.t." in long
    inserted = ["INSERT INTO t (a) VALUES (2) RETURNING id", "INSERT INTO u (a) VALUES (2) RETURNING id"]
    assert postgresql_server.psql(into.uri, *inserted).split()[:1] == ["4"]
    assert postgresql_server.psql(into.uri, "SELECT min(id) FROM u") == "-4"


def test_an_object_of_another_table_does_not_count_as_made_by_hand(place: Place, into: Into) -> None:
    execute(place.source, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)")
    execute(place.source, "CREATE UNIQUE INDEX two ON t (a)")
    place.export()
    execute(into, "CREATE TABLE mine (a int)", "CREATE INDEX two ON mine (a)")
    with pytest.raises(SchemaIncompleteError, match=r"index two of public\.t could not be made"):
        into.restore(place.store)
    with pytest.raises(SchemaIncompleteError, match=r"index two of public\.t could not be made"):
        into.restore(place.store)
    execute(into, "DROP INDEX two", "CREATE INDEX two ON t (a)")
    with pytest.raises(SchemaIncompleteError, match=r"index two of public\.t could not be made"):
        into.restore(place.store)
    execute(into, "DROP INDEX two", "CREATE UNIQUE INDEX two ON t (a)")
    assert into.restore(place.store).finished


def test_duckdb_keeps_its_sequences(tmp_path: Path) -> None:
    place = Place(f"duckdb://{tmp_path / 'source.duckdb'}", tmp_path / "location")
    execute(place.source, "CREATE SEQUENCE counter", "CREATE SEQUENCE alone START 9", "SELECT nextval('alone')")
    execute(place.source, "CREATE TABLE t (id BIGINT DEFAULT nextval('counter'))", "INSERT INTO t VALUES (50)")
    place.export()
    into = Into(f"duckdb://{tmp_path / 'target.duckdb'}")
    execute(into, "CREATE SEQUENCE Counter", "CREATE SEQUENCE alone", "SELECT nextval('counter')")
    with pytest.raises(RestoreError, match=r"Sequence main\.counter is in the target"):
        into.restore(place.store)
    execute(into, "DROP SEQUENCE counter")
    planned = into.run(place.store).prepare(rehearse=True)
    restored = into.restore(place.store)
    assert restored.finished
    facts = kept_facts(restored.run.current())
    assert "sequence main.alone" in facts["kept"]
    assert kept_facts(planned) == facts


KEPT = (
    ("TYPE x AS ENUM ('a', 'b')", "TYPE x AS ENUM ('b', 'a')", True),
    ("TYPE x AS ENUM ('a', 'b')", "TYPE x AS ENUM ('a', 'b', 'c')", True),
    ("TYPE x AS ENUM ('a', 'b')", "TYPE x AS ENUM ('a', 'b')", False),
    ("DOMAIN x AS text DEFAULT 'a'", "DOMAIN x AS text DEFAULT 'b'", True),
    ("DOMAIN x AS text DEFAULT 'a'", "DOMAIN x AS text", True),
    ('DOMAIN x AS text COLLATE "C"', "DOMAIN x AS text", True),
    ("DOMAIN x AS text COLLATE \"C\" DEFAULT 'a'", "DOMAIN x AS text COLLATE \"C\" DEFAULT 'a'", False),
    ("TYPE x AS RANGE (subtype = text)", 'TYPE x AS RANGE (subtype = text, collation = "C")', True),
    ("TYPE x AS RANGE (subtype = text, subtype_opclass = text_pattern_ops)", "TYPE x AS RANGE (subtype = text)", True),
    ("TYPE x AS RANGE (subtype = text)", "TYPE x AS RANGE (subtype = text)", False),
)
"""Types of the snapshot, those that the target keeps, and whether they are other ones."""


def test_types_that_are_kept_and_are_other_ones_are_named(place: Place, into: Into) -> None:
    differing = {}
    for number, (snapshot, target, differs) in enumerate(KEPT):
        name = f"x{number}"
        execute(place.source, f"CREATE {snapshot.replace(' x ', f' {name} ')}", f"CREATE TABLE t_{name} (x {name})")
        execute(into, f"CREATE {target.replace(' x ', f' {name} ')}")
        differing[f"type public.{name}"] = "The target has it with another definition." if differs else ""
    made = [each for each in define(extracted(place.source)).before if str(each.key) in differing]
    with closing(open_target(into.address)) as opened:
        results = opened.would_keep(RESTORE, steps_of(made))
    assert {name: results[name].message for name in differing} == differing
