"""Code is part of a whole restore, and of what is restored later into the same tables."""

from __future__ import annotations

import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import OtherImportError, PlanError, RestoreError
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

CODE = Filters(code=True)
SCRIPT = """
CREATE TABLE places (id int PRIMARY KEY);
CREATE TABLE log (what text);
CREATE FUNCTION kept(x int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT x > 0';
CREATE TABLE readings (
    at timestamptz, place int REFERENCES places DEFERRABLE INITIALLY DEFERRED, value int CHECK (kept(value)),
    note inet);
CREATE TABLE parts (at timestamptz, value int) PARTITION BY RANGE (value);
CREATE TABLE part PARTITION OF parts DEFAULT;
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.log VALUES (TG_NAME); RETURN NULL; END $$;
CREATE TRIGGER each_row AFTER INSERT OR DELETE ON readings FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER always AFTER INSERT ON readings FOR EACH STATEMENT EXECUTE FUNCTION noted();
ALTER TABLE readings ENABLE ALWAYS TRIGGER always;
CREATE TRIGGER off AFTER INSERT ON readings FOR EACH ROW EXECUTE FUNCTION noted();
ALTER TABLE readings DISABLE TRIGGER off;
CREATE TRIGGER of_part AFTER INSERT OR DELETE ON part FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER of_parts AFTER INSERT OR DELETE ON parts FOR EACH ROW EXECUTE FUNCTION noted();
CREATE RULE doubled AS ON INSERT TO readings WHERE NEW.value = 9 DO ALSO INSERT INTO log VALUES ('rule');
INSERT INTO places VALUES (1), (2);
INSERT INTO readings VALUES ('2025-01-02T01:00Z', 1, 5, '::1'), ('2025-01-03T01:00Z', 2, 9, NULL);
INSERT INTO parts VALUES ('2025-01-02T01:00Z', 1);
"""
ROWS = """
SELECT (SELECT string_agg(what, ',' ORDER BY what) FROM log), (SELECT count(*) FROM readings),
    (SELECT count(*) FROM parts), (SELECT string_agg(format('%s %s', tgname, tgenabled), ','
        ORDER BY tgrelid::regclass::text, tgname) FROM pg_trigger WHERE NOT tgisinternal)
"""


@pytest.mark.slow
def test_rows_of_a_later_restore_do_not_fire_triggers_and_rules_that_the_first_one_created(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(place.source, SCRIPT)
    place.export()
    assert into.restore(place.store, filters=CODE).finished
    before = postgresql_server.psql(place.source, ROWS)
    assert postgresql_server.psql(into.uri, ROWS) == before
    quietly = "SET session_replication_role = replica; ALTER TABLE readings DISABLE TRIGGER always"
    postgresql_server.psql_script(
        place.source,
        f"{quietly}; INSERT INTO readings VALUES ('2025-01-02T02:00Z', 2, 9, '::2');"
        " INSERT INTO parts VALUES ('2025-01-02T02:00Z', 2); ALTER TABLE readings ENABLE ALWAYS TRIGGER always;"
        " DELETE FROM log WHERE what = 'rule'; INSERT INTO log VALUES ('rule');",
    )
    place.export(chunks=(2,), replace=True)
    assert into.restore(place.store, filters=CODE, replace=True).finished
    after = postgresql_server.psql(place.source, ROWS)
    assert after != before
    assert postgresql_server.psql(into.uri, ROWS) == after
    postgresql_server.psql(into.uri, "INSERT INTO readings VALUES ('2025-01-02T01:00Z', 1, 9)")
    fired = "SELECT count(*) FROM log WHERE what IN ('each_row', 'always', 'rule')"
    assert int(postgresql_server.psql(into.uri, fired)) == int(postgresql_server.psql(place.source, fired)) + 3


def test_code_belongs_to_what_an_import_was_asked_for(
    place: Place, into: Into, duck: Into, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(place.source, SCRIPT)
    place.export()
    into.restore(place.store, filters=CODE)
    assert into.restore(place.store, filters=CODE).rows == 0
    with pytest.raises(OtherImportError, match="were restored with everything, with its code; asked for is everything"):
        into.restore(place.store)
    with pytest.raises(RestoreError, match=r"only from PostgreSQL into PostgreSQL .*; this is postgresql into duckdb"):
        duck.restore(place.store, filters=CODE)
    with pytest.raises(PlanError, match="cannot be restored without expressions"):
        Filters(code=True, expressions=False)
    assert Filters().text() == '{"end":null,"expressions":true,"schemas":[],"start":null,"tables":[]}'


CIRCLE = """
CREATE TABLE log (what text);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.log VALUES (TG_NAME); RETURN NULL; END $$;
CREATE TABLE a (id int PRIMARY KEY, of int);
CREATE TABLE b (id int PRIMARY KEY, of int REFERENCES a DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE a ADD FOREIGN KEY (of) REFERENCES b DEFERRABLE INITIALLY DEFERRED;
CREATE TRIGGER noted AFTER INSERT OR DELETE ON a FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER noted AFTER INSERT OR DELETE ON b FOR EACH ROW EXECUTE FUNCTION noted();
BEGIN; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1); COMMIT;
"""


def test_tables_with_triggers_that_refer_to_each_other_are_replaced(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(place.source, CIRCLE)
    place.export()
    assert into.restore(place.store, filters=CODE).finished
    postgresql_server.psql_script(
        place.source, "BEGIN; INSERT INTO a VALUES (2, 2); INSERT INTO b VALUES (2, 2); COMMIT;"
    )
    place.export(chunks=(0,), replace=True)
    assert into.restore(place.store, filters=CODE, replace=True).finished
    rows = "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT count(*) FROM log)"
    assert postgresql_server.psql(into.uri, rows) == postgresql_server.psql(place.source, rows)


WITHOUT_TABLES = """
CREATE TABLE t (n int);
CREATE SCHEMA util; CREATE TYPE util.m AS ENUM ('a'); CREATE SEQUENCE util.s;
CREATE FUNCTION util.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
"""
THERE = "SELECT to_regtype('util.m'), to_regclass('util.s'), to_regproc('util.f'), to_regclass('public.t')"


@pytest.mark.parametrize(
    ("schemas", "there"), [(("util",), "util.m|util.s|util.f|"), (("public", "util"), "util.m|util.s|util.f|t")]
)
def test_a_chosen_schema_without_tables_is_restored(
    place: Place, into: Into, postgresql_server: PostgresqlServer, schemas: tuple[str, ...], there: str
) -> None:
    postgresql_server.psql_script(place.source, WITHOUT_TABLES)
    place.export()
    assert into.restore(place.store, filters=Filters(schemas=schemas, code=True)).finished
    assert postgresql_server.psql(into.uri, THERE) == there
