"""Takes the pictures of the documents: `make pictures` follows the tutorial and shows it in Dagster's UI.

A test holds that the documents show these pictures and no others, and that each is small.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page, sync_playwright

from snapshot_assets_tests.documents.blocks import ROOT
from snapshot_assets_tests.documents.followed import TUTORIAL
from snapshot_assets_tests.documents.reader import Reader
from snapshot_assets_tests.servers.dagster import start_dagster

FOLDER = ROOT / "docs/pictures"
_UNTIL = "6. Rows that came late"


class _Picture(NamedTuple):
    """What a picture shows.

    Attributes:
        path: The page of Dagster's UI.
        text: What the page shows once it is whole.
    """

    path: str
    text: str


PICTURES: Mapping[str, _Picture] = {
    "partitions.png": _Picture("assets/shop/chunks?view=partitions&partition=2025-01-11-00:00", "chunk_checksum"),
    "lineage.png": _Picture("asset-groups/shop", "manifest"),
}


def take(folder: Path) -> None:
    """Take all pictures.

    Args:
        folder: Where they go.
    """
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        sys.exit("There is no chromium; install it, for example by: apt-get install chromium")
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        shop = Reader(Path(home)).follow(TUTORIAL, Path(home), lambda *_: None, _UNTIL)
        with start_dagster(shop, ["-m", "snapshot_assets.definitions"]) as servers:
            browser = playwright.chromium.launch(executable_path=executable)
            page = browser.new_page(viewport={"width": 1100, "height": 620}, timezone_id="UTC")
            page.set_default_timeout(120_000)
            for name, picture in PICTURES.items():
                page.goto(f"{servers.url}/{picture.path}")
                _settle(page, picture.text)
                page.screenshot(path=folder / name)
            browser.close()


def _settle(page: Page, text: str) -> None:
    """Wait until the page shows a text and loads nothing more."""
    page.get_by_text(text).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(2000)  # animations of the graph end


if __name__ == "__main__":
    take(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
