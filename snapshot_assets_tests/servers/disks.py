"""Small file systems that fill up, or refuse writes."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A mounted file system of 1 MiB."""

    folder: Path

    def remount(self, options: str) -> None:
        """Change its options, such as `size=8m`, `ro` or `rw`."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of 1 MiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small file system: {mounted.stderr.decode()}")
    yield Disk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Let the system refuse every write beyond a size, as a full disk does."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
        signal.signal(signal.SIGXFSZ, ignored)
