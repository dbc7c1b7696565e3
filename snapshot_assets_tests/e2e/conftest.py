"""Fixtures of tests that see the package whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.cli.helpers import exported, exported_once, location, snapshots, source
from snapshot_assets_tests.servers.s3 import S3Server

__all__ = ["exported", "exported_once", "location", "snapshots", "source"]


def configuration_file(folder: Path, options: StoreOptions) -> str:
    """Write the options into a configuration, secrets by reference."""
    file = folder / "snapshots.yaml"
    file.write_text(
        f"storage:\n  s3:\n    endpoint: {options.endpoint}\n    region: {options.region}\n    allow_http: true\n"
        "    access_key_id: ${TEST_KEY_ID}\n    secret_access_key: ${TEST_KEY}\n    retries: 2\n"
    )
    return str(file)


@pytest.fixture
def s3_user(monkeypatch: pytest.MonkeyPatch, s3_server: S3Server, tmp_path: Path) -> Any:
    """Return the path of a configuration that reaches the server as a given user."""

    def as_user(name: str) -> str:
        options = s3_server.as_user(name)
        monkeypatch.setenv("TEST_KEY_ID", str(options.access_key_id))
        monkeypatch.setenv("TEST_KEY", str(options.secret_access_key))
        return configuration_file(tmp_path, options)

    return as_user
