"""Steps that fail because of their place in the order are tried again, and what is left out is named."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.steps import SchemaStep
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.restore.steps import RestoreSteps
from snapshot_assets.errors import SchemaIncompleteError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

CIRCLE = (
    "CREATE VIEW one AS SELECT 1 AS a, 'x'::text AS b",
    "CREATE FUNCTION read_one() RETURNS SETOF one LANGUAGE plpgsql AS 'BEGIN END'",
    "CREATE OR REPLACE VIEW one AS SELECT a, b FROM read_one() UNION ALL SELECT 3, 'three'",
    "CREATE VIEW over AS SELECT * FROM one",
    "CREATE TABLE t (t timestamptz)",
    "INSERT INTO t VALUES ('2025-01-02 00:00:00Z')",
)


def test_every_view_that_is_not_made_is_named_and_was_tried_once_more_at_most(
    place: Place, into: Into, postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(place.source, *CIRCLE)
    place.export()
    rounds, retried = list[int](), RestoreSteps.retried

    def counted(self: RestoreSteps) -> list[SchemaStep]:
        steps = retried(self)
        rounds.append(len(steps))
        return steps

    with monkeypatch.context() as patch:
        patch.setattr(RestoreSteps, "retried", counted)
        with pytest.raises(SchemaIncompleteError) as error:
            into.restore(place.store, filters=Filters(code=True))
    assert rounds == [3, 3]
    names = {each["object"] for each in error.value.attributes["steps"]}
    assert names == {"function public.read_one()", "view public.one", "view public.over"}
    plain = Into(postgresql_database).restore(place.store)
    assert plain.finished
    lost = [each for each in plain.run.current().lost if "was left out" in each]
    assert lost == [
        "View public.one was left out: the target lacks a function that it needs.",
        "View public.over was left out: the target lacks a function that it needs.",
    ]


def test_steps_that_need_later_ones_are_made_in_the_same_import(place: Place, into: Into) -> None:
    execute(
        place.source,
        "CREATE TABLE t (t timestamptz, id int PRIMARY KEY, n text)",
        "INSERT INTO t VALUES ('2025-01-02 00:00:00Z', 1, 'x')",
        "CREATE FUNCTION grouped() RETURNS TABLE (n text, c bigint) LANGUAGE sql BEGIN ATOMIC"
        " SELECT n, count(*) FROM t GROUP BY id; END",
        "COMMENT ON FUNCTION grouped() IS 'needs the primary key'",
        "CREATE VIEW z AS SELECT n FROM t",
        "CREATE FUNCTION read_z() RETURNS bigint LANGUAGE plpgsql AS"
        " 'BEGIN RETURN (SELECT count(*) FROM public.z); END'",
        "CREATE MATERIALIZED VIEW a AS SELECT read_z() AS c",
        "CREATE UNIQUE INDEX a_c ON a (c)",
    )
    place.export()
    done = into.restore(place.store, filters=Filters(code=True))
    assert done.finished
    assert done.run.failed_steps() == []
    assert {step.name for step in done.run.current().steps.made()} >= {
        "function public.grouped()",
        "materialized view public.a",
    }
    with client(into.uri) as sql:
        assert sql("SELECT c FROM a") == [(1,)]
        assert sql("SELECT indexdef FROM pg_indexes WHERE tablename = 'a'") != []
        assert sql("SELECT obj_description('grouped()'::regprocedure)") == [("needs the primary key",)]


FOREIGN = (
    "CREATE FOREIGN DATA WRAPPER nothing",
    "CREATE SERVER far FOREIGN DATA WRAPPER nothing",
    "CREATE FOREIGN TABLE ft (a int) SERVER far",
    "CREATE LANGUAGE own HANDLER plpgsql_call_handler VALIDATOR plpgsql_validator",
    "CREATE TABLE other (a int)",
    "CREATE TABLE t (t timestamptz)",
    "INSERT INTO t VALUES ('2025-01-02 00:00:00Z')",
    "CREATE FUNCTION in_own() RETURNS int LANGUAGE own AS 'BEGIN RETURN 1; END'",
    "CREATE FUNCTION of_far(f ft) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION of_other(o other) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE VIEW calls AS SELECT in_own() AS a",
    "CREATE VIEW reads AS SELECT * FROM calls",
)


@pytest.mark.slow
def test_code_that_needs_what_is_not_restored_is_left_out_and_named(
    place: Place, into: Into, make_postgresql_database: MakeDatabase
) -> None:
    execute(place.source, *FOREIGN)
    place.export()
    done = into.restore(place.store, filters=Filters(code=True))
    assert done.finished
    lost = done.run.current().lost
    for name, lacks in (("in_own()", "language own"), ("of_far(public.ft)", "relation public.ft")):
        sentence = f"Function public.{name} needs {lacks}, which is not restored."
        assert [each for each in lost if each.startswith(sentence)] != []
    assert {each for each in lost if "was left out" in each} == {
        "View public.calls was left out: the target lacks a function that it needs.",
        "View public.reads was left out: the target lacks a function that it needs.",
    }
    with client(into.uri) as sql:
        assert sql("SELECT count(*) FROM pg_proc WHERE proname = 'of_other'") == [(1,)]
    ready = Into(make_postgresql_database())
    execute(ready, FOREIGN[3])
    done = ready.restore(place.store, filters=Filters(code=True))
    assert "view public.reads" in [step.name for step in done.run.current().steps.made()]
    some = Into(make_postgresql_database()).restore(
        place.store, filters=Filters(code=True, tables=(TableName("public", "t"),))
    )
    assert some.finished
    assert any("of_other(public.other) needs relation public.other" in each for each in some.run.current().lost)


def test_a_dry_run_counts_what_the_import_makes(place: Place, into: Into) -> None:
    execute(
        place.source,
        "CREATE SCHEMA own",
        "COMMENT ON SCHEMA own IS 'of the snapshot'",
        "CREATE TABLE base (a int, c int)",
        "CREATE TABLE heir () INHERITS (base)",
        "ALTER TABLE ONLY heir ALTER c SET NOT NULL",
        "CREATE INDEX taken ON base (a)",
        "COMMENT ON INDEX taken IS 'x'",
        "CREATE INDEX good ON base (a)",
        "COMMENT ON INDEX good IS 'y'",
        "CREATE TABLE parts (a int) PARTITION BY LIST (a)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "COMMENT ON TABLE part IS 'z'",
    )
    place.export([])
    execute(into, "CREATE SCHEMA own", "CREATE VIEW taken AS SELECT 1 AS one")
    planned = into.run(place.store).prepare(rehearse=True)
    names = [step.name for step in planned.to_create()]
    with pytest.raises(SchemaIncompleteError, match=r"index taken of public\.base"):
        into.restore(place.store)
    made = [step.name for step in into.run(place.store).current().steps.made()]
    assert names == made
