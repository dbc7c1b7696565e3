"""Creates with a certain outcome: also after a lost reply, and on stores without conditional creates.

`probe` tests a location before the first write: rights, conditional creates, and the store's clock.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained
from snapshot_assets.storage.s3_bucket import bucket_of, locked_bucket


def create_own(store: ObjectStore, path: str, data: bytes) -> None:
    """Create an object at a path that no other writer uses.

    An object with the same bytes counts as created: the store created it, and its reply was lost.

    Raises:
        ObjectExistsError: An object with other bytes exists.
        StoreUnavailableError: The store refused the create because of an object that it does not have.
    """
    try:
        store.create(path, data)
    except ObjectExistsError:
        try:
            if not holds(store, path, data):
                raise
        except ObjectNotFoundError as gone:
            raise StoreUnavailableError(
                f"{store.uri} refused to create {path} because it exists, but has no such object; run again.",
                uri=store.uri,
            ) from gone


def holds(store: ObjectStore, path: str, data: bytes) -> bool:
    """Return whether an object has these bytes; raises `ObjectNotFoundError` if there is none."""
    return store.head(path).size == len(data) and store.get(path) == data


class StoreWrapper:
    """A store of which a subclass changes some methods; all others are the wrapped store's own."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "_store":  # asked while it is unpickled
            raise AttributeError(name)
        return getattr(self._store, name)


class SingleWriterStore(StoreWrapper):
    """A store whose `create` looks for the object and then puts it, for a location with a single writer.

    Two writers at once could both succeed.
    """

    def create(self, path: str, data: bytes) -> None:
        """Write an object if none exists; see `ObjectStore.create`."""
        try:
            self._store.head(path)
        except ObjectNotFoundError:
            self._store.put(path, data)
            return
        raise ObjectExistsError(f"{path} in {self._store.uri} exists already.", object=path)


_FOLDER = "transactions/"
_LISTINGS = 5  # a single listing may miss an object while others write


@dataclass(frozen=True)
class ProbeResult:
    """How a store behaved.

    Attributes:
        conditional_create: Whether the second of two creates was refused.
        store_time: When the probe was written, on the store's clock; S3 gives whole seconds.
    """

    conditional_create: bool
    store_time: datetime


def refuse_unlockable(store: ObjectStore) -> None:
    """Refuse a bucket without Object Lock if the storage option `lock` is given.

    Without the right to read its configuration, the first write shows whether it locks objects.

    Raises:
        PlanError: The bucket has no Object Lock.
    """
    if (bucket := bucket_of(store)) is not None and bucket.options.lock is not None:
        with suppress(StoreDeniedError):
            locked_bucket(store)


def probe(store: ObjectStore, *, single_writer: bool = False) -> ProbeResult:
    """Test that a location can be written, read, listed and deleted from, and that creates are conditional.

    Writes one object, `transactions/probe-<uuid>`, and deletes it again. With `single_writer`, accept a store without
    conditional creates: the caller promises to be the only writer.

    Raises:
        StoreDeniedError: A right is missing; the message names the operation and the object.
        ConditionalCreateUnsupportedError: Two creates of one object both succeeded, or the store has none.
        StorageError: The store lost or altered the object.
    """
    token = uuid4().hex
    path = f"{_FOLDER}probe-{token}"
    try:
        conditional = _write(store, path, token.encode(), single_writer)
        store_time = _read(store, path, token.encode())
    except BaseException:
        with suppress(StorageError):  # the first error is the one to report
            store.delete(path)
        raise
    delete_unless_retained(store, path)
    if not conditional and not single_writer:
        raise ConditionalCreateUnsupportedError(
            f"{store.uri} accepted two creates of one object, so two writers could both win a revision. Use a store "
            "with conditional creates (If-None-Match); with `single_writer: true` in the plan (of catalog commands: "
            "--single-writer), and with no other writer ever, this one can be used.",
            uri=store.uri,
        )
    return ProbeResult(conditional, store_time)


def _write(store: ObjectStore, path: str, data: bytes, single_writer: bool) -> bool:
    """Create twice; return whether the store refused the second create."""
    try:
        create_own(store, path, data)
    except ConditionalCreateUnsupportedError:
        if not single_writer:
            raise
        store.put(path, data)
        return False
    try:
        store.create(path, data[::-1])  # other bytes: a store's `create` may take its own for those of a lost reply
    except ObjectExistsError:
        return True
    store.put(path, data)
    return False


def _read(store: ObjectStore, path: str, data: bytes) -> datetime:
    read = store.get(path, limit=len(data))
    listings = (info for _ in range(_LISTINGS) for info in store.list(_FOLDER))
    listed = next((info for info in listings if info.path == path), None)
    if read != data or listed is None:
        raise StorageError(
            f"{store.uri} accepted {path} but returns other bytes or does not list it; it cannot hold snapshots.",
            uri=store.uri,
        )
    return listed.modified
