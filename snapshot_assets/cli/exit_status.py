"""Exit statuses of `snapshots`, and the one table that gives an error its status."""

from __future__ import annotations

from enum import IntEnum

from snapshot_assets import errors


class ExitStatus(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    WRONG_CALL = 2
    DAMAGED = 3
    UNREACHABLE = 4
    NOT_FOUND = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitStatus.DONE: "done",
    ExitStatus.FAILED: "failed, or not confirmed",
    ExitStatus.WRONG_CALL: "the call or the configuration is wrong",
    ExitStatus.DAMAGED: "damage, incompleteness, or too old a backup found",
    ExitStatus.UNREACHABLE: (
        "source, target, store or Spark not reachable after retries,"
        " or the location refuses access, is full, or cannot be created"
    ),
    ExitStatus.NOT_FOUND: "no such snapshot, tag or savepoint",
    ExitStatus.INTERRUPTED: "interrupted",
}

_STATUSES: dict[type[BaseException], ExitStatus] = {
    errors.UsageError: ExitStatus.WRONG_CALL,
    errors.DamageError: ExitStatus.DAMAGED,
    errors.IncompleteError: ExitStatus.DAMAGED,
    errors.UnsealedError: ExitStatus.DAMAGED,
    errors.ReplicaLossError: ExitStatus.DAMAGED,
    errors.ObjectNotFoundError: ExitStatus.DAMAGED,  # one that the log lists: others are not looked for by name
    errors.StoreUnavailableError: ExitStatus.UNREACHABLE,
    errors.StoreDeniedError: ExitStatus.UNREACHABLE,
    errors.StoreFullError: ExitStatus.UNREACHABLE,
    errors.LocationUnusableError: ExitStatus.UNREACHABLE,
    errors.DatabaseUnavailableError: ExitStatus.UNREACHABLE,
    errors.SparkUnreachableError: ExitStatus.UNREACHABLE,
    errors.NoSnapshotError: ExitStatus.NOT_FOUND,
    errors.LocationDeletedError: ExitStatus.NOT_FOUND,
    errors.VersionNotFoundError: ExitStatus.NOT_FOUND,
    errors.InterruptedRunError: ExitStatus.INTERRUPTED,
    errors.InterruptedTaskError: ExitStatus.INTERRUPTED,
    KeyboardInterrupt: ExitStatus.INTERRUPTED,
}
"""Status of a class and of its subclasses, unless these have their own; all others have failed."""


def exit_status(error: BaseException) -> ExitStatus:
    """Return the exit status of an error: that of its nearest class in the table.

    A run whose chunks all failed with errors of one status (`attributes["causes"]`) has that status.
    """
    causes = error.attributes.get("causes", ()) if isinstance(error, errors.SnapshotError) else ()
    statuses = {_status_of(getattr(errors, name, errors.SnapshotError)) for name in causes}
    return statuses.pop() if len(statuses) == 1 else _status_of(type(error))


def _status_of(kind: type[BaseException]) -> ExitStatus:
    return next((_STATUSES[each] for each in kind.__mro__ if each in _STATUSES), ExitStatus.FAILED)


def meanings_text() -> str:
    """Return the exit statuses as one line of help."""
    return "Exit status: " + "; ".join(f"{status} {text}" for status, text in MEANINGS.items()) + "."
