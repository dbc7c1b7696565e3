"""Temporary folders that are removed with their process, or by the next one if it was killed.

A folder has a lock of the kernel's (flock) for as long as its process lives, however that ends. Process numbers would
not do: containers that share a temporary folder have numbers of their own. A machine tests only locks of its own
kernel, because not every shared file system passes locks on to others.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOCK = "in-use"
_PROCESS = "snapshot-assets-process"


def process_folder() -> Path:
    """Return this process's temporary folder, in the user's temporary folder; removes those of killed processes first.

    Raises:
        OSError: It cannot be created.
    """
    return _folder_of(os.getpid())


@cache
def _folder_of(process: int) -> Path:
    """Return the folder of a process. A forked process has another number, and must not remove its parent's folder."""
    parent = Path(tempfile.gettempdir())
    remove_left(parent, _PROCESS)
    folder, lock = _create(parent, _PROCESS)

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()

    atexit.register(remove)
    return folder


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, whose name begins with `name`, and remove it at the end.

    Those that killed processes left are removed first.

    Raises:
        OSError: It cannot be created.
    """
    remove_left(parent, name)
    folder, lock = _create(parent, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def remove_left(parent: Path, name: str) -> None:
    """Remove this user's folders in `parent` whose process was killed, on this machine since it was started.

    Their names begin with `name`.
    """
    for path in parent.glob(f"{name}.*/{_lock_name()}"):
        with suppress(OSError):  # its process lives, or another one removes it too
            owner = os.lstat(path.parent)
            if owner.st_uid != os.geteuid() or not stat.S_ISDIR(owner.st_mode):
                continue
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent)


def _create(parent: Path, name: str) -> tuple[Path, IO[str]]:
    """Return a new folder, and its lock, which ends when the file is closed or this process dies."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
    made = folder / "new"
    lock = made.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    made.rename(folder / _lock_name())  # others look at it only now, when it is locked
    return folder, lock


def _lock_name() -> str:
    """Return the name of a lock, which tells this run of the kernel from those of other machines and earlier ones."""
    try:
        machine = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    return f"{_LOCK}.{machine}"
