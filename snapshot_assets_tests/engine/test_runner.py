"""An interrupted run ends its Spark tasks, also those that do not listen."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine import runner as runners
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.errors import InterruptedTaskError, TaskLostError
from snapshot_assets_tests.waiting import until


def test_a_task_that_does_not_listen_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(started: str) -> Iterator[int]:
        Path(started).touch()
        time.sleep(3600)
        yield 1

    monkeypatch.setattr(runners, "GRACE", 0.2)
    runner, failures = SparkRunner(lambda: spark), []

    def run() -> None:
        with pytest.raises(TaskLostError) as raised:
            list(runner.map(sleep, [str(tmp_path / "started")]))
        failures.append(raised.value)

    thread = threading.Thread(target=run)
    thread.start()
    until((tmp_path / "started").exists)
    runner.interrupt()
    thread.join()
    assert "cancelled" in str(failures[0])
    with pytest.raises(InterruptedTaskError):
        list(runner.map(sleep, [str(tmp_path / "again")]))
    runner.close()


def test_a_run_that_is_interrupted_while_spark_starts_does_not_wait_for_it() -> None:
    starting, never = threading.Event(), threading.Event()

    def session() -> SparkSession:
        starting.set()
        never.wait()
        raise AssertionError

    runner = SparkRunner(session)
    failures: list[BaseException] = []

    def run() -> None:
        with pytest.raises(InterruptedTaskError) as raised:
            list(runner.map(lambda number: [number], [1]))
        failures.append(raised.value)

    thread = threading.Thread(target=run)
    thread.start()
    assert starting.wait(60)
    runner.interrupt()
    thread.join()
    assert failures
    never.set()


def test_an_error_of_the_start_of_spark_is_raised() -> None:
    def session() -> SparkSession:
        raise TaskLostError("no Java")

    with pytest.raises(TaskLostError, match="no Java"):
        list(SparkRunner(session).map(lambda number: [number], [1]))


@pytest.mark.slow
def test_tasks_of_other_runs_go_on(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(path: str) -> Iterator[str]:
        while not Path(path).exists():
            time.sleep(0.05)
        yield path

    monkeypatch.setattr(runners, "GRACE", 0.0)
    first, second = SparkRunner(lambda: spark), SparkRunner(lambda: spark)
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(second.map(wait, [str(tmp_path / "go")])))
    thread.start()
    assert list(first.map(lambda number: [number], [1, 2])) == [1, 2]
    first.interrupt()
    time.sleep(0.5)
    (tmp_path / "go").touch()
    thread.join()
    assert found == [str(tmp_path / "go")]
    first.close()
    second.close()
