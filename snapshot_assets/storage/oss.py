"""Objects on Alibaba Cloud OSS, through OpenDAL: the only client with OSS's own create-if-absent.

Its S3-compatible interface refuses conditional creates. OpenDAL is the extra `oss` and is imported here alone. The
tests run the adapter against OpenDAL's `s3` service, because OSS needs an account. Two properties of OSS come from its
documentation: `x-oss-forbid-overwrite` decides a create, and it has no effect in a bucket with versioning, which the
probe detects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    LocationUnusableError,
    ObjectExistsError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.storage.base import ObjectInfo, ObjectWriter, check_path, check_size, folder_of
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.remote import (
    LIST_PAGE,
    NO_UPLOAD,
    PART_SIZE,
    PARTS_AT_ONCE,
    RemoteStore,
    certificate_error,
)
from snapshot_assets.storage.retry import FIRST_WAIT, LONGEST_WAIT, Patience, retried

if TYPE_CHECKING:
    from opendal import Operator
    from opendal.types import Entry, Metadata


def open_oss(location: Location, options: StoreOptions) -> OpendalStore:
    """Return the store of an `oss` location; see `open_store`.

    Raises:
        PlanError: The extra is not installed, or the endpoint is missing.
    """
    try:
        import opendal  # noqa: F401  (so that a missing extra fails here, not at the first request)
    except ImportError as error:
        raise PlanError(
            f"{location.uri} needs the extra 'oss', which is not installed: pip install 'snapshot-assets[oss]'."
        ) from error
    if not options.endpoint:
        raise PlanError(
            f"{location.uri} needs the endpoint of its region; set the storage option endpoint, or OSS_ENDPOINT in the "
            "environment, such as https://oss-eu-central-1.aliyuncs.com."
        )
    settings = {"bucket": location.bucket, "endpoint": options.endpoint}
    if options.access_key_id and options.secret_access_key:
        settings |= {"access_key_id": options.access_key_id, "access_key_secret": options.secret_access_key}
    if options.session_token:
        settings["security_token"] = options.session_token
    return OpendalStore(location, "oss", settings, options.patience)


class OpendalStore(RemoteStore["Operator"]):
    """An `ObjectStore` over an OpenDAL service; see `RemoteStore`.

    An aborted upload leaves its parts unfinished and invisible; a life-cycle rule of the bucket must remove them.
    """

    library = "opendal"

    def __init__(self, location: Location, service: str, settings: Mapping[str, str], patience: Patience) -> None:
        """Take a location, OpenDAL's name of its service, and the service's settings. Connects to nothing."""
        super().__init__(location, settings.get("endpoint"), patience)
        self._service = service
        self._settings = dict(settings)

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        size = self.head(path).size
        check_size(self._uri_of(path), size, limit)
        return self._read(path, 0, size)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; see `ObjectStore.get_range`."""
        # OpenDAL fails on a range that goes beyond the end.
        return self._read(path, start, min(length, self.head(path).size - start))

    @retried
    def put(self, path: str, data: bytes) -> None:
        """Write or replace an object; see `ObjectStore.put`."""
        with _opendal_errors("write", self._uri_of(path)):
            self._client().write(check_path(path), data)

    def _create(self, path: str, data: bytes) -> None:
        with _opendal_errors("create", self._uri_of(path)):
            self._client().write(check_path(path), data, if_not_exists=True)

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`."""
        uri = self._uri_of(path)
        self.meet(path)
        with _opendal_errors("write", uri):
            upload = self._client(repeats=True).open(check_path(path), "wb", chunk=PART_SIZE, concurrent=PARTS_AT_ONCE)
        size = 0

        def write(data: bytes | memoryview) -> int:
            nonlocal size
            self.wait((size + len(data)) // PART_SIZE - size // PART_SIZE)
            size += upload.write(bytes(data))
            return len(data)

        yield ObjectWriter(write, lambda: _opendal_errors("write", uri))
        try:
            with _opendal_errors("write", uri):
                upload.close()  # only here: closing publishes, and so would its context after an error
        except StorageError as error:
            self.settle(path, size, error)

    @retried
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Return all objects below `prefix`, sorted by path; see `ObjectStore.list`."""
        folder = folder_of(prefix)
        with _opendal_errors("list", self._uri_of(prefix)):
            entries = self._client().list(f"{folder}/" if folder else "", recursive=True)
            found = [_info(entry.path, entry.metadata) for entry in self._paced(entries) if entry.path[-1:] != "/"]
        return iter(sorted(found))

    @retried
    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of the direct children of `prefix` that hold objects; see `ObjectStore.folders`."""
        folder = folder_of(prefix)
        start = f"{folder}/" if folder else ""
        with _opendal_errors("list", self._uri_of(prefix)):
            paths = [entry.path for entry in self._paced(self._client().list(start))]
        return tuple(sorted(path.removeprefix(start)[:-1] for path in paths if path.endswith("/") and path != start))

    @retried
    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        with _opendal_errors("read", self._uri_of(path)):
            return _info(path, self._client().stat(check_path(path)))

    @retried
    def delete(self, path: str) -> None:
        """Delete an object; see `ObjectStore.delete`."""
        with _opendal_errors("delete", self._uri_of(path)):
            self._client().delete(check_path(path))

    @retried
    def _read(self, path: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        with _opendal_errors("read", self._uri_of(path)):
            return bytes(self._client().read(check_path(path), offset=start, size=length))

    def _paced(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for number, entry in enumerate(entries, 1):
            yield entry
            if number % LIST_PAGE == 0:
                self.wait()

    def _connect(self, repeats: bool, writes: bool) -> Operator:
        from opendal import Operator
        from opendal.layers import RetryLayer, TimeoutLayer

        operator = Operator(self._service, root=f"/{self._location.prefix}/", **self._settings)
        bounded = operator.layer(TimeoutLayer(timeout=120.0, io_timeout=30.0))
        if not repeats:
            return bounded
        # OpenDAL has no limit of time: it repeats a part of an upload as often as its waits fit in that.
        times, wait, waited = 0, FIRST_WAIT, FIRST_WAIT
        while waited <= self.patience.limit:
            times, wait = times + 1, min(2 * wait, LONGEST_WAIT)
            waited += wait
        if self.patience.retries is not None:
            times = min(times, self.patience.retries)
        return bounded.layer(RetryLayer(max_times=times, jitter=True, min_delay=FIRST_WAIT, max_delay=LONGEST_WAIT))


def _info(path: str, metadata: Metadata) -> ObjectInfo:
    if metadata.last_modified is None:
        raise StorageError(
            f"The store returns no time of writing for {path}, so garbage collection could not work; use another store."
        )
    return ObjectInfo(path, metadata.content_length, metadata.last_modified)


@contextmanager
def _opendal_errors(operation: str, uri: str) -> Iterator[None]:
    from opendal import exceptions as kinds

    opendals = (kind for kind in vars(kinds).values() if isinstance(kind, type) and issubclass(kind, Exception))
    all_kinds: tuple[type[Exception], ...] = (*opendals, OSError)  # its files raise built-in ones, with the same text
    try:
        yield
    except all_kinds as error:
        # The first line alone: below it OpenDAL prints the request.
        line = str(error).split("\n", 1)[0][:300].rstrip(". ")
        translated = _storage_error(operation, uri, error, line)
        translated.attributes["answered"] = "status:" in str(error)
        raise translated from None


def _storage_error(operation: str, uri: str, error: Exception, line: str) -> StorageError:
    failed = f"Cannot {operation} {uri}: {line}."
    kind = line.split(" ", 1)[0] if isinstance(error, OSError) else type(error).__name__
    if any(f'code: "{code}"' in str(error) for code in NO_UPLOAD):
        return StoreUnavailableError(f"{failed} The store has lost the upload or its parts; run again.", uri=uri)
    if 'code: "NoSuchBucket"' in str(error):
        return LocationUnusableError(f"{failed} Create the bucket, or correct its name.", uri=uri)
    if kind == "NotFound":
        return ObjectNotFoundError(f"There is no object {uri}.", uri=uri)
    untrusted = certificate_error(operation, uri, str(error))
    if untrusted is not None:
        return untrusted
    conflict = "status: 409" in str(error)  # OSS answers this also where the object exists
    if 'AlreadyExists"' in line or (not conflict and kind in ("ConditionNotMatch", "AlreadyExists")):
        return ObjectExistsError(f"Object {uri} exists already.", uri=uri)
    if kind == "PermissionDenied":
        return StoreDeniedError(
            f"{failed} Check the credentials, and give them the right to {operation} there.",
            uri=uri,
            operation=operation,
        )
    if kind == "Unsupported" and operation == "create":
        return ConditionalCreateUnsupportedError(
            f"{failed} This store has no conditional creates; only a single writer may use it, with "
            "`single_writer: true` in the plan.",
            uri=uri,
        )
    # OpenDAL marks a passing error as temporary, and as persistent once its retries are used up.
    if conflict or kind == "RateLimited" or "(temporary)" in line or "(persistent)" in line:
        return StoreUnavailableError(f"{failed} The store may answer later; run again.", uri=uri)
    return StorageError(f"{failed} Check the location and the storage options.", uri=uri)
