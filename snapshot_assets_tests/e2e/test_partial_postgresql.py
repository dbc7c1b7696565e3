"""A server without COPY and shared snapshots is exported on the command line, compared, and restored equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.partial_postgresql import COPY, SNAPSHOTS, lacking
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

SHOP = (
    "CREATE TYPE state AS ENUM ('new', 'paid')",
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL UNIQUE, address inet, key uuid)",
    "INSERT INTO customers SELECT n, 'größe ' || n, '10.0.0.1/8', md5(n::text)::uuid FROM generate_series(1, 300) n",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint REFERENCES customers, at timestamptz, day date,"
    " amount numeric(12,2), state state, tags text[], data jsonb, raw bytea, share float8, open bool)",
    "INSERT INTO orders SELECT n, 1 + n % 300, '2025-01-01Z'::timestamptz + n * interval '1min', '2025-01-01', n / 7.0,"
    " 'paid', ARRAY['a', NULL], '{\"b\": 1}', '\\x00ff', n / 3.0, n % 2 = 0 FROM generate_series(1, 5000) n",
    "CREATE INDEX by_time ON orders (at)",
)
CONFIGURATION = """
sources:
  shop: {{uri: '{uri}', copy: false, consistency: chunk}}
plans:
  shop:
    source: shop
    to: {to}
    time_columns: {{public.orders: at}}
    start_time: 2025-01-01T00:00:00Z
    end_time: 2025-01-05T00:00:00Z
    chunk_time_window: 1d
"""


def test_rows_of_a_server_without_copy_and_shared_snapshots_are_restored_equal(
    snapshots: Snapshots,
    tmp_path: Path,
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    make_postgresql_database: MakeDatabase,
) -> None:
    execute(postgresql_database, *SHOP)
    into, location = make_postgresql_database(), (tmp_path / "location").as_uri()
    with lacking(postgresql_database, COPY, "pg_export_snapshot", SNAPSHOTS, "pg_publication") as uri:
        configuration = tmp_path / "snapshots.yaml"
        configuration.write_text(CONFIGURATION.format(uri=uri, to=location))
        plan = ("--config", str(configuration))
        created = snapshots(*plan, "export", "create", "--plan", "shop", "--json")
        assert created.status == 0, created.err
        assert (created.json["rows"], created.json["consistency"]) == (5300, "chunk")
        [warning] = [each for each in created.json["warnings"] if "states of their own" in each]
        assert warning.startswith("Connections to PostgreSQL read states")
        [lost] = created.json["not_carried"]["undescribed"]
        assert lost.startswith('objects of the database (relation "pg_publication" does not exist')
        compared = snapshots(*plan, "compare", "--plan", "shop", "--json")
        assert compared.status == 0, compared.out
        execute(postgresql_database, "UPDATE orders SET amount = 0 WHERE id = 1")
        compared = snapshots(*plan, "compare", "--plan", "shop", "--json")
        assert compared.status == 0, compared.out
        [unequal] = compared.json["unequal"]
        assert unequal["reason"].endswith("the source's connections read states of their own")
        changed = snapshots(*plan, "export", "create", "--plan", "shop", "--changed", "--json")
        assert changed.status == 0, changed.err
        assert changed.json["outcomes"]["replaced"] == 1
    imported = snapshots("import", "--snapshot", location, "--target", into, "--json")
    assert imported.status == 0, imported.err
    for table in ("customers", "orders"):
        rows = f"SELECT * FROM {table} ORDER BY id"
        assert postgresql_server.psql(into, rows) == postgresql_server.psql(postgresql_database, rows)
