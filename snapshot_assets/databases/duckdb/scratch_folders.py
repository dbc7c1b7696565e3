"""Folders of scratch databases: each has a lock while it is used, so that those of killed runs are known."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from snapshot_assets.errors import DatabaseError

_LOCK = "in-use"


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder, and remove it at the end; those that killed runs left are removed first.

    Args:
        parent: The folder that gets it.
        name: What its name begins with.

    Raises:
        DatabaseError: It cannot be created.
    """
    try:
        for left in parent.glob(f"{name}.*/{_LOCK}"):
            _remove_unless_locked(left)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
    except OSError as error:
        raise DatabaseError(
            f"No scratch database can be created in {parent}: {error.strerror}. Create the folder, or make it writable."
        ) from error
    try:
        made = folder / f"{_LOCK}.new"
        with made.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made.rename(folder / _LOCK)  # others look at it only now, when it is locked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_unless_locked(path: Path) -> None:
    with path.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(path.parent)
