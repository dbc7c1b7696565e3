"""Tests a location before the first write: rights, conditional creates, and the store's clock."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from snapshot_assets.errors import ConditionalCreateUnsupportedError, ObjectExistsError, StorageError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own

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


def probe(store: ObjectStore, *, single_writer: bool = False) -> ProbeResult:
    """Test that a location can be written, read, listed and deleted from, and that creates are conditional.

    Writes one object, `transactions/probe-<uuid>`, and deletes it again.

    Args:
        store: The location's objects.
        single_writer: Accept a store without conditional creates; the caller promises to be the only writer.

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
    store.delete(path)
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
