"""Copies one object to a replica, and proves it on the way: an object that is damaged never becomes visible there."""

from __future__ import annotations

import hashlib

from snapshot_assets.catalog.receipts import stands_for
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.errors import ChecksumMismatchError, ObjectExistsError, ObjectNotFoundError, ReplicaConflictError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, sha256_hex
from snapshot_assets.format.layout import chunk_of, is_receipt
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.create import create_own

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

    Args:
        target: The replica.
        ref: The object, as the source's log names it.
        info: The object, as the replica's listing shows it.
        hashed: Whether its bytes are read, too.

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
