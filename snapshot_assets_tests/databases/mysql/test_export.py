"""Exports of MariaDB, from one state of all tables, or from one of each connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun, OpenExport
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import ExportFailedError
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.servers.mariadb import MariadbServer


class Between(InlineRunner):
    """Runs a statement after the plan, before the tasks read."""

    def __init__(self, server: MariadbServer, statement: str, readers: int = 1) -> None:
        self._server, self._statement, self._readers = server, statement, readers

    def readers(self) -> int:
        return self._readers

    def map(self, function: Callable[[Any], Iterable[Any]], items: Sequence[Any]) -> Iterable[Any]:
        self._server.sql(self._statement, database="shop")
        return super().map(function, items)


INSERT = "INSERT IGNORE INTO t VALUES (4, '2024-01-01 04:00:00')"
ROWS = (
    "CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, at datetime)",
    "INSERT IGNORE INTO t SELECT seq, '2024-01-01 01:00:00' FROM seq_1_to_3",
)


@contextmanager
def opened(server: MariadbServer, uri: str, to: Path, statement: str, readers: int = 1) -> Iterator[OpenExport]:
    """Open an export of three rows in one timed window, of which a statement runs after the plan."""
    server.sql(*ROWS, database="shop")
    plan = Plan(
        name="shop",
        source=uri,
        to=to.as_uri(),
        start_time="2024-01-01T00:00:00Z",
        end_time="2024-01-02T00:00:00Z",
        chunk_time_window="1d",
    )
    address, runner = DatabaseAddress("shop", uri), Between(server, statement, readers)
    with ExportRun(plan, address, store_of(to), runner, "run", retry=RetryPolicy(tries=1)).open() as opened:
        yield opened


@pytest.mark.parametrize(("readers", "rows", "consistency"), [(1, 3, "run"), (0, 4, "chunk")])
def test_rows_that_are_written_between_planning_and_reading_are_not_in_the_one_state_and_fail_no_chunk(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path, readers: int, rows: int, consistency: str
) -> None:
    with opened(mariadb_server, mariadb_database, tmp_path, INSERT, readers) as export:
        assert sum(file.rows for each in export.export([0, 1]) for file in each.files) == rows
        assert export.seal().seal.seal.consistency == consistency
        assert export.source is not None
        assert bool(export.source.unshared) == (readers == 0)


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY", "CSV"])
def test_a_seal_with_a_table_without_transactions_claims_no_one_state(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path, engine: str
) -> None:
    mariadb_server.sql(f"CREATE TABLE m (id int NOT NULL) ENGINE={engine}", database="shop")
    with opened(mariadb_server, mariadb_database, tmp_path, "INSERT INTO m VALUES (1)") as export:
        list(export.export([0, 1]))
        assert export.seal().seal.seal.consistency == "chunk"
        assert export.source is not None
        assert "The engine of shop.m has no transactions" in export.source.unshared


def test_a_table_that_is_truncated_between_planning_and_reading_commits_no_chunk(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path
) -> None:
    with opened(mariadb_server, mariadb_database, tmp_path, "TRUNCATE TABLE t") as export:
        with pytest.raises(ExportFailedError, match=r"shop\.t .*truncated or rebuilt .*Start a new run"):
            list(export.export([1]))
        assert not export.catalog.refresh().completed(1)
    with opened(mariadb_server, mariadb_database, tmp_path, INSERT) as export:
        list(export.export([0, 1]))
        assert export.seal().seal.seal.consistency == "run"


@pytest.mark.parametrize("schema_only", [True, False])
def test_the_server_is_not_locked_where_no_task_reads_rows(
    mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path, schema_only: bool
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
    plan = Plan(name="shop", source=mariadb_database, to=tmp_path.as_uri(), schema_only=schema_only)
    run = ExportRun(plan, DatabaseAddress("shop", mariadb_database), store_of(tmp_path), InlineRunner(), "run")
    flushes = "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN ('Com_flush'"
    flushes += ", 'Com_backup')"
    before = mariadb_server.sql(flushes)
    if schema_only:
        with run.open() as opened:
            assert opened.source is not None
            assert opened.source.unshared == ""
            opened.seal()
    else:
        run.check_source()
    assert mariadb_server.sql(flushes) == before
