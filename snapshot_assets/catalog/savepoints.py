"""Savepoints: numbers for sealed revisions, which stay readable for as long as a savepoint pins them.

A savepoint differs from a tag in that it takes a number that none had before, and pins what is complete: the head is
sealed (STORAGE, section 6). Compacting all of it first is the caller's part. See `pin_objects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.pin_objects import (
    NO_OBJECT,
    ChangedMeanwhileError,
    commit_pin,
    savepoint_document,
    write_pin,
)
from snapshot_assets.catalog.pin_set import SavepointState
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.errors import UnsealedError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, savepoint_path


def create_savepoint(catalog: Catalog, revision: int | None = None, *, automatic: bool = False) -> SavepointState:
    """Pin a sealed revision under the next number; where others won that, under the one behind it.

    Args:
        catalog: The location, opened for writing.
        revision: The revision to pin; None for the newest seal.
        automatic: Whether a rule makes it, and may delete it.

    Raises:
        UnsealedError: The head is not sealed.
        VersionNotFoundError: The revision is not sealed, or has expired.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    created_at = catalog.now()
    catalog.refresh()
    catalog.begun()
    while True:
        state = catalog.state
        pinned, version = _revision(state, revision), state.format_version
        number = state.pins.last_savepoint + 1
        wanted = act.SavepointCreated(number, pinned, NO_OBJECT, created_at, automatic)
        since, created = catalog.now(), _write_object(catalog, wanted, version)
        try:
            committed = commit_pin(catalog, created.object, _create(created, version, revision), since)
        except ChangedMeanwhileError:
            continue
        assert committed is not None
        return SavepointState(created, catalog.writer_id, committed, version)


def delete_savepoint(catalog: Catalog, number: int) -> bool:
    """Delete a savepoint: first in the log, then its object, which may be gone already. Its number is not used again.

    Args:
        catalog: The location, opened for writing.
        number: The savepoint's id.

    Returns:
        Whether there was such a savepoint.
    """
    deleted: list[str] = []

    def prepare(state: State) -> Sequence[act.Action] | None:
        known = state.pins.savepoints.get(number)
        if known is None or state.deleted:
            return None
        deleted.append(known.savepoint.object.path)
        return [act.SavepointDeleted(number)]

    catalog.refresh()
    if catalog.commit(prepare) is None:
        return False
    catalog.store.delete(deleted[-1])
    return True


def refuse_unsealed(state: State) -> None:
    """Refuse to make a savepoint of what is not complete.

    Raises:
        UnsealedError: The head is not sealed.
    """
    if not state.sealed:
        newest = f"the newest seal is revision {state.newest_seal.revision}" if state.newest_seal else "nothing is"
        raise UnsealedError(
            f"Revision {state.revision}, the head, is not sealed ({newest}), so that it cannot become a savepoint. "
            "Export what is missing, which seals it; or pin an older revision by a tag.",
            revision=state.revision,
        )


def _revision(state: State, revision: int | None) -> int:
    """Return the revision to pin."""
    refuse_unsealed(state)
    if revision is not None:
        return resolve_version(f"rev:{revision}", state)
    assert state.newest_seal is not None
    return state.newest_seal.revision


def _create(created: act.SavepointCreated, version: int, revision: int | None) -> Prepare:
    def prepare(state: State) -> Sequence[act.Action]:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        if (_revision(state, revision), state.pins.last_savepoint + 1) != (created.revision, created.id):
            raise ChangedMeanwhileError(f"Another writer committed {created} or a seal meanwhile.")
        return [created]

    return prepare


def _write_object(catalog: Catalog, wanted: act.SavepointCreated, version: int) -> act.SavepointCreated:
    """Write the object and return the savepoint with it."""
    path = savepoint_path(wanted.id, new_attempt())
    ref = write_pin(
        catalog,
        path,
        wanted.revision,
        lambda manifest: savepoint_document(wanted, catalog.writer_id, version, manifest),
    )
    return replace(wanted, object=ref)
