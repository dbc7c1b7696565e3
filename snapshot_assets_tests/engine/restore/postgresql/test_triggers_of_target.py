"""Triggers and rules that the target's tables have already do not act on the rows that a restore loads."""

from __future__ import annotations

from contextlib import closing

import pytest

from snapshot_assets.databases.postgresql.disabled_triggers import disable_triggers
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RefusedImportError, SnapshotError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

TABLES = """
CREATE TABLE readings (at timestamptz, value int, changed text, note inet);
CREATE TABLE parts (at timestamptz, value int) PARTITION BY RANGE (value);
CREATE TABLE part PARTITION OF parts DEFAULT;
"""
ROWS = """
INSERT INTO readings VALUES ('2025-01-02T01:00Z', 1, 'then', '::1'), ('2025-01-03T01:00Z', 9, NULL, NULL);
INSERT INTO parts VALUES ('2025-01-02T01:00Z', 1);
"""
CODE = """
CREATE TABLE log (what text);
CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed = 'now'; RETURN NEW; END $$;
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.log VALUES (TG_NAME); RETURN NULL; END $$;
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON readings FOR EACH ROW EXECUTE FUNCTION stamped();
CREATE TRIGGER audit AFTER INSERT OR DELETE ON readings FOR EACH STATEMENT EXECUTE FUNCTION noted();
CREATE TRIGGER always AFTER INSERT OR DELETE ON readings FOR EACH ROW EXECUTE FUNCTION noted();
ALTER TABLE readings ENABLE ALWAYS TRIGGER always;
CREATE TRIGGER replica AFTER INSERT ON readings FOR EACH ROW EXECUTE FUNCTION noted();
ALTER TABLE readings ENABLE REPLICA TRIGGER replica;
CREATE TRIGGER off AFTER INSERT ON readings FOR EACH ROW EXECUTE FUNCTION noted();
ALTER TABLE readings DISABLE TRIGGER off;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON readings DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER of_parts AFTER INSERT OR DELETE ON parts FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER of_part AFTER INSERT OR DELETE ON part FOR EACH ROW EXECUTE FUNCTION noted();
CREATE RULE doubled AS ON INSERT TO readings DO ALSO INSERT INTO log VALUES ('rule');
CREATE RULE undone AS ON DELETE TO parts DO INSTEAD INSERT INTO log VALUES ('undone');
"""
STATES = """
SELECT string_agg(format('%s %s', name, state), ',' ORDER BY name) FROM (
    SELECT tgrelid::regclass || '.' || tgname, tgenabled FROM pg_trigger WHERE tgrelid::regclass::text !~ '^pg_'
    UNION ALL SELECT ev_class::regclass || '.' || rulename, ev_enabled FROM pg_rewrite WHERE rulename <> '_RETURN'
) AS each (name, state)
"""
WRITTEN = "SELECT (SELECT array_agg(r ORDER BY r) FROM readings r), (SELECT array_agg(p ORDER BY p) FROM parts p)"
LOGGED = "SELECT count(*) FROM log"
READINGS = TableName("public", "readings")


@pytest.fixture
def place(place: Place, postgresql_server: PostgresqlServer) -> Place:
    """A location with rows of two tables."""
    postgresql_server.psql_script(place.source, TABLES + ROWS)
    place.export()
    return place


@pytest.mark.parametrize("setting", ["origin", "replica"])
def test_rows_are_loaded_and_replaced_as_they_are(
    setting: str, place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(into.uri, TABLES + CODE)
    name = into.uri.rsplit("/", 1)[1]
    postgresql_server.psql(into.uri, f"ALTER DATABASE {name} SET session_replication_role = {setting}")
    states = postgresql_server.psql(into.uri, STATES)
    assert into.restore(place.store).finished
    assert postgresql_server.psql(into.uri, WRITTEN) == postgresql_server.psql(place.source, WRITTEN)
    postgresql_server.psql(place.source, "UPDATE readings SET value = 7; UPDATE parts SET value = 8")
    place.export(chunks=(2, 3), replace=True)
    assert into.restore(place.store, replace=True).finished
    assert postgresql_server.psql(into.uri, WRITTEN) == postgresql_server.psql(place.source, WRITTEN)
    assert postgresql_server.psql(into.uri, LOGGED) == "0"
    assert postgresql_server.psql(into.uri, STATES) == states
    postgresql_server.psql(into.uri, f"SET session_replication_role = {setting}; INSERT INTO readings VALUES (now())")
    assert int(postgresql_server.psql(into.uri, LOGGED)) > 0


def test_triggers_are_enabled_after_a_connection_that_is_killed(
    into: Into, postgresql_server: PostgresqlServer
) -> None:
    uri = into.uri
    postgresql_server.psql_script(uri, TABLES + CODE)
    states = postgresql_server.psql(uri, STATES)
    with closing(PostgresqlTarget(into.address)) as target:
        target.execute("BEGIN", "beginning")
        loading = disable_triggers(target, [READINGS])
        loading.__enter__()
        [session] = target.rows("SELECT pg_backend_pid() AS pid", "looking")
        postgresql_server.psql(uri, f"SELECT pg_terminate_backend({session['pid']}, 10000)")
        with pytest.raises(SnapshotError):
            target.execute("INSERT INTO public.readings VALUES (now())", "loading")
    assert postgresql_server.psql(uri, STATES) == states


@pytest.fixture
def writer(into: Into, role: tuple[str, Into], postgresql_server: PostgresqlServer) -> Into:
    """The target of `into`, for a role that may write to its tables and make others, and owns none of them."""
    name, as_role = role
    postgresql_server.psql_script(into.uri, TABLES)
    execute(into.uri, f"GRANT CREATE ON DATABASE {into.uri.rsplit('/', 1)[1]} TO {name}")
    execute(into.uri, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
    return as_role


def test_triggers_that_the_role_may_not_disable_are_refused_by_name_before_anything_changes(
    place: Place, into: Into, writer: Into, postgresql_server: PostgresqlServer
) -> None:
    admin = into.uri
    postgresql_server.psql_script(admin, CODE)
    with pytest.raises(RefusedImportError) as refused:
        writer.run(place.store).prepare(rehearse=True)
    for part in (
        'readings has trigger "always", trigger "audit", rule "doubled", trigger "later", trigger "stamp", which',
        'public.parts has trigger "of_parts", which',
        'public.part has trigger "of_part", trigger "of_parts", which',
        "as postgres or as a superuser",
        "ALTER TABLE ONLY public.readings DISABLE TRIGGER stamp",
        "ALTER TABLE ONLY public.readings ENABLE ALWAYS TRIGGER always",
    ):
        assert part in str(refused.value)
    assert into.imports() == []
    assert postgresql_server.psql(admin, "SELECT count(*) FROM readings") == "0"
    parts = Filters(tables=(TableName("public", "parts"),))
    postgresql_server.psql(admin, "ALTER TABLE parts DISABLE TRIGGER ALL; ALTER TABLE part DISABLE TRIGGER ALL")
    assert writer.restore(place.store, filters=parts).finished


def test_triggers_and_rules_that_no_loaded_row_fires_are_not_refused(
    place: Place, into: Into, writer: Into, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(
        into.uri,
        """
        CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fired'; END $$;
        CREATE TRIGGER updated BEFORE UPDATE OR DELETE ON readings FOR EACH ROW EXECUTE FUNCTION failing();
        CREATE TRIGGER emptied BEFORE TRUNCATE ON readings EXECUTE FUNCTION failing();
        CREATE TRIGGER replica BEFORE INSERT ON readings FOR EACH ROW EXECUTE FUNCTION failing();
        ALTER TABLE readings ENABLE REPLICA TRIGGER replica;
        CREATE RULE kept AS ON DELETE TO readings DO INSTEAD NOTHING;
        """,
    )
    assert writer.restore(place.store).finished
    postgresql_server.psql(place.source, "UPDATE readings SET value = 7")
    place.export(chunks=(2, 3), replace=True)
    with pytest.raises(RefusedImportError, match='readings has rule "kept", trigger "updated", which'):
        writer.run(place.store, replace=True).prepare()
