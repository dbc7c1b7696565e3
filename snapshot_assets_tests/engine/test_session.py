"""The Spark session: the interpreter of its workers, and its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.engine.session import spark_errors, task_frame, worker_python
from snapshot_assets.engine.session_start import session_config, variables_of_start
from snapshot_assets.errors import DatabaseError, SnapshotError, TaskFailedError, TaskLostError

pytestmark = pytest.mark.slow

DAEMON = "spark.python.daemon.module"
CLUSTERS = ("spark://host:7077", "yarn", "k8s://https://host:443")


@pytest.mark.parametrize(("master", "tasks"), [("local", 1), ("local[*]", os.cpu_count()), ("local[3,4]", 3)])
def test_tasks_of_a_local_master_are_counted_whatever_the_default_parallelism_is(master: str, tasks: int) -> None:
    script = (
        "from pyspark.sql import SparkSession; from snapshot_assets.engine.session import driver_tasks;"
        f" spark = SparkSession.builder.master({master!r}).config('spark.ui.enabled', 'false')"
        ".config('spark.default.parallelism', '7').getOrCreate(); print(driver_tasks(spark))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == tasks


# The interpreter


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_choice")
def test_workers_of_this_machine_run_this_interpreter_and_those_of_a_cluster_its_own() -> None:
    for master in ("local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]"):
        assert worker_python({"spark.master": master}) == sys.executable
    for master in CLUSTERS:
        assert worker_python({"spark.master": master}) is None


@pytest.mark.usefixtures("no_choice")
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]", *CLUSTERS])
def test_a_chosen_interpreter_is_kept(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {"spark.master": master, "spark.pyspark.python": "/setting/python"}
    assert worker_python(setting) == "/setting/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "/variable/python")
    assert worker_python({"spark.master": master}) == "/variable/python"
    assert worker_python(setting) == "/setting/python"  # as Spark's documentation ranks them
    assert DAEMON not in session_config(setting)


@pytest.mark.usefixtures("no_choice")
def test_the_daemon_runs_only_where_this_package_is_sure_to_be_found() -> None:
    assert DAEMON in session_config({})
    assert DAEMON in session_config({"spark.master": "local[2]"})
    for master in ("local-cluster[2,1,1024]", *CLUSTERS):
        assert DAEMON not in session_config({"spark.master": master})


@pytest.mark.parametrize("before", [None, "/variable/python"])
@pytest.mark.usefixtures("no_choice")
def test_the_environment_is_as_before_once_a_session_has_started(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before:
        monkeypatch.setenv("PYSPARK_PYTHON", before)
    kept = dict(os.environ)
    with variables_of_start({"spark.master": "local[2]"}):
        assert os.environ["PYSPARK_PYTHON"] == (before or sys.executable)
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert dict(os.environ) == kept
    with variables_of_start({"spark.master": "yarn"}):
        assert os.environ.get("PYSPARK_PYTHON") == before
    with variables_of_start({"spark.master": "yarn", "spark.pyspark.python": "/setting/python"}):
        assert os.environ["PYSPARK_PYTHON"] == "/setting/python"
    assert dict(os.environ) == kept


@pytest.mark.usefixtures("no_choice")
def test_a_local_session_that_others_started_without_a_choice_runs_this_interpreter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")  # what PySpark takes by itself
    runner = SparkRunner(spark.newSession)
    assert list(runner.map(lambda _: [sys.executable], [1])) == [sys.executable]


@pytest.fixture
def other_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter that does not exist, which further tasks of the session run."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    return "/nowhere/python"


def failing(spark: SparkSession, function: Callable[[Any], Any], kind: type[SnapshotError]) -> str:
    """Return the error message of a task."""
    with pytest.raises(kind) as raised:
        list(SparkRunner(lambda: spark).map(function, [1]))
    return str(raised.value)


def test_an_exception_of_python_is_told_with_its_traceback(spark: SparkSession) -> None:
    def divide(number: int) -> list[float]:
        return [number / 0]

    text = failing(spark, divide, TaskFailedError)
    assert text.startswith("A Spark task failed: An exception was thrown from the Python worker: | Traceback (most")
    assert "in divide | return [number / 0] | " in text
    assert text.endswith("ZeroDivisionError: division by zero")


def test_a_module_that_the_interpreter_of_a_task_lacks_is_named_with_the_remedy(spark: SparkSession) -> None:
    def load(_: int) -> list[int]:
        raise ModuleNotFoundError("No module named 'none_such'")

    text = failing(spark, load, TaskFailedError)
    assert text.startswith("A Spark task lacks the Python module none_such. On each worker, install this process's")


def test_a_long_error_keeps_its_beginning_and_its_end(spark: SparkSession) -> None:
    def shout(_: int) -> list[int]:
        raise ValueError("x" * 50_000 + " the end")

    text = failing(spark, shout, TaskFailedError)
    assert text.startswith("A Spark task failed: An exception was thrown from the Python worker: | Traceback (most")
    assert text.endswith("xxx the end")
    assert len(text) < 2100


def test_a_worker_that_dies_is_told_with_the_first_cause(spark: SparkSession) -> None:
    def die(_: int) -> list[int]:
        os._exit(7)

    text = failing(spark, die, TaskLostError)
    assert "Job aborted due to stage failure: Task 0 in stage" in text
    assert "Python worker exited unexpectedly (crashed)" in text
    assert "Caused by: java.io.EOFException" in text
    assert ".scala:" not in text


def test_an_interpreter_that_does_not_exist_is_named(spark: SparkSession, other_python: str) -> None:
    text = failing(spark, lambda number: [number], TaskFailedError)  # no retry brings it
    assert "spark.pyspark.python" in text
    assert f"lack their Python interpreter, {other_python}. On each worker" in text
    assert f'Cannot run program "{other_python}"' in text
    assert "Caused by: java.io.IOException: error=2, No such file or directory" in text
    assert ".java:" not in text


@pytest.fixture
def unreadable(tmp_path: Path) -> str:
    """A file that is no Parquet file."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nothing of the kind PAR1")
    return str(path)


def test_a_failure_of_sparks_own_is_told_with_its_cause(spark: SparkSession, unreadable: str) -> None:
    frame = spark.read.schema("id long").parquet(unreadable)
    with pytest.raises(TaskLostError) as lost, spark_errors():
        frame.collect()
    with pytest.raises(DatabaseError) as failed, translated("Spark catalog 'lake': reading a.b"):
        frame.collect()
    for text in (str(lost.value), str(failed.value)):
        assert "Encountered error while reading file" in text
        assert "Caused by: " in text
        assert "corrupted" in text or "not a Parquet file" in text
        assert ".scala:" not in text


class _OfTask:
    """An item that only the task with its number may unpack."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return _unpacked, (self.number,)


def _unpacked(number: int) -> int:
    context = TaskContext.get()
    assert context is not None
    assert context.partitionId() == number
    return number


def test_a_task_unpacks_its_own_item_alone(spark: SparkSession) -> None:
    def read(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"item": [number]})

    rows = task_frame(spark, [_OfTask(number) for number in range(3)], "item long", read).collect()  # type: ignore[arg-type]
    assert sorted(row["item"] for row in rows) == [0, 1, 2]
