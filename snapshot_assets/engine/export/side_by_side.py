"""Runs jobs in parallel threads, and stops all of them when one raises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def side_by_side(
    run: Callable[[Job, threading.Event], Sequence[Outcome]], jobs: Sequence[Job], parallelism: int, name: str
) -> Iterator[Outcome]:
    """Run jobs and yield their outcomes as they finish.

    An error that a job raises, rather than returns, ends all jobs: jobs that have not started are cancelled, and the
    event is set, so that running jobs can stop.

    Args:
        run: Called with a job and the event.
        jobs: The jobs.
        parallelism: Most jobs at a time.
        name: Prefix of the threads' names.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(parallelism, thread_name_prefix=name) as pool:
        futures = [pool.submit(run, job, stop) for job in jobs]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
