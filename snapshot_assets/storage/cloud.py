"""Objects on S3, Google Cloud Storage and Azure Blob Storage, through obstore.

Time is bounded. Connecting may take 10 s, one request 120 s, and 30 s of it may pass without a byte. `storage.retry`
repeats requests that did not get through. An object of more than one part (8 MiB) is a multipart upload of up to 4
parts at a time: 40 MiB of memory, and at most 10 000 parts, 78 GiB. An error aborts it; the parts of a killed writer
are invisible, and a life-cycle rule of the bucket must remove them.

obstore has types for the common errors. All others are its `GenericError`, such as refused listings, throttling and
dropped connections. They differ only in text, which this module alone reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    LocationUnusableError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRetainedError,
    StorageError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
)
from snapshot_assets.format.layout import chunk_of, is_probe, is_receipt
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectInfo, ObjectWriter, check_path, check_size, folder_of
from snapshot_assets.storage.cloud_clients import GIVE_CREDENTIALS, Client, connect
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
from snapshot_assets.storage.retry import retried
from snapshot_assets.storage.s3_bucket import S3Bucket

if TYPE_CHECKING:
    from obstore import Attributes, ObjectMeta, WritableFile


class CloudStore(RemoteStore[Client]):
    """An `ObjectStore` over a prefix of a bucket; see `RemoteStore`."""

    library = "obstore"

    def __init__(self, location: Location, options: StoreOptions) -> None:
        """Take a location of `s3`, `gs` or `azblob`, and options that are already resolved. Connects to nothing."""
        super().__init__(location, options.endpoint, options.patience)
        self._options = options
        self._s3 = S3Bucket(location, options) if location.scheme == "s3" else None

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
                if _first(_STATUS, str(error)) == "416":  # the range starts at or after the end
                    return b""
                raise

    @retried
    def put(self, path: str, data: bytes) -> None:
        """Write or replace an object; see `ObjectStore.put`."""
        with cloud_errors("write", self._uri_of(path)):
            client, attributes = self._client(writes=True), self._attributes(check_path(path))
            client.put(path, data, attributes=attributes, use_multipart=False)
        self._lock(path)

    def create(self, path: str, data: bytes) -> None:
        """Write an object only if none exists; see `ObjectStore.create`."""
        super().create(path, data)
        self._lock(path)

    def _create(self, path: str, data: bytes) -> None:
        with cloud_errors("create", self._uri_of(path)):
            client, attributes = self._client(writes=True), self._attributes(check_path(path))
            client.put(path, data, mode="create", attributes=attributes, use_multipart=False)

    def _attributes(self, path: str) -> Attributes | None:
        """Return the storage class of a data file: the log is read too often for another one."""
        named = self._options.storage_class
        return {"Storage-Class": named} if named and chunk_of(path) is not None and not is_receipt(path) else None

    def bucket(self) -> S3Bucket | None:
        """Return what S3 keeps beside the objects of the location; None elsewhere."""
        return self._s3

    def _lock(self, path: str) -> None:
        """Lock an object that was written, as the option `lock` says, unless the bucket does so by itself."""
        lock, bucket = self._options.lock, self._s3
        if lock is not None and bucket is not None and not is_probe(path) and not bucket.protection.mode:
            bucket.retain(path, datetime.now(UTC) + lock.period)

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`.

        It is written in parts, or at once if it has no more bytes than one part. The client repeats parts. Beginning is
        repeated here. An end that failed is settled; see `RemoteStore.settle`.
        """
        uri, first, size = f"{self.uri}/{check_path(path)}", bytearray(), 0
        uploads: list[WritableFile] = []  # one, once the first part is full

        def write(data: bytes | memoryview) -> int:
            nonlocal size
            parts, size = size // PART_SIZE, size + len(data)
            self.wait(size // PART_SIZE - parts)
            if uploads:
                with cloud_errors("write", uri):
                    uploads[0].write(data)
                return len(data)
            first.extend(data)
            if len(first) >= PART_SIZE:
                self.meet(path)
                uploads.append(self._start_upload(path, bytes(first)))
                first.clear()
            return len(data)

        try:
            yield ObjectWriter(write, nullcontext)
            if not uploads:
                self.put(path, bytes(first))
                return
            try:
                with span("put"), cloud_errors("write", uri):
                    uploads[0].close()
            except StorageError as error:
                self.settle(path, size, error)
            self._lock(path)
        except BaseException as error:
            with suppress(BaseError, OSError):  # the first error is the one to report; unfinished parts are invisible
                for upload in uploads:
                    upload.__exit__(type(error), error, error.__traceback__)  # given an error, it aborts
            raise

    @retried
    def _start_upload(self, path: str, data: bytes) -> WritableFile:
        """Begin a multipart upload with the bytes of its first part."""
        with cloud_errors("write", self._uri_of(path)):
            started = obstore.open_writer(
                self._client(repeats=True, writes=True),
                path,
                attributes=self._attributes(path),
                buffer_size=PART_SIZE,
                max_concurrency=PARTS_AT_ONCE,
            )
            started.write(data)
        return started

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Return all objects below `prefix`, sorted by path; see `ObjectStore.list`.

        All are held in memory to be sorted (a few hundred bytes each): some stores list folder by folder. For the same
        reason a listing that fails starts from the beginning: after its last object, a store may leave out others.
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

    def _connect(self, repeats: bool, writes: bool) -> Client:
        return connect(self._location, self._options, repeats, writes)


def _info(item: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(item["path"], item["size"], item["last_modified"])


_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_REPEATED = re.compile(r"after (\d+) retries")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_TEXT = re.compile(r"<Message>([^<]{1,300})</Message>")
_BROKEN_CONNECTION = re.compile(
    r"kind: (?:Connect|Timeout|Request|Interrupted|Decode)\b"
    r"|HTTP error: (?:error sending request|request or response body error|operation timed out)"  # of uploads
)
_CREDENTIALS = re.compile(r"credential provider: (StoreUnavailableError|StoreDeniedError): ([^\n]+)")
"""An error of `aws_credentials`, at a renewal."""
_INSTANCE_CREDENTIALS = "169.254.169.254"
_GIVE_CREDENTIALS = {
    "s3": GIVE_CREDENTIALS,
    "gs": "Set the storage option service_account, or GOOGLE_APPLICATION_CREDENTIALS in the environment",
    "azblob": "Set the storage options account_name and account_key, sas_token, or tenant_id, client_id and "
    "client_secret, or their variables such as AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY in the "
    "environment, or give this machine a managed identity",
}
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_DENIED = {"AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLarge"}
_PASSING = {408, 409, 425, 429}
_RETAINED = re.compile(r"BlobImmutableDueTo|ObjectLocked|WORM|(?i:retention.?policy|under active.{0,20}hold)")
"""How stores on Azure and Google, and some like S3, answer where an object must not be deleted yet."""
_LASTING_CONFLICTS = {"BlobImmutableDueToPolicy", "SnapshotsPresent"}


@contextmanager
def cloud_errors(operation: str, uri: str) -> Iterator[None]:
    """Raise every obstore error inside as its `StorageError` kind; nothing else may run inside.

    `operation` is the verb for the message: read, write, create, list, delete.
    """
    try:
        yield
    except (BaseError, OSError) as error:  # obstore raises built-in ones for missing objects and from its writer
        translated, text = storage_error(operation, uri, error), str(error)
        translated.attributes["answered"] = bool(_first(_STATUS, text)) and _INSTANCE_CREDENTIALS not in text
        translated.attributes["repeated"] = int(_first(_REPEATED, text) or 0)
        raise translated from None  # the text repeats the request


def storage_error(operation: str, uri: str, error: Exception) -> StorageError:
    """Return the storage error for an error of obstore; see `cloud_errors` for the arguments."""
    text = str(error)
    untrusted = certificate_error(operation, uri, text)
    if untrusted is not None:
        return untrusted
    refused = _CREDENTIALS.search(text)
    if refused is not None:
        kind = StoreUnavailableError if refused[1] == StoreUnavailableError.__name__ else StoreDeniedError
        return kind(f"Cannot {operation} {uri}: {refused[2]}", uri=uri)
    status, code = _first(_STATUS, text), _first(_CODE, text)
    number = int(status) if status else 0
    failed = f"Cannot {operation} {uri}: {_reason(text, status, code)}"
    if code in _NO_BUCKET:
        return LocationUnusableError(f"{failed}. Create the bucket, or correct its name.", uri=uri)
    if code in NO_UPLOAD:
        return StoreUnavailableError(f"{failed}. The store has lost the upload or its parts; run again.", uri=uri)
    if operation == "delete" and _RETAINED.search(text):
        return ObjectRetainedError(f"{failed}. The store keeps it; delete it once its retention has ended.", uri=uri)
    # Azure answers 409 also where the object exists.
    conflict = number == 409 and not (code or "").endswith("AlreadyExists")
    if isinstance(error, AlreadyExistsError | PreconditionError) and not conflict:
        return ObjectExistsError(f"Object {uri} exists already.", uri=uri)
    if isinstance(error, FileNotFoundError | NotFoundError):
        if operation in ("read", "delete"):
            return ObjectNotFoundError(f"There is no object {uri}.", uri=uri)
        return LocationUnusableError(f"{failed}. Create the bucket, or correct its name.", uri=uri)
    # The address of instance credentials is asked only where no other credentials were found.
    denied = number in (401, 403) or code in _DENIED or _INSTANCE_CREDENTIALS in text
    if denied or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        advice = f"Check the credentials, and give them the right to {operation} there"
        if _INSTANCE_CREDENTIALS in text:
            advice = _GIVE_CREDENTIALS[uri.split(":", 1)[0]]
        return StoreDeniedError(f"{failed}. {advice}.", uri=uri, operation=operation)
    if operation == "create" and (number == 501 or isinstance(error, NotSupportedError)):
        return ConditionalCreateUnsupportedError(
            f"{failed}. This store has no conditional creates; only a single writer may use it, with "
            "`single_writer: true` in the plan.",
            uri=uri,
        )
    if number == 507 or code in _FULL:
        return StoreFullError(f"{failed}. Free space or raise the quota, then run again.", uri=uri)
    passing = number in _PASSING or (number >= 500 and number != 501)
    may_pass = passing and code not in _LASTING_CONFLICTS if number else _BROKEN_CONNECTION.search(text) is not None
    if isinstance(error, GenericError | AlreadyExistsError | OSError) and may_pass:
        return StoreUnavailableError(f"{failed}. The store may answer later; run again.", uri=uri)
    return StorageError(f"{failed}. Check the location and the storage options.", uri=uri)


def _reason(text: str, status: str | None, code: str | None) -> str:
    if _INSTANCE_CREDENTIALS in text:
        return "no credentials were found"
    message = _TEXT.search(text)
    if status or code:
        facts = " ".join(part for part in (status, code) if part)
        detail = f" ({message[1].rstrip('.')})" if message else ""
        return f"the store answered {facts}{detail}"
    # The first line alone: below it obstore prints the request. URLs lose their queries, which may be signed.
    line = re.sub(r"\?\S+", "", text.split("\n", 1)[0])
    return line[:300].rstrip(". ")


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), None) if match else None
