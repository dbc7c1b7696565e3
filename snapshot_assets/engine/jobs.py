"""Runs chunks in jobs: small chunks share a job, and jobs run in parallel threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from snapshot_assets.errors import SnapshotError, TaskLostError, TransientError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.scrub import scrub

JOB_BYTES = 64 << 20
JOB_CHUNKS = 32
"""Most bytes, and most chunks, that share a job: a Python task takes about 100 ms to start."""


class MapRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def interrupt(self) -> None:
        """Let running calls and jobs end soon, with an error; further ones end at once."""

    def jobs(self, spark: Any) -> AbstractContextManager[None]:
        """Let `interrupt` end the Spark jobs that this thread starts until the context ends.

        Args:
            spark: The session.

        Raises:
            InterruptedTaskError: The run was interrupted.
        """

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Call a function with every item and return all that the calls yielded."""


class _ChunkOutcome(Protocol):
    """Outcome of one chunk."""

    @property
    def chunk(self) -> int:
        """The chunk's id."""

    @property
    def error(self) -> SnapshotError | None:
        """The error of a failed chunk; None if it succeeded."""


class FileSums:
    """Sums of data files."""

    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.bytes for file in self.files)


Chunk = TypeVar("Chunk")
Outcome = TypeVar("Outcome", bound=_ChunkOutcome)


def shared_jobs(chunks: Iterable[Chunk], size: Callable[[Chunk], int], most: int = JOB_CHUNKS) -> list[list[Chunk]]:
    """Group chunks into jobs, in order; a chunk of more than `JOB_BYTES` gets its own job.

    Args:
        chunks: The chunks.
        size: Returns a chunk's bytes.
        most: Most chunks of a job.
    """
    jobs: list[list[Chunk]] = []
    total = 0
    for chunk in chunks:
        own = size(chunk)
        if jobs and len(jobs[-1]) < most and total + own <= JOB_BYTES:
            jobs[-1].append(chunk)
            total += own
        else:
            jobs.append([chunk])
            total = own
    return jobs


def side_by_side(
    run: Callable[[list[Chunk], threading.Event], Sequence[Outcome]],
    jobs: Sequence[list[Chunk]],
    parallelism: int,
    name: str,
    failed: dict[int, str],
    interrupt: Callable[[], None],
) -> Iterator[Outcome]:
    """Run jobs and yield the outcomes of their chunks as they finish.

    An error that a job raises, rather than returns, and an interruption end all jobs: jobs that have not started are
    cancelled, running tasks are interrupted, and the event is set, so that no further ones start.

    Args:
        run: Called with a job and the event.
        jobs: The jobs.
        parallelism: Most jobs at a time.
        name: Prefix of the threads' names.
        failed: Gets the error of each failed chunk, by its id.
        interrupt: Interrupts running tasks.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(parallelism, thread_name_prefix=name) as pool:
        futures = [pool.submit(run, job, stop) for job in jobs]
        try:
            for future in as_completed(futures):
                for outcome in future.result():
                    if outcome.error is not None:
                        failed[outcome.chunk] = scrub(str(outcome.error))
                    yield outcome
        except BaseException:
            stop.set()
            interrupt()
            for future in futures:
                future.cancel()
            raise


def error_of(chunk: int, results: Sequence[_ChunkOutcome], tasks: int) -> SnapshotError | None:
    """Return the error of a chunk's tasks, a permanent one first; a missing result is an error too."""
    errors = [result.error for result in results if result.error is not None]
    if not errors and len(results) != tasks:
        return TaskLostError(f"{tasks} tasks of chunk {chunk} gave {len(results)} results; expected one each.")
    permanent = [error for error in errors if not isinstance(error, TransientError)]
    return next(iter(permanent or errors), None)


def first_failures(failed: Mapping[int, str]) -> str:
    """Return the errors of the first five failed chunks for a message."""
    return "; ".join(f"chunk {chunk}: {error.rstrip('.')}" for chunk, error in sorted(failed.items())[:5])
