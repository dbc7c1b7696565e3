"""Savepoints: numbered pins, which keep sealed revisions readable.

A savepoint takes a number that no other had before. It pins a complete and compacted state: the head is sealed
(FORMAT.md, section 6), and its data is what the caller compacted.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.pins.objects import NO_OBJECT, ChangedMeanwhileError, commit_pin, delete_pin, write_pin
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.errors import ConflictError, UnsealedError
from snapshot_assets.format import actions as act


class UncompactedError(ConflictError):
    """Data changed after the compaction for a savepoint: the caller compacts again."""


def create_savepoint(catalog: Catalog, compacted: int, *, automatic: bool = False) -> SavepointState:
    """Pin the newest seal under the next free number.

    Args:
        catalog: The location, opened for writing.
        compacted: The `data_revision` of the compacted state; only that data is pinned.
        automatic: Whether a rule creates it, and may delete it.

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
        since, created = catalog.now(), write_pin(catalog, wanted, version)
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
    """Return the revision of the newest seal, whose data the head has: only complete data becomes a savepoint.

    Raises:
        UnsealedError: The head is not sealed.
    """
    if not state.sealed or state.newest_seal is None:
        newest = f"the newest seal is revision {state.newest_seal.revision}" if state.newest_seal else "nothing is"
        raise UnsealedError(
            f"Revision {state.revision}, the head, is not sealed ({newest}), so it cannot become a savepoint. "
            "Export what is missing, which seals it; or pin an older revision by a tag.",
            revision=state.revision,
        )
    return state.newest_seal.revision


def _compacted_seal(state: State, compacted: int) -> int:
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
