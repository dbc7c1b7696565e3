"""The one interface through which the package touches object storage, and the paths of objects."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import BinaryIO, Protocol

from snapshot_assets.errors import LimitExceededError, ObjectRetainedError, UnsafePathError
from snapshot_assets.format.units import counted

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, order=True, slots=True)
class ObjectInfo:
    """One object of a listing.

    Attributes:
        path: Relative to the location, with `/` between segments.
        size: Bytes.
        modified: When the object was written, on the store's own clock, UTC.
    """

    path: str
    size: int
    modified: datetime


class ObjectWriter:
    """A streamed object that becomes visible when its context ends without an error; its errors name it.

    `write` appends bytes to the client's own upload, or to a file; `errors` translates its errors.
    """

    def __init__(
        self, write: Callable[[bytes | memoryview], int], errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._write = write
        self._errors = errors

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes; returns how many."""
        with self._errors():
            return self._write(memoryview(data).cast("B"))  # clients refuse views of other items, such as Arrow's


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

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes.

        An object of more than `limit` bytes raises `LimitExceededError` before it is read.
        """

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""

    def open_reader(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for random access, as a seekable file that reads ahead in blocks, in bounded memory."""

    def put(self, path: str, data: bytes) -> None:
        """Write an object, atomically and durably; replaces one that exists."""

    def create(self, path: str, data: bytes) -> None:
        """Write an object only if none exists; exactly one of several racing creates wins.

        Raises:
            ObjectExistsError: The object exists (it may be our own, if a reply was lost).
        """

    def open_writer(self, path: str) -> AbstractContextManager[ObjectWriter]:
        """Stream an object in bounded memory. Leaving the context publishes it durably; an error aborts it."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose path starts with `prefix` (whole segments, such as `data/` or `data/7/`).

        Sorted by path. The local driver's own temporary files are not among them; see `temporaries`.
        """

    def temporaries(self) -> Iterator[ObjectInfo]:
        """Yield the driver's temporary files, sorted by path: those of live writers and of killed ones.

        Cloud stores have none. `delete` removes one.
        """

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of the direct children of `prefix` that hold objects, or cannot be listed, sorted."""

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time without reading it."""

    def delete(self, path: str) -> None:
        """Delete an object; a missing object is no error."""


def delete_unless_retained(store: ObjectStore, path: str) -> bool:
    """Delete an object; returns False if the store keeps it until a time, or under legal hold."""
    try:
        store.delete(path)
    except ObjectRetainedError:
        return False
    return True


def check_path(path: str) -> str:
    """Return `path` if it names an object below the location on every store.

    Raises:
        UnsafePathError: It is absolute, empty, or has empty, `.` or `..` segments, a backslash or a control character.
    """
    if any(segment in ("", ".", "..") for segment in path.split("/")) or "\\" in path or _CONTROL.search(path):
        raise UnsafePathError(
            f"Path {path[:200]!r} cannot be an object; expected segments separated by /, none of them empty, "
            "'.' or '..', without backslashes and control characters.",
            path=path,
        )
    return path


def folder_of(prefix: str) -> str:
    """Return the folder that a listing prefix names, without its closing slash; empty for the whole location.

    Raises:
        UnsafePathError: The prefix is not made of whole plain segments.
    """
    return check_path(prefix.removesuffix("/")) if prefix else ""


def check_size(uri: str, size: int, limit: int | None) -> None:
    """Refuse an object that is larger than any that this package writes, before it is read.

    Raises:
        LimitExceededError: It has more than `limit` bytes.
    """
    if limit is not None and size > limit:
        raise LimitExceededError(
            f"{uri} has {counted(size, 'byte')}; at most {limit:,} were expected. Something else replaced the object;"
            " verify the "
            "location.",
            size=size,
            limit=limit,
        )


_LOG = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def warn_once(_uri: str, message: str) -> None:
    """Log a warning about the location at a URI, once per process."""
    _LOG.warning("%s", message)
