"""A fault that verification reports, and the check of small objects against the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES
from snapshot_assets.storage.base import ObjectStore


class FaultKind(StrEnum):
    """What is wrong; `lost`, `stale`, `orphan` and `foreign` are warnings, all others are damage."""

    LOG = "log"
    MISSING = "missing"
    SIZE = "size"
    CHECKSUM = "checksum"
    CHUNK_CHECKSUM = "chunk checksum"
    SNAPSHOT_CHECKSUM = "snapshot checksum"
    DUPLICATE = "duplicate"
    COVERAGE = "coverage"
    DOCUMENT = "document"
    LOST = "lost"
    STALE = "stale"
    ORPHAN = "orphan"
    FOREIGN = "foreign"


_WARNINGS = frozenset({FaultKind.LOST, FaultKind.STALE, FaultKind.ORPHAN, FaultKind.FOREIGN})


@dataclass(frozen=True)
class Fault:
    """One object or value that differs from what was written.

    Attributes:
        object: Path of the object.
        chunk: The object's chunk; None for others.
        revisions: Older readable revisions that need the object, if the newest state does not.
    """

    kind: FaultKind
    object: str
    message: str
    chunk: int | None = None
    revisions: tuple[int, ...] = ()

    @property
    def is_damage(self) -> bool:
        """Whether verification fails because of it."""
        return self.kind not in _WARNINGS


def read_object(store: ObjectStore, ref: ObjectRef, exists: bool, chunk: int | None = None) -> bytes | Fault:
    """Return the bytes of a small object that the log names, or its fault.

    Args:
        store: The location.
        ref: The object's reference in the log.
        exists: Whether a listing shows it.
        chunk: Its chunk, for the fault.
    """
    try:
        data = store.get(ref.path, limit=min(max(ref.bytes, 1), MAX_DOCUMENT_BYTES)) if exists else None
    except ObjectNotFoundError:
        data = None
    except DamageError as error:
        return Fault(FaultKind.SIZE, ref.path, str(error), chunk)
    if data is None:
        return Fault(FaultKind.MISSING, ref.path, f"{ref.path} is missing.", chunk)
    if (found := sha256_hex(data)) != ref.sha256:
        return Fault(FaultKind.CHECKSUM, ref.path, f"{ref.path} has SHA-256 {found}; expected {ref.sha256}.", chunk)
    return data


def object_faults(store: ObjectStore, ref: ObjectRef, exists: bool, chunk: int | None = None) -> Iterator[Fault]:
    """Yield the fault of a small object that the log names, if it has one; see `read_object`."""
    found = read_object(store, ref, exists, chunk)
    if isinstance(found, Fault):
        yield found
