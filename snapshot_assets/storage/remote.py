"""What stores over a network share: clients for each process, certain creates, reading by ranges, bad certificates.

Native clients belong to the process that made them. Their worker threads do not survive `fork()`, and a child that
calls into such a library waits for ever. A new client in the child does not help, because the threads are the
library's. So a child of a process that used the library gets an error instead. A parent that has not used the library
may fork: Spark's Python daemon and Dagster's executors do.

A store has two clients. That of requests repeats nothing, because `storage.retry` does. That of uploads repeats the
parts of streamed objects, and the pages of listings, which only the library has.
"""

from __future__ import annotations

import io
import os
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Generic, TypeVar
from urllib.parse import quote

from snapshot_assets.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.create import holds
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.retry import STOPS, Attempts, Contact, Patience, Rate

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


BLOCK = 4 * 1024 * 1024
"""Bytes of one request: with four in flight, at 50 ms each, a sequential read makes 320 MiB/s."""
IN_FLIGHT = 4


class _ReadAhead(io.RawIOBase):
    """Reads in aligned blocks. While they follow each other, `IN_FLIGHT` of them are requested at once.

    `get_range` returns a number of bytes from a position; they lie inside the object.
    """

    def __init__(self, get_range: Callable[[int, int], bytes], size: int) -> None:
        self._get_range = get_range
        self._size = size
        self._position = 0
        self._last = -1
        self._blocks: dict[int, Future[bytes]] = {}
        self._stop = threading.Event()
        stops = (*STOPS.get(), self._stop)
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "read-ahead", initializer=STOPS.set, initargs=(stops,))

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
        if not target or self._position >= self._size:
            return 0
        number, start = divmod(self._position, BLOCK)
        data = self._block(number)[start : start + len(target)]
        target[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        data, done = bytearray(max(0, self._size - self._position)), 0
        while read := self.readinto(memoryview(data)[done:]):
            done += read
        return bytes(data[:done])

    def close(self) -> None:
        self._stop.set()  # reads that are repeated would keep Python from ending
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._blocks.clear()
        super().close()

    def _block(self, number: int) -> memoryview:
        follows = number in (self._last, self._last + 1)
        wanted = range(number, number + (IN_FLIGHT if follows else 1))
        self._last = number
        for other in [other for other in self._blocks if other not in wanted]:
            self._blocks.pop(other).cancel()
        for each in wanted:
            length = min(BLOCK, self._size - each * BLOCK)
            if each not in self._blocks and length > 0:
                self._blocks[each] = self._pool.submit(self._get_range, each * BLOCK, length)
        return memoryview(self._blocks[number].result())


PART_SIZE = 8 * 1024 * 1024
PARTS_AT_ONCE = 4
LIST_PAGE = 1000
"""Objects of a page of a listing."""
NO_UPLOAD = ("NoSuchUpload", "InvalidPart", "InvalidBlockList")
"""Error codes of stores that have lost an upload or a part of it."""

_used_by: dict[str, int] = {}
"""The process that first used each native library."""

_INVALID_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)|invalid peer certificate: (\w+)")
_NO_TLS = re.compile(r"\b(?:InvalidMessage|InvalidContentType|PeerIncompatible|PeerMisbehaved|HandshakeFailure)\b")

_Client = TypeVar("_Client")

_Bucket = tuple[str, str | None, str]
_contacts: dict[_Bucket, Contact] = {}
"""Whether a bucket has answered this process."""
_rates: dict[tuple[_Bucket, float], Rate] = {}
"""The limits of this process, by bucket."""


class RemoteStore(ObjectStore, Generic[_Client]):
    """An `ObjectStore` over a network. Picklable; its clients are made on first use in each process.

    Attributes:
        library: Name of the native library of its clients.
    """

    library: ClassVar[str]

    def __init__(self, location: Location, endpoint: str | None, patience: Patience) -> None:
        self.patience = patience
        self._location = location
        self._bucket = location.scheme, endpoint, location.bucket
        self._made: dict[tuple[int, bool, bool], _Client] = {}
        self._making = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_made", "_making")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_made": {}, "_making": threading.Lock()}

    @property
    def uri(self) -> str:
        """The location's URI."""
        return self._location.uri

    def attempts(self) -> Attempts:
        """Return the attempts of one call."""
        return Attempts(self.patience, self._contact(), self._rate())

    def wait(self, requests: int = 1) -> None:
        """Wait until more requests of a call may start: pages of a listing, or parts of an upload."""
        rate = self._rate()
        if rate is not None and requests > 0:
            rate.wait(requests)

    def create(self, path: str, data: bytes) -> None:
        """Write an object only if none exists; see `ObjectStore.create`.

        A try whose outcome is unknown is repeated. If the object exists then, it is read: with these bytes it is that
        of the unknown try. Bytes that two writers may both create must mean the same from either.
        """
        attempts, unknown = self.attempts(), False
        while True:
            try:
                attempts.send(lambda: self._create(path, data))
                return
            except StoreUnavailableError as error:
                unknown = True
                attempts.failed(error)
            except ObjectExistsError:
                if not unknown:
                    raise
                try:
                    if holds(self, path, data):
                        return
                except ObjectNotFoundError:  # the store refused because of an object that it does not have
                    attempts.failed(StoreUnavailableError(f"{self._uri_of(path)} exists, and then it does not."))
                else:
                    raise

    @contextmanager
    def open_reader(self, path: str) -> Iterator[BinaryIO]:
        """Open an object for random access; see `ObjectStore.open_reader`."""
        blocks = _ReadAhead(lambda start, length: self._read(path, start, length), self.head(path).size)
        with io.BufferedReader(blocks, BLOCK) as reader:
            yield reader

    def settle(self, path: str, size: int, error: StorageError) -> None:
        """Return if an upload that ended with an error has published its object all the same.

        The client repeats the request that ends an upload. Where the first reply was lost, the store may answer the
        second that there is no such upload. Data files have names that no other writer uses, so an object of the
        upload's size is its own.

        Raises:
            StorageError: There is no such object (then this is the given error), or the store does not answer.
        """
        try:
            published = self.head(path).size == size
        except StoreUnavailableError:
            raise
        except StorageError:
            published = False
        if not published:
            raise error

    def temporaries(self) -> Iterator[ObjectInfo]:
        """Yield nothing: an upload that was cut off is no object; see `ObjectStore.temporaries`."""
        return iter(())

    @abstractmethod
    def _read(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, which lie inside the object."""

    @abstractmethod
    def _create(self, path: str, data: bytes) -> None:
        """Send one conditional create."""

    @abstractmethod
    def _connect(self, repeats: bool, writes: bool) -> _Client:
        """Return a new client, which repeats failed requests itself, or writes objects, or does neither."""

    def _contact(self) -> Contact:
        return _contacts.setdefault(self._bucket, Contact())

    def meet(self, path: str) -> None:
        """Send a request before a client that repeats by itself: it would take the whole limit for a wrong address."""
        if not self._contact().made:
            with suppress(ObjectNotFoundError, StoreDeniedError):  # the call itself reports what is wrong
                self.head(path)

    def _rate(self) -> Rate | None:
        rate = self.patience.rate
        return None if rate is None else _rates.setdefault((self._bucket, rate), Rate(rate))

    def _client(self, *, repeats: bool = False, writes: bool = False) -> _Client:
        pid = os.getpid()
        if _used_by.setdefault(self.library, pid) != pid:
            raise StorageError(
                f"Process {pid} was forked from process {_used_by[self.library]} after that had used object storage;"
                f" {self.library} would hang here. Start processes with the method 'spawn' or 'forkserver', or fork"
                " before the first use."
            )
        with self._making:
            if (pid, repeats, writes) not in self._made:
                self._made[pid, repeats, writes] = self._connect(repeats, writes)
            return self._made[pid, repeats, writes]

    def _uri_of(self, path: str) -> str:
        return f"{self.uri}/{quote(path, errors='replace')}"


def certificate_error(operation: str, uri: str, text: str) -> StorageError | None:
    """Return the error for a certificate that is not trusted, or None if a client's error has another cause.

    The clients report such a certificate as a failed connection, in text alone. `operation` is the verb for the
    message, `text` the whole text of the client's error.
    """
    match = _INVALID_CERTIFICATE.search(text)
    if match is None and (broken := _NO_TLS.search(text)) is not None:
        return StorageError(
            f"Cannot {operation} {uri}: the endpoint and this client cannot agree on TLS ({broken[0]}). Correct the "
            "endpoint: its port may serve http://, or only versions of TLS before 1.2.",
            uri=uri,
            reason=broken[0],
        )
    if match is None:
        return None
    reason = match[1] or match[2]
    return StorageError(
        f"Cannot {operation} {uri}: the TLS certificate of the store is not trusted ({reason}). If a private authority "
        "issued it, name a PEM file of that authority in the storage option ca_bundle or in AWS_CA_BUNDLE, or in "
        "SSL_CERT_FILE on every machine of the run; otherwise correct the endpoint or the certificate.",
        uri=uri,
        reason=reason,
    )
