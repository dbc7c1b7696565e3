"""Whole databases, exported and imported by the command line through Dagster, Spark and S3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from snapshot_assets_tests.cli.helpers import Snapshots, differing
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, fresh
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, ROWS, contents, schema_dump
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

RANGE = {"start_time": "2024-01-01T00:00:00Z", "end_time": "2028-01-01T00:00:00Z", "chunk_time_window": "365d"}
EVERYWHERE = '''
INSERT INTO sales.people VALUES ('x', '2000-01-01');
INSERT INTO sales.others VALUES (NULL, NULL);
INSERT INTO sales.full_identity VALUES (1), (1), (NULL);
INSERT INTO sales.second VALUES (1, 2);
INSERT INTO sales.child (a, b, c, d, e) VALUES (1, 2, 3, 4, 5), (1, 2, 3, 4, 5);
INSERT INTO "Größe ""X"""."select" ("from") VALUES ('{a,NULL}');
INSERT INTO parted (at, k) SELECT '2026-05-01', 'k' || i FROM generate_series(1, 20) i;
'''
PAST = "UPDATE pgbench_history SET mtime = '2024-02-01'::timestamp + (tid * 1000 + aid) % 34000 * interval '1 hour'"
VISITS = (
    "CREATE TABLE visits (moment TIMESTAMPTZ, place VARCHAR, n DOUBLE)",
    "INSERT INTO visits SELECT TIMESTAMPTZ '2024-01-01 00:00:00Z' + to_hours(i), 'p' || i % 7, i / 7.0"
    " FROM range(0, 35000, 5) r(i)",
    "INSERT INTO visits SELECT * FROM visits WHERE n < 100",
    "INSERT INTO visits VALUES (NULL, NULL, NULL), (NULL, NULL, NULL), (NULL, 'never', 'nan')",
)

Trip = Callable[..., dict[str, Any]]


@pytest.fixture
def trip(snapshots: Snapshots, tmp_path: Path, s3_user: Callable[[str], str], s3_location: str) -> Trip:
    """Export a database, import it into another one, and forget the ledger; returns what the import printed."""
    config = Path(s3_user("admin"))
    storage = yaml.safe_load(config.read_text())

    def run(source: str, target: str, *, to: str = s3_location, **fields: Any) -> dict[str, Any]:
        plan = {"source": "origin", "target": "copy", "to": to, "parallelism": 2} | RANGE | fields
        databases = {"origin": source, "copy": target}
        config.write_text(yaml.safe_dump({"sources": databases, "plans": {"trip": plan}} | storage))
        call = ("--config", str(config))
        created = snapshots(*call, "export", "create", "--plan", "trip", "--json")
        assert created.status == 0, created.err
        imported = snapshots(*call, "import", "--plan", "trip", "--json")
        assert imported.status == 0, imported.err
        assert imported.json["rows_loaded"] == created.json["rows"] > 0
        forgotten = snapshots(*call, "import", "--plan", "trip", "--forget-ledger", "--json")
        assert forgotten.json == {"target": "copy", "forgotten": 1, "tags_left": []}
        report: dict[str, Any] = imported.json
        return report

    return run


def same(server: PostgresqlServer, source: str, target: str) -> None:
    """Assert that two databases have the same rows and the same `pg_dump` schema."""
    expected = contents(server, source)
    assert len(expected) > 0
    assert contents(server, target) == expected
    assert schema_dump(server, target) == schema_dump(server, source)


def test_a_database_with_everything_comes_back_from_s3(
    trip: Trip, postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, EVERYTHING + ROWS + EVERYWHERE)
    report = trip(source, target, time_columns={"public.refers": None})
    assert report["lost"] == []
    same(postgresql_server, source, target)
    empty = [name for name, counted in contents(postgresql_server, source).items() if counted.startswith("0|")]
    assert empty == ["sales.nothing"]  # Parquet keeps no rows without columns


def test_pgbench_comes_back_from_s3_with_its_history_in_windows(
    trip: Trip, postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.run("pgbench", "-i", "-q", "--foreign-keys", "--partitions=3", source)
    postgresql_server.run("pgbench", "-n", "-t", "200", source)
    postgresql_server.psql(source, PAST)
    report = trip(source, target)
    assert report["outcomes"] == {"empty": 1, "loaded": 5}  # four years of 365 days end a day too early
    assert report["tables"]["public.pgbench_history"] == 200
    same(postgresql_server, source, target)


def test_a_database_goes_from_duckdb_to_postgresql_and_over_s3_back_with_equal_values(
    trip: Trip, tmp_path: Path, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    origin = make_file(tmp_path / "shop.duckdb", *SHOP, "DROP VIEW broken", *VISITS)
    back = fresh(tmp_path, "back")
    trip(origin.uri, postgresql_database, to=(tmp_path / "location").as_uri())
    tables = ("child", "z_parent", "a_grandchild", "employees", "visits")
    with duckdb.connect(path_of(origin), read_only=True) as connection:
        for table in tables:
            query = f"SELECT count(*) FROM main.{table}"
            [(rows,)] = connection.execute(query).fetchall()
            assert postgresql_server.psql(postgresql_database, query) == str(rows), table
    trip(postgresql_database, back.uri)
    assert differing(Path(path_of(origin)), Path(path_of(back)), *(f"main.{table}" for table in tables)) == {}
