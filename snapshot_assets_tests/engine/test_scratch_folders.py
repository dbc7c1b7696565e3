"""Temporary folders of processes: they go with the process, or at the next start if it was killed by SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from snapshot_assets import scratch_folders
from snapshot_assets.engine.session_settings import driver_settings, worker_settings
from snapshot_assets.engine.session_start import archive_file, session_config
from snapshot_assets.scratch_folders import remove_left, scratch_folder
from snapshot_assets_tests.waiting import until

_START = """
import sys
from snapshot_assets.scratch_folders import process_folder
(process_folder() / "blockmgr-x").mkdir()
print(process_folder(), flush=True)
sys.stdin.read()
"""
_SPARK = """
import os, sys
from snapshot_assets.engine.session import send_package
from snapshot_assets.engine.session_start import start_session
spark = send_package(start_session({"spark.master": "local[2]"}))
spark.range(0, 1000).repartition(3).groupBy("id").count().count()
def folder(batches):
    import tempfile
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"folder": [tempfile.gettempdir()]})
[row] = spark.range(0, 1, 1, 1).mapInArrow(folder, "folder string").collect()
print(row.folder, spark.sparkContext._gateway.proc.pid, flush=True)
sys.stdin.read()
"""


_SPILL = """
import sys
from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.protocol.source import DatabaseAddress
session = DuckDBSession(DatabaseAddress("shop", sys.argv[1] + "?memory_limit=96MiB"))
with session.cursor() as cursor:
    cursor.execute("SELECT id || repeat('x', 200) AS text FROM range(600000) t(id) ORDER BY hash(id)").fetchone()
    print("spilled", flush=True)
    sys.stdin.read()
session.close()
"""


def start(code: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a process whose temporary folder is another one."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Let a process end by itself."""
    process.communicate("")
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_a_folder_goes_with_its_process_and_one_of_a_killed_process_at_the_next_start(tmp_path: Path) -> None:
    killed, alive = start(_START, tmp_path), start(_START, tmp_path)
    left, used = Path(said(killed)), Path(said(alive))
    assert {left, used} == set(tmp_path.iterdir())
    kill(killed)
    assert (left / "blockmgr-x").exists()
    following = start(_START, tmp_path)
    own = Path(said(following))
    assert {used, own} == set(tmp_path.iterdir())
    end(following)
    end(alive)
    assert list(tmp_path.iterdir()) == []


def test_only_locks_of_this_machine_that_nobody_holds_are_proof(tmp_path: Path) -> None:
    names = [f"in-use.{scratch_folders._lock_name()[7:]}", "in-use.another-machine", "new"]
    for number, name in enumerate(names):
        (tmp_path / f"any.{number}").mkdir()
        (tmp_path / f"any.{number}" / name).touch()
    (tmp_path / "other.0").mkdir()
    (tmp_path / "other.0" / names[0]).touch()
    (tmp_path / "any.link").symlink_to(tmp_path / "other.0")
    with scratch_folder(tmp_path, "any") as used:
        remove_left(tmp_path, "any")
        assert {path.name for path in tmp_path.iterdir()} == {"any.1", "any.2", "any.link", "other.0", used.name}
        assert (tmp_path / "other.0" / names[0]).exists()
    assert not used.exists()


def test_a_forked_process_has_a_folder_of_its_own_and_keeps_its_parents(tmp_path: Path) -> None:
    code = f"""
import os
{_START.split("print")[0]}
parent = process_folder()
if os.fork() == 0:
    assert process_folder() != parent
    sys.exit(0)  # runs what is to run at the end of the process
os.wait()
assert parent.exists()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)})
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_what_duckdb_spills_goes_with_its_process_and_that_of_a_killed_process_at_the_next_start(
    tmp_path: Path,
) -> None:
    database, folder = tmp_path / "shop.duckdb", tmp_path / "temporary"
    duckdb.connect(str(database)).close()
    folder.mkdir()
    process = start(_SPILL, folder, f"duckdb://{database}")
    assert said(process) == "spilled"
    assert list(folder.glob("*/duckdb/*"))
    kill(process)
    left = list(folder.iterdir())
    following = start(_START, folder)
    said(following)
    assert not any(path.exists() for path in left)
    end(following)
    assert list(folder.iterdir()) == []


def test_spark_gets_the_folder_of_the_process_unless_another_is_chosen_and_executors_elsewhere_do_not() -> None:
    folder = scratch_folders.process_folder()
    ours = driver_settings(folder, archive_file()) | worker_settings(folder)
    assert ours.items() <= session_config({"spark.master": "local[2]"}).items()
    for master in ("spark://host:7077", "local-cluster[1,1,512]"):
        found = session_config({"spark.master": master})
        assert driver_settings(folder, archive_file()).items() <= found.items()
        assert worker_settings(folder).keys().isdisjoint(found)
    chosen = dict.fromkeys(ours, "theirs")
    assert chosen.items() <= session_config({"spark.master": "local[2]"} | chosen).items()


@pytest.mark.slow
def test_a_killed_spark_leaves_nothing_after_the_next_start_of_another_process(tmp_path: Path) -> None:
    folder = tmp_path / 'with "quotes" and spaces'
    folder.mkdir()
    process = start(_SPARK, folder)
    workers, java = said(process).rsplit(" ", 1)
    [own] = folder.iterdir()
    assert Path(workers) == own
    found = {path.name.partition("-")[0] for path in own.iterdir()}
    assert {"blockmgr", "spark", "artifacts"} <= found
    os.kill(int(java), signal.SIGKILL)
    kill(process)
    assert {path.name.partition("-")[0] for path in own.iterdir()} == found
    following = start(_START, folder)
    said(following)
    end(following)

    def left() -> list[Path]:
        remove_left(folder, "snapshot-assets-process")
        return list(folder.iterdir())

    until(left, lambda paths: not paths)  # Python workers end when they notice


@pytest.mark.slow
def test_spark_leaves_nothing_when_its_process_ends(tmp_path: Path) -> None:
    process = start(_SPARK, tmp_path)
    said(process)
    end(process)
    assert list(tmp_path.iterdir()) == []
