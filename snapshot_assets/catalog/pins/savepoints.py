"""Savepoints: numbers for sealed revisions, which stay readable for as long as a savepoint pins them.

A savepoint differs from a tag in that it takes a number that none had before, and pins what is complete and compacted:
the head is sealed (FORMAT.md, section 6), and its data is just that which the caller compacted. See `pin_objects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.pins.objects import (
    NO_OBJECT,
    ChangedMeanwhileError,
    commit_pin,
    delete_pin,
    savepoint_document,
    write_pin,
)
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.errors import ConflictError, UnsealedError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, savepoint_path


class UncompactedError(ConflictError):
    """Data changed after it was compacted for a savepoint: it is to be compacted again."""


def create_savepoint(catalog: Catalog, compacted: int, *, automatic: bool = False) -> SavepointState:
    """Pin the newest seal under the next number; where others won that, under the one behind it.

    Args:
        catalog: The location, opened for writing.
        compacted: The `data_revision` of the state that needs no compaction; only that data is pinned.
        automatic: Whether a rule makes it, and may delete it.

    Raises:
        UnsealedError: The head is not sealed.
        UncompactedError: The newest seal is of other data.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    created_at = catalog.now()
    catalog.refresh()
    catalog.require_snapshot()
    while True:
        state = catalog.state
        pinned, version = _compacted_seal(state, compacted), state.format_version
        number = state.pins.last_savepoint + 1
        wanted = act.SavepointCreated(number, pinned, NO_OBJECT, created_at, automatic)
        since, created = catalog.now(), _write_object(catalog, wanted, version)
        try:
            committed = commit_pin(catalog, created.object, _create(created, version, compacted), since)
        except ChangedMeanwhileError:
            continue
        assert committed is not None
        return SavepointState(created, catalog.writer_id, committed, version)


def delete_savepoint(catalog: Catalog, number: int) -> bool:
    """Delete the savepoint of a number, which is not used again; see `delete_pin`.

    Returns:
        Whether there was such a savepoint, and this call deleted it.
    """
    return delete_pin(catalog, catalog.refresh().pins.savepoints.get(number))


def sealed_head(state: State) -> int:
    """Return the newest seal, which is what the head holds: no savepoint is made of what is not complete.

    Raises:
        UnsealedError: The head is not sealed.
    """
    if not state.sealed or state.newest_seal is None:
        newest = f"the newest seal is revision {state.newest_seal.revision}" if state.newest_seal else "nothing is"
        raise UnsealedError(
            f"Revision {state.revision}, the head, is not sealed ({newest}), so that it cannot become a savepoint. "
            "Export what is missing, which seals it; or pin an older revision by a tag.",
            revision=state.revision,
        )
    return state.newest_seal.revision


def _compacted_seal(state: State, compacted: int) -> int:
    """Return the revision to pin."""
    sealed = sealed_head(state)
    if state.data_revision != compacted:
        raise UncompactedError(
            f"Revision {state.data_revision} changed data after everything was compacted, which was at revision "
            f"{compacted}; no savepoint was made. Compact again.",
            revision=state.data_revision,
        )
    return sealed


def _create(created: act.SavepointCreated, version: int, compacted: int) -> Prepare:
    def prepare(state: State) -> Sequence[act.Action]:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        if (_compacted_seal(state, compacted), state.pins.last_savepoint + 1) != (created.revision, created.id):
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
