"""The chain of the log: whether a transaction follows a state."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog.state.state import BaseState
from snapshot_assets.errors import (
    BrokenLinkError,
    DocumentError,
    ForeignLocationError,
    ForkError,
    GapError,
    MisnamedError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path


@dataclass(frozen=True)
class LogEntry:
    """A transaction and the checksum that its successor links to."""

    transaction: act.Transaction
    sha256: str

    @property
    def starts_log(self) -> bool:
        """Whether a rebuild wrote it, so that it follows no transaction."""
        return any(isinstance(action, act.Rebuilt) for action in self.transaction.actions)


def check_follows(state: BaseState, transaction: act.Transaction, name: str) -> None:
    """Raise one of five distinct errors if a transaction does not follow a state; `name` is its path."""
    check_location(state, transaction, name)
    if transaction.revision != state.revision + 1:
        kind = GapError if transaction.revision > state.revision else ForkError
        raise kind(f"{name} holds revision {transaction.revision}; expected {state.revision + 1}.", object=name)
    if transaction.previous_uuid != state.uuid:
        raise ForkError(
            f"{name} follows transaction {transaction.previous_uuid or 'none'}; "
            f"revision {state.revision} is {state.uuid or 'none'}.",
            object=name,
        )
    if transaction.previous_sha256 != state.sha256:
        raise BrokenLinkError(
            f"{name} carries {transaction.previous_sha256} as the checksum of revision {state.revision}, "
            f"which is {state.sha256}.",
            object=name,
        )
    if transaction.committed_at <= state.committed_at:
        raise DocumentError(f"{name} was committed before revision {state.revision}.", object=name)


def check_location(state: BaseState, transaction: act.Transaction, name: str) -> None:
    """Raise if a transaction belongs to another location than a state."""
    if state.revision and transaction.location_id != state.location_id:
        raise foreign_location(name, transaction.location_id, state.location_id)


def foreign_location(name: str, found: str, own: str, named_by: str = "") -> ForeignLocationError:
    """Return the error for an object of another location.

    Args:
        name: The object's path.
        found: The location that the object names.
        own: The location that it lies in.
        named_by: The object that names the own location.
    """
    return ForeignLocationError(
        f"{name} belongs to location {found}; this one is {own}{f' ({named_by})' if named_by else ''}. One of "
        "the two was copied here: move that one, and whatever came with it, away. If no log is left then, rebuild it "
        "with `snapshots catalog rebuild`.",
        object=name,
        found=found,
        expected=own,
    )


def misnamed(name: str, found: int, expected: int) -> MisnamedError:
    """Return the error for a log object whose name has another revision, the expected one, than its content."""
    return MisnamedError(
        f"{name} holds revision {found}; expected {expected}. It was copied here under another name: move it away.",
        object=name,
    )


def missing_rebuild_checkpoint(entry: LogEntry, name: str) -> GapError:
    """Return the error for a rebuild whose checkpoint is missing or damaged."""
    path = checkpoint_path(entry.transaction.revision)
    reason = f"starts a new log with {path}, which is unreadable"
    if any(isinstance(action, act.Rebuilt) and not action.snapshot_id for action in entry.transaction.actions):
        reason = "only fills a hole: a later rebuild started a new log, and its checkpoint is unreadable"
        path = name
    return GapError(f"{name} {reason}. Rebuild the location again.", object=path)
