"""Exports of MariaDB, whose connections read states of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.servers.mariadb import MariadbServer


class Writing(InlineRunner):
    """Writes a row after the plan, before the tasks read."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server

    def map(self, function: Callable[[Any], Iterable[Any]], items: Sequence[Any]) -> Iterable[Any]:
        self._server.sql("INSERT IGNORE INTO t VALUES (4, '2024-01-01 04:00:00')", database="shop")
        return super().map(function, items)


def test_rows_that_are_written_between_planning_and_reading_fail_no_chunk(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY, at datetime)", database="shop")
    mariadb_server.sql("INSERT INTO t SELECT seq, '2024-01-01 01:00:00' FROM seq_1_to_3", database="shop")
    plan = Plan(
        name="shop",
        source=mariadb_database,
        to=tmp_path.as_uri(),
        start_time="2024-01-01T00:00:00Z",
        end_time="2024-01-02T00:00:00Z",
        chunk_time_window="1d",
    )
    address, store = DatabaseAddress("shop", mariadb_database), store_of(tmp_path)
    with ExportRun(plan, address, store, Writing(mariadb_server), "run").open() as opened:
        rows = [sum(file.rows for file in each.files) for each in opened.export([0, 1])]
        sealed = opened.seal()
    assert sum(rows) == 4
    assert sealed.seal.seal.consistency == "chunk"
