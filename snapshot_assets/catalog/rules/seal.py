"""Rules for seals, tombstones, deletion of a snapshot and purging of files; see `rules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.catalog import Actions, Token, rule
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.rules.begin import check_unchanged, refuse_deleted, refuse_pinned
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import refuse_held
from snapshot_assets.errors import ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.name_texts import printed_name
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
    """
    from snapshot_assets.catalog.state.file_pruning import match_files

    check_unchanged(state, token)
    if state.schema_id != token.schema_id:
        name = printed_name(wanted.schema, wanted.table)
        raise ConflictError(
            f"Schema {state.schema_id} was added while rows of {name} were to be deleted by"
            f" a predicate made for schema {token.schema_id}; nothing was deleted. Run again."
        )
    table = TableName(wanted.schema, wanted.table)
    equal = max((revision for revision, tombstone in state.tombstones.items() if tombstone == wanted), default=0)
    if equal and match_files(state, table).totals() == match_files(state, table, older_than=equal).totals():
        return None
    if not state.sealed or state.newest_seal is None:
        return [wanted]
    after = replace(state, tombstones=state.tombstones | {state.revision + 1: wanted})
    newest = state.newest_seal
    sealed = replace(
        newest.seal,
        verified_revision=state.revision,
        checksum=checksum_of(after),
        exported_at=newest.exported_at,
    )
    return [wanted, sealed]


@rule
def delete(state: State, token: Token, *, with_tags: bool = False) -> Actions:
    """Declare the snapshot deleted, before any of its objects is. Pins refuse it; with tags, only a held one does."""
    if state.deleted:
        return None
    check_unchanged(state, token)
    refuse_held(state.tags.values())
    if not with_tags:
        refuse_pinned(state.tags, state.pins.savepoints)
    return [act.Deleted()]


@rule
def purge(state: State, paths: Sequence[str]) -> Actions:
    """Remove files from the state before garbage collection deletes them. Some may be gone already."""
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
