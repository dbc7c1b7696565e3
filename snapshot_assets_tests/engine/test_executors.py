"""The check of executors, and the report that none is there."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine import executors
from snapshot_assets.engine.executors import modules_of_tasks, prepare_session, python_of_tasks, reporting_waits
from snapshot_assets.engine.session import send_package
from snapshot_assets.engine.task_python import TaskPython, describe_python
from snapshot_assets.errors import TaskFailedError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

REMEDY = "On each worker, install this process's minor version of Python with the packages of requirements/run.txt"


@pytest.fixture
def workers(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], SparkSession]]:
    """Returns the session, with another interpreter for its workers."""

    def with_python(python: Path) -> SparkSession:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
        return spark

    yield with_python
    executors._checked.pop(spark, None)


@pytest.mark.slow
def test_an_interpreter_of_another_minor_version_is_refused_with_both(
    workers: Callable[[Path], SparkSession], older_python: Path
) -> None:
    with pytest.raises(TaskFailedError) as caught:
        prepare_session(workers(older_python))
    here = ".".join(map(str, sys.version_info[:2]))
    assert f"{older_python} is Python 3.9 there, and this process runs {here}. {REMEDY}" in str(caught.value)


@pytest.mark.slow
def test_a_session_is_checked_once_for_the_modules_of_all_its_tasks(
    workers: Callable[[Path], SparkSession], executors_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, checked = workers(executors_python), []

    def check(_: SparkSession, modules: tuple[str, ...]) -> TaskPython:
        checked.append(modules)
        return TaskPython("", "", "")

    monkeypatch.setattr(executors, "python_of_tasks", check)
    for modules in (("obstore",), (), ("obstore",), ("obstore", "duckdb")):
        prepare_session(spark, modules)
    assert checked == [("obstore",), ("obstore", "duckdb")]


@pytest.mark.slow
def test_tasks_of_this_process_with_its_interpreter_are_not_checked(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "python_of_tasks", lambda *_: pytest.fail("checked"))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    prepare_session(spark)


@pytest.mark.slow
def test_the_interpreter_of_tasks_is_described(workers: Callable[[Path], SparkSession], executors_python: Path) -> None:
    found = python_of_tasks(send_package(workers(executors_python)), ["obstore"])
    assert (found.path, found.lacks) == (str(executors_python), ())


def test_an_import_that_fails_otherwise_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_by_test.py").write_text("raise ImportError('libxyz.so.1: cannot open')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = TaskPython.parse(describe_python(json.dumps(["json", "broken_by_test", "none_such", "none_such.part"])))
    assert found.lacks == ("broken_by_test (ImportError: libxyz.so.1: cannot open)", "none_such")


def test_a_store_and_databases_decide_what_tasks_import(tmp_path: Path) -> None:
    local = open_store(parse_location(tmp_path.as_uri()))
    s3 = open_store(parse_location("s3://bucket/a"), StoreOptions(region="eu"))
    assert modules_of_tasks(local) == ("snapshot_assets.storage.local",)
    assert modules_of_tasks(s3, "spark:lake", "postgresql://h/d", "asset:a") == (
        "snapshot_assets.storage.cloud",
        "obstore",
        "adbc_driver_postgresql.dbapi",
        "adbc_driver_manager",
    )


class Moments:
    """Stands for a session with these executors at one moment after the other, and for its job's end after them."""

    def __init__(self, *executors: int) -> None:
        self._left = list(executors)
        self.executors = 0

    def wait(self, _: float) -> bool:
        """Go to the next moment; return whether there is none."""
        if self._left:
            self.executors = self._left.pop(0)
            return False
        return True


@pytest.mark.parametrize(
    ("classic", "counts", "reports"),
    [
        (True, [0, 1, 0, 1, 0], 0),  # one that is lost is soon replaced
        (True, [0, 0, 0, 0, 0], 1),
        (True, [2, 2, 0, 0, 2, 0, 0], 1),
        (False, [0], 0),
        (False, [0, 0, 0], 1),
    ],
)
def test_a_job_without_executors_is_reported_once(
    classic: bool, counts: list[int], reports: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executors, "is_classic", lambda _: classic)
    monkeypatch.setattr(executors, "executors_of", lambda session: session.executors)
    monkeypatch.setattr(executors, "master_of", lambda _: "spark://host:7077")
    for moments in (session := Moments(*counts), session):
        executors._watch(cast(Any, session), cast(Any, moments))
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(texts) == reports
    for text in texts:
        known = "Spark waits for a core of spark://host:7077, which has given none for 15 s: "
        assumed = "A first task of Spark at spark://host:7077 has not ended after 60 s. Perhaps it waits for a core: "
        assert text.startswith(known if classic else assumed)
        assert "spark.cores.max" in text
        assert "master's page" in text


@pytest.mark.slow
def test_a_local_session_is_not_watched(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_watch", lambda *_: pytest.fail("watched"))
    with reporting_waits(spark, short=True):
        assert not [each for each in threading.enumerate() if each.name == "spark-waiting"]
