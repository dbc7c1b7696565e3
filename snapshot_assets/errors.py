"""Every exception the package raises, by name.

Two questions are answered by type, never by message: may a retry help (`TransientError`), and is the call
itself wrong (`UsageError`, exit status 2). Every message names the thing, what was found, what was expected
and what to do. Attributes given to the constructor travel with the exception, across pickling too, because
Spark carries exceptions from task to driver.
"""

from __future__ import annotations

from typing import Any


class SnapshotError(Exception):
    """Base of all errors of this package; permanent unless it is also a `TransientError`.

    Args:
        message: What is wrong and what to do about it.
        **attributes: The facts behind the message, readable as `error.attributes["name"]`.
    """

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self.attributes = attributes

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.attributes)


def _rebuild(kind: type[SnapshotError], message: str, attributes: dict[str, Any]) -> SnapshotError:
    return kind(message, **attributes)


class TransientError(SnapshotError):
    """The same call may succeed later; a retry is worth it."""


class UsageError(SnapshotError):
    """The call, the plan or a name in it is wrong; nothing was done."""


# What the user wrote


class PlanError(UsageError):
    """A field of a plan is missing, wrong, or contradicts another one."""


class LocationUriError(UsageError):
    """A location URI is not one that snapshots may live at."""


class UnknownSourceError(UsageError):
    """A source or target is neither an alias of the configuration nor a URI of a known kind."""


class UnknownRelationError(UsageError):
    """A schema or table named by the plan does not exist in the source."""


class AmbiguousTimeIndexError(UsageError):
    """A table has several columns that could be its time index, and the plan names none."""


class UnsupportedTypeError(UsageError):
    """A column's type can be carried neither natively nor as text."""


class SnapshotExistsError(UsageError):
    """The location holds a snapshot made with another plan."""


class VersionNotFoundError(UsageError):
    """A version names no readable state of the location."""


class TagExistsError(UsageError):
    """The name of a tag is taken, by another revision, with another time to live, or by a rule."""


class LogWholeError(UsageError):
    """A rebuild was asked for where the log is whole."""


class AcceptanceNeededError(UsageError):
    """Data that was removed, replaced or deleted may come back, by a rebuild or a rollback."""


class PinnedError(UsageError):
    """Tags or savepoints pin what is to be deleted."""


# Object storage


class StorageError(SnapshotError):
    """Object storage refused or failed."""


class ObjectNotFoundError(StorageError):
    """The named object does not exist."""


class ObjectExistsError(StorageError):
    """A conditional create found the object there already."""


class StoreUnavailableError(StorageError, TransientError):
    """The store did not answer, throttled, or failed in a way that may pass."""


class StoreDeniedError(StorageError):
    """The store refused the credentials or the operation."""


class StoreFullError(StorageError):
    """No space is left, or a quota is used up."""


class ConditionalCreateUnsupportedError(StorageError):
    """The store does not honour conditional creates, so two writers could both win a revision."""


class OutcomeUnknownError(StorageError):
    """A commit was sent, and whether it took effect could not be read back."""


# What lies on storage


class DamageError(SnapshotError):
    """Base of everything that says: this location is not as it was written."""


class DocumentError(DamageError):
    """A document cannot be parsed or contradicts its own rules."""


class UnsafePathError(DamageError):
    """A path in a document leaves the location or does not follow the layout."""


class LimitExceededError(DamageError):
    """A document is larger or deeper than any that is written, or would be: then it was not written."""


class UnsupportedVersionError(SnapshotError):
    """A document was written by a newer format than this code reads."""


class ForkError(DamageError):
    """Two transactions claim one revision, or a revision follows another than its predecessor."""


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
    """There is data at the location, but no log, or its end is lost."""


class ChecksumMismatchError(DamageError):
    """Bytes or a list of files do not have the recorded checksum."""


# The catalog


class NoSnapshotError(SnapshotError):
    """There is no snapshot at the location."""


class ConflictError(SnapshotError):
    """A newer head makes the prepared change impossible."""


class SupersededError(ConflictError):
    """Another writer began, upgraded or deleted the snapshot since the plan was read."""


class LocationDeletedError(ConflictError):
    """The snapshot was deleted; the location accepts nothing more."""


class UnsealedError(ConflictError):
    """A savepoint was asked for while the head is not sealed."""


class ClockError(SnapshotError):
    """This machine's clock is too far from the store's."""


class IncompleteError(SnapshotError):
    """A seal or a rollback was asked for while windows are missing or files are damaged."""


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
    """A value cannot be held exactly by its column's native carrier."""


class ConsistencyLostError(DatabaseError):
    """The exported database snapshot that a run reads is gone."""


# Running


class RestoreError(SnapshotError):
    """A snapshot, or a part of it, could not be restored."""


class RestoreFailedError(SnapshotError):
    """Some chunks could not be loaded; the others are. `attributes["chunks"]` maps chunk id to the error text."""


class TargetNotEmptyError(UsageError):
    """A table of the target holds rows that no import of this location put there."""


class OtherImportError(UsageError):
    """The target's tables were restored with other filters, from another location, or at another revision."""


class TaskFailedError(SnapshotError):
    """A Spark task raised an error that no retry mends."""


class TaskLostError(TransientError):
    """A Spark task died, with its worker or executor, more often than Spark retries."""


class ExportFailedError(SnapshotError):
    """Some chunks failed; the others are committed. `attributes["chunks"]` maps chunk id to the error text."""


class CompactionFailedError(SnapshotError):
    """Some chunks failed; the others are compacted. `attributes["chunks"]` maps chunk id to the error text."""
