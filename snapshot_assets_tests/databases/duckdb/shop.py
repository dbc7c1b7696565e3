"""A DuckDB database with everything that one can have, and what compares two of them."""

from __future__ import annotations

from pathlib import Path

import duckdb

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.sql import qualified
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.databases.duckdb.files import path_of

STRANGE = '"we""ird. ; näme"'

SHOP = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s', 'größe')",
    "CREATE TYPE a_point AS STRUCT(x INTEGER, m mood)",
    "CREATE TYPE an_alias AS DECIMAL(9, 2)",
    "COMMENT ON TYPE mood IS 'how it ''feels'",
    "CREATE SEQUENCE numbers START 5 INCREMENT 3 MINVALUE -10 MAXVALUE 1000 CYCLE",
    "CREATE SEQUENCE down INCREMENT -2 MINVALUE -100 MAXVALUE 7 START 7",
    "CREATE SEQUENCE unused",
    "CREATE TABLE z_parent (id INTEGER, code VARCHAR, PRIMARY KEY (id), UNIQUE (code, id))",
    """CREATE TABLE child (
        id BIGINT PRIMARY KEY DEFAULT nextval('numbers'), parent INTEGER REFERENCES z_parent (id),
        name VARCHAR COLLATE NOCASE NOT NULL, price DECIMAL(10, 2) DEFAULT 1.5 CHECK (price > 0),
        twice BIGINT GENERATED ALWAYS AS (id * 2) VIRTUAL, m mood, ts TIMESTAMP, day DATE,
        d INTEGER DEFAULT nextval('down'))""",
    "CREATE TABLE a_grandchild (child BIGINT, code VARCHAR, z INTEGER, FOREIGN KEY (child) REFERENCES child (id),"
    " FOREIGN KEY (code, z) REFERENCES z_parent (code, id))",
    "CREATE TABLE employees (id INTEGER PRIMARY KEY, boss INTEGER, name VARCHAR UNIQUE)",
    "COMMENT ON TABLE child IS 'a ''child'''",
    "COMMENT ON COLUMN child.name IS 'its name'",
    "CREATE INDEX by_name ON child (name, (price + 1))",
    "CREATE UNIQUE INDEX by_day ON child (day)",
    "INSERT INTO z_parent VALUES (1, 'x'), (2, NULL)",
    "INSERT INTO child (parent, name, ts) VALUES (1, 'A', '2024-01-01'), (2, 'b', NULL), (NULL, 'ü', NULL)",
    "INSERT INTO a_grandchild VALUES (5, 'x', 1), (8, NULL, 1), (NULL, 'x', 1)",
    "INSERT INTO employees SELECT i, i // 2, 'e' || i FROM range(3000) t(i)",
    f"CREATE SCHEMA {STRANGE}",
    f'CREATE TABLE {STRANGE}.{STRANGE} ({STRANGE} INTEGER PRIMARY KEY, "rowid" VARCHAR)',
    f"INSERT INTO {STRANGE}.{STRANGE} VALUES (7, 'x')",
    f"COMMENT ON TABLE {STRANGE}.{STRANGE} IS '🦆'",
    'CREATE SCHEMA "out.side"',
    'CREATE TABLE "out.side".deep AS SELECT 1 AS one',
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.shop.shop AS SELECT 1 AS one",
    "CREATE VIEW z_first AS SELECT id, name FROM child",
    """CREATE VIEW a_second ("Its Id", n) AS
        SELECT z.id, count(*) FROM z_first z JOIN z_parent p ON p.id = z.id GROUP BY 1""",
    "COMMENT ON VIEW a_second IS 'the second'",
    f"""CREATE VIEW {STRANGE}.v AS WITH z_parent AS (SELECT * FROM main.child), r AS (SELECT * FROM z_parent)
        SELECT * FROM r, {STRANGE} WHERE EXISTS (SELECT 1 FROM "out.side".deep)""",
    "CREATE TABLE doomed AS SELECT 1 AS x",
    "CREATE VIEW broken AS SELECT * FROM doomed",
    "DROP TABLE doomed",
)


def fresh(folder: Path, name: str = "copy") -> DatabaseAddress:
    return DatabaseAddress(name, (folder / f"{name}.duckdb").as_uri().replace("file:", "duckdb:", 1))


def differences(one: DatabaseAddress, other: DatabaseAddress, schema: DatabaseSchema) -> dict[str, int]:
    """Return the tables whose rows differ, with the number of those that only one file has."""
    found = {}
    with duckdb.connect() as connection:
        for name, address in (("one", one), ("other", other)):
            connection.execute(f"ATTACH '{path_of(address)}' AS {name} (READ_ONLY)")
        for table in schema.tables:
            # As texts too: equal intervals, and equal zeros, may differ.
            left, right = (
                f"SELECT *, CAST(COLUMNS(*) AS VARCHAR) FROM {qualified((side, *table.table_name))}"
                for side in ("one", "other")
            )
            query = f"(({left}) EXCEPT ALL ({right})) UNION ALL (({right}) EXCEPT ALL ({left}))"
            if rows := connection.sql(query).fetchall():
                found[str(table.table_name)] = len(rows)
    return found
