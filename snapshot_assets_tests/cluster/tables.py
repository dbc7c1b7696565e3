"""The source of the tests of clusters, and what a location and a database hold of it."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.postgresql import PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server

EVENTS = "events"


def fill(server: PostgresqlServer, database: str, *, rows: int) -> None:
    """Create `events`, with an id from 0 on, evenly over three days from 2025 on, and a table without time."""
    server.psql(
        database,
        f"CREATE TABLE {EVENTS} (id bigint PRIMARY KEY, moment timestamptz NOT NULL, value float8, note text)",
        f"INSERT INTO {EVENTS} SELECT n, '2025-01-01Z'::timestamptz + n * interval '3 days' / {rows}, n / 7.0,"
        f" md5(n::text) FROM generate_series(0, {rows} - 1) n",
        f"CREATE INDEX ON {EVENTS} (moment)",
        "CREATE TABLE sensors (id int PRIMARY KEY, name text)",
        "INSERT INTO sensors VALUES (1, 'roof'), (2, 'cellar')",
        "ANALYZE",
    )


def sums(server: PostgresqlServer, database: str) -> str:
    """Return the number of rows of both tables, and a sum that depends on every value, not on the order."""
    query = "SELECT count(*), sum(hashtextextended(r::text, 0)) FROM {} r"
    return server.psql(database, *(query.format(table) for table in (EVENTS, "sensors")))


def live_ids(server: S3Server, location: str) -> list[int]:
    """Return the ids in the files of a location's newest state, sorted, without those of `sensors`."""
    store = open_store(parse_location(location), server.options)
    files = [known.file for known in read_state(store).live_files() if known.file.table != "sensors"]
    tables = [pq.read_table(io.BytesIO(store.get(file.path, limit=1 << 30)), columns=["id"]) for file in files]
    return sorted(pa.concat_tables(tables)["id"].to_pylist())
