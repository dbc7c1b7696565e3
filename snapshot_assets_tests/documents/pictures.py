"""Takes the pictures of the documents: `make pictures` follows the tutorial and shows it in Dagster's UI.

A test holds that the documents show these pictures and no others, and that each is small.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from snapshot_assets_tests.browser.ui import Ui
from snapshot_assets_tests.documents.blocks import ROOT
from snapshot_assets_tests.documents.followed import TUTORIAL
from snapshot_assets_tests.documents.reader import Reader
from snapshot_assets_tests.servers.dagster import start_dagster

FOLDER = ROOT / "docs/pictures"
_UNTIL = "6. Rows that came late"
_CHUNKS, _WINDOW = "shop/chunks", "2025-01-11T00:00"


def _partitions(ui: Ui, shop: Path) -> None:
    """Show a window with its metadata, down to the checksum."""
    ui.page.set_viewport_size(ViewportSize(width=1100, height=1040))
    ui.partition(_CHUNKS, _WINDOW)
    ui.expect_metadata("chunk_checksum", "")


def _lineage(ui: Ui, shop: Path) -> None:
    """Show the graph, beside the control that zooms it."""
    ui.page.set_viewport_size(ViewportSize(width=1400, height=520))
    ui.open("asset-groups/shop")
    ui.expect_text("untimed_tables")
    ui.page.wait_for_timeout(10_000)  # the state of the assets comes later
    ui.page.mouse.move(900, 450)
    ui.page.mouse.down()
    ui.page.mouse.move(870, 450, steps=5)
    ui.page.mouse.up()


def _check(ui: Ui, shop: Path) -> None:
    """Damage a window, execute the checks of all, and show the one that failed."""
    ui.page.set_viewport_size(ViewportSize(width=1700, height=760))
    [file] = shop.glob("snapshots/shop/data/2/*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    ui.open(f"assets/{_CHUNKS}?view=checks")
    assert ui.end(ui.launch(ui.button("Execute all").click)) == "SUCCESS"
    ui.check_partitions(_CHUNKS, "file_checksums")
    ui.expect_counts(failed=1)
    ui.page.get_by_text(_WINDOW, exact=True).first.click()
    ui.expect_text("Materialise this partition again.")


PICTURES: Mapping[str, Callable[[Ui, Path], None]] = {
    "partitions.png": _partitions,
    "lineage.png": _lineage,
    "check.png": _check,
}
"""What shows each picture, in this order."""


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
            page = browser.new_page(timezone_id="UTC")
            page.set_default_timeout(120_000)
            ui = Ui(page, servers)
            for name, show in PICTURES.items():
                show(ui, shop)
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(2000)  # animations of the graph end
                page.screenshot(path=folder / name)
            browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
