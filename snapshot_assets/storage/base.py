"""The one interface through which the package touches object storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol


@dataclass(frozen=True, order=True)
class ObjectInfo:
    """One object as a listing shows it.

    Attributes:
        path: Relative to the location, with `/` between segments.
        size: Bytes.
        modified: When the object was written, on the store's own clock, UTC.
    """

    path: str
    size: int
    modified: datetime


class ObjectWriter(Protocol):
    """A streamed object under construction: nothing is visible until its context ends without an error."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes; returns how many."""
        ...


class ObjectStore(Protocol):
    """Objects below one location. Paths are relative to it; every method may raise `StorageError` kinds.

    Errors are the same on every store: `ObjectNotFoundError`, `ObjectExistsError`, `StoreDeniedError`,
    `StoreFullError`, `StoreUnavailableError` (transient). Clients are made lazily per process, so a store may be
    pickled, and may be used after `fork()` if the parent had not used object storage before; where it had, a cloud
    store raises `StorageError` instead of hanging.
    """

    @property
    def uri(self) -> str:
        """The location's URI, without credentials."""
        ...

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes.

        Args:
            path: The object.
            limit: Most bytes to accept; a larger object raises `LimitExceededError` before it is read.
        """
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        ...

    def open_reader(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for random access (read, seek, tell), reading ahead in blocks, in bounded memory."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing whatever is there, atomically and durably."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write an object only if none is there; exactly one of several racing creates wins.

        Raises:
            ObjectExistsError: An object is there (it may be our own, if a reply was lost).
        """
        ...

    def open_writer(self, path: str) -> AbstractContextManager[ObjectWriter]:
        """Stream an object in bounded memory. Leaving the context publishes it durably; an error aborts it."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose path starts with `prefix` (whole segments, such as `data/` or `data/7/`).

        Sorted by path. The local driver's own temporary files are not among them; see `temporaries`.
        """
        ...

    def temporaries(self) -> Iterator[ObjectInfo]:
        """Yield the driver's temporary files, sorted by path: those of live writers, and what killed ones left.

        Cloud stores have none. `delete` removes one.
        """
        ...

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of the direct children of `prefix` that hold objects, sorted."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time without reading it."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is no error."""
        ...
