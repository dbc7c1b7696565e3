"""What a run has done so far: the chunks that are committed, and what running tasks report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from snapshot_assets.engine.reports import Report
from snapshot_assets.format.units import counted, human_bytes, human_seconds

Stage = Callable[[str, int, int], None]
"""Takes what a run does before or after its chunks, how much of it is done, and how much there is."""


def silent(_doing: str, _done: int, _total: int) -> None:
    """Take a stage, and do nothing."""


LOG_SECONDS = 30.0
"""Seconds between two lines of progress in logs."""


class FinishedChunk(Protocol):
    """Outcome of a chunk that is exported, copied, restored or compacted."""

    @property
    def chunk(self) -> int:
        """The chunk's id."""

    @property
    def rows(self) -> int:
        """Its rows."""

    @property
    def bytes(self) -> int:
        """The bytes of its files."""

    @property
    def status(self) -> str:
        """What the run did with it."""

    @property
    def counted(self) -> bool:
        """Whether it is counted: each chunk is, except chunk 0 if it is empty."""


_FOUND = ("present", "adopted", "empty", "left_out")
"""Statuses of chunks that were complete before, or of which nothing is loaded: they take no time, so that they tell
nothing of the others' pace."""


@dataclass
class Progress:
    """Counts what running tasks report and what is committed.

    Attributes:
        doing: The activity, such as `exporting`.
        chunks: The number of chunks.
        outcomes: The outcomes of finished chunks are added to it.
    """

    doing: str
    chunks: int
    outcomes: list[Any] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)
    _working_since: float | None = None
    _worked: int = 0
    _worked_bytes: int = 0
    _running: dict[str, Report] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)
    _stage: tuple[str, int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stage(self, doing: str, done: int, total: int) -> None:
        """Take what is done of a stage before or after the chunks; it ends when all is done. See `Stage`."""
        with self._lock:
            self._stage = (doing, done, total) if done < total else None

    @property
    def stage_text(self) -> str:
        """The present stage, such as `counting rows 120/2,000`; "" for none."""
        stage = self._stage
        return f"{stage[0]} {stage[1]:,}/{stage[2]:,}" if stage else ""

    def outcome(self, outcome: FinishedChunk) -> None:
        """Count a finished chunk, and forget what its tasks reported."""
        with self._lock:
            if outcome.counted:
                self.outcomes.append(outcome)
            else:
                self.chunks -= 1
            self._done.add(outcome.chunk)
            if outcome.status not in _FOUND:
                self._worked += outcome.counted
                self._worked_bytes += outcome.bytes
            elif not self._worked:
                self._working_since = time.monotonic()
            self._running = {work: each for work, each in self._running.items() if each.chunk != outcome.chunk}

    def report(self, report: Report) -> None:
        """Take a report of a running task; called from other threads."""
        with self._lock:
            if report.work and report.chunk not in self._done:
                self._running[report.work] = report

    def totals(self) -> dict[str, Any]:
        """Return the sums: of finished chunks their files, of running ones their rows in memory."""
        with self._lock:
            running = list(self._running.values())
            rows = sum(outcome.rows for outcome in self.outcomes) + sum(each.rows for each in running)
            done = len(self.outcomes)
            written = sum(outcome.bytes for outcome in self.outcomes)
            stage, stage_done, stage_total = self._stage or (None, 0, 0)
        return {
            "doing": self.doing,
            "seconds": round(time.monotonic() - self._started, 1),
            "chunks": self.chunks,
            "chunks_done": done,
            "chunks_running": len({each.chunk for each in running}),
            "rows": rows,
            "bytes": written,
            "bytes_running": sum(each.bytes for each in running),
            "files_running": sum(each.files for each in running),
            "stage": stage,
            "stage_done": stage_done,
            "stage_total": stage_total,
        }

    def pace(self) -> tuple[float, float | None]:
        """Return the bytes per second of the chunks that the run worked on, and the seconds left; None if unknown."""
        found, since = self.totals(), self._started if self._working_since is None else self._working_since
        seconds = max(time.monotonic() - since, 0.001)
        left = found["chunks"] - found["chunks_done"]
        rate = (self._worked_bytes + found["bytes_running"]) / seconds
        return rate, seconds / self._worked * left if self._worked and left else None

    def line(self) -> str:
        """Return the totals as a sentence."""
        found = self.totals()
        running = f", {human_bytes(found['bytes_running'])} in work" if found["chunks_running"] else ""
        stage = f"; {text}" if (text := self.stage_text) else ""
        chunks = f"{found['chunks_done']:,} of {counted(found['chunks'], 'chunk')}, " if found["chunks"] else ""
        return (
            f"{self.doing}: {chunks}{counted(found['rows'], 'row')},"
            f" {human_bytes(found['bytes'])}{running} after {found['seconds']:.0f} s{stage}"
        )

    def committed(self, outcomes: Sequence[FinishedChunk]) -> str | None:
        """Count finished chunks.

        Returns:
            A sentence on those that were just committed, with the rate so far and the time left; None if all were
            complete before.
        """
        for outcome in outcomes:
            self.outcome(outcome)
        outcomes = [outcome for outcome in outcomes if outcome.status != "present"]
        if not outcomes:
            return None
        found, chunks = self.totals(), [outcome.chunk for outcome in outcomes if outcome.counted]
        if not chunks:
            return "Chunk 0 is empty: there is no row of a table without a time index, and none without a time."
        which = (
            f"chunk {chunks[0]}"
            if len(chunks) == 1
            else f"{counted(len(chunks), 'chunk')} from {min(chunks)} to {max(chunks)}"
        )
        rows, size = sum(each.rows for each in outcomes), sum(each.bytes for each in outcomes)
        rate, seconds = self.pace()
        left = f", about {human_seconds(seconds)} left" if seconds is not None else ""
        return (
            f"Committed {which}: {counted(rows, 'row')}, {human_bytes(size)}."
            f" {found['chunks_done']:,} of {counted(found['chunks'], 'chunk')}, {human_bytes(rate)}/s{left}."
        )


class LoggedProgress:
    """Passes reports on to a count, and logs its line every `LOG_SECONDS`.

    Args:
        progress: The count.
        log: Logs a line.
    """

    def __init__(self, progress: Progress, log: Callable[[str], None]) -> None:
        self.progress = progress
        self._log = log
        self._due = time.monotonic() + LOG_SECONDS
        self._lock = threading.Lock()

    def report(self, report: Report) -> None:
        """Take a report of a running task; called from other threads."""
        self.progress.report(report)
        self._log_if_due()

    def stage(self, doing: str, done: int, total: int) -> None:
        """Take what is done of a stage; see `Progress.stage`."""
        self.progress.stage(doing, done, total)
        self._log_if_due()

    def _log_if_due(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + LOG_SECONDS
        self._log(self.progress.line())
