"""Export and import report what they do before and after their chunks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets.cli.progress import progress
from snapshot_assets.engine.progress import Progress
from snapshot_assets_tests.cli.helpers import DAY, DAYS, START, Snapshots


@pytest.mark.slow
def test_the_seal_keys_and_counts_report_how_far_they_are(
    source: str, location: Path, tmp_path: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[tuple[str, int, int]] = []
    stage = Progress.stage

    def record(self: Progress, doing: str, done: int, total: int) -> None:
        stages.append((doing, done, total))
        stage(self, doing, done, total)

    monkeypatch.setattr(Progress, "stage", record)
    window = ["--start-time", START.isoformat(), "--end-time", (START + DAYS * DAY).isoformat()]
    assert snapshots("export", "create", "--source", source, "--to", location.as_uri(), *window).status == 0
    files = len(list(location.glob("data/**/*.parquet")))
    assert ("verifying files", files, files) in stages
    assert ("counting rows outside the range", 1, 1) in stages

    stages.clear()
    into = f"duckdb://{tmp_path}/target.duckdb"
    done = snapshots("import", "--from", location.as_uri(), "--target", into, "--progress", "json")
    assert done.status == 0
    assert ("making keys, indexes and views", 1, 1) in stages  # the primary key
    assert any(doing == "making tables" and made == total for doing, made, total in stages)
    counts = [(made, total) for doing, made, total in stages if doing == "counting rows"]
    assert counts[-1] == (2, 2)  # the command's own, after those of the run's checks
    assert len(counts) > 1
    *_, last = (json.loads(line) for line in done.err.splitlines() if line.startswith("{"))
    assert last["stage"] is None


def test_a_json_line_and_a_plain_line_have_the_stage(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("importing", 1, [], "json") as watch:
        watch.stage("counting rows", 50, 2000)
    *_, line = capfd.readouterr().err.splitlines()
    expected = {"stage": "counting rows", "stage_done": 50, "stage_total": 2000}
    assert expected.items() <= json.loads(line).items()
    assert watch.line().endswith("; counting rows 50/2,000")
