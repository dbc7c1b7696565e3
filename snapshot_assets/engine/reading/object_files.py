"""The files of a location as DuckDB opens them: through the location's store, or by their paths on this machine."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from snapshot_assets.engine.reading.planning import FilePart
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.storage.base import ObjectStore

PROTOCOL = "snapshot"
_WRITTEN = datetime(2000, 1, 1, tzinfo=UTC)  # a data file is written once, so DuckDB's caches may keep it


class ObjectFiles(AbstractFileSystem):  # type: ignore[misc]
    """Data files of locations, read by ranges. DuckDB opens them by number: a path may look like a pattern to it.

    Attributes:
        error: The first error of a store, which DuckDB replaces by one of its own.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.error: SnapshotError | None = None
        self._files: list[tuple[ObjectStore, DataFile]] = []
        self._known: dict[tuple[str, str], int] = {}

    def name(self, store: ObjectStore, part: FilePart) -> str:
        """Return the name by which DuckDB opens a file."""
        key = store.uri, part.file.path
        if key not in self._known:
            self._known[key] = len(self._files)
            self._files.append((store, part.file))
        return f"{PROTOCOL}://{self._known[key]}.parquet"

    def _find(self, path: str) -> tuple[ObjectStore, DataFile]:
        try:
            return self._files[int(self._strip_protocol(path).removesuffix(".parquet"))]
        except (ValueError, IndexError):
            raise FileNotFoundError(path) from None

    # fsspec's names

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return a file's size, from the log."""
        return {"name": path, "size": self._find(path)[1].bytes, "type": "file"}

    def glob(self, path: str, **_: Any) -> Sequence[str]:
        """Return the path: no name is a pattern."""
        self._find(path)
        return [path]

    def modified(self, path: str) -> datetime:
        """Return a time that never changes."""
        return _WRITTEN

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        return _ObjectReader(self, *self._find(path))


class _ObjectReader(io.RawIOBase):
    """A file whose place belongs to the thread: DuckDB's threads share it, and seek before they read."""

    def __init__(self, files: ObjectFiles, store: ObjectStore, file: DataFile) -> None:
        self._files, self._store, self._file, self._place = files, store, file, threading.local()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._place, "offset", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._file.bytes}[whence]
        self._place.offset = start + offset
        return start + offset

    def read(self, size: int = -1) -> bytes:
        size = self._file.bytes - self.tell() if size < 0 else size
        try:
            data = self._store.get_range(self._file.path, self.tell(), size)
        except SnapshotError as error:
            self._files.error = self._files.error or error
            raise OSError(str(error)) from error
        self._place.offset = self.tell() + len(data)
        return data
