"""A run's progress: committed chunks, and what running tasks report."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from snapshot_assets.engine import progress
from snapshot_assets.engine.progress import LoggedProgress, Progress
from snapshot_assets.engine.reports import Report


@dataclass(frozen=True)
class Done:
    chunk: int
    rows: int
    bytes: int
    counted: bool = True
    status: str = "exported"


def counts(found: Progress) -> dict[str, int]:
    return {name: value for name, value in found.totals().items() if name not in ("doing", "seconds")}


def test_running_work_counts_until_its_chunk_is_committed() -> None:
    found = Progress("exporting", 3)
    found.report(Report("a", chunk=1, rows=10, bytes=80, files=1))
    found.report(Report("a", chunk=1, rows=25, bytes=200, files=2))
    found.report(Report("b", chunk=2, rows=5, bytes=40))
    found.report(Report("", chunk=0))  # a task between two pieces of work
    assert counts(found) == {
        "chunks": 3,
        "chunks_done": 0,
        "chunks_running": 2,
        "rows": 30,
        "bytes": 0,
        "bytes_running": 240,
        "files_running": 2,
        "stage": None,
        "stage_done": 0,
        "stage_total": 0,
    }
    found.outcome(Done(chunk=1, rows=26, bytes=9))
    found.report(Report("a", chunk=1, rows=26, done=True))  # late: its rows are counted by now
    assert counts(found) == {
        "chunks": 3,
        "chunks_done": 1,
        "chunks_running": 1,
        "rows": 31,
        "bytes": 9,
        "bytes_running": 40,
        "files_running": 0,
        "stage": None,
        "stage_done": 0,
        "stage_total": 0,
    }
    assert found.line() == "exporting: 1 of 3 chunks, 31 rows, 9 B, 40 B in work after 0 s"


def test_a_line_is_logged_only_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    logged = LoggedProgress(Progress("copying", 1, _started=0.0), lines.append)
    for now in (1.0, 29.0, 31.0, 45.0, 62.0):
        logged.report(Report("a", chunk=1, rows=int(now)))
    assert lines == [
        "copying: 0 of 1 chunk, 31 rows, 0 B, 0 B in work after 31 s",
        "copying: 0 of 1 chunk, 62 rows, 0 B, 0 B in work after 62 s",
    ]


def test_a_stage_is_shown_until_all_of_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found = Progress("importing", 1, _started=0.0)
    logged = LoggedProgress(found, lines.append)
    found.outcome(Done(chunk=0, rows=40_000, bytes=2048))
    now = 31.0
    logged.stage("making keys, indexes and views", 120, 2000)
    text = "making keys, indexes and views 120/2,000"
    assert lines == [f"importing: 1 of 1 chunk, 40,000 rows, 2.0 KiB after 31 s; {text}"]
    stage = {"stage": "making keys, indexes and views", "stage_done": 120, "stage_total": 2000}
    assert stage.items() <= found.totals().items()
    logged.stage("making keys, indexes and views", 2000, 2000)
    assert found.line() == "importing: 1 of 1 chunk, 40,000 rows, 2.0 KiB after 31 s"
    assert found.totals()["stage"] is None


@pytest.mark.parametrize("status", ["present", "adopted", "empty", "left_out"])
def test_the_time_left_is_that_of_the_chunks_that_take_time(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """A resumed run finds 400 of 410 chunks there, and takes 5 s for each of the others."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    found = Progress("exporting", 410, _started=0.0)
    now = 20.0  # to start, and to find them
    for chunk in range(400):
        found.outcome(Done(chunk, 1, 1 << 30, status=status))
    assert found.pace() == (0.0, None)
    now = 30.0
    assert found.committed([Done(400, 1, 1 << 20), Done(401, 1, 1 << 20)]) == (
        "Committed 2 chunks from 400 to 401: 2 rows, 2.0 MiB. 402 of 410 chunks, 204.8 KiB/s, about 40 s left."
    )
    assert found.pace() == ((2 << 20) / 10, 40.0)
