"""Without `parallelism`, a run processes as many chunks at a time as Spark has cores: two in these tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine import jobs
from snapshot_assets.engine.export import chunks
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.faults.source import CHUNKS

pytestmark = pytest.mark.slow


@dataclass
class CountingRunner(InlineRunner):
    """Runs tasks in this process, and counts the jobs that run at a time.

    Attributes:
        expected: How many there should be: for a second one, the first waits; that there is none, it waits a moment.
        most: Most jobs at a time.
    """

    expected: int
    most: int = 0
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _second: threading.Event = field(default_factory=threading.Event)

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            if self._running > 1:
                self._second.set()
        self._second.wait(60 if self.expected > 1 else 1)
        try:
            return list(super().map(function, items))
        finally:
            with self._lock:
                self._running -= 1


@pytest.fixture(autouse=True)
def one_chunk_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "Pace", partial(jobs.Pace, 1))
    monkeypatch.setattr(jobs, "JOB_CHUNKS", 1)


@pytest.mark.parametrize(("given", "most"), [(None, 2), (1, 1)])
def test_an_export_reads_as_many_chunks_at_a_time_as_spark_has_cores(
    place: Place, spark: SparkSession, given: int | None, most: int
) -> None:
    runner = CountingRunner(most)
    place.export(
        runner, CHUNKS[:3], seal=False, settings={"parallelism": None, "session": lambda: spark}, parallelism=given
    )
    assert runner.most == most


@pytest.mark.parametrize(("given", "most"), [(None, 2), (1, 1)])
def test_an_import_loads_as_many_chunks_at_a_time_as_spark_has_cores(
    exported_place: Place, postgresql_database: str, spark: SparkSession, given: int | None, most: int
) -> None:
    runner = CountingRunner(most)
    run = Into(postgresql_database).run(exported_place.store, runner)
    list(replace(run, parallelism=given, session=lambda: spark).restore())
    assert runner.most == most


def test_a_target_of_one_writer_is_loaded_chunk_by_chunk(
    exported_place: Place, duck: Into, spark: SparkSession
) -> None:
    runner = CountingRunner(1)
    list(replace(duck.run(exported_place.store, runner), parallelism=None, session=lambda: spark).restore())
    assert runner.most == 1
