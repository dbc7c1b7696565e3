"""What stores over a network share: a client for each process, retries, reading by ranges, untrusted certificates.

Native clients belong to the process that made them. Their worker threads do not survive `fork()`, and a child that
calls into such a library waits for ever. A new client in the child does not help, because the threads are the
library's. So a child of a process that used the library gets an error instead. A parent that has not used the library
may fork: Spark's Python daemon and Dagster's executors do.

The clients repeat most failed requests themselves, within one call: throttling, server errors, failed connections.
They do not repeat a conflict (409, which S3 answers while another request for the same object is under way) or a
write whose reply was lost; `retried` repeats these. A streamed object cannot be repeated: its bytes are gone, so the
task that writes it is.
"""

from __future__ import annotations

import io
import logging
import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Concatenate, Generic, ParamSpec, TypeVar
from urllib.parse import quote

from snapshot_assets.errors import StorageError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectInfo
from snapshot_assets.storage.location import Location

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PART_SIZE = 8 * 1024 * 1024
PARTS_AT_ONCE = 4
_READ_AHEAD = 4 * 1024 * 1024
"""Bytes of one request: at 50 ms each, a sequential read still makes 80 MB/s, and four readers need 16 MiB."""

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 10.0
_PATIENCE = 120.0

_used_by: dict[str, int] = {}
"""The process that first used each native library."""

_INVALID_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)|invalid peer certificate: (\w+)")

_Client = TypeVar("_Client")
_Store = TypeVar("_Store", bound="RemoteStore[Any]")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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
        ranges = _Ranges(lambda start, length: self._read(path, start, length), size)
        with io.BufferedReader(ranges, _READ_AHEAD) as reader:
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


def retried(
    method: Callable[Concatenate[_Store, _Arguments], _Result],
) -> Callable[Concatenate[_Store, _Arguments], _Result]:
    """Repeat a store's method while it raises `StoreUnavailableError`.

    It is repeated at most `retries` times, within two minutes, with pauses of up to 0.2 s that double up to 10 s. An
    error whose attribute `repeated` is true is raised at once: the client has already repeated the request as often.

    Args:
        method: A method that may be called twice, such as a create: the store refuses the second one.
    """

    @wraps(method)
    def patient(store: _Store, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        deadline = time.monotonic() + _PATIENCE
        for attempt in range(store.retries):
            wait = random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt))
            try:
                return method(store, *args, **kwargs)
            except StoreUnavailableError as error:
                if error.attributes.get("repeated") or time.monotonic() + wait > deadline:
                    raise
                _LOG.info("%s Trying again in %.1f s.", error, wait)
            time.sleep(wait)
        return method(store, *args, **kwargs)

    return patient


class _Ranges(io.RawIOBase):
    def __init__(self, get_range: Callable[[int, int], bytes], size: int) -> None:
        self._get_range = get_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the start of the object")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        length = min(len(target), self._size - self._position)
        if length <= 0:
            return 0
        data = self._get_range(self._position, length)
        target[: len(data)] = data
        self._position += len(data)
        return len(data)


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
