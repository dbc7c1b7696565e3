"""Python interpreters for Spark's workers, other than that of the tests."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest


def _make_python(folder: Path, *paths: str) -> Path:
    """Create an environment without pip that imports from `paths`, or runs them if they start with `import`.

    The .pth files of the paths do not apply.
    """
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without this package and its dependencies, like a system's `python3`."""
    return _make_python(tmp_path_factory.mktemp("bare_python"))


@pytest.fixture(scope="session")
def older_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that takes itself for Python 3.9."""
    version = 'collections.namedtuple("version", "major minor micro")(3, 9, 1)'
    return _make_python(
        tmp_path_factory.mktemp("older_python"), f"import sys, collections; sys.version_info = {version}"
    )


@pytest.fixture(scope="session")
def executors_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the dependencies but without this package, like that of a cluster's executors."""
    packages = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    python = _make_python(tmp_path_factory.mktemp("executors_python"), *packages)
    done = subprocess.run(
        [python, "-c", "import pyspark, pyarrow, duckdb, obstore; import snapshot_assets"],
        cwd=python.parent,
        env={},
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("No module named 'snapshot_assets'\n"), done.stderr
    return python
