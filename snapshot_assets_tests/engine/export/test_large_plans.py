"""As many windows and files as a plan may have."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.jobs import JOB_CHUNKS
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.layout import check_data_path
from snapshot_assets.format.windows import MAX_WINDOWS
from snapshot_assets_tests.engine.export.copies import plan, run_of

pytestmark = pytest.mark.slow

START = datetime(2025, 1, 1, tzinfo=UTC)


class StoppedError(Exception):
    """Ends a run at its first task."""


@dataclass
class Stopping(InlineRunner):
    """A runner that ends the run when its first job comes."""

    works: list[int] = field(default_factory=list)
    threads: int = 0

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        self.works.append(sum(len(task.works) for task in items))
        self.threads = threading.active_count()
        raise StoppedError


@pytest.fixture
def source(tmp_path: Path) -> str:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("CREATE TABLE m AS SELECT i, TIMESTAMP '2025-01-01' + to_minutes(i) AS t FROM range(9) r(i)")
    return f"duckdb://{tmp_path}/source.duckdb"


@pytest.fixture
def cursors(monkeypatch: pytest.MonkeyPatch) -> list[DuckDBSession]:
    """Every cursor that is opened."""
    opened: list[DuckDBSession] = []
    cursor = DuckDBSession.cursor
    monkeypatch.setattr(DuckDBSession, "cursor", lambda self: opened.append(self) or cursor(self))
    return opened


def test_a_hundred_thousand_windows_are_planned_without_a_query_or_a_thread_for_each(
    source: str, tmp_path: Path, cursors: list[DuckDBSession]
) -> None:
    runner, minute = Stopping(), timedelta(minutes=1)
    query = "SELECT i FROM m WHERE t >= :start AND t < :end"
    fields = {"start_time": START, "end_time": START + MAX_WINDOWS * minute, "chunk_time_window": minute}
    run: ExportRun = replace(run_of(plan(source, query, tmp_path / "to", parallelism=4, **fields)), runner=runner)
    windows = range(1, MAX_WINDOWS + 1)
    with pytest.raises(StoppedError):
        copy(run, windows)
    assert max(runner.works) <= JOB_CHUNKS
    assert runner.threads < 50
    assert len(cursors) < 50


def test_a_plan_of_a_hundred_thousand_windows_takes_little_memory(source: str, tmp_path: Path) -> None:
    minute = timedelta(minutes=1)
    query = "SELECT i FROM m WHERE t >= :start AND t < :end"
    fields = {"start_time": START, "end_time": START + MAX_WINDOWS * minute, "chunk_time_window": minute}
    with run_of(plan(source, query, tmp_path / "to", **fields)).open() as export:
        planner = export.make_planner(export.catalog.state, export.schema)
        tracemalloc.start()
        plans = [planner.plan(chunk) for chunk in range(1, 10_001)]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held / len(plans) < 2_000


def test_a_copy_has_more_than_ten_thousand_files(source: str, tmp_path: Path) -> None:
    query = "SELECT i, repeat(md5(i::VARCHAR), 400) AS t FROM range(52_000) AS r(i)"  # five rows fill a file
    run = run_of(plan(source, query, tmp_path / "to", format="csv", max_file_size="64kB"))
    done = copy(run)
    paths = [file.path for outcome in done.outcomes for file in outcome.files]
    assert (done.rows, len(paths)) == (52_000, 10_400)
    assert paths == sorted(paths)
    assert all(check_data_path(path, 0) for path in paths)
    report = verify(run.store, depth="full")
    assert (report.faults, report.files) == ([], 10_400)
    files = f"{tmp_path}/to/data/0/main.*"
    [found] = duckdb.sql(f"SELECT count(*), sum(column0) FROM read_csv('{files}', header=false)").fetchall()
    assert found == (52_000, sum(range(52_000)))
