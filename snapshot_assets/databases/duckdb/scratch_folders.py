"""Folders of scratch databases, which are removed even if their run is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from snapshot_assets import scratch_folders
from snapshot_assets.errors import DatabaseError


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder, and remove it at the end; see `scratch_folders.scratch_folder`.

    Raises:
        DatabaseError: It cannot be created.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folders.scratch_folder(parent, name))
        except OSError as error:
            raise DatabaseError(
                f"No scratch database can be created in {parent}: {error.strerror}. Create the folder, or make it "
                "writable."
            ) from error
        yield folder
