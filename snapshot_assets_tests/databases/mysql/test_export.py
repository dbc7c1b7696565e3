"""Exports of MariaDB, whose connections read states of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.servers.mariadb import MariadbServer, start_mariadb


class Restarting(InlineRunner):
    """Restarts the server before the tasks read, and after them."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server

    def map(self, function: Callable[[Any], Iterable[Any]], items: Sequence[Any]) -> Iterable[Any]:
        self._server.restart()
        results = list(super().map(function, items))
        self._server.restart()
        return results


class Writing(InlineRunner):
    """Writes a row after the plan, before the tasks read."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server

    def map(self, function: Callable[[Any], Iterable[Any]], items: Sequence[Any]) -> Iterable[Any]:
        self._server.sql("INSERT IGNORE INTO t VALUES (4, '2024-01-01 04:00:00')", database="shop")
        return super().map(function, items)


def run_of(uri: str, folder: Path, runner: InlineRunner) -> ExportRun:
    """Return the export of a database whose one timed window is a day."""
    plan = Plan(
        name="shop",
        source=uri,
        to=folder.as_uri(),
        start_time="2024-01-01T00:00:00Z",
        end_time="2024-01-02T00:00:00Z",
        chunk_time_window="1d",
    )
    return ExportRun(plan, DatabaseAddress("shop", uri), store_of(folder), runner, "run")


def test_rows_that_are_written_between_planning_and_reading_fail_no_chunk(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY, at datetime)", database="shop")
    mariadb_server.sql("INSERT INTO t SELECT seq, '2024-01-01 01:00:00' FROM seq_1_to_3", database="shop")
    with run_of(mariadb_database, tmp_path, Writing(mariadb_server)).open() as opened:
        rows = [sum(file.rows for file in each.files) for each in opened.export([0, 1])]
        sealed = opened.seal()
    assert sum(rows) == 4
    assert sealed.seal.seal.consistency == "chunk"


def test_a_server_that_restarts_at_any_step_delays_an_export(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start_mariadb(tmp_path / "server") as server:
        uri = server.create_database("shop")
        server.sql("CREATE TABLE t (id int PRIMARY KEY, at datetime)", database="shop")
        server.sql("INSERT INTO t SELECT seq, '2024-01-01 01:00:00' FROM seq_1_to_3", database="shop")
        with run_of(uri, tmp_path / "snapshot", Restarting(server)).open() as opened:
            server.restart()
            outcomes = list(opened.export([0, 1]))
            sealed = opened.seal()
    assert [each.error for each in outcomes] == [None, None]
    assert sum(file.rows for each in outcomes for file in each.files) == 3
    assert sealed.seal.seal.rows_outside == ()
    assert "estimating shop.t failed" in caplog.text
    assert "reading shop.t failed" in caplog.text
