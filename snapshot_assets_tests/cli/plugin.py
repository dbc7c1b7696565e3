"""Fixtures of tests that call `snapshots` in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.cli import main
from snapshot_assets_tests.cli.helpers import Result, Snapshots, export, make_plan, make_source, store_of


@pytest.fixture
def snapshots(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Snapshots:
    """Call `snapshots` with arguments, in an empty folder, and return status and output as the descriptors got it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("SNAPSHOTS_CONFIG", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        try:
            status = main(arguments)
        except SystemExit as ended:  # argparse's own
            status = int(str(ended.code))
        out, err = capfd.readouterr()
        return Result(status, out, err)

    return call


@pytest.fixture
def source(tmp_path: Path) -> str:
    """URI of a small DuckDB file."""
    return make_source(tmp_path / "source.duckdb")


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "location"


@pytest.fixture
def exported(source: str, location: Path) -> Path:
    """A location that holds a sealed snapshot of `source`."""
    export(make_plan(source, location.as_uri()), store_of(location))
    return location
