"""The zip of this package that Spark ships to its executors."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import snapshot_assets
from snapshot_assets.engine import session
from snapshot_assets.engine.session import _package_zip

_IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import snapshot_assets

sys.argv = ["snapshots", "--version"]  # `snapshot_assets.cli.__main__` runs the command line
found = {}
for module in pkgutil.walk_packages(snapshot_assets.__path__, "snapshot_assets."):
    try:
        found[module.name] = importlib.import_module(module.name).__file__
    except SystemExit as ended:
        found[module.name] = f"{sys.path[0]} ended with {ended.code}"
    except Exception as error:
        found[module.name] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""

_CONFIGURE = """
import sys, zipfile
sys.path.insert(0, sys.argv[1])
from snapshot_assets.engine.session import _package_zip
from snapshot_assets.engine.session_start import session_config

with zipfile.ZipFile(sys.argv[1]) as here, zipfile.ZipFile(_package_zip()) as shipped:
    assert sorted(here.namelist()) == sorted(shipped.namelist())
    assert all(here.read(name) == shipped.read(name) for name in here.namelist())
[option] = [value for name, value in session_config({}).items() if name == "spark.driver.extraJavaOptions"]
print(open(option.partition("=file://")[2]).read())
"""


def run_with_zip(python: Path, code: str) -> str:
    """Run code in a fresh process that is given the zip by a relative path, as Spark's executors give it to Python."""
    archive = _package_zip()
    done = subprocess.run(
        [python, "-c", code, archive.name], cwd=archive.parent, env={}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_name_is_the_hash_of_the_zip_and_both_are_the_same_every_time() -> None:
    first, second = _package_zip(), _package_zip()
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert first.stem == f"snapshot_assets-{hashlib.sha256(first.read_bytes()).hexdigest()[:12]}"


@pytest.mark.parametrize(
    "change", [lambda root: (root / "a.py").rename(root / "b.py"), lambda root: (root / "c.py").touch()]
)
def test_a_zip_of_other_files_with_the_same_contents_has_another_name(
    change: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps one file of a name, and refuses a second one that differs."""
    (tmp_path / "a.py").write_text("A = 1")
    monkeypatch.setattr(session, "files", lambda _: tmp_path)
    before = _package_zip()
    change(tmp_path)
    after = _package_zip()
    assert before.read_bytes() != after.read_bytes()
    assert before.name != after.name


@pytest.mark.slow
def test_every_module_can_be_imported_from_the_zip(executors_python: Path) -> None:
    root = Path(snapshot_assets.__file__).parent
    modules = {
        ".".join(("snapshot_assets", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for path in root.rglob("*.py")
    }
    found = json.loads(run_with_zip(executors_python, _IMPORT_EVERYTHING).splitlines()[-1])
    assert set(found) == modules - {"snapshot_assets"}
    assert {name: text for name, text in found.items() if not text.startswith("snapshot_assets-")} == {}


def test_a_driver_whose_package_is_a_zip_configures_its_session_and_ships_the_same_package(
    executors_python: Path,
) -> None:
    configuration = (Path(snapshot_assets.__file__).parent / "engine" / "log4j2.properties").read_text()
    assert run_with_zip(executors_python, _CONFIGURE) == configuration + "\n"


_SEND = """
import sys
from snapshot_assets.engine.session import send_package
from snapshot_assets.engine.session_start import start_session
from snapshot_assets.scratch_folders import process_folder

spark = send_package(start_session({"spark.master": "local[1]", **dict(each.split("=") for each in sys.argv[1:])}))


def same(batches):
    from snapshot_assets.engine.reading import read  # the daemon does not import it

    assert read.__file__
    return batches


assert spark.range(0, 1, 1, 1).mapInArrow(same, "id long").count() == 1
print(*(each.suffix for each in process_folder().glob("snapshot_assets-*")))
spark.stop()
"""


@pytest.mark.parametrize(("settings", "sent"), [((), ""), (("spark.python.daemon.module=pyspark.daemon",), ".zip")])
def test_the_package_is_sent_unless_workers_have_it_from_their_daemon(settings: tuple[str, ...], sent: str) -> None:
    done = subprocess.run([sys.executable, "-c", _SEND, *settings], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == sent
