"""What needs a column that a plan hides: PostgreSQL's own dependencies decide, in tables and in their partitions."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import DatabaseDeniedError, PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import (
    client,
    execute,
    extracted,
    opened,
    read,
    restore,
    schema_dump,
)
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

SOURCE = """
CREATE TYPE mood AS ENUM ('fine');
CREATE TABLE parts (id int, day date NOT NULL, pin text NOT NULL, m mood, note text,
    PRIMARY KEY (id, day), UNIQUE (pin, day), CONSTRAINT long CHECK (length(pin) > 3)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
ALTER TABLE parts_1 ADD CONSTRAINT own CHECK (pin <> note);
CREATE INDEX by_pin ON parts (lower(pin));
CREATE INDEX where_pin ON parts (id) WHERE pin IS NOT NULL;
CREATE INDEX email ON parts (note);
CREATE STATISTICS joint ON pin, note FROM parts;
CREATE TABLE pins (id serial, pin text UNIQUE, other text REFERENCES pins (pin), secret serial);
CREATE TABLE uses (pin text REFERENCES pins (pin), id int);
CREATE VIEW shown AS SELECT id FROM parts WHERE pin = 'x';
CREATE VIEW all_of_it AS SELECT * FROM parts;
CREATE VIEW plain AS SELECT id, 'pin' AS word FROM parts;
"""
EXPECTED = """
CREATE TABLE parts (id int, day date NOT NULL, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE INDEX email ON parts (note);
CREATE TABLE pins (id serial, other text);
CREATE TABLE uses (pin text, id int);
CREATE VIEW plain AS SELECT id, 'pin' AS word FROM parts;
"""


def column(table: str, name: str) -> tuple[TableName, str]:
    return TableName("public", table), name


def excluding(*columns: tuple[TableName, str], **fields: object) -> Selection:
    return Selection(exclude_columns=columns, **fields)  # type: ignore[arg-type]


def test_all_that_needs_an_excluded_column_is_left_out_and_nothing_else(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target, expected = (make_postgresql_database() for _ in range(3))
    postgresql_server.psql_script(source, SOURCE)
    postgresql_server.psql_script(expected, EXPECTED)
    hidden = excluding(column("parts", "pin"), column("parts", "m"), column("pins", "pin"), column("pins", "secret"))
    schema = extracted(source, hidden)
    lost = restore(schema, target).lost
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, expected)
    for name in [
        "long",
        "by_pin",
        "where_pin",
        "joint",
        "pins_other_fkey",
        "uses_pin_fkey",
        "shown",
        "all_of_it",
        "mood",
    ]:
        assert any(name in sentence for sentence in lost), (name, lost)


def test_what_only_an_excluded_column_needs_is_not_recorded(make_postgresql_database: MakeDatabase) -> None:
    source = make_postgresql_database()
    execute(
        source,
        "CREATE FUNCTION f() RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'",
        "CREATE TABLE t (id int, pin text DEFAULT f() CHECK (pin <> f()))",
        "CREATE INDEX by_pin ON t ((pin || f()))",
    )
    [need] = extracted(source, Selection()).table(TableName("public", "t")).options["needs"]
    assert need["name"] == "public.f()"
    assert "needs" not in extracted(source, excluding(column("t", "pin"))).table(TableName("public", "t")).options


def test_a_masked_column_may_hold_anything_of_its_type(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, SOURCE)
    execute(source, "INSERT INTO parts VALUES (1, '2025-02-03', '1234', 'fine', 'n')")
    masks = {column("parts", "pin"): "NULL", column("parts", "m"): "NULL", column("pins", "id"): "7"}
    schema = extracted(source, Selection(masks=masks))
    restore(schema, target)
    execute(target, "INSERT INTO parts (id, day) VALUES (1, '2025-01-02'), (2, '2025-01-03')")
    with client(target) as run:
        indexes = {name for (name,) in run("SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public'")}
    assert {"by_pin", "where_pin", "parts_pkey"} <= indexes
    assert not {"parts_pin_day_key", "pins_pin_key"} <= indexes
    with opened(source) as database:
        rows = read(database, schema.table(TableName("public", "parts"))).to_pylist()
    assert [(row["pin"], row["m"], row["note"]) for row in rows] == [(None, None, "n")]


HEIRS = ("CREATE TABLE t (id int, pin text)", "CREATE TABLE child (x int) INHERITS (t)")


@pytest.mark.parametrize(
    ("statements", "selection", "message"),
    [
        (
            ["CREATE TABLE t (id int, region text) PARTITION BY LIST (region)"],
            excluding(column("t", "region")),
            r"public\.t\.region is in the partition key",
        ),
        (
            ["CREATE TABLE t (id int, region text) PARTITION BY LIST (lower(region))"],
            Selection(masks={column("t", "region"): "'x'"}),
            r"public\.t\.region is in the partition key",
        ),
        (
            HEIRS,
            excluding(column("t", "pin")),
            r"t\.pin is excluded, and public\.child shares.*name public\.child\.pin",
        ),
        (
            HEIRS,
            excluding(column("child", "pin")),
            r"child\.pin is excluded, and public\.t shares it.*name public\.t\.pin",
        ),
        (
            HEIRS,
            Selection(masks={column("t", "pin"): "'x'"}),
            r"public\.t\.pin is masked, and public\.child shares it.*name public\.child\.pin under mask",
        ),
        (
            ["CREATE TABLE t (id int, pin text)", "CREATE TABLE log (old t[])"],
            excluding(column("t", "pin")),
            r"Column public\.log\.old holds rows of public\.t",
        ),
        (
            ["CREATE TYPE row AS (id int, pin text)", "CREATE TABLE t OF row"],
            excluding(column("t", "pin")),
            r"public\.t has the columns of type .*row",
        ),
    ],
)
def test_what_decides_where_rows_go_is_refused(
    postgresql_database: str, statements: list[str], selection: Selection, message: str
) -> None:
    execute(postgresql_database, *statements)
    with opened(postgresql_database) as database, pytest.raises(PlanError, match=message):
        database.extract(selection)


def test_both_sides_of_an_inheritance_may_be_excluded(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target, expected = (make_postgresql_database() for _ in range(3))
    execute(source, *HEIRS)
    execute(expected, "CREATE TABLE t (id int)", "CREATE TABLE child (x int) INHERITS (t)")
    restore(extracted(source, excluding(column("t", "pin"), column("child", "pin"))), target)
    assert schema_dump(postgresql_server, target) == schema_dump(postgresql_server, expected)


def test_an_excluded_column_needs_no_privilege(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    name = postgresql_database.rsplit("/", 1)[1]
    execute(
        postgresql_database,
        "CREATE TABLE t (id int, pin text)",
        "INSERT INTO t VALUES (1, 'secret')",
        f"CREATE ROLE reader_{name} LOGIN PASSWORD 'pw'",
        f"GRANT SELECT (id) ON t TO reader_{name}",
    )
    with opened(postgresql_server.uri(name, f"reader_{name}", "pw")) as database:
        with pytest.raises(DatabaseDeniedError, match=r"public\.t"):
            database.extract(Selection())
        for selection in (excluding(column("t", "pin")), Selection(masks={column("t", "pin"): "'***'"})):
            table = database.extract(selection).table(TableName("public", "t"))
            assert {row["id"]: row.get("pin") for row in read(database, table).to_pylist()} in ({1: None}, {1: "***"})
