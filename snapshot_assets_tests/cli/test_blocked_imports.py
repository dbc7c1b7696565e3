"""`snapshots import` of tables of which the target cannot hold some."""

from __future__ import annotations

from pathlib import Path

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.engine.restore.imports import execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

KEYS = """
SELECT string_agg(conrelid::regclass::text, ',') FROM pg_constraint
WHERE contype = 'p' AND connamespace = 'public'::regnamespace
"""


def test_a_table_that_the_target_cannot_hold_is_named_and_left_out_by_an_option(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    source, target, location = f"duckdb://{tmp_path}/s.duckdb", make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(
        source,
        "CREATE TABLE good (id INTEGER PRIMARY KEY, v VARCHAR)",
        "CREATE TABLE bad (id INTEGER PRIMARY KEY, v VARCHAR)",
        "INSERT INTO good VALUES (1, 'a')",
        "INSERT INTO bad VALUES (1, 'a' || chr(0))",
    )
    assert snapshots("export", "create", "--source", source, "--to", location).status == 0
    call = ("import", "--from", location, "--target", target, "--map-schema", "main=public")
    planned = snapshots(*call, "--dry-run")
    assert planned.status == 1, planned.err
    assert "would fail: rows of public.bad: column v has 1 value with the character NUL" in planned.out
    failed = snapshots(*call)
    assert failed.status == 1, failed.err
    assert "Not all rows are there of main.bad" in failed.err
    assert "COPY bad, line 1, column v (SQLSTATE 22021). PostgreSQL holds no NUL in text. Remove it" in failed.err
    assert postgresql_server.psql(target, KEYS) == "good"
    done = snapshots(*call, "--exclude-tables", "main.bad")
    assert done.status == 0, done.err
    assert "1 table holds 1 row, as many as were loaded" in done.out
