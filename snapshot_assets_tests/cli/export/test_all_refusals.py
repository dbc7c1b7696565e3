"""Everything that prevents an export is one error, before anything is written; options settle it without a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.preflight import checked_schemas
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan, store_of
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute

POSTGRESQL = (
    "CREATE TABLE two (id int, made timestamptz, sold timestamptz)",
    "CREATE TABLE three (id int, a timestamp, b timestamp, c timestamp)",
    "CREATE TABLE bare ()",
    "INSERT INTO bare DEFAULT VALUES",
    "CREATE TABLE empty_bare ()",
    "CREATE TABLE odd (id int, n numeric(10,2), d date, z timestamptz, t time, fine numeric(10,2))",
    "INSERT INTO odd VALUES (1, 'NaN', 'infinity', '-infinity', '24:00', 1.5)",
    "INSERT INTO odd VALUES (2, 1, '2025-01-01', '2025-01-01', '1:00', 2)",
    "CREATE DOMAIN price AS numeric(6,2)",
    "CREATE TABLE domained (p price)",
    "INSERT INTO domained VALUES ('NaN')",
    "CREATE TABLE sane (id int, n numeric(10,2), z timestamptz)",
    "INSERT INTO sane VALUES (1, 1.5, '2025-01-01 00:00:00+00')",
)
DUCKDB = (
    "CREATE TABLE two (id int, made TIMESTAMPTZ, sold TIMESTAMPTZ)",
    "CREATE TABLE three (id int, a TIMESTAMP, b TIMESTAMP, c TIMESTAMP)",
    "CREATE TABLE odd (id int, d DATE, z TIMESTAMPTZ, t TIME, n TIMESTAMP_NS[], s STRUCT(ab DATE[]), m MAP(INT, TIME))",
    "INSERT INTO odd VALUES (2, '2025-01-01', NULL, '1:00', ['2025-01-01', NULL], NULL, NULL)",
    "INSERT INTO odd"
    " VALUES (1, 'infinity', '-infinity', '24:00', ['infinity'], {'ab': ['-infinity']}, MAP {1: TIME '24:00'})",
    "CREATE TABLE sane (id int, z TIMESTAMPTZ, l DATE[], m MAP(INT, TIME), f DOUBLE)",
    "INSERT INTO sane VALUES (1, '2025-01-01', ['2025-01-01', NULL], MAP {1: TIME '23:00'}, 'NaN')",
    "INSERT INTO sane VALUES (2, NULL, NULL, NULL, NULL)",
)
RANGE = ("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-02T00:00:00Z")

Create = Callable[..., Any]


@pytest.fixture
def create(snapshots: Snapshots, location: Path) -> Create:
    def call(source: str, *options: str) -> Any:
        return snapshots("export", "create", "--source", source, "--to", location.as_uri(), *options)

    return call


def refused(error: str, *expected: str) -> None:
    for text in expected:
        assert text in error, (text, error)


def test_all_refusals_of_postgresql_are_one_error(
    create: Create, postgresql_database: str, location: Path, tmp_path: Path
) -> None:
    execute(postgresql_database, *POSTGRESQL)
    found = create(postgresql_database, *RANGE)
    assert (found.status, found.out) == (2, "")
    refused(
        found.err,
        "8 things prevent the export, and nothing was exported",
        "Table 'public.two' has 2 timestamp columns",
        "Table 'public.three' has 3 timestamp columns",
        "public.bare has rows and no columns",
        "public.odd.n (numeric(10,2)) holds NaN",
        "public.odd.d (date) holds infinity or -infinity",
        "public.odd.z (timestamp with time zone) holds infinity",
        "public.odd.t (time without time zone) holds 24:00:00",
        "public.domained.p (public.price) holds NaN",
        "--time-column public.three=<column> --time-column public.two=<column>",
        "carriers: {public.domained.p: text, public.odd.n: text, public.odd.d: text, public.odd.z: text",
    )
    refused_not = ("empty_bare", "sane", "public.odd.fine")
    assert not [name for name in refused_not if name in found.err]
    assert not location.exists()
    assert not (tmp_path / "dagster").exists()


def test_options_settle_all_refusals_of_postgresql(postgresql_database: str, location: Path, create: Create) -> None:
    execute(postgresql_database, *POSTGRESQL)
    carriers = [f"public.odd.{name}=text" for name in "ndzt"] + ["public.domained.p=text"]
    options = [each for carrier in carriers for each in ("--carrier", carrier)]
    times = ("--time-column", "public.two=made", "--time-column", "public.three=null")
    found = create(
        postgresql_database, *RANGE, *options, *times, "--exclude-tables", "public.*bare", "--parallelism", "0"
    )
    assert "parallelism" in found.err  # the options themselves are understood
    plan = plan_of_options(postgresql_database, location)
    export(plan, store_of(location))


def plan_of_options(source: str, location: Path) -> Plan:
    return make_plan(
        source,
        location.as_uri(),
        exclude_tables=["public.*bare"],
        time_columns={"public.two": "made", "public.three": None},
        carriers={**{f"public.odd.{name}": "text" for name in "ndzt"}, "public.domained.p": "text"},
    )


def test_all_refusals_of_duckdb_are_one_error(create: Create, tmp_path: Path, location: Path) -> None:
    source = make_file(tmp_path / "odd.duckdb", *DUCKDB).uri
    found = create(source, *RANGE)
    assert (found.status, found.out) == (2, "")
    refused(found.err, "8 things prevent", "'main.two'", "'main.three'", *(f"main.odd.{name} " for name in "dztnsm"))
    assert "sane" not in found.err
    assert not location.exists()


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_a_range_of_the_source_that_cannot_be_is_refused_with_all_else(
    create: Create, kind: str, postgresql_database: str, tmp_path: Path, location: Path
) -> None:
    old = "CREATE TABLE old (z timestamptz, t time)", "INSERT INTO old VALUES ('1900-01-01', '24:00')"
    if kind == "duckdb":
        source = make_file(tmp_path / "odd.duckdb", *DUCKDB, *old).uri
    else:
        source = postgresql_database
        execute(source, *POSTGRESQL, *old)
    found = create(source, "--chunk-time-window", "1s")
    assert (found.status, found.out) == (2, "")
    refused(found.err, "10 things prevent", "windows", "old.t (", "odd.z (", "odd.d (", "odd.t (")
    assert not location.exists()


def test_unknown_names_are_refused_together(create: Create, source: str) -> None:
    found = create(
        source,
        "--tables",
        "main.reading,main.sensor",
        "--time-column",
        "main.readings=momen",
        "--carrier",
        "main.x.y=text",
    )
    assert found.status == 2
    assert "not among tables" in found.err  # the plan's own mistakes come first
    found = create(source, *RANGE, "--time-column", "main.readings=momen", "--carrier", "main.x.y=text")
    refused(found.err, "2 things", "no column 'momen'", "'x' does not exist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time-column", "main.readings"], "is not a name, =, and a value"),
        (["--time-column", "main.readings=a", "--time-column", "main.readings=b"], "names main.readings twice"),
        (["--carrier", "main.readings.value=json"], "carriers"),
        (["--carrier", "main.readings=text"], "not a schema, a table and a column"),
        (["--exclude-tables", "readings"], "not a pattern"),
        (["--plan", "p", "--exclude-tables", "a.b"], "--exclude-tables"),
    ],
)
def test_wrong_options_are_refused(create: Create, source: str, options: list[str], message: str) -> None:
    found = create(source, *options)
    assert found.status == 2
    assert message in found.err


def test_only_rows_that_are_to_be_exported_are_looked_at(tmp_path: Path, location: Path) -> None:
    address = make_file(
        tmp_path / "odd.duckdb",
        "CREATE TABLE events (moment TIMESTAMPTZ, d DATE)",
        "INSERT INTO events SELECT TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(n), '2025-01-01' FROM range(72) r(n)",
        "INSERT INTO events VALUES ('2025-02-01 00:00:00Z', 'infinity')",
    )
    plan = make_plan(address.uri, location.as_uri())
    with_more = plan.changed(end_time="2025-03-01T00:00:00Z")
    database = open_database(DatabaseAddress("x", address.uri))
    try:
        checked_schemas(database, plan, (lambda _: plan, None))
        with pytest.raises(SnapshotError, match=r"main\.events\.d \(DATE\) holds an infinite time"):
            checked_schemas(database, with_more, (lambda _: with_more, None))
    finally:
        database.close()


def test_carriers_of_the_call_reach_the_plan() -> None:
    plan = make_plan("duckdb:///a/b.duckdb", "file:///tmp/x/y", carriers={"main.t.c": "text"})
    assert plan.selection.carriers == {(TableName("main", "t"), "c"): Carrier.TEXT}
