"""The trace of an export opens in a viewer of Chrome's traces, with its spans in the tracks of their threads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from snapshot_assets_tests.cli.helpers import RANGE, in_own_process, make_source

_VIEWER = "speedscope@1.25.0"


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a viewer that needs no server."""
    if shutil.which("npm") is None:
        pytest.skip(f"needs npm, for {_VIEWER}")
    folder = tmp_path_factory.mktemp("viewer")
    packed = subprocess.run(
        ("npm", "pack", "--silent", _VIEWER), cwd=folder, check=True, capture_output=True, text=True, timeout=300
    )
    shutil.unpack_archive(folder / packed.stdout.strip(), folder)
    return folder / "package" / "dist" / "release" / "index.html"


@pytest.mark.browser
def test_the_trace_of_an_export_opens_in_a_viewer(chromium: Browser, viewer: Path, tmp_path: Path) -> None:
    source, trace = make_source(tmp_path / "source.duckdb"), tmp_path / "trace.json"
    call = ("export", "create", "--source", source, "--to", f"file://{tmp_path}/location", *RANGE)
    assert in_own_process(*call, "--profile", str(trace)).status == 0

    page = chromium.new_page()
    page.goto(viewer.as_uri())
    page.locator("input[type=file]").set_input_files(trace)
    page.get_by_text("Sandwich").click()
    for name in ("command", "connect", "introspect", "plan", "verify"):
        expect(page.get_by_text(name, exact=True)).to_be_visible()
    page.get_by_text("driver (pid 1), MainThread").first.click()
    page.get_by_text("tasks of process").first.click()
    for name in ("task start", "task", "read", "encode", "hash", "put"):
        expect(page.get_by_text(name, exact=True)).to_be_visible()
    page.close()
