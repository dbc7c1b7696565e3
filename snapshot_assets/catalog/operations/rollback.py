"""Going back to an older revision: the head gets its data again, and the hints follow.

Nothing is copied and nothing is lost: what lay between stays readable unless it is discarded or expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.receipts.receipts import adoptable_receipts
from snapshot_assets.catalog.rules import Reversal, reversal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.unreferenced import EXPIRED, ReleasedObject, released_objects
from snapshot_assets.catalog.verify.objects import Report, check_documents, check_files
from snapshot_assets.errors import ConflictError, IncompleteError
from snapshot_assets.format import actions as act
from snapshot_assets.storage.listed import Listed

_SHOWN = 10
_ORPHAN = "orphan"
_REPLACED = "replaced"


@dataclass(frozen=True)
class RolledBack:
    """What a rollback changed, or would change.

    Attributes:
        reversal: As it was planned; without actions where there is nothing to do.
        released: What nothing needs then, as it was planned; garbage collection deletes it.
        revision: The revision of the rollback; None for a dry run, and where nothing was to be done.
    """

    reversal: Reversal
    released: tuple[ReleasedObject, ...] = ()
    revision: int | None = None


def rollback(
    catalog: Catalog,
    revision: int,
    *,
    undelete: bool = False,
    discard_newer: bool = False,
    dry_run: bool = False,
    only: RolledBack | None = None,
) -> RolledBack:
    """Give the head the data of an older sealed revision, sealed as that one was; then write the hints.

    Tags, savepoints, expiry and the format version stay. Runs that planned before can commit nothing afterwards.

    Args:
        catalog: The location, opened for writing; a dry run needs no more than to read it.
        revision: The revision to go back to.
        undelete: Also if rows come back that were deleted since.
        discard_newer: Expire all newer revisions; pinned ones stay readable.
        dry_run: Only tell.
        only: What was told before: refuse if data has changed since.

    Raises:
        VersionNotFoundError: The revision is not sealed, or expired.
        AcceptanceNeededError: Deleted rows would come back, and `undelete` is not given; names the tombstones.
        IncompleteError: Files that the revision needs are missing; names them.
        ConflictError: Another snapshot began, the location was rolled back otherwise, or `only` does not hold any more.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
    """
    catalog.refresh()
    token, state = catalog.token(), catalog.require_snapshot()
    found = reversal(state, revision, undelete=undelete, discard_newer=discard_newer)
    if found.actions:
        _check_there(catalog, state.at(revision))
    told = _released(catalog, state, found)
    committed = None
    if not dry_run:
        decide = rules.rollback(token, revision, undelete=undelete, discard_newer=discard_newer)
        committed = catalog.commit(decide if only is None else _if_told(decide, only))
        write_hints(catalog.store, catalog.state, catalog.refresh)  # also those that a killed rollback left stale
    return RolledBack(found, told, committed)


def _released(catalog: Catalog, state: State, planned: Reversal) -> tuple[ReleasedObject, ...]:
    """Return what nothing needs after a rollback.

    What no resume can adopt any more is among it, and what was never sealed; the rest is only needed by revisions that
    expire.
    """
    if not planned.actions:
        return ()
    expiring = [action for action in planned.actions if isinstance(action, act.Expired)]
    then = state.after(planned.actions)
    kept = state.after(planned.actions[len(expiring) :])
    unsealed = {each.path for each in released_objects(state, kept, _REPLACED)}
    released = released_objects(state, then, EXPIRED)
    found = [replace(each, reason=_REPLACED) if each.path in unsealed else each for each in released]
    return (*found, *_not_adoptable(catalog, state)) if len(expiring) < len(planned.actions) else tuple(found)


def _not_adoptable(catalog: Catalog, state: State) -> Iterator[ReleasedObject]:
    """Yield the receipts that a resume might commit before a rollback, and their files."""
    for receipt, ref in adoptable_receipts(catalog.store, state, state.missing()):
        yield ReleasedObject(ref.path, ref.bytes, _ORPHAN)
        yield from (ReleasedObject(file.path, file.bytes, _ORPHAN) for file in receipt.files)


def _if_told(decide: Prepare, only: RolledBack) -> Prepare:
    """Refuse to undo what was not told of."""
    told = only.reversal

    def prepare(state: State) -> Sequence[act.Action] | None:
        actions = decide(state)
        if actions is not None and state.data_revision != told.data_revision:
            raise ConflictError(
                f"Revision {state.data_revision} changed data after it was told what a rollback to revision "
                f"{told.revision} undoes; nothing was changed. Run again.",
                revision=state.data_revision,
            )
        return actions

    return prepare


def _check_there(catalog: Catalog, then: State) -> None:
    """Refuse to go back to a revision that is damaged: without reading data, as what is sealed was read before.

    Raises:
        IncompleteError: Files are missing or have another size, or a schema document is damaged.
    """
    objects = Listed(catalog.store, "data/", "schema/")
    report = Report(catalog.store.uri, "quick")
    faults = [*check_files(catalog.store, then, objects, report), *check_documents(catalog.store, then, objects)]
    if faults:
        some = "; ".join(fault.message for fault in islice(faults, _SHOWN))
        raise IncompleteError(
            f"Revision {then.revision} is damaged, so nothing was rolled back to it: {some}",
            faults=[(fault.object, fault.chunk) for fault in faults],
        )
