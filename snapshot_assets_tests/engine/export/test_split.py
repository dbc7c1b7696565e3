"""A query that is divided by a column has the rows of the undivided query, all of one state of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from snapshot_assets.engine.export import planning
from snapshot_assets.engine.export.copy import Copied, copy
from snapshot_assets.engine.export.tasks import Outcome, Task
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import ExportFailedError, PlanError
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.export.copies import files, on_both, plan, run_of

ROWS = "SELECT n, moment FROM numbers"
WINDOWED = f"{ROWS} WHERE moment >= :start AND moment < :end"
FOUR_DAYS = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-05T00:00:00Z", "chunk_time_window": "2d"}


class CountingRunner(InlineRunner):
    """Counts the tasks of every job, and runs a statement in the source before each task."""

    def __init__(self, source: str = "", *statements: str) -> None:
        self.tasks: list[int] = []
        self._source = source
        self._statements = statements

    def map(self, function: Any, items: Sequence[Task]) -> Iterable[Outcome]:
        self.tasks.append(len(items))
        for item in items:
            if self._statements:
                execute(self._source, *self._statements)
            yield from super().map(function, [item])


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of few rows are read by tasks of their own."""
    monkeypatch.setattr(planning, "RANGE_ROWS", 10)


def divided(
    source: str, query: str, folder: Path, *windows: int, runner: CountingRunner | None = None, **fields: Any
) -> tuple[Copied, list[int]]:
    runner = runner or CountingRunner()
    run = replace(run_of(plan(source, query, folder, **fields)), runner=runner, most_parts=4)
    return copy(run, windows), runner.tasks


def numbers_of(folder: Path) -> list[int]:
    return sorted(row["n"] for file in files(folder) for row in pq.read_table(file).to_pylist())


@on_both
@pytest.mark.parametrize("column", ["n", "moment"])
def test_tasks_read_ranges_of_a_query(numbers: str, tmp_path: Path, column: str) -> None:
    done, tasks = divided(numbers, ROWS, tmp_path / "to", split_by=column)
    assert (done.rows, done.sealed is not None, tasks) == (100, True, [4])
    assert numbers_of(tmp_path / "to") == list(range(100))
    assert all(24 <= file.rows <= 26 for file in done.outcomes[0].files)


@on_both
def test_each_window_is_divided(numbers: str, tmp_path: Path) -> None:
    done, tasks = divided(numbers, WINDOWED, tmp_path / "to", 1, 2, split_by="n", **FOUR_DAYS)
    assert (done.rows, done.sealed is not None, tasks[:2]) == (96, True, [4, 4])
    assert numbers_of(tmp_path / "to") == list(range(96))


@on_both
def test_a_table_and_a_view_are_divided_too(numbers: str, tmp_path: Path) -> None:
    schema = "main" if numbers.startswith("duckdb") else "public"
    done, tasks = divided(numbers, f"{schema}.numbers", tmp_path / "to", split_by="n")
    assert (done.rows, tasks) == (100, [4])
    assert numbers_of(tmp_path / "to") == list(range(100))


@on_both
def test_few_rows_and_none_are_read_by_one_task(numbers: str, tmp_path: Path) -> None:
    for number, (condition, rows) in enumerate({"n < 9": 9, "n < 0": 0}.items()):
        folder = tmp_path / str(number)
        done, tasks = divided(numbers, f"{ROWS} WHERE {condition}", folder, split_by="n")
        assert (done.rows, tasks, len(files(folder))) == (rows, [1], 1)


def test_all_tasks_read_one_state(postgresql_database: str, tmp_path: Path) -> None:
    execute(postgresql_database, "CREATE TABLE numbers AS SELECT n, now() AS moment FROM generate_series(0, 99) n")
    writes = ("UPDATE numbers SET n = (n + 37) % 100", "DELETE FROM numbers WHERE n < 5")
    runner = CountingRunner(postgresql_database, *writes, "INSERT INTO numbers SELECT -n FROM generate_series(1, 50) n")
    done, tasks = divided(postgresql_database, ROWS, tmp_path / "to", runner=runner, split_by="n")
    assert (done.rows, tasks) == (100, [4])
    assert numbers_of(tmp_path / "to") == list(range(100))


def test_a_copy_is_continued_with_another_division(numbers: str, tmp_path: Path) -> None:
    first, _ = divided(numbers, WINDOWED, tmp_path / "to", 1, split_by="n", **FOUR_DAYS)
    assert first.sealed is None
    second, tasks = divided(numbers, WINDOWED, tmp_path / "to", 2, **FOUR_DAYS)
    assert (second.sealed is not None, tasks[0]) == (True, 1)
    assert numbers_of(tmp_path / "to") == list(range(96))


@on_both
def test_a_column_that_cannot_divide_leaves_nothing(numbers: str, tmp_path: Path) -> None:
    for query, problem in {ROWS: "no column 'name'", "SELECT n, 'x' || n AS name FROM numbers": "of type"}.items():
        with pytest.raises(PlanError, match=problem):
            divided(numbers, query, tmp_path / "to", split_by="name")
    assert not (tmp_path / "to").exists()


@on_both
def test_a_query_that_fails_while_it_is_sampled_reports_the_servers_error(numbers: str, tmp_path: Path) -> None:
    failing = "SELECT n, moment, CAST(CASE WHEN n < 60 THEN 'x' ELSE '1' END AS int) AS v FROM numbers"
    query = f"{failing} WHERE moment >= :start AND moment < :end"
    with pytest.raises(ExportFailedError, match=r"1 of 2 chunks failed.*(invalid input syntax|Could not convert)"):
        divided(numbers, query.replace("n < 60", "n < 40"), tmp_path / "to", 1, 2, split_by="v", **FOUR_DAYS)
    assert {file.parent.name for file in files(tmp_path / "to")} == {"2"}


def test_only_queries_are_divided() -> None:
    with pytest.raises(PlanError, match="split_by: only a plan of kind: query has one"):
        Plan(name="p", source="s", to="file:///a/b", split_by="n")


@on_both
def test_a_table_is_divided_like_that_of_an_export(
    numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALL_CHUNK", 1)
    monkeypatch.setattr(planning, "SLICE_BYTES", 1 << 17)
    rows = "SELECT i AS n, repeat('x', 100) AS text FROM generate_series(1, 300000) AS g(i)"
    schema = "main" if numbers.startswith("duckdb") else "public"
    _create(numbers, f"CREATE TABLE large AS {rows}")
    done, tasks = divided(numbers, f"{schema}.large", tmp_path / "to")
    assert (done.rows, tasks) == (300000, [3 if schema == "main" else 4])
    assert numbers_of(tmp_path / "to") == list(range(1, 300001))


def _create(source: str, statement: str) -> None:
    if source.startswith("postgresql"):
        execute(source, statement, "ANALYZE")
    else:
        with duckdb.connect(source.removeprefix("duckdb://")) as connection:
            connection.execute(statement)
