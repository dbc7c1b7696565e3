"""Rollback: gives the head the data of an older revision, and writes the hints.

Nothing is copied and nothing is lost: revisions between stay readable unless they are discarded or expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.receipt_selection import adoptable_receipts
from snapshot_assets.catalog.rules.rollback import Reversal, reversal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import EXPIRED, ReleasedObject, released_objects
from snapshot_assets.catalog.verify.objects import check_head
from snapshot_assets.catalog.verify.records import damage_on_record
from snapshot_assets.errors import ConflictError, IncompleteError
from snapshot_assets.format import actions as act

_SHOWN = 10
_ORPHAN = "orphan"
_REPLACED = "replaced"


@dataclass(frozen=True)
class RollbackPlan:
    """What a rollback changes.

    Attributes:
        reversal: The change; without actions if there is nothing to do.
        released: What nothing needs then; garbage collection deletes it.
        revision: The revision of the rollback; None until then, and if there is nothing to do.
    """

    reversal: Reversal
    released: tuple[ReleasedObject, ...]
    decide: Prepare
    revision: int | None = None


def plan_rollback(
    catalog: Catalog, revision: int, *, undelete: bool = False, discard_newer: bool = False
) -> RollbackPlan:
    """Return what changes if the head gets the data of an older sealed revision; changes nothing.

    Tags, savepoints, expiry and the format version stay. `undelete` accepts that rows come back that were deleted
    since. `discard_newer` expires all newer revisions; pinned ones stay readable.

    Raises:
        VersionNotFoundError: The revision is not sealed, or expired.
        AcceptanceNeededError: Deleted rows would come back, and `undelete` is not given; names the tombstones.
        IncompleteError: Files that the revision needs are missing; names them.
    """
    catalog.refresh()
    token, state = catalog.token(), catalog.require_snapshot()
    change = reversal(state, revision, undelete=undelete, discard_newer=discard_newer)
    if change.actions:
        # The seal read the revision's data, so only damage on record is read again.
        damaged = damage_on_record(catalog.store, state.location_id)
        if faults := check_head(catalog.store, state.at(revision), damaged).faults:
            some = "; ".join(fault.message for fault in islice(faults, _SHOWN))
            raise IncompleteError(
                f"Revision {revision} is damaged, so nothing was rolled back to it: {some}",
                faults=[(fault.object, fault.chunk) for fault in faults],
            )
    decide = rules.rollback(token, revision, undelete=undelete, discard_newer=discard_newer)
    return RollbackPlan(change, _released(catalog, state, change), decide)


def execute_rollback(catalog: Catalog, plan: RollbackPlan) -> RollbackPlan:
    """Commit a rollback, sealed as the older revision was; then write the hints.

    Runs that planned before the rollback cannot commit afterwards.

    Raises:
        VersionNotFoundError: The revision expired since it was planned.
        ConflictError: Data changed or a revision was sealed since it was planned, or the location has another snapshot
            or was rolled back.
    """
    planned = plan.reversal

    def prepare(state: State) -> Sequence[act.Action] | None:
        actions = plan.decide(state) or ()
        expiring = {each for action in actions if isinstance(action, act.Expired) for each in action.revisions}
        if actions and state.data_revision != planned.data_revision:
            revision, change = state.data_revision, "changed data"
        elif unplanned := expiring.difference(planned.expired):
            revision, change = max(unplanned), "would expire too: it was sealed"
        else:
            return actions or None
        raise ConflictError(
            f"Revision {revision} {change} after the rollback to revision {planned.revision} was planned on revision "
            f"{planned.head}; nothing was changed. Run again.",
            revision=revision,
        )

    catalog.refresh()
    revision = catalog.commit(prepare)
    write_hints(catalog.store, catalog.state, catalog.refresh)  # also those that an interrupted rollback left stale
    return replace(plan, revision=revision)


def _released(catalog: Catalog, state: State, planned: Reversal) -> tuple[ReleasedObject, ...]:
    """Return what nothing needs after a rollback.

    That is what revisions that expire need alone, what was never sealed, and receipts that no resume can adopt then.
    """
    if not planned.actions:
        return ()
    expiring = [action for action in planned.actions if isinstance(action, act.Expired)]
    unsealed = {each.path for each in released_objects(state, state.after(planned.actions[len(expiring) :]), _REPLACED)}
    gone = [
        replace(each, reason=_REPLACED) if each.path in unsealed else each
        for each in released_objects(state, state.after(planned.actions), EXPIRED)
    ]
    if len(expiring) < len(planned.actions):
        for receipt, ref in adoptable_receipts(catalog.store, state, state.missing()):
            gone.append(ReleasedObject(ref.path, ref.bytes, _ORPHAN))
            gone += [ReleasedObject(file.path, file.bytes, _ORPHAN) for file in receipt.files]
    return tuple(gone)
