"""Checks that rules share: whether the head still is what a writer planned for."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.state import Token
from snapshot_assets.errors import LocationDeletedError, PinnedError, PlanError, SupersededError
from snapshot_assets.format import actions as act
from snapshot_assets.format.units import noun


def refuse_pinned(tags: Iterable[str], savepoints: Iterable[int]) -> None:
    """Refuse to delete a snapshot that has tags or savepoints, by their names and ids.

    Raises:
        PinnedError: There are tags or savepoints. Names them.
    """
    names, numbers = sorted(tags), sorted(savepoints)
    if names or numbers:
        kinds = (("tag", names), ("savepoint", numbers))
        pins = [f"{noun(len(some), kind)} {', '.join(map(str, some))}" for kind, some in kinds if some]
        subject = " and ".join(pins)
        raise PinnedError(
            f"{subject[0].upper()}{subject[1:]} {noun(len(names) + len(numbers), 'pins', 'pin')} revisions of this "
            "snapshot; nothing was deleted. Delete them first, or give --with-tags to delete them with it.",
            tags=names,
            savepoints=numbers,
        )


def check_unchanged(state: State, token: Token) -> act.Header:
    """Return the header, after checking that the snapshot is the one that the writer planned for.

    Raises:
        LocationDeletedError: The snapshot was deleted.
        SupersededError: Another snapshot replaced it, or the location was upgraded, rebuilt or rolled back.
    """
    refuse_deleted(state)
    if state.header is None:
        raise PlanError("There is no snapshot at this location.")
    if state.snapshot_id != token.snapshot_id:
        raise SupersededError(
            f"Snapshot {token.snapshot_id} was replaced by {state.snapshot_id} while this run worked on it; "
            "nothing of this run was committed to the new one. Run again."
        )
    if token.revision < (since := state.plans_valid_from):
        change = f"upgraded or rebuilt at revision {since} (its format version is {state.format_version})"
        if since == state.rolled_back:
            change = f"rolled back at revision {since}"
        raise SupersededError(
            f"The location was {change}, after this run had read revision {token.revision}; nothing was committed "
            "since. Run again."
        )
    return state.header


def refuse_upgraded(state: State, version: int) -> None:
    """Refuse to commit what was planned for an older format version.

    Args:
        state: The head.
        version: The format version at the time of planning.

    Raises:
        SupersededError: The location was upgraded since.
    """
    if state.format_version != version:
        raise SupersededError(
            f"The location was upgraded from format version {version} to {state.format_version} meanwhile; nothing was "
            "committed. Run again."
        )


def refuse_deleted(state: State) -> None:
    """Refuse to commit to a location whose snapshot was deleted.

    Raises:
        LocationDeletedError: The snapshot was deleted.
    """
    if state.deleted:
        raise LocationDeletedError("The snapshot at this location was deleted; choose another location.")
