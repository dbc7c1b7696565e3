"""Copies one object to a replica, and proves it on the way: an object that is damaged never becomes visible there.

`GuardedStore` keeps a replication at work from writing into a location that is no longer its replica.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.catalog.receipts import stands_for
from snapshot_assets.catalog.replica import Replica, promotion_text, read_marker
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.errors import (
    ChecksumMismatchError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplicaConflictError,
    ReplicaError,
)
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, sha256_hex
from snapshot_assets.format.layout import checkpointed_revision, chunk_of, is_receipt
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectInfo, ObjectStore, ObjectWriter
from snapshot_assets.storage.create import StoreWrapper, create_own


def is_evidence(path: str) -> bool:
    """Return whether an object of a path names the revision that it was written for, which a log must have."""
    return is_receipt(path) or path.startswith(("tag/", "savepoint/"))


class GuardedStore(StoreWrapper):
    """A replica's store that reads the marker again before each write and each deletion.

    A promotion replaces the marker first. What is being sent at that moment may still arrive; the promotion's own
    transaction then keeps transactions of the source out. `marker` is the replica's, as it was when the replication
    began.
    """

    def __init__(self, store: ObjectStore, marker: Replica) -> None:
        super().__init__(store)
        self._marker = marker

    def check(self) -> Replica:
        """Return the marker as it is now.

        Raises:
            ReplicaError: It is gone, is being deleted by a promotion, or is another replica's.
        """
        found = read_marker(self._store)
        if found is None or not self._marker.is_same(found):
            raise ReplicaError(
                f"{self._store.uri} is no longer the replica that this replication began to write to: it was promoted "
                "or replaced meanwhile. Nothing more is written to it.",
                uri=self._store.uri,
            )
        if found.promoting:
            raise ReplicaError(promotion_text(self._store.uri), uri=self._store.uri)
        return found

    def put(self, path: str, data: bytes) -> None:
        """Write an object; see `ObjectStore.put`."""
        self.check()
        self._store.put(path, data)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if none exists; see `ObjectStore.create`."""
        self.check()
        self._store.create(path, data)
        if checkpointed_revision(path) is not None or is_evidence(path):  # a promoted location would look damaged
            try:
                self.check()
            except ReplicaError:
                self._store.delete(path)
                raise

    @contextmanager
    def open_writer(self, path: str) -> Iterator[ObjectWriter]:
        """Stream an object; see `ObjectStore.open_writer`."""
        self.check()
        with self._store.open_writer(path) as writer:
            yield writer
            self.check()  # an error aborts the object

    def delete(self, path: str) -> None:
        """Delete an object; see `ObjectStore.delete`."""
        self.check()
        self._store.delete(path)


IN_MEMORY = 8 << 20
"""Most bytes of an object that is copied in one piece; larger ones are streamed."""

_BLOCK = 4 << 20


def copy_object(source: ObjectStore, target: ObjectStore, ref: ObjectRef) -> Fault | None:
    """Copy an object that the replica lacks; returns its fault in the source, if it has one.

    Raises:
        ReplicaConflictError: The replica has got an object with other bytes meanwhile.
    """
    try:
        size = source.head(ref.path).size
        if size != ref.bytes and (size > MAX_DOCUMENT_BYTES or not is_receipt(ref.path)):
            return _fault(FaultKind.SIZE, ref, f"has {counted(size, 'byte')}; expected {ref.bytes:,}")
        if size > IN_MEMORY and size == ref.bytes:
            _stream(source, target, ref)
        else:
            data = source.get(ref.path, limit=max(size, 1))
            if not stands_for(data, ref):
                return _fault(FaultKind.CHECKSUM, ref, f"has SHA-256 {sha256_hex(data)}; expected {ref.sha256}")
            create_exactly(target, ref.path, data)
    except ObjectNotFoundError:
        return _fault(FaultKind.MISSING, ref, "is missing")
    except ChecksumMismatchError as error:
        return _fault(FaultKind.CHECKSUM, ref, f"has SHA-256 {error.attributes['found']}; expected {ref.sha256}")
    return None


def _fault(kind: FaultKind, ref: ObjectRef, what: str) -> Fault:
    return Fault(kind, ref.path, f"{ref.path} {what}.", chunk_of(ref.path))


def _stream(source: ObjectStore, target: ObjectStore, ref: ObjectRef) -> None:
    """Copy in bounded memory. The path is that of one attempt, so no other writer uses it; an error aborts the write.

    Raises:
        ChecksumMismatchError: The bytes that were read are not those that the log names.
    """
    digest = hashlib.sha256()
    with source.open_reader(ref.path) as reader, target.open_writer(ref.path) as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            writer.write(block)
        if (found := digest.hexdigest()) != ref.sha256:
            raise ChecksumMismatchError(f"{ref.path} has SHA-256 {found}.", object=ref.path, found=found)


def create_exactly(target: ObjectStore, path: str, data: bytes) -> None:
    """Create an object in the replica; an object with the same bytes is fine.

    Raises:
        ReplicaConflictError: One with other bytes exists.
    """
    try:
        create_own(target, path, data)
    except ObjectExistsError:
        raise other_bytes(target, path, "they are not those of the source") from None


def check_existing(target: ObjectStore, ref: ObjectRef, info: ObjectInfo, *, hashed: bool) -> None:
    """Refuse an object of the replica that is not the source's.

    With `hashed`, its bytes are read, too.

    Raises:
        ReplicaConflictError: It has other bytes.
    """
    reads = is_receipt(ref.path) and (hashed or info.size != ref.bytes) and info.size <= MAX_DOCUMENT_BYTES
    if reads and stands_for(target.get(ref.path, limit=MAX_DOCUMENT_BYTES), ref):
        return
    if info.size != ref.bytes:
        raise other_bytes(target, ref.path, f"it has {counted(info.size, 'byte')}; the source's has {ref.bytes:,}")
    if hashed and (found := hash_object(target, ref.path)[0]) != ref.sha256:
        raise other_bytes(target, ref.path, f"its SHA-256 is {found}; the source's is {ref.sha256}")


def other_bytes(target: ObjectStore, path: str, why: str) -> ReplicaConflictError:
    """Return the error for an object of the replica that is not the source's."""
    return ReplicaConflictError(
        f"{path} exists in the replica {target.uri} with other bytes: {why}. Something else wrote it, or it is damaged:"
        " move it away, then replicate again.",
        object=path,
        uri=target.uri,
    )
