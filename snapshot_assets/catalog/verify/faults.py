"""The faults that verification reports, and how each kind of damage is repaired.

Older revisions that are damaged can expire if the newest state is whole.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from snapshot_assets.catalog.receipts import stands_for
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.state.totals import again_with
from snapshot_assets.errors import DamageError, NotAFileError, ObjectNotFoundError
from snapshot_assets.format.actions import ObjectRef, TagCreated
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, sha256_hex
from snapshot_assets.format.layout import chunk_of, is_receipt
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import in_parallel

REPAIRED = "`snapshots catalog repair` writes it again from the log."


class FaultKind(StrEnum):
    """What is wrong.

    `lost`, `stale`, `uncommitted`, `orphan`, `foreign`, `replication` and `unchecked` are warnings, all others are
    damage.
    """

    LOG = "log"
    ALTERED = "altered"
    MISSING = "missing"
    SIZE = "size"
    CHECKSUM = "checksum"
    CHUNK_CHECKSUM = "chunk checksum"
    SNAPSHOT_CHECKSUM = "snapshot checksum"
    DUPLICATE = "duplicate"
    COVERAGE = "coverage"
    DOCUMENT = "document"
    SIGNATURE = "signature"
    LOST = "lost"
    STALE = "stale"
    UNCOMMITTED = "uncommitted"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    REPLICATION = "replication"
    UNCHECKED = "unchecked"


_WARNINGS = frozenset(
    {
        FaultKind.LOST,
        FaultKind.STALE,
        FaultKind.UNCOMMITTED,
        FaultKind.ORPHAN,
        FaultKind.FOREIGN,
        FaultKind.REPLICATION,
        FaultKind.UNCHECKED,
    }
)


@dataclass(frozen=True)
class Fault:
    """One object or value that differs from what was written.

    Attributes:
        object: Path of the object.
        finding: What was found, in words.
        chunk: The object's chunk; None for others.
        revisions: Older readable revisions that need the object, if the newest state does not.
        repairable: Whether `snapshots catalog repair` writes the object again.
    """

    kind: FaultKind
    object: str
    finding: str
    chunk: int | None = None
    revisions: tuple[int, ...] = ()
    repairable: bool = False

    @property
    def message(self) -> str:
        """What was found, and the command that repairs it."""
        return f"{self.finding} {REPAIRED}" if self.repairable else self.finding

    @property
    def is_damage(self) -> bool:
        """Whether verification fails because of it."""
        return self.kind not in _WARNINGS


def read_object(store: ObjectStore, ref: ObjectRef, exists: bool, chunk: int | None = None) -> bytes | Fault:
    """Return the bytes of a small object that the log names, or its fault.

    `exists` is whether a listing shows it; `chunk` is for the fault.
    """
    limit = MAX_DOCUMENT_BYTES if is_receipt(ref.path) else min(max(ref.bytes, 1), MAX_DOCUMENT_BYTES)
    try:
        data = store.get(ref.path, limit=limit) if exists else None
    except ObjectNotFoundError:
        data = None
    except DamageError as error:
        return Fault(FaultKind.SIZE, ref.path, str(error), chunk)
    if data is None:
        return missing(store, ref.path, chunk)
    if stands_for(data, ref):
        return data
    message = f"{ref.path} has SHA-256 {sha256_hex(data)}; expected {ref.sha256}."
    return Fault(FaultKind.CHECKSUM, ref.path, message, chunk)


def missing(store: ObjectStore, path: str, chunk: int | None = None) -> Fault:
    """Return the fault of a missing object; it states what is there if that is not an ordinary file."""
    message = f"{path} is missing."
    try:
        store.head(path)
    except NotAFileError as error:
        message = f"{path} is missing: {error}"
    except ObjectNotFoundError:
        pass
    return Fault(FaultKind.MISSING, path, message, chunk)


def faults_by_object(
    store: ObjectStore, refs: Collection[ObjectRef], objects: Container[str]
) -> Iterator[tuple[ObjectRef, Fault]]:
    """Yield the small objects that are damaged or missing, with their faults; `objects` has the paths that exist."""

    def check(ref: ObjectRef) -> Fault | None:
        found = read_object(store, ref, ref.path in objects, chunk_of(ref.path))
        return found if isinstance(found, Fault) else None

    for ref, fault in zip(refs, in_parallel(store, check, refs), strict=True):
        if fault is not None:
            yield ref, fault


def with_remedy(state: State, fault: Fault) -> Fault:
    """Return a fault of the newest state with how it is repaired, if exporting its chunk again does that."""
    if fault.chunk is None or is_receipt(fault.object):
        return fault
    advice = f"Bring it back from a copy, or export its chunk again {again_with(state, fault.chunk)}."
    undone = " Then delete rows again: deleted rows that the source still has come back." if state.tombstones else ""
    return replace(fault, finding=f"{fault.finding} {advice}{undone}")


def with_replicas_remedy(fault: Fault) -> Fault:
    """Return a fault of a replica with how it is repaired, if that is to copy the object again."""
    if fault.kind is FaultKind.MISSING and fault.object != "transactions/":
        advice = "`snapshots replicate` copies it again."
    elif fault.kind in (FaultKind.SIZE, FaultKind.CHECKSUM):
        advice = "Move it away; `snapshots replicate` then copies it again."
    else:
        return fault
    return replace(fault, finding=f"{fault.finding} {advice}", repairable=False)


@dataclass(frozen=True)
class Remedy:
    """How to expire the older revisions that need damaged objects; the newest state is whole.

    Attributes:
        revisions: The readable revisions that need damaged objects.
        pins: Their tags and savepoints, in words.
        expire_too: Readable revisions that are whole and expire with them.
        seal_first: Whether the newest state must be sealed first, because the newest seal never expires.
    """

    newest: int
    revisions: tuple[int, ...]
    pins: tuple[str, ...]
    expire_too: tuple[int, ...]
    seal_first: bool
    commands: tuple[str, ...]


def remedy_of(head: State, uri: str, faults: Iterable[Fault]) -> Remedy | None:
    """Return how to end damage, given all faults of a location; None if the newest state, `head`, has any.

    No version is given up for what a repair writes again.
    """
    damage = [fault for fault in faults if fault.is_damage and not fault.repairable]
    damaged = {revision for fault in damage for revision in fault.revisions}
    if not damage or not all(fault.revisions for fault in damage):
        return None
    pins = [known for known in head.pins if known.pin.revision in damaged]
    unexpired = damaged - head.expired
    # The greatest `keep_last` that lets them expire; 0 if the newest seal is one of them.
    counts = range(1, 1 + sum(sealed.revision not in head.expired for sealed in head.seals))
    keep_last = bisect_left(counts, True, key=lambda count: not unexpired.issubset(_outlived(head, count)))
    expiring = set(_outlived(head, keep_last or 1)) if unexpired else set()
    left = head.pins.revisions() - damaged
    return Remedy(
        newest=head.revision,
        revisions=tuple(sorted(damaged)),
        pins=tuple(sorted(str(known.pin) for known in pins)),
        expire_too=tuple(sorted(expiring - damaged - left)),
        seal_first=keep_last == 0,
        commands=tuple(_commands(uri, pins, (keep_last or 1) if unexpired else None)),
    )


def _outlived(head: State, keep_last: int) -> list[int]:
    return Retention(keep_last).expirable(head, head.committed_at)


def _commands(uri: str, pins: Iterable[PinState], keep_last: int | None) -> Iterator[str]:
    where = f"--snapshot {shlex.quote(uri)}"
    for known in pins:
        if isinstance(known.pin, TagCreated):
            if known.hold is not None:
                yield f"snapshots tag release {known.pin.name} --reason … {where}"
            yield f"snapshots tag delete {known.pin.name} {where}"
        else:
            yield f"snapshots savepoint delete {known.pin.id} {where}"
    if keep_last is not None:
        yield f"snapshots catalog expire --keep-last {keep_last} {where}"
    yield f"snapshots catalog gc {where}"
