"""Rows of a restored database are compared with the snapshot's by value, in a scratch database that is dropped."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases.open import scratch_database
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.restore.compare import ComparedRows
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import DatabaseError, RestoreError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, ROWS
from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

NAME = "snapshots_drill_shop"


def compared(store: ObjectStore, address: DatabaseAddress) -> list[ComparedRows]:
    run = RestoreRun(store, address, InlineRunner(), RestoreSettings())
    run.begin()
    list(run.restore())
    assert run.finish()
    found = list(run.compare())
    assert [each.error for each in found if each.error is not None] == []
    return found


def exported_from(uri: str, folder: Path, **fields: object) -> ObjectStore:
    plan = Plan(
        name="all",
        source=uri,
        to=f"file://{folder}",
        start_time="2020-01-01T00:00:00Z",
        end_time="2030-01-01T00:00:00Z",
        chunk_time_window="365d",
        **fields,
    )
    store = open_store(parse_location(plan.to))
    with ExportRun(plan, DatabaseAddress("source", uri), store, InlineRunner(), "run").open() as export:
        list(export.export(range(12)))
        export.seal()
    return store


@pytest.mark.parametrize("into", ["postgresql", "duckdb"])
def test_every_restored_value_of_postgresql_is_equal(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path, into: str
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(source, every_type_script())
    store = exported_from(source, tmp_path / "snapshots", time_columns={"public.t": None})
    beside = source if into == "postgresql" else f"duckdb://{tmp_path}/any.duckdb"
    with scratch_database(DatabaseAddress("scratch", beside), NAME) as address:
        found = compared(store, address)
    assert [each for each in found if not each.equal] == []
    assert sum(each.found for each in found) == sum(each.expected for each in found) > 0


@pytest.mark.slow
def test_a_whole_schema_of_postgresql_is_equal(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(source, EVERYTHING + ROWS)
    store = exported_from(source, tmp_path / "snapshots")
    with scratch_database(DatabaseAddress("scratch", source), NAME) as address:
        found = compared(store, address)
    assert [each for each in found if not each.equal] == []
    assert len({each.table for each in found}) > 10


def test_one_changed_value_and_one_missing_row_are_found(exported: Place, tmp_path: Path) -> None:
    with scratch_database(DatabaseAddress("scratch", f"duckdb://{tmp_path}/any.duckdb"), NAME) as address:
        into = Into(address.uri)
        assert all(each.equal for each in compared(exported.store, address))
        execute(into, "UPDATE main.places SET id = id + 1000 WHERE id = (SELECT max(id) FROM main.places)")
        execute(into, "DELETE FROM main.readings WHERE rowid = (SELECT max(rowid) FROM main.readings)")
        run = into.run(exported.store)
        different = {each.table.table: each.found - each.expected for each in run.compare() if not each.equal}
    assert different == {"places": 0, "readings": -1}


def test_a_scratch_file_is_removed_and_so_is_one_that_a_killed_run_left(tmp_path: Path) -> None:
    beside = DatabaseAddress("scratch", f"duckdb://{tmp_path}/any%20where.duckdb?memory_limit=1GiB")
    left = tmp_path / f"{NAME}.duckdb"
    left.write_bytes(b"left by a killed run")
    with scratch_database(beside, NAME) as address:
        assert address.uri == f"duckdb://{left}?memory_limit=1GiB"
        with duckdb.connect(str(left)) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_database_is_dropped_and_so_is_one_that_a_killed_run_left(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    beside = DatabaseAddress("scratch", postgresql_database)

    def databases() -> str:
        query = f"SELECT count(*) FROM pg_database WHERE datname = '{NAME}'"
        return postgresql_server.psql(postgresql_database, query).strip()

    with pytest.raises(RestoreError, match="t"), scratch_database(beside, NAME) as address:
        raise RestoreError(address.uri)
    assert databases() == "0"
    with (
        scratch_database(beside, NAME),
        pytest.raises(DatabaseError, match="being accessed by other users"),
        scratch_database(beside, NAME),
    ):
        pass
    postgresql_server.psql(postgresql_database, f"CREATE DATABASE {NAME}")
    refused = f"has a database '{NAME}', which this program did not create"
    with pytest.raises(DatabaseError, match=refused), scratch_database(beside, NAME):
        pass
    comment = "Scratch database of snapshot_assets: dropped after use, or by the next one of this name."
    postgresql_server.psql(postgresql_database, f"COMMENT ON DATABASE {NAME} IS '{comment}'")
    with scratch_database(beside, NAME) as address:
        execute(address.uri, "CREATE TABLE t (a int)")
    assert databases() == "0"
