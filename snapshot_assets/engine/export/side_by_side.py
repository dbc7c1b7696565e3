"""Work that runs side by side in threads, and ends together when one of them fails for all."""

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
    """Run jobs and yield their outcomes as they come.

    An error that a job raises, rather than returns, ends all: what has not begun is cancelled, and the event that
    every job is given is set, so that those which run can stop.

    Args:
        run: Called with a job and the event.
        jobs: What it is called with.
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
