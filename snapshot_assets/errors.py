"""All exceptions of the package.

Code decides by type, never by message: `TransientError` may be retried, and `UsageError` means that the call is wrong
(exit status 2). A message names the thing, what was found, what was expected and what to do. Attributes survive
pickling, because Spark sends exceptions from task to driver.
"""

from __future__ import annotations

import traceback
from typing import Any


class SnapshotError(Exception):
    """Base of all errors of this package; permanent unless it is also a `TransientError`.

    Args:
        message: What is wrong and what to do about it.
        **attributes: Values that the message mentions, readable as `error.attributes["name"]`.
    """

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self.attributes = attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.attributes)


def _rebuild(kind: type[SnapshotError], message: str, attributes: dict[str, Any]) -> SnapshotError:
    return kind(message, **attributes)


def foreign_text(error: Exception) -> str:
    """Return the text of an error that code outside this package raised, with its full class and its place."""
    kind, place = type(error), traceback.extract_tb(error.__traceback__)[-1]
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {error} (in {place.name}, {'/'.join(place.filename.split('/')[-2:])}:{place.lineno})"


class TransientError(SnapshotError):
    """The same call may succeed later, so a retry is useful."""


class UsageError(SnapshotError):
    """The call, the plan or a name in it is wrong; the command changed nothing."""


# The call and the plan


class PlanError(UsageError):
    """A field of a plan is missing or wrong, or contradicts another field."""


class LocationUriError(UsageError):
    """A URI cannot be a location of snapshots."""


class UnknownSourceError(UsageError):
    """A source or target is neither an alias of the configuration nor a URI of a known kind."""


class UnknownRelationError(UsageError):
    """A schema or table named by the plan does not exist in the source."""


class AmbiguousTimeIndexError(UsageError):
    """A table has several columns that could be its time index, and the plan names none."""


class UnsupportedTypeError(UsageError):
    """A column's type can be carried neither natively nor as text."""


class SnapshotExistsError(UsageError):
    """The location contains a snapshot of another plan."""


class LocationNotEmptyError(UsageError):
    """A copy would be written beside objects that are not its own."""


class VersionNotFoundError(UsageError):
    """A version does not name a readable state of the location."""


class TagExistsError(UsageError):
    """A tag of this name exists with another revision, with another time to live, or from a retention rule."""


class LogWholeError(UsageError):
    """A rebuild was requested, but the log is complete."""


class AcceptanceNeededError(UsageError):
    """A rebuild or rollback may bring back data that was removed, replaced or deleted, and needs an explicit option."""


class ReplicaError(UsageError):
    """A replica was to be written to, or a location that is no replica was to become one."""


class PinnedError(UsageError):
    """Tags or savepoints pin the data that the call would delete."""


class TagHeldError(PinnedError):
    """A legal hold protects a tag that the call would delete or change."""


# Object storage


class StorageError(SnapshotError):
    """Object storage refused or failed."""


class ObjectNotFoundError(StorageError):
    """The named object does not exist."""


class NotAFileError(ObjectNotFoundError):
    """The named object is a symbolic link, or something else that is not an ordinary file."""


class ObjectExistsError(StorageError):
    """A conditional create failed because the object exists."""


class StoreUnavailableError(StorageError, TransientError):
    """The store did not answer, throttled the call, or failed temporarily."""


class StoreDeniedError(StorageError):
    """The store refused the credentials or the operation."""


class ObjectRetainedError(StoreDeniedError):
    """The store keeps an object until a time, or under legal hold, and refused to delete it."""


class LocationUnusableError(StorageError):
    """The folder of a location cannot be created, or its bucket does not exist."""


class LocationIsFileError(LocationUriError, StorageError):
    """The URI of a location names a file, or a folder below a file."""


class StoreFullError(StorageError):
    """No space is left, or a quota is exhausted."""


class ConditionalCreateUnsupportedError(StorageError):
    """The store ignores the condition of a create, so two writers could both commit one revision."""


class OutcomeUnknownError(StorageError):
    """A commit was sent, and reading it back failed, so its outcome is unknown."""


# The storage format


class DamageError(SnapshotError):
    """Base of all errors that report damage at a location."""


class DocumentError(DamageError):
    """A document cannot be parsed or is invalid."""


class UnsafePathError(DamageError):
    """A path in a document leaves the location or does not follow the layout."""


class LimitExceededError(DamageError):
    """A document is, or would be, larger or deeper than readers accept; in the second case it was not written."""


class UnsupportedVersionError(SnapshotError):
    """A document has a newer format version than this code reads."""


class ForkError(DamageError):
    """Two transactions claim one revision, or a transaction links to one that is not its predecessor."""


class GapError(DamageError):
    """A revision between two others is missing."""


class BrokenLinkError(DamageError):
    """A transaction does not carry the checksum of the one before it."""


class ForeignLocationError(DamageError):
    """A transaction belongs to another location."""


class MisnamedError(DamageError):
    """A log object holds another revision than its name; so it is no evidence of any revision."""


class TornObjectError(DamageError):
    """A log object's bytes do not match its own checksum."""


class LostLogError(DamageError):
    """The location contains data, but the log or its end is lost."""


class ChecksumMismatchError(DamageError):
    """Bytes or a list of files do not have the recorded checksum."""


# The catalog


class SignatureError(DamageError):
    """A seal is not signed, or its signature does not count, or contradicts the log."""


class SigningError(SnapshotError):
    """A key does not sign; what was committed stays."""


class IcebergError(SnapshotError):
    """Iceberg cannot hold a revision that was sealed; the seal stays."""


class NoSnapshotError(SnapshotError):
    """There is no snapshot at the location."""


class ConflictError(SnapshotError):
    """A newer head makes the prepared change impossible."""


class SupersededError(ConflictError):
    """Another writer started, upgraded or deleted the snapshot after this run opened it."""


class LocationDeletedError(ConflictError):
    """The snapshot was deleted; the location accepts no further transactions."""


class ReplicaConflictError(ConflictError):
    """A replica has other objects than its source: something else wrote to one of them."""


class ReplicaLossError(ReplicaConflictError):
    """A source lost what its replica still has, and no transaction of its log removed it."""


class UnsealedError(ConflictError):
    """A savepoint was requested, but the head is not sealed."""


class ClockError(SnapshotError):
    """This machine's clock differs too much from the store's."""


class IncompleteError(SnapshotError):
    """A seal, restore, read or rollback was requested, but windows are missing, not sealed, or files are damaged."""


class RowsOutsideError(SnapshotError):
    """The source has rows outside the plan's range, and the plan allows none."""


class FederationError(SnapshotError):
    """The locations of several writers disagree, so they cannot be read as one."""


# Databases


class DatabaseError(SnapshotError):
    """A source or target database refused or failed."""


class DatabaseUnavailableError(DatabaseError, TransientError):
    """The database cannot be reached, or dropped the connection."""


class DatabaseDeniedError(DatabaseError):
    """The database refused the user, the password, or the right to read."""


class DatabaseLockedError(DatabaseError):
    """Another process holds the database file."""


class CarrierError(DatabaseError):
    """The native carrier of a column cannot represent a value exactly."""


class PlugInError(DatabaseError):
    """A plug-in returned what its contract does not allow, or raised an error that is not of this package."""


class ConsistencyLostError(DatabaseError):
    """The exported database snapshot that a run reads no longer exists."""


# Running


class RestoreError(SnapshotError):
    """A snapshot or a part of it could not be restored."""


class SchemaIncompleteError(RestoreError):
    """Steps of a restore's schema failed; the others are made, and rows are loaded. `attributes["steps"]` has each."""


class PartlyRestoredError(DamageError):
    """Files are damaged, and a restore that keeps going left out what needs them; all else is restored.

    `attributes["left_out"]` has each table and window, `attributes["steps"]` each step of the schema that failed.
    """


class RefusedImportError(RestoreError, UsageError):
    """A target lacks what a snapshot's tables need, or refuses a restore for several reasons; nothing was changed."""


class RestoreFailedError(SnapshotError):
    """Some chunks could not be loaded; the others are. `attributes["chunks"]` maps chunk id to the error text."""


class TargetNotEmptyError(UsageError):
    """A table of the target contains rows that no import of this location loaded."""


class OtherImportError(UsageError):
    """The target's tables were restored with other filters, from another location, or at another revision."""


class SparkUnreachableError(SnapshotError):
    """No Spark master or Connect server answers at the configured address."""


class TaskFailedError(SnapshotError):
    """A Spark task raised a permanent error."""


class InterruptedRunError(SnapshotError):
    """A run was interrupted; what it committed stays."""


class InterruptedTaskError(TransientError):
    """A task ended because its run was interrupted, or its driver is gone; what it had begun is undone."""


class TaskLostError(TransientError):
    """A Spark task died with its worker or executor more often than Spark retries."""


class ExportFailedError(SnapshotError):
    """Some chunks failed; the others are committed. `attributes["chunks"]` maps chunk id to the error text."""


class CompactionFailedError(SnapshotError):
    """Some chunks failed; the others are compacted. `attributes["chunks"]` maps chunk id to the error text."""
