"""The plug-in for SQLite: installed as a package, tested by its own tests, used by the page that describes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.documents.blocks import ROOT, blocks
from snapshot_assets_tests.documents.reader import Reader, compare

PAGE = "docs/how-to/add-a-database.md"
PLUG_IN = ROOT / "examples/sqlite"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_is_followed(tmp_path: Path) -> None:
    folder, site = tmp_path / "plug-in", tmp_path / "site"
    shutil.copytree(PLUG_IN, folder / "examples/sqlite")
    offline = f"python -m pip install --quiet --no-deps --no-build-isolation --no-index --target {site}"
    variables = {"PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    Reader(tmp_path, variables, {"pip install --quiet": offline}).follow(PAGE, folder, compare)
    # Its snapshot needs no plug-in, and compares names as SQLite does.
    query = ["sql", "--snapshot", f"file://{folder}/snapshots", "--format", "csv", "SELECT count(*) AS n FROM ORDERS"]
    command = [sys.executable, "-m", "snapshot_assets", *query]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["n", "1000"]


def test_what_the_page_shows_is_in_the_plug_in() -> None:
    text = "".join(path.read_text() for path in PLUG_IN.rglob("*") if path.suffix in (".py", ".toml"))
    shown = [block.text for block in blocks(PAGE) if block.language in ("python", "toml") and not block.title]
    assert [each for each in shown if each not in text] == []


def test_without_the_plug_in_its_uri_is_refused_with_the_group() -> None:
    code = "from snapshot_assets.databases.open import kind_of; kind_of('sqlite:///a.db')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Another kind needs a package that registers it under snapshot_assets.databases" in done.stderr


def test_the_plug_in_stays_an_example() -> None:
    lines = "".join(path.read_text() for path in (PLUG_IN / "snapshot_assets_sqlite").glob("*.py")).splitlines()
    assert len(list(filter(str.strip, lines))) <= 500
