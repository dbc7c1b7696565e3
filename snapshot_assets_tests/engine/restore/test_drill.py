"""Rows of a restored database are compared with the snapshot's by value, in a scratch database that is dropped."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import duckdb
import pytest

from snapshot_assets import scratch_folders
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.open import scratch_database
from snapshot_assets.databases.postgresql.target import _uri_of
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.restore.drill import ComparedRows, compare
from snapshot_assets.engine.restore.files import ChunkFiles
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import DatabaseError, DatabaseLockedError, RestoreError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, ROWS
from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.engine.exports import CHUNKS, Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

pytestmark = pytest.mark.slow

NAME = "snapshots_drill_shop"


def compared(store: ObjectStore, address: DatabaseAddress) -> list[ComparedRows]:
    run = RestoreRun(store, address, InlineRunner(), RestoreSettings())
    run.begin()
    list(run.restore())
    assert run.finish()
    found = list(compare(run))
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


@pytest.fixture
def beside(tmp_path: Path) -> DatabaseAddress:
    """A file that is not there; its folder gets the scratch database."""
    return DatabaseAddress("scratch", f"duckdb://{tmp_path}/any.duckdb")


@pytest.mark.parametrize(("into", "files"), [("postgresql", "parquet"), ("postgresql", "csv"), ("duckdb", "parquet")])
def test_every_restored_value_of_postgresql_is_equal(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path, into: str, files: str
) -> None:
    source = make_postgresql_database()
    postgresql_server.psql_script(source, every_type_script())
    store = exported_from(source, tmp_path / "snapshots", time_columns={"public.t": None}, format=files)
    beside = source if into == "postgresql" else f"duckdb://{tmp_path}/any.duckdb"
    with scratch_database(DatabaseAddress("scratch", beside), NAME) as address:
        found = compared(store, address)
    assert [each for each in found if not each.equal or each.uncompared] == []
    assert sum(each.found for each in found) == sum(each.expected for each in found) > 0


FLOATS = {
    "constant": "'-0'::DOUBLE",
    "runs": "CASE i // 2500 WHEN 0 THEN '-0'::DOUBLE WHEN 1 THEN 0.0 WHEN 2 THEN '-0'::DOUBLE ELSE 1.5 END",
    "zeros": "CASE WHEN i % 7 = 0 THEN '-0'::DOUBLE ELSE 0.0::DOUBLE END",
    "nans": "CASE WHEN i % 2 = 0 THEN 'nan'::DOUBLE ELSE -'nan'::DOUBLE END",
    "mixed": "CASE WHEN i % 7 = 0 THEN '-0'::DOUBLE ELSE i / 10 END",
}
"""Both zeros and NaNs in the ways that DuckDB compresses differently. Its literal -0.0 is a decimal, and so 0."""


@pytest.mark.parametrize("files", ["parquet", "csv", "json"])
def test_every_restored_value_of_duckdb_is_equal(place: Place, beside: DatabaseAddress, files: str) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(CASES))
    values = [("NULL", *values) for _, _, values in CASES.values()]
    rows = ", ".join(f"({', '.join(row)})" for row in zip_longest(*values, fillvalue="NULL"))
    place.sql(f"CREATE TABLE every_type ({columns}); INSERT INTO every_type VALUES {rows}")
    for name, value in FLOATS.items():
        columns = "d, d::FLOAT AS f, [d, -d] AS l, {'m': d::FLOAT} AS s"
        place.sql(
            f"CREATE TABLE {name} AS SELECT {columns} FROM (SELECT ({value})::DOUBLE AS d FROM range(10_000) r(i))"
        )
    place.export(format=files, time_columns={"main.every_type": None})
    with scratch_database(beside, NAME) as address:
        found = compared(place.store, address)
    assert [each for each in found if not each.equal] == []
    assert sum(each.found for each in found) == sum(each.expected for each in found) > 50_000


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'-0'::float8", "'0'::float8"),
        ("ARRAY['-0'::float8]", "ARRAY['0'::float8]"),
        ("'1 day'::interval", "'24:00:00'::interval"),
        ("'1 month'::interval", "'30 days'::interval"),
        ("ARRAY['1 day'::interval]", "ARRAY['24:00:00'::interval]"),
    ],
)
def test_values_that_the_database_calls_equal_are_found_where_they_differ(
    pair: tuple[Place, Into], one: str, other: str
) -> None:
    place, into = pair
    execute(place.source, f"CREATE TABLE t AS SELECT {one} AS v")
    place.export(time_columns={})
    assert all(each.equal for each in compared(place.store, into.address))
    execute(into, "DELETE FROM t", f"INSERT INTO t SELECT {other}")  # DuckDB leaves out an update to an equal value
    [found] = compare(into.run(place.store))
    assert (found.expected, found.found, found.equal) == (1, 1, False)


SCRIPTS = {"everything": EVERYTHING + ROWS, "every type": every_type_script()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_value_is_equal_in_a_renamed_schema_of_the_same_database(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path, script: str
) -> None:
    uri = postgresql_database
    postgresql_server.psql_script(uri, SCRIPTS[script])
    untimed = {"time_columns": {"public.t": None}} if script == "every type" else {}
    store = exported_from(uri, tmp_path / "location", **untimed)
    schemas = ("public", "sales", 'Größe "X"') if script == "everything" else ("public",)
    names = {name: f"Its {name}" for name in schemas}
    done = Into(uri).restore(store, filters=Filters(renaming=Renaming.of(names.items())))
    assert done.finished
    compared = list(compare(done.run))
    assert [each for each in compared if not each.equal] == []
    assert sum(each.found for each in compared) > 0
    assert {each.table.schema for each in compared} <= set(names.values())


def test_one_changed_value_and_one_missing_row_are_found(exported: Place, beside: DatabaseAddress) -> None:
    with scratch_database(beside, NAME) as address:
        into = Into(address.uri)
        assert all(each.equal for each in compared(exported.store, address))
        execute(into, "UPDATE main.places SET id = id + 1000 WHERE id = (SELECT max(id) FROM main.places)")
        execute(into, "DELETE FROM main.readings WHERE rowid = (SELECT max(rowid) FROM main.readings)")
        run = into.run(exported.store)
        different = {each.table.table: each.found - each.expected for each in compare(run) if not each.equal}
    assert different == {"places": 0, "readings": -1}


def test_a_column_may_have_any_name(place: Place, beside: DatabaseAddress) -> None:
    place.sql("ALTER TABLE places ADD COLUMN given VARCHAR")
    place.export()
    with scratch_database(beside, NAME) as address:
        assert all(each.equal for each in compared(place.store, address))
        execute(Into(address.uri), "UPDATE main.places SET id = id + 1000")
        found = compare(Into(address.uri).run(place.store))
        assert [each.table.table for each in found if not each.equal] == ["places"]


def test_files_that_carry_a_column_in_another_way_are_compared_by_it(place: Place, beside: DatabaseAddress) -> None:
    place.export(chunks=CHUNKS[:2], seal=False)
    place.export(carriers={"main.readings.value": "text"})
    with scratch_database(beside, NAME) as address:
        assert all(each.equal for each in compared(place.store, address))
        execute(Into(address.uri), "UPDATE main.readings SET value = value + 1 WHERE value IS NOT NULL")
        found = compare(Into(address.uri).run(place.store))
        assert len([each for each in found if not each.equal]) > 1


def test_a_column_that_files_carry_in_two_ways_is_named_and_the_others_are_compared(
    place: Place, beside: DatabaseAddress
) -> None:
    place.export(chunks=CHUNKS[:2], seal=False)
    place.export(carriers={"main.readings.value": "text"})
    with scratch_database(beside, NAME) as address:
        into = Into(address.uri)
        compared(place.store, address)

        def of_all_windows() -> tuple[bool, tuple[str, ...]]:
            run = into.run(place.store)
            plan = run.current()
            files = tuple(each for chunk in plan.chunks for each in chunk.files if each.table.name == "readings")
            whole = ChunkFiles(0, files, ((files[0].table, AllRows()),))
            run.plan = replace(plan, chunks=(whole,))
            [found] = [each for each in compare(run) if each.table.table == "readings"]
            assert (found.error, found.found) == (None, found.expected)
            return found.equal, found.uncompared

        assert of_all_windows() == (True, ("value",))
        execute(into, "UPDATE main.readings SET value = 'infinity'")
        assert of_all_windows() == (True, ("value",))
        execute(into, "UPDATE main.readings SET sensor = sensor || 'x'")
        assert of_all_windows() == (False, ("value",))


def test_a_scratch_folder_is_removed_and_so_is_one_that_a_killed_run_left(tmp_path: Path) -> None:
    beside = DatabaseAddress("scratch", f"duckdb://{tmp_path}/any%20where.duckdb?memory_limit=1GiB")
    left = tmp_path / f"{NAME}.killed"
    left.mkdir()
    (left / scratch_folders._lock_name()).touch()
    own = tmp_path / f"{NAME}.duckdb"
    own.write_bytes(b"of the user")
    with scratch_database(beside, NAME) as first, scratch_database(beside, NAME) as second:
        assert first.uri.endswith(f"/{NAME}.duckdb?memory_limit=1GiB")
        assert first.uri != second.uri
        for address in (first, second):
            with duckdb.connect(address.uri.partition("://")[2].partition("?")[0]) as connection:
                connection.execute("CREATE TABLE t AS SELECT 1")
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [own]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    beside = DatabaseAddress("scratch", f"duckdb://{tmp_path}/nowhere/any.duckdb")
    with pytest.raises(DatabaseError, match="Create the folder"), scratch_database(beside, NAME):
        pass


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
        pytest.raises(DatabaseLockedError, match="another run uses the scratch database"),
        scratch_database(beside, NAME),
    ):
        pass
    postgresql_server.psql(postgresql_database, f"CREATE DATABASE {NAME}")
    refused = f"has a database '{NAME}' without the comment"
    with pytest.raises(DatabaseError, match=refused), scratch_database(beside, NAME):
        pass
    comment = "Scratch database of snapshot_assets: dropped after use, or by the next one of this name."
    postgresql_server.psql(postgresql_database, f"COMMENT ON DATABASE {NAME} IS '{comment}'")
    with scratch_database(beside, NAME) as address:
        execute(address.uri, "CREATE TABLE t (a int)")
    assert databases() == "0"


def test_a_uri_keeps_its_options_and_gets_another_database() -> None:
    for uri, expected in (
        ("postgresql://u:a%2Fb@h:5/db?password=a+b&dbname=x", "postgresql://u:a%2Fb@h:5/my%20drill?password=a+b"),
        ("postgresql://h", "postgresql://h/my%20drill"),
        ("postgresql:///db?host=/tmp/s", "postgresql:///my%20drill?host=/tmp/s"),
    ):
        assert _uri_of(uri, "my drill") == expected


def test_masked_values_are_equal_in_the_target_which_holds_them_already(place: Place, beside: DatabaseAddress) -> None:
    place.sql("CREATE TABLE people (name VARCHAR); INSERT INTO people VALUES ('Ada'), (NULL)")
    place.sql("CREATE TABLE secrets (name VARCHAR, hash VARCHAR); INSERT INTO secrets VALUES ('Ada', 'x')")
    hashed = "(SELECT hash FROM secrets s WHERE s.name = people.name)"
    place.export(mask={"main.people.name": hashed, "main.secrets.name": "md5(name)"})
    with scratch_database(beside, NAME) as address:
        found = compared(place.store, address)
    assert [each for each in found if not each.equal] == []
