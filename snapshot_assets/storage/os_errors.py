"""Translates errors of the operating system to the package's storage errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    NotAFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MAY_PASS = {errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


@contextmanager
def storage_errors(operation: str, uri: str) -> Iterator[None]:
    """Raise every `OSError` inside as its `StorageError` kind.

    Args:
        operation: The verb for the message: read, write, create (link a written file to its name), list, delete.
        uri: The object or location of the operation.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(operation, uri, error) from error


def storage_error(operation: str, uri: str, error: OSError) -> StorageError:
    """Return the storage error for an `OSError`; see `storage_errors` for the arguments."""
    if operation == "create" and error.errno in _NO_LINKS:
        return ConditionalCreateUnsupportedError(
            f"The file system of {uri} has no hard links ({error.strerror}), so it cannot decide which of two writers "
            "is first. Choose a location on a file system such as ext4, xfs, btrfs, APFS or NFS.",
            uri=uri,
        )
    if isinstance(error, FileNotFoundError) and operation in ("write", "create"):
        return StorageError(
            f"Cannot {operation} {uri}: its temporary file was removed meanwhile. Is the location being deleted?",
            uri=uri,
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"There is no object {uri}.", uri=uri)
    if isinstance(error, FileExistsError):
        return ObjectExistsError(f"Object {uri} exists already.", uri=uri)
    failed = f"Cannot {operation} {uri}: {error.strerror or error}."
    if error.errno in _FULL:
        return StoreFullError(f"{failed} Free space or raise the quota, then run again.", uri=uri)
    if error.errno in _DENIED:
        return StoreDeniedError(
            f"{failed} Give this user the right to {operation} there, or choose another location.",
            uri=uri,
            operation=operation,
        )
    if error.errno in _MAY_PASS:
        return StoreUnavailableError(f"{failed} The file system may answer later; run again.", uri=uri)
    if error.errno == errno.ELOOP:
        return NotAFileError(f"{failed} A location holds ordinary files and folders only; remove the link.", uri=uri)
    return StorageError(f"{failed} Check the file system.", uri=uri)
