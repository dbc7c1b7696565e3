"""Rules for seals, tombstones, deletion of a snapshot and purging of files; see `rules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.catalog import Actions, Token, rule
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.rules.preconditions import check_unchanged, refuse_deleted, refuse_pinned
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.relations import TableName


@rule
def seal(state: State, token: Token, sealed: act.Seal) -> Actions:
    """Seal the verified state.

    Raises:
        StaleVerificationError: Data changed after the verified revision. Verify the rest and commit again.
    """
    check_unchanged(state, token)
    if state.data_revision > sealed.verified_revision:
        raise StaleVerificationError(
            f"Revision {state.data_revision} changed data after revision {sealed.verified_revision} was verified."
        )
    newest = state.newest_seal
    if not state.sealed or newest is None:
        return [sealed]
    equal = newest.seal.checksum == sealed.checksum and newest.seal.rows_outside == sealed.rows_outside
    return None if equal else [sealed]


class StaleVerificationError(ConflictError):
    """Data changed between verification and seal."""


@rule
def tombstone(state: State, token: Token, wanted: act.Tombstone) -> Actions:
    """Delete rows of a table. If the head is sealed, seal the result too, so that it can be read at once.

    Commits nothing if an equal tombstone already covers all files of the table: a repeated call changes nothing. The
    tombstone also covers files that other writers read before it and commit later (`tombstones_through`).

    Raises:
        SupersededError: Another snapshot replaced this one.
        ConflictError: A schema was added after the one that the predicate was written for.
    """
    check_unchanged(state, token)
    if state.schema_id != token.schema_id:
        raise ConflictError(
            f"Schema {state.schema_id} was added while rows of {wanted.schema}.{wanted.table} were to be deleted by"
            f" a predicate made for schema {token.schema_id}; nothing was deleted. Run again."
        )
    if _is_deleted(state, wanted):
        return None
    if not state.sealed or state.newest_seal is None:
        return [wanted]
    after = replace(state, tombstones=state.tombstones | {state.revision + 1: wanted})
    sealed = replace(state.newest_seal.seal, verified_revision=state.revision, checksum=checksum_of(after))
    return [wanted, sealed]


def _is_deleted(state: State, wanted: act.Tombstone) -> bool:
    """Return whether an equal tombstone covers all live files of the table."""
    equal = max((revision for revision, tombstone in state.tombstones.items() if tombstone == wanted), default=0)
    table = TableName(wanted.schema, wanted.table)
    return bool(equal) and match_files(state, table).totals() == match_files(state, table, older_than=equal).totals()


@rule
def delete(state: State, token: Token, *, with_tags: bool = False) -> Actions:
    """Declare the snapshot deleted, before any of its objects is deleted.

    Raises:
        PinnedError: Tags or savepoints pin the snapshot, and `with_tags` is not given.
    """
    if state.deleted:
        return None
    check_unchanged(state, token)
    if not with_tags:
        refuse_pinned(state.tags, state.pins.savepoints)
    return [act.Deleted()]


@rule
def purge(state: State, paths: Sequence[str]) -> Actions:
    """Remove files from the state before garbage collection deletes them. Some may be gone already.

    Raises:
        ConflictError: A retained revision has one of them.
    """
    refuse_deleted(state)
    unreferenced = state.files.unreferenced(state.retained())
    purged = sorted(set(paths) & state.files.paths())
    needed = [path for path in purged if path not in unreferenced]
    if needed:
        raise ConflictError(
            f"A revision needs {needed[0]} again since garbage was listed; nothing was deleted. Run again.",
            needed=needed,
        )
    return [act.Purged(tuple(purged))] if purged else None
