"""What may be committed on a newer head: seals, tombstones, and what deletes; see `rules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.rules.preconditions import check_unchanged, refuse_deleted, refuse_pinned
from snapshot_assets.catalog.state.file_pruning import match_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError
from snapshot_assets.format import actions as act
from snapshot_assets.format.relations import TableName


def seal(token: Token, sealed: act.Seal) -> Prepare:
    """Seal the state that was verified.

    Raises (on commit):
        StaleVerificationError: Data changed after the verified revision; verify the rest and try again.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        if state.data_revision > sealed.verified_revision:
            raise StaleVerificationError(
                f"Revision {state.data_revision} changed data after revision {sealed.verified_revision} was verified."
            )
        if state.sealed and state.newest_seal is not None and _same_seal(state.newest_seal.seal, sealed):
            return None
        return [sealed]

    return prepare


class StaleVerificationError(ConflictError):
    """Data changed between verification and seal."""


def _same_seal(one: act.Seal, other: act.Seal) -> bool:
    return one.checksum == other.checksum and one.rows_outside == other.rows_outside


def tombstone(token: Token, wanted: act.Tombstone) -> Prepare:
    """Delete rows of a table; on a sealed base with a seal in the same transaction, so that it can be read at once.

    Prepares None where an equal tombstone deletes them in all files of the table already: one that is repeated because
    its outcome was unknown changes nothing.

    What others commit later of what they read before is filtered by it, because their files say so
    (`tombstones_through`).

    Raises (on commit):
        SupersededError: Another snapshot began.
        ConflictError: Another schema was added since the predicate was made for this one.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
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

    return prepare


def _is_deleted(state: State, wanted: act.Tombstone) -> bool:
    """Tell whether all live files of the table are filtered by an equal tombstone."""
    equal = max((revision for revision, known in state.tombstones.items() if known == wanted), default=0)
    table = TableName(wanted.schema, wanted.table)
    return bool(equal) and match_files(state, table).totals() == match_files(state, table, older_than=equal).totals()


def delete(token: Token, *, with_tags: bool = False) -> Prepare:
    """Declare the snapshot deleted, before any of its objects goes.

    Raises (on commit):
        PinnedError: Tags or savepoints pin it, and `with_tags` is not given.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        if state.deleted:
            return None
        check_unchanged(state, token)
        if not with_tags:
            refuse_pinned(state.tags, state.pins.savepoints)
        return [act.Deleted()]

    return prepare


def purge(paths: Sequence[str]) -> Prepare:
    """Let files leave the state, before garbage collection deletes them; some may have left it already.

    Raises (on commit):
        ConflictError: A retained revision has one of them.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        unneeded = state.files.unreferenced(state.retained())
        gone = sorted(set(paths) & state.files.paths())
        needed = [path for path in gone if path not in unneeded]
        if needed:
            raise ConflictError(
                f"{needed[0]} came to be needed while garbage was collected; nothing was deleted. Run again.",
                needed=needed,
            )
        return [act.Purged(tuple(gone))] if gone else None

    return prepare
