"""What may be committed on a newer head: going back to an older revision; see `rules`.

A rollback is one transaction with the whole difference to the head (FORMAT.md, section 6), so a reader of the log needs
no older state for it. Pins, expiry and the format version stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.rules.preconditions import check_unchanged, refuse_deleted
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import AcceptanceNeededError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Reversal:
    """What a rollback changes.

    Attributes:
        revision: The revision whose data the head gets.
        head: The revision before the rollback.
        data_revision: The last one before it that changed data.
        leaving: Files that leave the state.
        returning: Files that come back.
        undeleted: Tombstones whose rows come back, by revision.
        expired: Newer sealed revisions that are given up.
        actions: What is committed; nothing where the head is that revision's data already.
    """

    revision: int
    head: int
    data_revision: int
    leaving: tuple[str, ...] = ()
    returning: tuple[str, ...] = ()
    undeleted: Mapping[int, act.Tombstone] = field(default_factory=dict)
    expired: tuple[int, ...] = ()
    actions: tuple[act.Action, ...] = ()


def rollback(token: Token, revision: int, *, undelete: bool = False, discard_newer: bool = False) -> Prepare:
    """Give the head the data of an older revision, sealed as that one was.

    Prepares None where the head has it already.

    Args:
        token: What was read when it was planned.
        revision: The older revision.
        undelete: Also if rows come back that were deleted since.
        discard_newer: Expire all newer revisions; pinned ones stay readable.

    Raises (on commit):
        VersionNotFoundError: The revision is not sealed, or expired.
        AcceptanceNeededError: Deleted rows would come back, and `undelete` is not given.
        SupersededError: Another snapshot began, or the location was upgraded, rebuilt or rolled back meanwhile.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        found = reversal(state, revision, undelete=undelete, discard_newer=discard_newer)
        if found.actions:
            check_unchanged(state, token)
        return found.actions or None

    return prepare


def reversal(state: State, revision: int, *, undelete: bool = False, discard_newer: bool = False) -> Reversal:
    """Return what a rollback of a state changes.

    Args:
        state: The head.
        revision: The revision to go back to.
        undelete: Also if rows come back that were deleted since.
        discard_newer: Expire all newer revisions.

    Raises:
        VersionNotFoundError: The revision is not sealed, or expired; says what there is.
        AcceptanceNeededError: Deleted rows would come back, and `undelete` is not given; names the tombstones.
    """
    resolve_version(f"rev:{revision}", state)
    target = next(seal for seal in state.seals if seal.revision == revision)
    then = state.at(revision)
    undeleted = _undeleted(state, then)
    leaving, returning = state.files.back_to(revision)
    actions: list[act.Action] = []
    if leaving or returning or not (state.sealed and _facts(state) == _facts(then)):
        if undeleted and not undelete:
            raise _deleted_since(revision, undeleted)
        actions += _going_back(state, then, target, leaving, returning)
    else:
        undeleted = {}
    newer = _newer(state, revision, keep_newest=not actions) if discard_newer else ()
    actions[:0] = [act.Expired(newer)] if newer else []  # a seal is the last word of its transaction
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


def _undeleted(state: State, then: State) -> dict[int, act.Tombstone]:
    """Return the tombstones by which the head, or what it came from, lacks rows that an older state has.

    One that a `begin` ended is among them: rows that were deleted before it do not come back unasked, however many
    rollbacks lie between.
    """
    pasts = _tombstones_so_far(state)
    head, older = pasts[-1][1], _up_to(pasts, then.revision)
    gone = {number: each for number, each in head.items() if number not in older}
    return gone | {number: each for number, each in state.tombstones.items() if number not in then.tombstones}


_Past = tuple[int, dict[int, act.Tombstone]]


def _tombstones_so_far(state: State) -> list[_Past]:
    """Return from which revision on which tombstones ever deleted rows of what the data came from, ascending."""
    pasts: list[_Past] = [(0, {})]
    for event in state.events:
        for action in event.actions:
            match action:
                case act.Tombstone():
                    pasts.append((event.revision, pasts[-1][1] | {event.revision: action}))
                case act.Rollback():
                    pasts.append((event.revision, _up_to(pasts, action.revision) | dict(action.tombstones)))
    return pasts


def _up_to(pasts: Sequence[_Past], revision: int) -> dict[int, act.Tombstone]:
    return pasts[bisect_right(pasts, revision, key=itemgetter(0)) - 1][1]


def _deleted_since(revision: int, undeleted: Mapping[int, act.Tombstone]) -> AcceptanceNeededError:
    some = ", ".join(
        f"revision {number} (rows of {table_text(TableName(each.schema, each.table))})"
        for number, each in sorted(undeleted.items())
    )
    return AcceptanceNeededError(
        f"Revision {revision} still has rows that were deleted, by {some}; nothing was changed. Give --undelete if they"
        " shall come back, or roll back to a revision that lacks them.",
        tombstones=sorted(undeleted),
    )


def _facts(state: State) -> tuple[object, ...]:
    """Return all that a rollback goes back to but files."""
    chunks = {number: known.chunk for number, known in state.chunks.items()}
    beginning = state.snapshot_id, state.header, state.created_at, state.created_by
    return beginning, state.schemas, chunks, state.tombstones


def _going_back(
    state: State, then: State, target: SealState, leaving: Sequence[str], returning: Sequence[str]
) -> list[act.Action]:
    assert then.header is not None
    begun = act.Rollback(
        revision=target.revision,
        snapshot_id=then.snapshot_id,
        header=then.header,
        created_at=then.created_at,
        created_by=then.created_by,
        tombstones=then.tombstones,
    )
    return [
        begun,
        *(schema for _, schema in sorted(then.schemas.items())),
        *(known.chunk for _, known in sorted(then.chunks.items())),
        *map(act.RemoveFile, leaving),
        *([act.ReturnedFiles(tuple(returning))] if returning else []),
        replace(target.seal, verified_revision=state.revision + 1),
    ]


def _newer(state: State, revision: int, *, keep_newest: bool) -> tuple[int, ...]:
    """Return the sealed revisions after one that are not expired yet, of which the newest may have to stay."""
    newer = [seal.revision for seal in state.seals if seal.revision > revision and seal.revision not in state.expired]
    return tuple(newer[:-1] if keep_newest else newer)
