"""What stores over a network share: a client for each process, reading by ranges, and untrusted certificates.

Native clients belong to the process that made them. Their worker threads do not survive `fork()`, and a child that
calls into such a library waits for ever. A new client in the child does not help, because the threads are the
library's. So a child of a process that used the library gets an error instead. A parent that has not used the library
may fork: Spark's Python daemon and Dagster's executors do.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar
from urllib.parse import quote

from snapshot_assets.errors import StorageError
from snapshot_assets.storage.base import ObjectInfo
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.reading import range_reader

_used_by: dict[str, int] = {}
"""The process that first used each native library."""

_INVALID_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)|invalid peer certificate: (\w+)")

_Client = TypeVar("_Client")


class RemoteStore(ABC, Generic[_Client]):
    """An `ObjectStore` over a network. Picklable; its client is made on first use in each process.

    Attributes:
        library: Name of the native library of its client.
        retries: How often a failed request is repeated.
    """

    library: ClassVar[str]

    def __init__(self, location: Location, retries: int) -> None:
        self.retries = retries
        self._location = location
        self._made: tuple[int, _Client] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def uri(self) -> str:
        """The location's URI."""
        return self._location.uri

    @contextmanager
    def open_reader(self, path: str) -> Iterator[BinaryIO]:
        """Open an object for random access; see `ObjectStore.open_reader`."""
        size = self.head(path).size
        with range_reader(lambda start, length: self._read(path, start, length), size) as reader:
            yield reader

    def temporaries(self) -> Iterator[ObjectInfo]:
        """Yield nothing: an upload that was cut off is no object; see `ObjectStore.temporaries`."""
        return iter(())

    @abstractmethod
    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""

    @abstractmethod
    def _read(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, which lie inside the object."""

    @abstractmethod
    def _connect(self) -> _Client:
        """Return a new client."""

    def _client(self) -> _Client:
        pid = os.getpid()
        if _used_by.setdefault(self.library, pid) != pid:
            raise StorageError(
                f"Process {pid} was forked from process {_used_by[self.library]} after that had used object storage;"
                f" {self.library} would hang here. Start processes with the method 'spawn' or 'forkserver', or fork"
                " before the first use."
            )
        if self._made is None or self._made[0] != pid:
            self._made = pid, self._connect()
        return self._made[1]

    def _uri_of(self, path: str) -> str:
        return f"{self.uri}/{quote(path, errors='replace')}"


def certificate_error(operation: str, uri: str, text: str) -> StorageError | None:
    """Return the error for a certificate that is not trusted, or None if a client's error has another cause.

    The clients report such a certificate as a failed connection, in text alone.

    Args:
        operation: The verb for the message.
        uri: The object or location of the operation.
        text: The whole text of the client's error.
    """
    match = _INVALID_CERTIFICATE.search(text)
    if match is None:
        return None
    reason = match[1] or match[2]
    return StorageError(
        f"Cannot {operation} {uri}: the TLS certificate of the store is not trusted ({reason}). If a private authority "
        "issued it, name a PEM file of that authority in the environment variable SSL_CERT_FILE, on every machine of "
        "the run; otherwise correct the endpoint or the certificate.",
        uri=uri,
        reason=reason,
    )
