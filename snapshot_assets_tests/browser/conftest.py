"""A project behind Dagster's web server and daemon, and Debian's Chromium to look at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from snapshot_assets_tests.browser.project import SLOW_SOURCE, write_project
from snapshot_assets_tests.browser.ui import Ui
from snapshot_assets_tests.servers.dagster import DagsterServers, start_dagster
from snapshot_assets_tests.servers.postgresql import PostgresqlServer


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("There is no chromium; install it, for example by: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def project(chromium: Browser, postgresql_server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's folder; it is made only if there is a browser."""
    uri = postgresql_server.create_database()
    postgresql_server.psql_script(uri, SLOW_SOURCE)
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, uri)
    return folder


@pytest.fixture(scope="session")
def servers(project: Path) -> Iterator[DagsterServers]:
    """The project's web server and daemon."""
    with start_dagster(project, ["-m", "snapshot_assets.definitions"]) as servers:
        yield servers


@pytest.fixture
def ui(chromium: Browser, servers: DagsterServers, tmp_path: Path) -> Iterator[Ui]:
    """A new page; what it showed last is kept as a picture if the test fails."""
    context = chromium.new_context(viewport={"width": 1500, "height": 1000}, timezone_id="UTC")
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield Ui(page, servers)
    page.screenshot(path=tmp_path / "last.png")
    context.close()
