"""A restore as the owner of tables with forced row security loads, counts and replaces all their rows."""

from __future__ import annotations

from contextlib import closing

import pytest

from snapshot_assets.databases.postgresql import disabled_triggers as module
from snapshot_assets.databases.postgresql.disabled_triggers import disable_triggers, only_reading
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import AllRows
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import DatabaseError, DatabaseUnavailableError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, extracted
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow

SCRIPT = """
CREATE TABLE places (id serial PRIMARY KEY);
CREATE TABLE r (id serial, at timestamptz, place int REFERENCES places DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE places ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON places USING (id > 1);
ALTER TABLE r ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON r USING (id > 1);
CREATE MATERIALIZED VIEW sums AS SELECT count(*) FROM r;
INSERT INTO places VALUES (1), (2);
INSERT INTO r VALUES (1, '2025-01-02T01:00Z', 1), (2, '2025-01-03T01:00Z', 2); REFRESH MATERIALIZED VIEW sums;
"""
FORCED = "SELECT relname FROM pg_class WHERE relforcerowsecurity AND relrowsecurity ORDER BY relname"

PLACES, R = TableName("public", "places"), TableName("public", "r")


@pytest.fixture
def owned(into: Into, role: tuple[str, Into]) -> str:
    """The URI of a database for its owner, who is no superuser."""
    name, as_role = role
    execute(into.uri, f"ALTER DATABASE {into.uri.rsplit('/', 1)[1]} OWNER TO {name}")
    return as_role.uri


@pytest.mark.parametrize("code", [True, False])
def test_the_owner_restores_tables_with_forced_row_security_again_and_again(
    code: bool, place: Place, into: Into, owned: str, postgresql_server: PostgresqlServer
) -> None:
    source, admin, filters = place.source, into.uri, Filters(code=code)
    postgresql_server.psql_script(source, SCRIPT)
    place.export()
    into = Into(owned)
    assert into.restore(place.store, filters=filters).finished
    assert into.restore(place.store, filters=filters).finished
    postgresql_server.psql(source, "INSERT INTO r VALUES (3, '2025-01-02T02:00Z', 1)")
    place.export(chunks=(2,), replace=True)
    assert into.restore(place.store, filters=filters, replace=True).finished
    for query in ("SELECT * FROM r ORDER BY id", "SELECT * FROM sums", FORCED):
        assert postgresql_server.psql(admin, query) == postgresql_server.psql(source, query)
    assert postgresql_server.psql(owned, "SELECT count(*) FROM r") == ("2" if code else "0")


def test_row_security_is_forced_again_after_an_error(
    into: Into, owned: str, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(owned, SCRIPT.partition("INSERT")[0])
    table = extracted(into.uri).table(R)
    with closing(PostgresqlTarget(Into(owned).address)) as target:
        with (
            pytest.raises(DatabaseError, match="division by zero"),
            target._transaction(),
            disable_triggers(target, [table.table_name]),
        ):
            target.execute("SELECT 1 / count(*) FROM public.r WHERE id IS NULL", "dividing")
        assert target.counts([(table, AllRows())]) == [0]
    assert postgresql_server.psql(owned, FORCED) == "places\nr"


def target_of(uri: str) -> closing[PostgresqlTarget]:
    return closing(PostgresqlTarget(Into(uri).address))


def row_of(postgresql_server: PostgresqlServer, uri: str) -> str:
    """The version of the table's row in the catalog: each change that is committed makes another one."""
    return postgresql_server.psql(uri, "SELECT ctid, xmin FROM pg_class WHERE relname = 'places'")


def test_reading_rows_leaves_nothing_changed_also_within_a_transaction(
    owned: str, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.psql_script(owned, SCRIPT.replace(" (1), (2);", " (2);").partition("INSERT INTO r")[0])
    before = row_of(postgresql_server, owned)
    with target_of(owned) as target:
        assert target.existing([PLACES])[PLACES].has_rows
        with pytest.raises(DatabaseError, match="division by zero"), only_reading(target, PLACES, nested=False):
            target.execute("SELECT 1 / 0", "dividing")
        with target._transaction():
            target.execute("CREATE TABLE public.kept ()", "creating")
            assert target.existing([PLACES])[PLACES].has_rows
            [timeout] = target.rows("SELECT current_setting('lock_timeout') AS now", "looking")
            assert timeout == {"now": "0"}
    assert row_of(postgresql_server, owned) == before
    assert postgresql_server.psql(owned, "SELECT 'kept'::regclass") == "kept"


def test_reading_rows_does_not_wait_long_for_other_readers(
    owned: str, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(module, "LOCK_TRIES", 2)
    postgresql_server.psql_script(owned, SCRIPT.partition("INSERT")[0])
    admin = postgresql_server.uri(owned.rsplit("/", 1)[1])
    with client(owned) as run, target_of(owned) as target, target_of(admin) as superuser:
        run("BEGIN")
        run("SELECT FROM places")
        with pytest.raises(DatabaseUnavailableError, match=r"public\.places could not be read: .* BYPASSRLS"):
            target.existing([PLACES])
        assert not superuser.existing([PLACES])[PLACES].has_rows  # needs no lock
        run("ROLLBACK")
        assert not target.existing([PLACES])[PLACES].has_rows


def test_locks_are_taken_in_the_order_of_names_parents_first(
    owned: str, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("z", "m", "b", "a")
    parts = "".join(f"CREATE TABLE {each} PARTITION OF r FOR VALUES IN ('{each}');" for each in names)
    function = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
    triggers = "".join(f"CREATE TRIGGER {each} AFTER INSERT ON r FOR EACH ROW EXECUTE FUNCTION f();" for each in "yx")
    forced = "".join(f"ALTER TABLE {each} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;" for each in names)
    postgresql_server.psql_script(
        owned, f"CREATE TABLE r (k text) PARTITION BY LIST (k); {function}{parts}{triggers}{forced}"
    )
    tables = [TableName("public", each) for each in names]
    with target_of(owned) as target, target._transaction():
        execute_on_server, altered = target.execute, list[str]()

        def recorded(sql: str, doing: str) -> None:
            altered.append(sql)
            execute_on_server(sql, doing)

        monkeypatch.setattr(target, "execute", recorded)
        with disable_triggers(target, [R], tables):
            off = [sql.removeprefix("ALTER TABLE ONLY public.") for sql in altered]
    assert off == [
        *(f"{each} NO FORCE ROW LEVEL SECURITY" for each in "abmz"),
        *(f"{each} DISABLE TRIGGER {trigger}" for each in "rabmz" for trigger in "xy"),
    ]
