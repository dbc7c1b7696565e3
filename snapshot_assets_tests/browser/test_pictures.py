"""The script of the documents' pictures, as `make pictures` runs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.documents.pictures import PICTURES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="There is no chromium; apt-get install chromium")
def test_it_takes_every_picture_small_and_each_another(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "snapshot_assets_tests.documents.pictures", str(tmp_path)]
    subprocess.run(command, check=True)
    pictures = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert pictures.keys() == PICTURES.keys()
    assert len(set(pictures.values())) == len(PICTURES)
    assert all(content.startswith(b"\x89PNG") and len(content) < 150_000 for content in pictures.values())
