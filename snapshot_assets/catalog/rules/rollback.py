"""Rule for a rollback to an older revision; see `rules`.

A rollback is one transaction with the whole difference to the head (FORMAT.md, section 6), so readers of the log need
no older state for it. Pins, expiry and the format version do not change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from snapshot_assets.catalog.catalog import Actions, Token, rule
from snapshot_assets.catalog.rules.begin import check_unchanged, refuse_deleted
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import AcceptanceNeededError
from snapshot_assets.format import actions as act
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Reversal:
    """The changes of a rollback.

    Attributes:
        revision: The revision whose data the head gets.
        head: The revision before the rollback.
        data_revision: The last revision before the rollback that changed data.
        undeleted: Tombstones whose rows come back, by revision.
        expired: Newer sealed revisions that expire.
        actions: The actions to commit; none if the head already has that revision's data.
    """

    revision: int
    head: int
    data_revision: int
    leaving: tuple[str, ...] = ()
    returning: tuple[str, ...] = ()
    undeleted: Mapping[int, act.Tombstone] = field(default_factory=dict)
    expired: tuple[int, ...] = ()
    actions: tuple[act.Action, ...] = ()


@rule
def rollback(
    state: State, token: Token, revision: int, *, undelete: bool = False, discard_newer: bool = False
) -> Actions:
    """Give the head the data and the seal of an older revision, unless it has them already; see `reversal`."""
    refuse_deleted(state)
    changes = reversal(state, revision, undelete=undelete, discard_newer=discard_newer)
    if changes.actions:
        check_unchanged(state, token)
    return changes.actions or None


def reversal(state: State, revision: int, *, undelete: bool = False, discard_newer: bool = False) -> Reversal:
    """Return the changes that a rollback of the head makes.

    `undelete` accepts that rows come back which were deleted since. `discard_newer` expires all newer revisions; pinned
    ones stay readable.

    Raises:
        VersionNotFoundError: The revision is not sealed, or expired. Names what exists.
        AcceptanceNeededError: Deleted rows would come back, and `undelete` is not given. Names the tombstones.
    """
    resolve_version(f"rev:{revision}", state)
    target = next(seal for seal in state.seals if seal.revision == revision)
    then = state.at(revision)
    undeleted = _returning_tombstones(state, then)
    leaving, returning = state.files.back_to(revision)
    actions: list[act.Action] = []
    if leaving or returning or not (state.sealed and _without_files(state) == _without_files(then)):
        if undeleted and not undelete:
            deletions = ", ".join(
                f"revision {number} (rows of {TableName(each.schema, each.table)})"
                for number, each in sorted(undeleted.items())
            )
            raise AcceptanceNeededError(
                f"Revision {revision} still has rows that were deleted, by {deletions}; nothing was changed. Give "
                "--undelete to bring them back, or roll back to a revision that lacks them.",
                tombstones=sorted(undeleted),
            )
        actions += _rollback_actions(state, then, target, leaving, returning)
    else:
        undeleted = {}
    newer: tuple[int, ...] = ()
    if discard_newer:
        sealed = [seal.revision for seal in state.seals if seal.revision not in state.expired]
        newer = tuple(each for each in sealed if each > revision)
        newer = newer if actions else newer[:-1]  # the newest seal stays
    actions[:0] = [act.Expired(newer)] if newer else []  # a seal comes last in its transaction
    return Reversal(
        revision=revision,
        head=state.revision,
        data_revision=state.data_revision,
        leaving=tuple(leaving),
        returning=tuple(returning),
        undeleted=undeleted,
        expired=newer,
        actions=tuple(actions),
    )


def _returning_tombstones(state: State, then: State) -> dict[int, act.Tombstone]:
    """Return the tombstones that deleted rows of the head's data since an older state.

    They include tombstones that a `begin` ended: the user must accept that rows deleted before it come back, even after
    several rollbacks.
    """
    # Revisions, ascending, each with all tombstones that have deleted rows of its data.
    history: list[tuple[int, dict[int, act.Tombstone]]] = [(0, {})]

    def at(revision: int) -> dict[int, act.Tombstone]:
        return history[bisect_right(history, revision, key=itemgetter(0)) - 1][1]

    for event in state.events:
        for action in event.actions:
            match action:
                case act.Tombstone():
                    history.append((event.revision, history[-1][1] | {event.revision: action}))
                case act.Rollback():
                    history.append((event.revision, at(action.revision) | dict(action.tombstones)))
    older = at(then.revision)
    undeleted = {number: each for number, each in history[-1][1].items() if number not in older}
    return undeleted | {number: each for number, each in state.tombstones.items() if number not in then.tombstones}


def _without_files(state: State) -> tuple[object, ...]:
    """Return everything that a rollback restores, except files."""
    chunks = {number: chunk_state.chunk for number, chunk_state in state.chunks.items()}
    snapshot = state.snapshot_id, state.header, state.created_at, state.created_by
    return snapshot, state.schemas, chunks, state.tombstones


def _rollback_actions(
    state: State, then: State, target: SealState, leaving: Sequence[str], returning: Sequence[str]
) -> list[act.Action]:
    assert then.header is not None
    start = act.Rollback(
        revision=target.revision,
        snapshot_id=then.snapshot_id,
        header=then.header,
        created_at=then.created_at,
        created_by=then.created_by,
        tombstones=then.tombstones,
    )
    return [
        start,
        *(schema for _, schema in sorted(then.schemas.items())),
        *(chunk_state.chunk for _, chunk_state in sorted(then.chunks.items())),
        *map(act.RemoveFile, leaving),
        *([act.ReturnedFiles(tuple(returning))] if returning else []),
        replace(target.seal, verified_revision=state.revision + 1, exported_at=target.exported_at),
    ]
