"""Fixtures shared by all tests: real servers, started once per run on free loopback ports."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "snapshot_assets_tests.servers.postgresql",
    "snapshot_assets_tests.servers.pythons",
    "snapshot_assets_tests.servers.s3",
    "snapshot_assets_tests.servers.spark",
]

settings.register_profile("project", deadline=None)  # no test measures wall time
settings.load_profile("project")


@pytest.fixture(scope="session")
def scratch(tmp_path_factory) -> Iterator[Path]:
    """A folder in memory if possible, because tests that need no durability run faster without flushes."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("scratch")
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
