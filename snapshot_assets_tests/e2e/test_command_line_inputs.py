"""Unusual names, paths and sources on the command line: exported and verified, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, export, make_plan, make_source, store_of
from snapshot_assets_tests.servers.postgresql import PASSWORD, PostgresqlServer

_NAMES = ("a.b", "a/b", "..", "../../etc", 'qu"ote', "two words", "cömma,", "表" * 60, "%2e%2e", "a\\b")


def test_tables_of_any_name_are_selected_exported_and_verified(tmp_path: Path, snapshots: Snapshots) -> None:
    quoted = [name.replace('"', '""') for name in _NAMES]
    source = make_source(tmp_path / "names.duckdb", *(f'CREATE TABLE "{name}" AS SELECT 1 AS x' for name in quoted))
    location = tmp_path / "location"
    names = [TableName("main", name) for name in _NAMES]
    export(make_plan(source, location.as_uri(), tables=names), store_of(location))

    # Repeating the call finds the same snapshot: the command line parses names into their true form.
    written = ",".join(table_text(name) if "," not in name.table else f'main."{name.table}"' for name in names)
    call = ("export", "create", "--source", source, "--to", location.as_uri(), *RANGE, "--tables", written, "--json")
    again = snapshots(*call)
    assert again.status == 0, again.err
    assert (again.json["run_id"], again.json["files"], again.json["rows"]) == (None, len(names), len(names))
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0
    assert len(list(location.glob("data/0/*.parquet"))) == len(names)
    assert {path.name for path in tmp_path.iterdir()} == {"names.duckdb", "location", "here"}


@pytest.mark.parametrize("folder", ["a b+c/ünï/表", "#1 '100%' q\""])
def test_sources_and_locations_of_any_path(tmp_path: Path, snapshots: Snapshots, folder: str) -> None:
    source = make_source(tmp_path / folder / "s.duckdb")
    location = tmp_path / folder / "location"
    export(make_plan(source, location.as_uri()), store_of(location))
    again = snapshots("export", "create", "--source", source, "--to", location.as_uri(), *RANGE, "--json")
    assert again.status == 0, again.err
    assert again.json["run_id"] is None
    assert (location / "manifest.json").exists()
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0


@pytest.mark.parametrize("change", ["password", "user", "database", "server"])
def test_postgresql_refusals_leave_no_trace_and_repeat_no_password(
    snapshots: Snapshots, postgresql_server: PostgresqlServer, location: Path, tmp_path: Path, change: str
) -> None:
    wrong = "no_such-kite-ladder-42"
    uri = f"postgresql://me:{wrong}@127.0.0.1:1/db" if change == "server" else postgresql_server.uri(**{change: wrong})
    status, kind = (4, "DatabaseUnavailableError") if change == "server" else (1, "DatabaseDeniedError")
    result = snapshots("export", "create", "--source", uri, "--to", location.as_uri(), *RANGE, "--json")
    assert (result.status, result.json["error"]["kind"]) == (status, kind), result.err
    assert "127.0.0.1" in result.err
    for secret in (PASSWORD, uri.split("@")[0].rsplit(":", 1)[1]):
        assert secret not in result.out + result.err
    assert not location.exists()
    assert not (tmp_path / "dagster").exists()


def test_postgresql_names_are_refused_with_near_ones(
    snapshots: Snapshots, postgresql_server: PostgresqlServer, postgresql_database: str, location: Path
) -> None:
    postgresql_server.psql(postgresql_database, "CREATE TABLE trips (moment timestamptz)")
    call = ("export", "create", "--source", postgresql_database, "--to", location.as_uri(), *RANGE)
    table = snapshots(*call, "--tables", "public.trip")
    assert (table.status, table.out) == (2, "")
    assert "'trips'" in table.err
    schema = snapshots(*call, "--schemas", "pubic")
    assert schema.status == 2
    assert "'public'" in schema.err
    assert not location.exists()
