"""Tables are read whose expressions call functions that rely on a search_path, as pg_dump reads them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.databases.protocol.source import AllRows, Scan, Selection, WindowRows
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.testing.restores import utc as at
from snapshot_assets_tests.databases.postgresql.helpers import client, opened, read, read_scan, table_of
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

# While the objects are made, the functions call nothing that relies on a path: since version 17 the server checks that.
SOUND = """
CREATE SCHEMA app; CREATE SCHEMA other;
CREATE FUNCTION norm(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT t $$;
CREATE FUNCTION good(t text) RETURNS bool LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
CREATE FUNCTION low() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN 'a'; END $$;
CREATE TABLE t (id int, at timestamptz NOT NULL, x text, price numeric(8,2), size int, place regclass, kind regtype);
"""
PARTED = "ALTER TABLE t RENAME TO columns; CREATE TABLE t (LIKE columns)"
RELYING = """
CREATE TABLE {where}.factors (n int); INSERT INTO {where}.factors VALUES (1);
CREATE TYPE {where}.mood AS ENUM ('fine');
CREATE FUNCTION {where}.helper(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT pg_catalog.lower(t) $$;
CREATE OR REPLACE FUNCTION norm(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT helper(t) $$;
CREATE OR REPLACE FUNCTION good(t text) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
    SELECT helper(t) <> 'fine'::mood::text $$;
CREATE OR REPLACE FUNCTION low() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN RETURN (SELECT n::text FROM factors); END $$;
"""
ROWS = """
INSERT INTO t (id, at, x, price, size, place, kind)
SELECT i, '2026-01-01'::timestamptz + i * interval '1 hour', 'N' || i, i, i, 't'::regclass, '{where}.mood'::regtype
FROM generate_series(0, 47) i;
"""
EXPRESSIONS = {
    "index": "CREATE INDEX ON t (norm(x))",
    "predicate": "CREATE INDEX ON t (at) WHERE good(x)",
    "constant predicate": "CREATE INDEX ON t (id) WHERE x > low()",
    "statistics": "CREATE STATISTICS s ON (norm(x)), id FROM t",
    "generated column": "ALTER TABLE t ADD g text GENERATED ALWAYS AS (norm(x)) STORED; CREATE INDEX ON t (norm(g))",
    "exclusion": "ALTER TABLE t ADD EXCLUDE USING btree (norm(x) WITH =) WHERE (id < 0)",
    "check and constraint_exclusion": "ALTER TABLE t ADD CHECK (good(x));"
    " ALTER ROLE postgres SET constraint_exclusion = on",
    "domain": "CREATE DOMAIN d AS text CHECK (good(VALUE)); ALTER TABLE t ALTER x TYPE d; CREATE INDEX ON t (norm(x))",
    "partition key": f"{PARTED} PARTITION BY LIST (norm(x)); CREATE TABLE p PARTITION OF t DEFAULT",
    "partition's check": f"{PARTED} PARTITION BY LIST (id); CREATE TABLE p PARTITION OF t DEFAULT;"
    " ALTER TABLE p ADD CHECK (good(x))",
    "partition's index": f"{PARTED} PARTITION BY LIST (id); CREATE TABLE p PARTITION OF t DEFAULT;"
    " CREATE INDEX ON p (norm(x))",
}


def make(server: PostgresqlServer, uri: str, expression: str, where: str) -> None:
    """Create the table and its rows, and have its functions rely on a path that sessions of its user have."""
    script = f"{SOUND}{expression};{RELYING}{ROWS}".replace("{where}", where)
    server.psql_script(uri, f"SET search_path = public, app;{script}")


def rows_of(uri: str) -> list[tuple[object, ...]]:
    """Read everything by windows and parts, and by other carriers."""
    hours = [at(2026, 1, 1) + timedelta(hours=8 * step) for step in range(6)]
    with opened(uri) as database:
        table = table_of(database, "t", time="at", carriers={"size": Carrier.TEXT})
        windows = [WindowRows(each, each + timedelta(hours=8)) for each in hours]
        scans = [part for window in windows for part in database.split(Scan(table, window, order_by=("x",)), 2)]
        tables = [read_scan(database, scan).to_pydict() for scan in scans]
        assert database.time_bounds((table,)) == (at(2026, 1, 1), at(2026, 1, 2, 23))
        assert database.count_outside(table, at(2026, 1, 1), at(2026, 1, 2)) == 24
        assert database.unfit(table, windows) == []
        assert database.quantiles(Scan(table, AllRows()), "id", 2).rows == 48
        assert all(database.estimate(scan) for scan in scans)
        assert read(database, table).num_rows == 48
        # What is read later is printed as ever.
        assert database.extract(Selection(tables=(TableName("public", "t"),), time_columns={table.table_name: "at"}))
        columns = ("id", "x", "price", "size", "place", "kind")
    return [row for each in tables for row in zip(*(each[column] for column in columns), strict=True)]


@pytest.mark.parametrize(
    ("expression", "where"),
    [*((each, "app") for each in EXPRESSIONS), *((each, "public") for each in ("index", "partition key"))],
)
def test_a_table_is_read_whose_expressions_rely_on_a_path(
    older_postgresql_server: PostgresqlServer, expression: str, where: str
) -> None:
    uri = older_postgresql_server.create_database()
    try:
        make(older_postgresql_server, uri, EXPRESSIONS[expression], where)
        found = sorted(rows_of(uri))
    finally:
        older_postgresql_server.psql(older_postgresql_server.uri(), "ALTER ROLE postgres RESET ALL")
        older_postgresql_server.drop_database(uri)
    assert [(id_, x, float(price), size) for id_, x, price, size, *_ in found] == [
        (number, f"N{number}", number, str(number)) for number in range(48)
    ]
    assert {row[4:] for row in found} == {("public.t", f"{where}.mood")}


def test_the_newest_server_reads_it_too(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    make(postgresql_server, postgresql_database, EXPRESSIONS["index"], "app")
    assert len(rows_of(postgresql_database)) == 48


def test_the_path_of_the_user_decides_which_function_is_meant(
    postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    make(postgresql_server, postgresql_database, EXPRESSIONS["constant predicate"], "app")
    raising = "CREATE FUNCTION {0}.helper(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RAISE ''{0}''; END'"
    low = "CREATE OR REPLACE FUNCTION public.low() RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT helper(''A'')'"
    with client(postgresql_database) as run:
        run("SET search_path = app")
        for statement in (low, "CREATE SCHEMA mine", raising.format("mine"), raising.format("other")):
            run(statement)
        database = postgresql_database.rpartition("/")[2]
        run(f"ALTER DATABASE {database} SET search_path = app, public")
    assert len(rows_of(postgresql_database)) == 48
    with client(postgresql_database) as run:
        run(f"ALTER DATABASE {database} SET search_path = mine, app")
    with pytest.raises(DatabaseError, match="mine"):
        rows_of(postgresql_database)


def test_a_name_in_no_schema_is_the_error(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    make(postgresql_server, postgresql_database, EXPRESSIONS["index"], "app")
    with client(postgresql_database) as run:
        run("DROP FUNCTION app.helper(text)")
    with pytest.raises(DatabaseError, match="function helper"):
        rows_of(postgresql_database)
