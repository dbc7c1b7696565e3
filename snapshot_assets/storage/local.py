"""Objects as files of this machine: atomic, durable and exclusive.

An object is written to a hidden temporary file beside its place, flushed to disk, and published by a hard link
(create) or a rename (put), after which its folder is flushed too. So a reader sees the whole object or none, a killed
writer leaves only a temporary file, and a reported write survives a power cut.

All paths are walked folder by folder with `O_NOFOLLOW`: no symbolic link inside a location leads out of it. The
location's own folder may be one.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    LocationIsFileError,
    LocationUnusableError,
    NotAFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
    UnsafePathError,
)
from snapshot_assets.format.layout import TEMPORARY_NAME
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectInfo, ObjectWriter, check_path, check_size, folder_of
from snapshot_assets.storage.location import Location

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MAY_PASS = {errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


@contextmanager
def storage_errors(operation: str, uri: str) -> Iterator[None]:
    """Raise every `OSError` inside as its `StorageError` kind.

    `operation` is the verb for the message: read, write, create (link a written file to its name), list, delete.
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


_TEMPORARY = re.compile(TEMPORARY_NAME)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: opening a pipe must not hang
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER = 1024 * 1024
_WALKS = 100  # a folder vanishes under a writer when another one deletes its last object at that moment


class LocalStore:
    """An `ObjectStore` over a folder. Picklable; holds nothing open between calls."""

    def __init__(self, location: Location) -> None:
        """Take a `file` location; the first write creates its folder."""
        self._location = location
        self._root = location.local_path

    @property
    def uri(self) -> str:
        """The location's URI."""
        return self._location.uri

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        with self.open_reader(path) as reader, storage_errors("read", self._uri_of(path)):
            size = os.fstat(reader.fileno()).st_size
            check_size(self._uri_of(path), size, limit)
            return reader.read()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; see `ObjectStore.get_range`."""
        with self.open_reader(path) as reader, storage_errors("read", self._uri_of(path)):
            reader.seek(start)
            return reader.read(length)

    @contextmanager
    def open_reader(self, path: str) -> Iterator[BinaryIO]:
        """Open an object for random access; see `ObjectStore.open_reader`."""
        uri = self._uri_of(path)
        with storage_errors("read", uri):
            *folders, name = check_path(path).split("/")
            try:
                folder = self._open_folder(folders)
            except NotADirectoryError as error:
                raise ObjectNotFoundError(f"There is no object {uri}.", uri=uri) from error
            try:
                descriptor = os.open(name, _READ, dir_fd=folder)
            finally:
                os.close(folder)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise NotAFileError(f"{uri} is not an ordinary file.", uri=uri)
        with os.fdopen(descriptor, "rb", buffering=_BUFFER) as file:
            yield file

    def put(self, path: str, data: bytes) -> None:
        """Write or replace an object; see `ObjectStore.put`."""
        with self.open_writer(path) as writer:
            writer.write(data)

    def create(self, path: str, data: bytes) -> None:
        """Write an object only if none exists; see `ObjectStore.create`."""
        with self._published(path, "create") as writer:
            writer.write(data)

    def open_writer(self, path: str) -> AbstractContextManager[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`."""
        return self._published(path, "write")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below `prefix`, sorted by path; see `ObjectStore.list`. Memory: one folder's entries."""
        return self._walk(folder_of(prefix), temporaries=False)

    def temporaries(self) -> Iterator[ObjectInfo]:
        """Yield the temporary files in the location; see `ObjectStore.temporaries`."""
        return self._walk("", temporaries=True)

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return the names of the direct children of `prefix` that hold objects; see `ObjectStore.folders`."""
        folder, names = folder_of(prefix), []
        for name in sorted(name for name, info in self._entries(folder) if info is None):
            try:
                if next(self._walk(_join(folder, name), temporaries=False), None) is not None:
                    names.append(name)
            except StoreDeniedError:  # one folder that cannot be listed must not hide the others
                names.append(name)
        return tuple(names)

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        with self.open_reader(path) as reader:
            return _info(path, os.fstat(reader.fileno()))

    def delete(self, path: str) -> None:
        """Delete an object and the folders it leaves empty; see `ObjectStore.delete`."""
        segments = check_path(path).split("/")
        with storage_errors("delete", self._uri_of(path)), suppress(FileNotFoundError, NotADirectoryError):
            folder = self._open_folder(segments[:-1])
            try:
                with suppress(IsADirectoryError):
                    os.unlink(segments[-1], dir_fd=folder)
                    os.fsync(folder)
            finally:
                os.close(folder)
            self._remove_empty(segments[:-1])

    def _uri_of(self, path: str) -> str:
        return f"{self.uri}/{quote(path, errors='replace')}"

    def _open_folder(self, segments: Sequence[str], *, create: bool = False) -> int:
        """Return a descriptor of a folder in the location; with `create`, one whose whole path is on disk."""
        folder = _open_root(self._root, create=create)
        for segment in segments:
            parent = folder
            try:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(segment, dir_fd=parent)
                folder = os.open(segment, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
                if create:  # even if another process made it: it may not have flushed it yet
                    os.fsync(parent)
            finally:
                os.close(parent)
        return folder

    def _remove_empty(self, segments: Sequence[str]) -> None:
        while segments:
            *parents, name = segments
            folder = self._open_folder(parents)
            try:
                os.rmdir(name, dir_fd=folder)
            except FileNotFoundError:
                pass  # another deletion was faster; its parent may still be ours to remove
            except OSError:
                return  # not empty, which rmdir reports by several names, or not ours to remove
            finally:
                os.close(folder)
            segments = parents

    @contextmanager
    def _published(self, path: str, operation: str) -> Iterator[ObjectWriter]:
        uri = self._uri_of(path)
        *folders, name = check_path(path).split("/")
        if _TEMPORARY.fullmatch(name):
            raise UnsafePathError(f"{path!r} is a name that this store uses for temporary files; choose another.")
        with storage_errors("write", uri):
            folder, temporary, descriptor = self._start(folders, uri)
        try:
            file = os.fdopen(descriptor, "wb", buffering=_BUFFER)
            try:
                yield ObjectWriter(file.write, lambda: storage_errors("write", uri))
                with span("put"), storage_errors("write", uri):
                    file.flush()
                    os.fsync(descriptor)
            finally:
                with suppress(OSError):  # nothing is left to write, or an error that aborts the object is being raised
                    file.close()
            with span("put"), storage_errors(operation, uri):
                if operation == "create":
                    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                else:
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
        finally:
            with storage_errors("write", uri), suppress(FileNotFoundError):  # renamed into place
                os.unlink(temporary, dir_fd=folder)
            os.close(folder)

    def _start(self, folders: Sequence[str], uri: str) -> tuple[int, str, int]:
        """Return a folder, and the name and descriptor of a new temporary file in it."""
        for _ in range(_WALKS):
            try:
                folder = self._open_folder(folders, create=True)
            except FileNotFoundError as error:
                vanished = error
                continue
            temporary = f".tmp-{secrets.token_hex(8)}"
            try:
                return folder, temporary, os.open(temporary, _NEW, 0o666, dir_fd=folder)
            except FileNotFoundError as error:
                vanished = error
                os.close(folder)
            except BaseException:
                os.close(folder)
                raise
        try:
            os.makedirs(self._root, exist_ok=True)
        except (FileNotFoundError, FileExistsError):  # the file system takes no folders there, or a link leads nowhere
            raise LocationUnusableError(
                f"The folder {self._root} cannot be created: {vanished.strerror}. A location needs a folder of an"
                " ordinary file system. Check the URI.",
                path=str(self._root),
            ) from vanished
        raise StorageError(f"The folder of {uri} vanished {_WALKS} times while it was written to; is it being deleted?")

    def _walk(self, folder: str, *, temporaries: bool) -> Iterator[ObjectInfo]:
        for name, info in self._entries(folder):
            if info is None:
                yield from self._walk(_join(folder, name), temporaries=temporaries)
            elif bool(_TEMPORARY.fullmatch(name)) == temporaries:
                yield info

    def _entries(self, folder: str) -> Sequence[tuple[str, ObjectInfo | None]]:
        """Return the files and sub-folders of a folder, in the order of their full paths; a folder has no info."""
        uri = self._uri_of(folder) if folder else self.uri
        found: list[tuple[str, str, ObjectInfo | None]] = []
        with storage_errors("list", uri), suppress(FileNotFoundError, NotADirectoryError):
            descriptor = self._open_folder(folder.split("/") if folder else [])
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        found.extend(_entry(entry, folder))
            finally:
                os.close(descriptor)
        return [(name, info) for _, name, info in sorted(found, key=lambda item: item[0])]


def _entry(entry: os.DirEntry[str], folder: str) -> Iterator[tuple[str, str, ObjectInfo | None]]:
    """Yield the sort key, name and info of a directory entry, unless it is no object or vanished."""
    # A name that is not UTF-8 is not ours; it is shown with a backslash, which no object of ours has.
    name = entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    with suppress(FileNotFoundError):
        if entry.is_dir(follow_symlinks=False):
            yield f"{name}/", name, None
        elif entry.is_file(follow_symlinks=False):
            yield name, name, _info(_join(folder, name), entry.stat(follow_symlinks=False))


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _open_root(root: Path, *, create: bool) -> int:
    """Return a descriptor of the location's own folder; with `create`, makes and flushes it and its parents."""
    try:
        return os.open(root, _FOLDER)
    except NotADirectoryError as error:
        raise LocationIsFileError(
            f"{root} is a file, or below one, and a location is a folder. Check the URI.", path=str(root)
        ) from error
    except FileNotFoundError:
        if not create:
            raise
    parent = _open_root(root.parent, create=True)
    try:
        with suppress(FileExistsError):
            os.mkdir(root.name, dir_fd=parent)
        os.fsync(parent)
    finally:
        os.close(parent)
    return os.open(root, _FOLDER)
