"""A rehearsal harms nobody: what it does not try it reports, and refuses nothing for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from snapshot_assets.databases.definition import ObjectKey, Rehearsal, Statement
from snapshot_assets.databases.postgresql import rehearsal
from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, extracted
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

T, U, P, M = (TableName("public", name) for name in "tupm")
CREATE = Statement(ObjectKey("table", T), 'CREATE TABLE "public"."t" (a int)', T)
NEEDS_T = Statement(ObjectKey("table", U), "CREATE TABLE public.u (x public.t)", U)
NO_RIGHT = Statement(ObjectKey("schema", "pg_mine"), "CREATE SCHEMA pg_mine")


@pytest.fixture
def uri(postgresql_database: str) -> str:
    return postgresql_database


@pytest.fixture
def target(uri: str) -> Iterator[PostgresqlTarget]:
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as opened:
        yield opened


def untried(found: Rehearsal) -> dict[str, list[str]]:
    """Return what was not tried, without the ledger."""
    left = {reason: [name for name in map(str, keys) if "ledger" not in name] for reason, keys in found.untried.items()}
    return {reason: names for reason, names in left.items() if names}


def failed(found: Rehearsal) -> list[str]:
    return [str(each.statement.key) for each in found.failed]


def test_a_full_lock_table_ends_it(target: PostgresqlTarget) -> None:
    full = Statement(
        ObjectKey("index", "i"), "DO $$ BEGIN RAISE 'out of shared memory' USING ERRCODE = '53200'; END $$"
    )
    found = target.rehearse([NO_RIGHT, NEEDS_T, full, CREATE])
    assert failed(found) == ["schema pg_mine"]
    [(reason, names)] = untried(found).items()
    assert "out of shared memory" in reason
    assert names == ["index i", "table public.t", "table public.u"]


def test_half_of_the_lock_table_is_left_to_others(target: PostgresqlTarget) -> None:
    [row] = target.rows(rehearsal._LOCKS, "counting locks")
    sql = f"SELECT count(pg_advisory_xact_lock(i)) FROM generate_series(1, {row['most'] // 2 + 1}) i"
    others = [Statement(ObjectKey("schema", f"s{i}"), f"CREATE SCHEMA s{i}") for i in range(30)]
    found = target.rehearse([Statement(ObjectKey("value", of=ObjectKey("sequence", "s")), sql), *others])
    assert failed(found) == []
    [(reason, names)] = untried(found).items()
    assert "memory for locks" in reason
    assert names[-1] == "schema s29"
    assert 0 < len(names) < 30


def test_it_takes_no_longer_than_its_limit(target: PostgresqlTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "SECONDS", 1)
    found = target.rehearse([Statement(ObjectKey("table", T), "SELECT pg_sleep(600)", T), NO_RIGHT])
    assert failed(found) == []
    [(reason, names)] = untried(found).items()
    assert "statement timeout" in reason
    assert names == ["table public.t", "schema pg_mine"]


def test_a_lock_of_another_session_ends_it(target: PostgresqlTarget, uri: str) -> None:
    with client(uri) as run:
        run("BEGIN")
        run("CREATE SCHEMA taken")
        found = target.rehearse([Statement(ObjectKey("schema", "taken"), "CREATE SCHEMA taken"), CREATE])
        run("ROLLBACK")
    assert failed(found) == []
    [(reason, names)] = untried(found).items()
    assert "lock timeout" in reason
    assert names == ["schema taken", "table public.t"]


def test_tables_and_sequences_that_exist_are_not_locked(target: PostgresqlTarget, uri: str) -> None:
    execute(
        uri,
        'CREATE TABLE "old T" (id int PRIMARY KEY)',
        "CREATE TABLE parent (a int) PARTITION BY LIST (a)",
        "CREATE SEQUENCE numbers",
    )
    statements = [
        Statement(ObjectKey("partition", P), "CREATE TABLE public.p PARTITION OF public.parent DEFAULT", T),
        Statement(ObjectKey("comment", of=ObjectKey("partition", P)), "COMMENT ON TABLE public.p IS 'x'", T),
        Statement(ObjectKey("table", U), "CREATE TABLE public.u (a int DEFAULT nextval('public.numbers'))", U),
        Statement(
            ObjectKey("owner", of=ObjectKey("sequence", TableName("public", "numbers"))),
            "ALTER SEQUENCE public.numbers OWNED BY public.u.a",
            U,
        ),
        Statement(
            ObjectKey("foreign key", "k", U),
            'ALTER TABLE ONLY public.u ADD CONSTRAINT k FOREIGN KEY (a) REFERENCES public."old T"(id)',
            U,
        ),
        NO_RIGHT,
    ]
    with client(uri) as run:
        run("BEGIN")
        run('LOCK TABLE "old T", parent IN ROW EXCLUSIVE MODE')
        found = target.rehearse(statements)
        run("ROLLBACK")
    assert failed(found) == ["schema pg_mine"]
    [(_, names)] = untried(found).items()
    assert set(names) == {str(each.key) for each in statements} - {"table public.u", "schema pg_mine"}


def test_functions_of_the_snapshot_are_not_called(target: PostgresqlTarget, uri: str) -> None:
    execute(uri, "CREATE SEQUENCE draws")
    statements = [
        CREATE,
        Statement(
            ObjectKey("function", "public.f()"),
            "CREATE FUNCTION public.f() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$SELECT nextval('public.draws')$$",
        ),
        Statement(ObjectKey("index", "i", T), "CREATE INDEX i ON public.t USING btree ((public.f() + a))", T),
        Statement(ObjectKey("index", "j", T), "CREATE INDEX j ON public.t USING btree (a)", T),
        Statement(ObjectKey("comment", of=ObjectKey("index", "i", T)), "COMMENT ON INDEX public.i IS 'x'", T),
        Statement(ObjectKey("check", "c", T), "ALTER TABLE public.t ADD CONSTRAINT c CHECK (public.f() > 0)", T),
        Statement(
            ObjectKey("materialized view", M), "CREATE MATERIALIZED VIEW public.m AS SELECT public.f() WITH DATA"
        ),
        Statement(ObjectKey("materialized view", M), "REFRESH MATERIALIZED VIEW public.m"),
    ]
    found = target.rehearse(statements)
    assert failed(found) == []
    [(reason, names)] = untried(found).items()
    assert reason == "they may call functions of the snapshot"
    assert names == ["index i of public.t", "check c of public.t", "comment on index i of public.t"]
    assert target.rows("SELECT is_called FROM public.draws", "looking") == [{"is_called": False}]


UNTRIED_INDEXES = """
CREATE SCHEMA a; CREATE SCHEMA "B c"; SET search_path = a;
CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x';
CREATE TABLE t (a int);
CREATE INDEX "an ""I of" ON t (f(a)); CREATE INDEX plain ON t (f(a));
ALTER INDEX "an ""I of" ALTER COLUMN 1 SET STATISTICS 100; ALTER INDEX plain ALTER COLUMN 1 SET STATISTICS 100;
COMMENT ON INDEX "an ""I of" IS 'x'; ALTER TABLE t CLUSTER ON "an ""I of";
CREATE TABLE p (a int) PARTITION BY LIST (a); CREATE TABLE "B c".p1 PARTITION OF p DEFAULT; CREATE INDEX ON p (f(a));
ALTER INDEX "B c".p1_f_idx ALTER COLUMN 1 SET STATISTICS 100; COMMENT ON INDEX "B c".p1_f_idx IS 'x';
ALTER TABLE "B c".p1 CLUSTER ON p1_f_idx;
"""


def test_what_depends_on_an_index_that_is_not_tried_is_not_tried_either(
    target: PostgresqlTarget, make_postgresql_database: MakeDatabase, postgresql_server: PostgresqlServer
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(source, UNTRIED_INDEXES)
    definition = define(extracted(source), code=True)
    found = target.rehearse([*definition.before, *definition.after])
    assert failed(found) == []
    [(reason, names)] = untried(found).items()
    assert reason == "they may call functions of the snapshot"
    settings = sorted(name for name in names if not name.startswith("index "))
    assert settings == [
        "clustering of B c.p1",
        "clustering of a.t",
        'comment on index an "I of of a.t',
        "comment on index p1_f_idx of B c.p1",
        'statistics target of index an "I of of a.t',
        "statistics target of index p1_f_idx of B c.p1",
        "statistics target of index plain of a.t",
    ]


@pytest.mark.parametrize("referred", ["public.here", "public.nowhere"])
def test_a_key_with_the_name_of_a_table_hides_no_failure_of_that_table(
    target: PostgresqlTarget, uri: str, referred: str
) -> None:
    """The key is not tried if the other table exists, and fails if it does not."""
    execute(uri, "CREATE TABLE here (a int PRIMARY KEY)")
    orders, lines = TableName("public", "orders"), TableName("public", "lines")
    foreign = f'ALTER TABLE public.lines ADD CONSTRAINT "orders" FOREIGN KEY (a) REFERENCES {referred} (a)'
    key = Statement(ObjectKey("foreign key", "orders", TableName("public", "lines")), foreign, lines)
    made = [
        Statement(ObjectKey("table", TableName("public", "lines")), "CREATE TABLE public.lines (a int)", lines),
        key,
    ]
    check = "ALTER TABLE public.orders ADD CONSTRAINT c CHECK (a > 'x')"
    wrong = [
        Statement(ObjectKey("table", TableName("public", "orders")), "CREATE TABLE public.orders (a int)", orders),
        Statement(ObjectKey("check", "c", TableName("public", "orders")), check, orders),
    ]
    fails = [str(key.key)] if referred == "public.nowhere" else []
    assert failed(target.rehearse([*made, *wrong])) == [*fails, "check c of public.orders"]
    view = Statement(ObjectKey("view", TableName("public", "v")), "CREATE VIEW public.v AS SELECT FROM public.orders")
    assert failed(target.rehearse([*made, view])) == [*fails, "view public.v"]


def test_an_event_trigger_of_the_target_keeps_it_from_running(target: PostgresqlTarget, uri: str) -> None:
    execute(
        uri,
        "CREATE SEQUENCE draws",
        "CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN PERFORM nextval('public.draws'); END$$",
        "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION f()",
    )
    found = target.rehearse([CREATE, NO_RIGHT])
    assert failed(found) == []
    assert untried(found) == {"event trigger mine of the target would run": ["table public.t", "schema pg_mine"]}
    assert target.rows("SELECT is_called FROM public.draws", "looking") == [{"is_called": False}]
