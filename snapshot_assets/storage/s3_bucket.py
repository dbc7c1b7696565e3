"""What S3 keeps beside the newest version of each object: older versions, delete markers, locks and legal holds.

obstore has no calls for these, so botocore makes them. Of other stores' ways to keep objects, such as Azure's
immutability policies, the package sees refused deletions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from snapshot_assets.errors import (
    ObjectNotFoundError,
    ObjectRetainedError,
    PlanError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.storage.base import ObjectStore, check_path
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import StoreOptions

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_REQUESTS = 16
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "MethodNotAllowed"})
"""Codes of answers that there is no such object, or that it is a delete marker."""
_NONE = _GONE | {"ObjectLockConfigurationNotFoundError", "NotImplemented"}
"""Codes of answers that a bucket is not configured so, or cannot be."""


@dataclass(frozen=True)
class ObjectVersion:
    """One version of an object, or a delete marker.

    Attributes:
        path: Relative to the location.
        version: The store's id of it.
        bytes: Its size; 0 of a marker.
        modified: When it was written, on the store's clock, UTC, in whole seconds on some stores.
        tag: The store's ETag: equal for equal bytes that were uploaded in equal parts without a customer's key.
        newest: Whether a read without an id finds it; of a marker, nothing.
        marker: Whether it is a delete marker.
    """

    path: str
    version: str
    bytes: int
    modified: datetime
    tag: str
    newest: bool
    marker: bool


@dataclass(frozen=True)
class Protection:
    """What a bucket keeps.

    Attributes:
        versioned: Whether it keeps the versions of overwritten and deleted objects.
        lockable: Whether it was created with Object Lock.
        mode: How it locks new objects by default, `governance` or `compliance`; "" if it does not.
        days: How long it does so.
    """

    versioned: bool
    lockable: bool
    mode: str = ""
    days: int = 0


class S3Bucket:
    """The versions and locks of the objects of one location on S3. Picklable; safe to share between threads."""

    def __init__(self, location: Location, options: StoreOptions) -> None:
        """Take a location and options that are already resolved. Connects to nothing."""
        self.options = options
        self._location = location

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_location": self._location}

    @cached_property
    def protection(self) -> Protection:
        """What the bucket keeps, as it was when first asked.

        Raises:
            StoreDeniedError: The right to `s3:GetBucketVersioning` or `s3:GetBucketObjectLockConfiguration` is missing.
        """
        client, bucket = self._client, {"Bucket": self._location.bucket}
        found: dict[str, Any] = {}
        with suppress(ObjectNotFoundError), self._errors("read the versioning of", absent=_NONE):
            found = client.get_bucket_versioning(**bucket)
        with suppress(ObjectNotFoundError), self._errors("read the Object Lock configuration of", absent=_NONE):
            found = found | client.get_object_lock_configuration(**bucket)
        lock = found.get("ObjectLockConfiguration", {})
        default = lock.get("Rule", {}).get("DefaultRetention", {})
        days = default.get("Days") or 365 * default.get("Years", 0)
        locks, versions = lock.get("ObjectLockEnabled") == "Enabled", found.get("Status") == "Enabled"
        return Protection(versions, locks, default.get("Mode", "").lower(), days)

    def versions(self, prefix: str = "") -> Iterator[ObjectVersion]:
        """Yield all versions and delete markers of the location below a prefix, by path, the newest first."""
        folder = f"{self._location.prefix}/" if self._location.prefix else ""
        lister = self._client.get_paginator("list_object_versions")
        pages = iter(lister.paginate(Bucket=self._location.bucket, Prefix=folder + prefix))
        while True:
            with self._errors("list the versions of"):
                page = next(pages, None)
            if page is None:
                return
            found = [
                ObjectVersion(
                    each["Key"].removeprefix(folder),
                    each["VersionId"],
                    each.get("Size", 0),
                    each["LastModified"].astimezone(UTC),
                    each.get("ETag", ""),
                    each["IsLatest"],
                    kind == "DeleteMarkers",
                )
                for kind in ("Versions", "DeleteMarkers")
                for each in page.get(kind, ())
            ]
            # The two lists of a page are apart. Sorting keeps the order of each, where times are whole seconds.
            yield from sorted(found, key=lambda each: (each.path, not each.newest, -each.modified.timestamp()))

    @contextmanager
    def open_version(self, path: str, version: str) -> Iterator[IO[bytes]]:
        """Open a version of an object, to be read once from its start."""
        with self._errors("read", path):
            body = self._client.get_object(**self._object(path, version), **self._customer_key)["Body"]
        with closing(body), self._errors("read", path):
            yield body

    def delete_version(self, path: str, version: str) -> None:
        """Delete a version of an object, or a delete marker, for ever.

        Raises:
            ObjectRetainedError: It is locked, or under legal hold.
        """
        with self._errors("delete", path):
            self._client.delete_object(**self._object(path, version))

    def retain(self, path: str, until: datetime, version: str = "") -> None:
        """Lock a version of an object, the newest by default, until a time, in the mode of the option `lock`.

        A longer lock stays.

        Raises:
            StoreDeniedError: It is locked for longer, or the right to `s3:PutObjectRetention` is missing.
        """
        assert self.options.lock is not None
        retention = {"Mode": self.options.lock.mode.upper(), "RetainUntilDate": until}
        with self._errors("lock", path):
            self._client.put_object_retention(**self._object(path, version), Retention=retention)

    def retained_until(self, path: str, version: str = "") -> datetime | None:
        """Return until when a version of an object, the newest by default, is locked; None if it is not."""
        with self._errors("read the lock of", path):
            found = self._client.head_object(**self._object(path, version), **self._customer_key)
        until: datetime | None = found.get("ObjectLockRetainUntilDate")
        return until.astimezone(UTC) if until is not None else None

    def proved_lock(self, path: str) -> datetime | None:
        """Return until when an object is locked; None if it is not, never for lack of a right.

        Raises:
            StoreDeniedError: The right to `s3:GetObjectRetention` is missing, without which S3 leaves out the time.
        """
        if (until := self.retained_until(path)) is None:
            unlocked = _NONE | {"NoSuchObjectLockConfiguration", "InvalidRequest"}
            with suppress(ObjectNotFoundError), self._errors("read the lock of", path, absent=unlocked):
                self._client.get_object_retention(**self._object(path))
        return until

    def hold(self, path: str, version: str = "", *, on: bool) -> None:
        """Put a version of an object, the newest by default, under the store's legal hold, or end that."""
        status = {"Status": "ON" if on else "OFF"}
        with self._errors("hold" if on else "release", path):
            self._client.put_object_legal_hold(**self._object(path, version), LegalHold=status)

    def _object(self, path: str, version: str = "") -> dict[str, str]:
        key = "/".join((*self._location.segments, check_path(path)))
        return {"Bucket": self._location.bucket, "Key": key, **({"VersionId": version} if version else {})}

    @cached_property
    def _customer_key(self) -> dict[str, Any]:
        import base64

        key = self.options.sse_customer_key_base64
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": base64.b64decode(key)} if key else {}

    @cached_property
    def _client(self) -> Any:
        from botocore.config import Config

        from snapshot_assets.storage.cloud_clients import aws_session

        options = self.options
        session = aws_session(options.profile, options.ca_bundle)
        config = Config(
            connect_timeout=10,
            read_timeout=30,
            retries={"mode": "standard", "total_max_attempts": 8 if options.retries is None else options.retries + 1},
            max_pool_connections=_REQUESTS,
            s3={"addressing_style": "virtual" if options.virtual_hosted_style else "path"},
        )
        keys = (options.access_key_id, options.secret_access_key, options.session_token)
        given = dict(zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), keys, strict=True))
        return session.create_client(
            "s3",
            region_name=options.region or session.get_config_variable("region") or "us-east-1",
            endpoint_url=options.endpoint,
            config=config,
            **(given if options.access_key_id else {}),
        )

    @contextmanager
    def _errors(self, operation: str, path: str = "", absent: Set[str] = _GONE) -> Iterator[None]:
        """Raise botocore's errors as storage errors; `operation` is the verb for the message."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            uri = self._location.uri + (f"/{quote(path)}" if path else "")
            raise _storage_error(operation, uri, error, absent) from None


def _storage_error(operation: str, uri: str, error: BotoCoreError | ClientError, absent: Set[str]) -> StorageError:
    answer = getattr(error, "response", {})
    code = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = (str(answer.get("Error", {}).get("Message", "")) or str(error)).rstrip(".")
    failed = f"Cannot {operation} {uri}: " + (f"the store answered {code} ({message})" if code else message)
    if code in absent:
        return ObjectNotFoundError(f"{failed}.", uri=uri)
    if operation == "delete" and status == 403:  # S3 gives locks no code of their own
        return ObjectRetainedError(
            f"{failed}. It is locked or under legal hold, or the right to `s3:DeleteObjectVersion` is missing.", uri=uri
        )
    if status in (401, 403):
        return StoreDeniedError(f"{failed}. Give the credentials the right to {operation} it.", uri=uri)
    if not status or (status >= 500 and status != 501) or status in (408, 409, 429):  # 501: it never will
        return StoreUnavailableError(f"{failed}. The store may answer later; run again.", uri=uri)
    return StorageError(f"{failed}. Check the location, the bucket and the storage options.", uri=uri)


def bucket_of(store: ObjectStore) -> S3Bucket | None:
    """Return the bucket of a store's location; None if the store is not on S3."""
    found: Callable[[], S3Bucket | None] | None = getattr(store, "bucket", None)
    return found() if found is not None else None


def locked_bucket(store: ObjectStore) -> S3Bucket:
    """Return the bucket of a store, for work on its locks.

    Raises:
        PlanError: The store has no Object Lock, or the storage option `lock` is missing.
    """
    bucket = bucket_of(store)
    if bucket is None:
        raise PlanError(f"{store.uri} is not on S3; only there can this program lock objects.")
    if bucket.options.lock is None:
        raise PlanError(
            f"{store.uri} has no storage option lock, so nothing says how long to lock its objects; write such as "
            "`lock: {mode: compliance, for: 30d}`."
        )
    if not bucket.protection.lockable:
        raise PlanError(
            f"The bucket of {store.uri} has no Object Lock; use one that was created with it, or remove the storage"
            " option lock."
        )
    return bucket
