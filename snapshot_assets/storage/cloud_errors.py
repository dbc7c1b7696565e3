"""Translates obstore's errors to the package's storage errors.

obstore has types for the common answers. All others are its `GenericError`, such as refused listings, throttling and
dropped connections. They differ only in text, which this module alone reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

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
    StorageError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
)
from snapshot_assets.storage.aws_credentials import GIVE_CREDENTIALS
from snapshot_assets.storage.remote import NO_UPLOAD, certificate_error

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
_LASTING_CONFLICTS = {"BlobImmutableDueToPolicy", "SnapshotsPresent"}


@contextmanager
def cloud_errors(operation: str, uri: str) -> Iterator[None]:
    """Raise every obstore error inside as its `StorageError` kind; nothing else may run inside.

    Args:
        operation: The verb for the message: read, write, create, list, delete.
        uri: The object or location of the operation.
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
    if isinstance(error, GenericError | AlreadyExistsError | OSError) and _may_pass(number, code, text):
        advice = "The store may answer later; run again"
        return StoreUnavailableError(f"{failed}. {advice}.", uri=uri)
    return StorageError(f"{failed}. Check the location and the storage options.", uri=uri)


def is_unsatisfiable_range(error: Exception) -> bool:
    """Return whether a range started at or after the end of its object."""
    return _first(_STATUS, str(error)) == "416"


def _may_pass(number: int, code: str | None, text: str) -> bool:
    if not number:
        return _BROKEN_CONNECTION.search(text) is not None
    if code in _LASTING_CONFLICTS:
        return False
    return number in _PASSING or (number >= 500 and number != 501)


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
