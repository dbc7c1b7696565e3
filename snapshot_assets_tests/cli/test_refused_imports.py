"""An export warns of what a restore needs, and an import refuses it in one list, for people and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

NEEDING = (
    "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
    "CREATE TABLE t (id int CHECK (f(id) > 0))",
    'CREATE TABLE "T" (id int)',
    "CREATE INDEX by_id ON t (id)",
)


@pytest.mark.slow
def test_what_an_export_warns_of_is_refused_and_mended_in_one_step(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source, target, location = make_postgresql_database(), make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(source, *NEEDING)
    create = ("export", "create", "--source", source, "--to", location, "--schema-only")
    exported = snapshots(*create)
    assert exported.status == 0, exported.err
    assert "warning: A restore needs 1 object that" in exported.out
    assert "warning: A restore into DuckDB will be refused." in exported.out
    assert len(snapshots(*create, "--json").json["warnings"]) == 2

    call = ("import", "--from", location, "--target", target)
    for options in ((*call, "--dry-run"), call):
        refused = snapshots(*options)
        assert refused.status == 2
        assert "function public.f(integer), for public.t (check t_id_check of public.t)" in refused.err
        assert "CREATE OR REPLACE FUNCTION public.f(integer)" in refused.err
    error = snapshots(*call, "--dry-run", "--json").json["error"]
    [missing] = error["missing"]
    assert (error["kind"], missing["tables"]) == ("RefusedImportError", ["public.t"])
    execute(target, *missing["sql"])
    ready = snapshots(*call, "--dry-run", "--json")
    assert (ready.status, ready.json["would_fail"]) == (0, {})


def test_a_dry_run_that_ends_with_a_failure_has_status_1(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source, target, location = make_postgresql_database(), make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(source, "CREATE TABLE t (id int)", "CREATE INDEX by_id ON t (id)")
    execute(target, "CREATE TABLE by_id (x int)")
    assert snapshots("export", "create", "--source", source, "--to", location, "--schema-only").status == 0
    call = ("import", "--from", location, "--target", target, "--dry-run")
    planned = snapshots(*call)
    assert planned.status == 1
    assert "would fail: index by_id of public.t: relation" in planned.out
    assert list(snapshots(*call, "--json").json["would_fail"]) == ["index by_id of public.t"]


def test_a_dry_run_says_what_it_did_not_rehearse(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source, target, location = make_postgresql_database(), make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(source, "CREATE TABLE t (id int)")
    execute(
        target,
        "CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
        "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION f()",
    )
    assert snapshots("export", "create", "--source", source, "--to", location, "--schema-only").status == 0
    call = ("import", "--from", location, "--target", target, "--dry-run")
    planned = snapshots(*call)
    assert planned.status == 0, planned.err
    assert "statements, because event trigger mine of the target would run" in planned.out
    [left] = snapshots(*call, "--json").json["not_rehearsed"]
    assert left["because"] == "event trigger mine of the target would run"
    assert "table public.t" in left["statements"]
    assert left["count"] == len(left["statements"])


@pytest.mark.slow
def test_views_that_are_left_out_are_counted(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source, target, location = make_postgresql_database(), make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(
        source,
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE VIEW v AS SELECT f() AS a",
        "CREATE VIEW w AS SELECT a FROM v",
        "CREATE TABLE t (id int)",
    )
    exported = snapshots("export", "create", "--source", source, "--to", location, "--schema-only")
    assert "View public.v calls function public.f(): a restore makes that only with --with-code" in exported.out
    call = ("import", "--from", location, "--target", target)
    done = snapshots(*call)
    assert done.status == 0, done.err
    assert "left out until the target has what they need: 2 views" in done.out
    assert done.out.count("2 views") == 1
    assert snapshots(*call, "--json").json["left_out"] == ["view public.v", "view public.w"]


@pytest.mark.slow
def test_a_repeated_import_names_what_the_first_one_counted(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source, target, location = make_postgresql_database(), make_postgresql_database(), (tmp_path / "l").as_uri()
    execute(source, "CREATE SEQUENCE alone", "CREATE PUBLICATION news", "CREATE TABLE t (id int)")
    execute(target, "CREATE SEQUENCE alone")
    assert snapshots("export", "create", "--source", source, "--to", location, "--schema-only").status == 0
    call = ("import", "--from", location, "--target", target)
    done = snapshots(*call)
    assert done.status == 0, done.err
    assert "not carried over: 1 publication; --verbose names them" in done.out
    assert "not carried over: Publication news is not in a snapshot" in done.err
    assert "left as the target has it: sequence public.alone" not in done.out
    again = snapshots(*call, "--verbose")
    assert "was restored before; nothing was done" in again.out
    assert "left as the target has it: sequence public.alone" in again.out
    assert "not carried over: Publication news is not in a snapshot" in again.out
    assert "public.alone" not in snapshots(*call).out
