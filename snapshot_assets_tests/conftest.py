"""Fixtures shared by all tests: real servers, started once per run on free loopback ports."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "pytester",
    "snapshot_assets_tests.gate",
    "snapshot_assets_tests.servers.azurite",
    "snapshot_assets_tests.servers.locked",
    "snapshot_assets_tests.servers.mariadb",
    "snapshot_assets_tests.servers.moto",
    "snapshot_assets_tests.servers.disks",
    "snapshot_assets_tests.servers.postgresql",
    "snapshot_assets_tests.servers.pythons",
    "snapshot_assets_tests.servers.s3",
    "snapshot_assets_tests.servers.spark",
    "snapshot_assets_tests.servers.spark_cluster",
]

settings.register_profile("project", deadline=None)  # no test measures wall time
settings.load_profile("project")

_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
if _CLASSES.is_file():  # by the Makefile: the many JVMs of the tests then start seconds sooner
    os.environ.setdefault("SNAPSHOTS_CLASS_ARCHIVE", str(_CLASSES))

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 6 << 30

if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
    # No test needs durability, and flushes to a disk take most of the time of many tests.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.fixture(scope="session", autouse=True)
def _own_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep Dagster's instance of each worker apart, and from the user's: two processes cannot create one at once."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "dagster").mkdir()  # Dagster's own commands create none
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DAGSTER_HOME", str(folder / "dagster"))
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all tests."""
    return tmp_path_factory.mktemp("scratch")
