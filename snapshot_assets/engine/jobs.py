"""Runs chunks in jobs: small chunks share a job, and jobs run in parallel threads."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeVar

from snapshot_assets.errors import (
    ConflictError,
    DamageError,
    ObjectNotFoundError,
    SnapshotError,
    TaskLostError,
    TransientError,
)
from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import counted

_SHOWN = 5
_OF_CHUNK = re.compile(r"(data/)\d+(?:/[^\s:;,]*)?|( SQL: ).*", re.DOTALL)
"""A chunk's folder or object in an error, or its statement at the end."""
JOB_BYTES = 64 << 20
JOB_CHUNKS = 32
"""Most bytes, and most chunks, that share a job: a Python task takes about 100 ms to start."""


@dataclass
class Pace:
    """Decides how many small chunks share a job: as many as take about two seconds.

    The first job is short, so that the first chunks are soon committed. Jobs in parallel threads share a pace.

    Attributes:
        chunks: Most chunks of the next job.
    """

    chunks: int = 8
    _SECONDS: ClassVar[float] = 2.0
    _MOST: ClassVar[int] = 256

    def finished(self, chunks: int, seconds: float) -> None:
        """Take the number of chunks of a finished job, and how long it took, in seconds."""
        fitting = int(chunks * self._SECONDS / max(seconds, 0.001))
        self.chunks = max(1, min(self._MOST, 2 * self.chunks, fitting))


class MapRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def ready(self) -> None:
        """Make sure that calls can run, before anything is written that only they finish.

        Raises:
            TaskFailedError: Spark's executors lack what calls need.
            InterruptedTaskError: The run was interrupted.
        """

    def interrupt(self) -> None:
        """Let running calls and jobs end soon, with an error; further ones end at once."""

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


class Failures(dict[int, str]):
    """Texts of the errors of failed chunks, by chunk id.

    Attributes:
        kinds: Names of the errors' classes.
        transient: Whether the same run may succeed later without any change: no error is permanent.
        damaged: Whether an error is damage of the location, or an object that it lacks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[str] = set()
        self.transient = True
        self.damaged = False

    def add(self, chunk: int, error: SnapshotError) -> None:
        """Add the error of a chunk."""
        self[chunk] = scrub(str(error))
        self.kinds.add(type(error).__name__)
        self.transient &= isinstance(error, TransientError | ConflictError)  # the next run opens the newest state
        self.damaged |= isinstance(error, DamageError | ObjectNotFoundError)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the error of the run."""
        return {"chunks": dict(self), "causes": sorted(self.kinds), "transient": self.transient}

    def report(self, done: str, tried: int) -> str:
        """Return the sentences on the chunks that did not fail, and on what retries those that did.

        `done` is what became of the others, such as `loaded`.
        """
        others = f"The other chunks are {done}. " if len(self) < tried else ""
        if self.transient:
            return f"{others}Run again to retry what failed."
        return (
            f"{others}Correct what the errors name first; then the same command, or the same run in Dagster, retries"
            " what failed."
        )


Chunk = TypeVar("Chunk")
AnyOutcome = TypeVar("AnyOutcome", bound=_ChunkOutcome)


def shared_jobs(
    chunks: Iterable[Chunk], size: Callable[[Chunk], int], pace: Pace | None = None
) -> Iterator[list[Chunk]]:
    """Group chunks into jobs, in order; a chunk of more than `JOB_BYTES` gets its own job.

    Only the chunks of the next job, and one more, are taken at a time. A pace gives the most chunks of each job,
    instead of `JOB_CHUNKS`.
    """
    job: list[Chunk] = []
    total = 0
    for chunk in chunks:
        own = size(chunk)
        most = pace.chunks if pace else JOB_CHUNKS
        if job and (len(job) >= most or total + own > JOB_BYTES):
            yield job
            job, total = [], 0
        job.append(chunk)
        total += own
    if job:
        yield job


def side_by_side(
    run: Callable[[list[Chunk], threading.Event], Sequence[AnyOutcome]],
    jobs: Iterable[list[Chunk]],
    parallelism: Callable[[], int],
    name: str,
    failed: Failures,
    interrupt: Callable[[], None],
) -> Iterator[Sequence[AnyOutcome]]:
    """Run jobs and yield the outcomes of each job's chunks when it finishes.

    An error that a job raises, rather than returns, and an interruption end all jobs: no further ones start, running
    tasks are interrupted, and the event is set.

    Args:
        run: Called with a job and the event.
        jobs: The jobs. Each is taken when a thread is about to be free, so that later ones are planned while others
            run.
        parallelism: Returns the most jobs at a time; called only if there is a job, and once the first is planned.
        name: Prefix of the threads' names.
        failed: Gets the error of each failed chunk.
        interrupt: Interrupts running tasks.
    """
    todo = iter(jobs)
    first = next(todo, None)
    if first is None:
        return
    stop, most = threading.Event(), parallelism()
    running: set[Future[Sequence[AnyOutcome]]] = set()
    with ThreadPoolExecutor(most, thread_name_prefix=name) as pool:
        try:
            for job in chain([first], todo):
                running.add(pool.submit(run, job, stop))
                full = len(running) > most  # one job waits, so that no thread does
                done, running = wait(running, timeout=None if full else 0, return_when=FIRST_COMPLETED)
                yield from _outcomes(done, failed)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from _outcomes(done, failed)
        except BaseException:
            stop.set()
            interrupt()
            for future in running:
                future.cancel()
            raise


def _outcomes(done: Iterable[Future[Sequence[AnyOutcome]]], failed: Failures) -> Iterator[Sequence[AnyOutcome]]:
    for future in done:
        outcomes = future.result()
        for each in outcomes:
            if each.error is not None:
                failed.add(each.chunk, each.error)
        yield outcomes


def error_of(chunk: int, results: Sequence[_ChunkOutcome], tasks: int) -> SnapshotError | None:
    """Return the error of a chunk's tasks, a permanent one first; a missing result is an error too."""
    errors = [result.error for result in results if result.error is not None]
    if not errors and len(results) != tasks:
        return TaskLostError(f"{tasks} tasks of chunk {chunk} gave {len(results)} results; expected one each.")
    permanent = [error for error in errors if not isinstance(error, TransientError)]
    return next(iter(permanent or errors), None)


def first_failures(failed: Mapping[int, str], name: Callable[[int], str] = str) -> str:
    """Return the first five causes of failures for a message, each with the chunks that it made fail."""
    groups = by_cause(failed)
    more = f"; and {counted(len(groups) - _SHOWN, 'more cause')}" if len(groups) > _SHOWN else ""
    return "; ".join(f"{chunk_names(chunks, name)}: {error.rstrip('.')}" for chunks, error in groups[:_SHOWN]) + more


def by_cause(failed: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Group failed chunks whose errors differ at most in the chunk's own objects; each group has its first error."""
    groups: dict[str, list[int]] = {}
    for chunk, error in sorted(failed.items()):
        groups.setdefault(_OF_CHUNK.sub(r"\1\2", error), []).append(chunk)
    return [(chunks, failed[chunks[0]]) for chunks in groups.values()]


def chunk_names(chunks: Sequence[int], name: Callable[[int], str] = str) -> str:
    """Return the names of the first five of some chunks, and how many more there are."""
    more = f" and {len(chunks) - _SHOWN:,} more" if len(chunks) > _SHOWN else ""
    return f"chunk{'s' * (len(chunks) > 1)} {', '.join(map(name, chunks[:_SHOWN]))}{more}"
