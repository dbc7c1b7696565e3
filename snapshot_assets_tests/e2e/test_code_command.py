"""`snapshots export create` names code and what is not carried; `snapshots import --with-code` restores code."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

SCRIPT = """
CREATE TABLE audit (what text);
CREATE TABLE things (id int PRIMARY KEY, name text DEFAULT 'x');
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.audit VALUES (NEW.name); RETURN NEW; END $$;
CREATE TRIGGER noted AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 5) n;
CREATE PUBLICATION told FOR ALL TABLES;
SELECT lo_from_bytea(4711, 'content');
"""
NOTED = "SELECT (SELECT count(*) FROM things), (SELECT count(*) FROM audit), (SELECT count(*) FROM pg_trigger)"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


@pytest.fixture
def location(
    snapshots: Snapshots, postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> str:
    source, to = make_postgresql_database(), (tmp_path / "snapshot").as_uri()
    postgresql_server.psql_script(source, SCRIPT)
    done = snapshots("export", "create", "--source", source, "--to", to)
    assert done.status == 0, done.err
    expected = "code, restored only with --with-code: function (1): public.note(); trigger (1): noted of public.things"
    assert expected in done.out
    assert "not in the snapshot: publication (1): told" in done.out
    again = snapshots("export", "create", "--source", source, "--to", to, "--json").json
    assert again["code"] == {"function": ["public.note()"], "trigger": ["noted of public.things"]}
    assert again["not_carried"] == {"publication": ["told"]}
    return to


def test_code_is_restored_after_the_rows_and_only_on_request_and_where_it_can_be(
    snapshots: Snapshots,
    location: str,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    tmp_path: Path,
) -> None:
    plain, coded = make_postgresql_database(), make_postgresql_database()
    done = snapshots("import", "--from", location, "--target", plain, "--verbose")
    assert done.status == 0, done.err
    assert "Trigger noted of public.things is not restored: it is code of the snapshot. Give --with-code." in done.out
    assert postgresql_server.psql(plain, NOTED) == "5|5|0"
    call = ("import", "--from", location, "--target", coded, "--with-code")
    dry = snapshots(*call, "--dry-run", "--json")
    assert {"function public.note()", "trigger noted of public.things"} <= set(dry.json["makes"])
    assert dry.json["lost"] == ["Publication told is not in a snapshot."]
    done = snapshots(*call)
    assert done.status == 0, done.err
    assert postgresql_server.psql(coded, NOTED) == "5|5|1"
    assert postgresql_server.psql(coded, "SELECT convert_from(lo_get(4711), 'UTF8')") == "content"
    postgresql_server.psql(coded, "INSERT INTO things VALUES (6)")
    assert postgresql_server.psql(coded, "SELECT string_agg(what, ',') FROM audit WHERE what = 'x'") == "x"
    other = snapshots("import", "--from", location, "--target", coded)
    assert other.status == 2
    assert "were restored with everything, with its code; asked for is everything" in other.err

    call = ("import", "--from", location, "--with-code", "--target", f"duckdb://{tmp_path / 'target.duckdb'}")
    refused = snapshots(*call)
    assert refused.status == 1
    able = "only from PostgreSQL into PostgreSQL or from MySQL into MySQL; this is postgresql into duckdb"
    assert f"Code can be restored {able}" in refused.err
    assert not (tmp_path / "target.duckdb").exists()
    contradicting = snapshots(*call, "--no-expressions")
    assert contradicting.status == 2
    assert "it cannot be restored without expressions" in contradicting.err
