"""Native clients belong to the process that made them.

Their worker threads do not survive `fork()`, and a child that calls into such a library waits for ever; a new client
in the child does not help, because the threads are the library's. So a child of a process that used the library gets
an error instead. A parent that has not used it may fork freely: Spark's Python daemon and Dagster's executors do.
"""

from __future__ import annotations

import os

from snapshot_assets.errors import StorageError

_used_by: dict[str, int] = {}


def claim_process(library: str) -> int:
    """Note that this process uses a native library, and return the process id.

    Args:
        library: Name of the library.

    Raises:
        StorageError: This process was forked from one that had used it.
    """
    pid = os.getpid()
    if _used_by.setdefault(library, pid) != pid:
        raise StorageError(
            f"Process {pid} was forked from process {_used_by[library]} after that had used object storage; {library} "
            "would hang here. Start processes with the method 'spawn' or 'forkserver', or fork before the first use."
        )
    return pid
