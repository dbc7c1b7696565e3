"""`snapshots warm-up`: later sessions load classes from the archive, and start without one that does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine.class_archive import make_archive
from snapshot_assets.engine.session_start import ARCHIVE_VARIABLE
from snapshot_assets.errors import PlanError

_SESSION = """
import json, pathlib, sys
from pyspark import SparkContext
from snapshot_assets.engine.session_start import start_session

count = start_session(json.loads(sys.argv[1])).range(3).count()
used = sys.argv[2] in pathlib.Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(json.dumps([count, used]))
"""


def _ended(arguments: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != ARCHIVE_VARIABLE}
    environment |= {"XDG_CACHE_HOME": str(folder), **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


def _session(folder: Path, file: str, settings: Mapping[str, str]) -> tuple[int, bool, str]:
    """Return how many rows a session counted, whether its JVM uses the archive, and what went to stderr."""
    ended = _ended(["-c", _SESSION, json.dumps(settings), file], folder)
    return (*json.loads(ended.stdout), ended.stderr)


@pytest.mark.slow
def test_sessions_use_the_archive_where_it_fits_and_say_nothing_where_it_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "a cache"
    done = _ended(["-m", "snapshot_assets", "warm-up", "--json"], folder)
    found = json.loads(done.stdout)
    assert found["bytes"] == Path(found["file"]).stat().st_size
    assert [str(path) for path in folder.rglob("*") if path.is_file()] == [found["file"]]
    assert _session(folder, found["file"], {}) == (3, True, "")
    other = {"spark.driver.extraClassPath": str(tmp_path / "other.jar")}
    (tmp_path / "other.jar").touch()
    assert _session(folder, found["file"], other) == (3, False, "")


@pytest.mark.slow
def test_a_java_that_makes_no_archive_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    done = _ended(["-m", "snapshot_assets", "warm-up"], tmp_path, JDK_JAVA_OPTIONS="-Xshare:off")
    assert done.returncode == 2
    assert "Java wrote no archive of classes" in done.stderr
    assert not list((tmp_path / "snapshot_assets").iterdir())


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _ended(["-m", "snapshot_assets", "warm-up"], tmp_path, SNAPSHOTS_CLASS_ARCHIVE=f"{tmp_path}/file/a.jsa")
    assert done.returncode == 2
    assert f"{tmp_path}/file/a.jsa, cannot be written: File exists. Choose another file by SNAPSHOTS" in done.stderr


def test_a_process_whose_jvm_is_anothers_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(PlanError, match="without PYSPARK_GATEWAY_PORT"):
        make_archive()


def test_a_process_with_a_session_makes_none(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match="has a Spark session"):
        make_archive()
