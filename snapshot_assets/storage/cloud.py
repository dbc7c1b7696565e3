"""Objects on S3, Google Cloud Storage and Azure Blob Storage, through obstore.

Time is bounded. Connecting may take 10 s, one request 120 s, and 30 s of it may pass without a byte. `storage.retry`
repeats requests that did not get through. An object of more than one part (8 MiB) is a multipart upload of up to 4
parts at a time: 40 MiB of memory, and at most 10 000 parts, 78 GiB. An error aborts it; the parts of a killed writer
are invisible, and a life-cycle rule of the bucket must remove them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, GenericError

from snapshot_assets.errors import StorageError
from snapshot_assets.storage.base import ObjectInfo, ObjectWriter, check_path, check_size, folder_of
from snapshot_assets.storage.cloud_clients import Client, connect
from snapshot_assets.storage.cloud_errors import cloud_errors, is_unsatisfiable_range
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.remote import LIST_PAGE, PART_SIZE, PARTS_AT_ONCE, RemoteStore
from snapshot_assets.storage.retry import retried

if TYPE_CHECKING:
    from obstore import ObjectMeta, WritableFile


class CloudStore(RemoteStore[Client]):
    """An `ObjectStore` over a prefix of a bucket; see `RemoteStore`."""

    library = "obstore"

    def __init__(self, location: Location, options: StoreOptions) -> None:
        """Take a location of `s3`, `gs` or `azblob`, and options that are already resolved. Connects to nothing."""
        super().__init__(location, options.endpoint, options.patience)
        self._options = options

    @retried
    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        uri = self._uri_of(path)
        with cloud_errors("read", uri):
            result = self._client().get(check_path(path))
            size = result.meta["size"]
            check_size(uri, size, limit)
            return bytes(result.bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; see `ObjectStore.get_range`."""
        return self._read(path, start, length)

    @retried
    def _read(self, path: str, start: int, length: int) -> bytes:
        check_path(path)
        if length == 0:
            return b""
        with cloud_errors("read", self._uri_of(path)):
            try:
                return bytes(self._client().get_range(path, start=start, length=length))
            except GenericError as error:
                if is_unsatisfiable_range(error):
                    return b""
                raise

    @retried
    def put(self, path: str, data: bytes) -> None:
        """Write or replace an object; see `ObjectStore.put`."""
        with cloud_errors("write", self._uri_of(path)):
            self._client().put(check_path(path), data, use_multipart=False)

    def _create(self, path: str, data: bytes) -> None:
        with cloud_errors("create", self._uri_of(path)):
            self._client().put(check_path(path), data, mode="create", use_multipart=False)

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`."""
        upload = CloudUpload(self, path)
        try:
            yield ObjectWriter(upload.write, nullcontext)
            upload.close()
        except BaseException as error:
            with suppress(BaseError, OSError):  # the first error is the one to report; unfinished parts are invisible
                upload.abort(error)
            raise

    def start_upload(self, path: str, data: bytes) -> WritableFile:
        """Begin a multipart upload with the bytes of its first part."""
        self._meet(path)
        return self._start_upload(path, data)

    @retried
    def _start_upload(self, path: str, data: bytes) -> WritableFile:
        with cloud_errors("write", self._uri_of(path)):
            started = obstore.open_writer(
                self._client(repeats=True), check_path(path), buffer_size=PART_SIZE, max_concurrency=PARTS_AT_ONCE
            )
            started.write(data)
        return started

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Return all objects below `prefix`, sorted by path; see `ObjectStore.list`.

        All are held in memory to be sorted (a few hundred bytes each): some stores list folder by folder. For the same
        reason a listing that fails begins anew: after its last object, a store may leave out others.
        """
        # The client repeats pages, because a page that fails would repeat all before it; but not at a wrong address.
        return iter(self._list(folder_of(prefix), self._contact().made))

    @retried
    def _list(self, folder: str, repeats: bool) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        with cloud_errors("list", self._uri_of(folder)):
            for page in self._client(repeats=repeats).list(folder or None, chunk_size=LIST_PAGE):
                found += map(_info, page)
                self.wait(len(page) // LIST_PAGE)
        return sorted(found)

    @retried
    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of the direct children of `prefix` that hold objects; see `ObjectStore.folders`."""
        folder = folder_of(prefix)
        with cloud_errors("list", self._uri_of(prefix)):
            listing = self._client().list_with_delimiter(folder or None)
        self.wait((len(listing["common_prefixes"]) + len(listing["objects"])) // LIST_PAGE)
        return tuple(sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in listing["common_prefixes"]))

    @retried
    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        with cloud_errors("read", self._uri_of(path)):
            return _info(self._client().head(check_path(path)))

    @retried
    def delete(self, path: str) -> None:
        """Delete an object; see `ObjectStore.delete`."""
        with cloud_errors("delete", self._uri_of(path)):
            try:
                self._client().delete(check_path(path))
            except FileNotFoundError:
                return

    def _connect(self, repeats: bool) -> Client:
        return connect(self._location, self._options, repeats)


class CloudUpload:
    """An object that is written in parts, or at once if it has no more bytes than one part.

    The client repeats parts. Beginning is repeated here. An end that failed is settled; see `RemoteStore.settle`.
    """

    def __init__(self, store: CloudStore, path: str) -> None:
        self._store = store
        self._path = check_path(path)
        self._first = bytearray()
        self._upload: WritableFile | None = None
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns how many."""
        parts = self._size // PART_SIZE
        self._size += len(data)
        self._store.wait(self._size // PART_SIZE - parts)
        if self._upload is not None:
            with cloud_errors("write", self._uri):
                self._upload.write(data)
            return len(data)
        self._first += data
        if len(self._first) >= PART_SIZE:
            self._upload = self._store.start_upload(self._path, bytes(self._first))
            self._first = bytearray()
        return len(data)

    def close(self) -> None:
        """Publish the object."""
        if self._upload is None:
            self._store.put(self._path, bytes(self._first))
            return
        try:
            with cloud_errors("write", self._uri):
                self._upload.close()
        except StorageError as error:
            self._store.settle(self._path, self._size, error)

    def abort(self, error: BaseException) -> None:
        """Delete the parts."""
        if self._upload is not None:
            self._upload.__exit__(type(error), error, error.__traceback__)  # given an error, it aborts

    @property
    def _uri(self) -> str:
        return f"{self._store.uri}/{self._path}"


def _info(item: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(item["path"], item["size"], item["last_modified"])
