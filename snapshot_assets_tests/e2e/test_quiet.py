"""What an export prints to stderr, as its own process: nothing by default, notices with `-v`, JSON if asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import RANGE, Result, in_own_process

pytestmark = pytest.mark.slow

_NOTICE = "WARNING: Using incubator modules: jdk.incubator.vector"


@pytest.fixture
def dagster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an instance that exists, and has no configuration."""
    home = tmp_path / "dagster"
    (home / "storage").mkdir(parents=True)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return home


def exported(source: str, to: Path, *arguments: str) -> Result:
    call = ("export", "create", "--source", source, "--to", to.as_uri(), *RANGE, "--no-progress", *arguments)
    done = in_own_process(*call)
    assert done.status == 0, done.err
    return done


@pytest.mark.timeout(900)
def test_an_export_is_quiet_unless_it_is_asked_for_more(source: str, tmp_path: Path, dagster_home: Path) -> None:
    first = exported(source, tmp_path / "first")
    assert first.err == f"Runs are recorded in {dagster_home}\n"
    assert exported(source, tmp_path / "second").err == ""
    verbose = exported(source, tmp_path / "third", "-v")
    assert _NOTICE in verbose.err
    assert "Committed 4 chunks from 0 to 3: 74 rows" in verbose.err
    assert f"Runs are recorded in {dagster_home}" in verbose.err
    records = [
        json.loads(line) for line in exported(source, tmp_path / "a", "-v", "--log-format=json").err.splitlines()
    ]
    assert _NOTICE in [record["message"] for record in records]


def test_other_commands_that_move_rows_are_quiet(source: str, tmp_path: Path, dagster_home: Path) -> None:
    location, target = tmp_path / "first", f"duckdb://{tmp_path / 'target.duckdb'}"
    exported(source, location)
    query = "SELECT moment, value FROM readings"
    for call in (
        ("catalog", "compact", "--snapshot", location.as_uri()),
        ("import", "--from", location.as_uri(), "--target", target),
        ("copy", query, "--source", source, "--to", (tmp_path / "copy").as_uri()),
    ):
        done = in_own_process(*call, "--no-progress")
        shown = [line for line in done.err.splitlines() if "sealed at revision" not in line]  # what a copy wrote
        assert (done.status, shown) == (0, []), call


def test_log_settings_of_the_user_stay_in_force(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dagster_home: Path
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.own.ref = own\nappender.own.type = Console\n"
        "appender.own.name = own\nappender.own.target = SYSTEM_ERR\nappender.own.layout.type = PatternLayout\n"
        "appender.own.layout.pattern = MINE %m%n\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    assert "MINE " in exported(source, tmp_path / "first").err
