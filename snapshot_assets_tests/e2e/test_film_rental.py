"""A sample database of MySQL is exported by windows, restored into another server, and equal to the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.databases.mysql.test_restore import printed, sums
from snapshot_assets_tests.servers.mariadb import MariadbServer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

SCRIPT = Path(__file__).parents[1] / "databases" / "mysql" / "whole" / "film_rental.sql"
TIMES = {"country": "last_update", "customer": "create_date", "payment": "payment_date", "rental": "rental_date"}


def test_a_sample_database_of_mysql_comes_back_whole(
    snapshots: Snapshots,
    tmp_path: Path,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    second_mariadb_server: MariadbServer,
    second_mariadb_database: str,
) -> None:
    mariadb_server.sql(SCRIPT.read_text(), database="shop")
    location = (tmp_path / "location").as_uri()
    times = [option for table, column in TIMES.items() for option in ("--time-column", f"shop.{table}={column}")]
    export = ("export", "create", "--source", mariadb_database, "--to", location, "--chunk-time-window", "30d", *times)
    for command in (export, ("import", "--snapshot", location, "--target", second_mariadb_database)):
        done = snapshots(*command)
        assert done.status == 0, done.err
    assert printed(second_mariadb_server) == printed(mariadb_server)
    assert sums(second_mariadb_server) == sums(mariadb_server)
    for view in ("customer_list", "nicer_film_list", "sales_by_store"):
        query = f"SELECT * FROM {view} ORDER BY 1"
        assert second_mariadb_server.sql(query, database="shop") == mariadb_server.sql(query, database="shop") != ""
    into_duckdb = snapshots("import", "--snapshot", location, "--target", f"duckdb://{tmp_path}/copy.duckdb")
    assert into_duckdb.status == 0, into_duckdb.err
    compared = snapshots("compare", "--snapshot", location, "--source", mariadb_database)
    assert compared.status == 0, compared.err
