"""How faults of the log are repaired, and errors that name the location of a damaged log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.catalog.replica import marker_or_fault
from snapshot_assets.errors import (
    BrokenLinkError,
    DamageError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    LostLogError,
    MisnamedError,
    SnapshotError,
    TornObjectError,
    UnsupportedVersionError,
)
from snapshot_assets.format.layout import REPLICA, checkpointed_revision, revision_of
from snapshot_assets.storage.base import ObjectStore

FAULTS = (DamageError, UnsupportedVersionError)
FaultError = DamageError | UnsupportedVersionError


BRING_BACK = "Bring it back from a copy, or rebuild the log with `snapshots catalog rebuild`."


def fault_remedy(store: ObjectStore, path: str, error: FaultError) -> str:
    """Return a sentence on how a fault of the log is repaired; "" if the error states it.

    Args:
        store: The location.
        path: The object that has the fault.
        error: The fault.
    """
    if path == REPLICA:
        return ""
    if isinstance(error, TornObjectError | DocumentError) and is_replica(store):
        return " `snapshots replicate` writes it again."
    if isinstance(error, MisnamedError) and revision_of(path):
        return (
            " If it overwrote a transaction of this log, then bring that one back from a copy, or rebuild the log with "
            "`snapshots catalog rebuild`."
        )
    if isinstance(error, ForeignLocationError | MisnamedError | LostLogError | UnsupportedVersionError):
        return ""
    if checkpointed_revision(path) is not None and isinstance(error, ForkError):
        return ""
    if is_replica(store):
        return " Move the replica's `transactions/` away, then run `snapshots replicate` again, which copies the log."
    copied = " If it was copied here, move it away." if isinstance(error, ForkError | BrokenLinkError) else ""
    return f"{copied} {BRING_BACK}"


def is_replica(store: ObjectStore) -> bool:
    """Return whether a location has a replica's marker, damaged or not."""
    try:
        return marker_or_fault(store) != (None, None)
    except SnapshotError:  # the store fails: the fault is reported without it
        return False


@contextmanager
def naming_location(store: ObjectStore) -> Iterator[None]:
    """Raise faults of a location's log as errors of their kind that name the location and the remedy.

    Args:
        store: The location.
    """
    try:
        yield
    except FAULTS as fault:
        if "uri" in fault.attributes:  # it names the location
            raise
        what = "cannot be read" if isinstance(fault, UnsupportedVersionError) else "is damaged"
        remedy = fault_remedy(store, fault.attributes.get("object", ""), fault)
        message = f"The log of {store.uri} {what}: {fault}{remedy}"
        raise type(fault)(message, **fault.attributes, uri=store.uri) from fault
