"""Refuses a source that lost what its replica still has: the second copy is for that case.

A source may lose versions on purpose: its transactions, or the expiries that its checkpoint keeps, show that. A rebuild
explains nothing, and neither does an older copy that was put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from snapshot_assets.catalog.log.checkpoints import read_own_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS, list_log, read_entries
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.replica import with_versions
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import held_tags
from snapshot_assets.errors import ObjectNotFoundError, ReplicaConflictError, ReplicaLossError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class _Losses:
    """What a state lacks of an earlier one, in words.

    Attributes:
        held: Tags under legal hold; these losses cannot be accepted.
        others: Readable revisions, pins, deletions of rows, and chunks that no seal covers.
    """

    held: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def refuse_losses(
    source: ObjectStore,
    target: ObjectStore,
    head: State,
    replica: State,
    revisions: Collection[int] | None,
    *,
    accepted: bool,
) -> None:
    """Refuse a source that lacks what its replica has, without a transaction that removed it.

    Args:
        source: The source.
        target: The replica.
        head: The source's head.
        replica: The replica's head.
        revisions: The older revisions that the replica has; None for all.
        accepted: Whether the user accepts the loss of everything but legal holds.

    Raises:
        ReplicaLossError: It lacks something. Names it.
        ReplicaConflictError: The source's log is not the one that was replicated.
    """
    if not 0 < replica.revision < head.revision:
        return
    _refuse_other_past(source, target, head, replica)
    found = [_losses(before, after, revisions) for before, after in _unexplained(source, head, replica)]
    held = sorted({each for losses in found for each in losses.held})
    others = list(dict.fromkeys(each for losses in found for each in losses.others))
    if held or (others and not accepted):
        raise _error(source, target, held, others)


def _refuse_other_past(source: ObjectStore, target: ObjectStore, head: State, replica: State) -> None:
    """Refuse a log that has other events than the replica's: an older copy of it was put back, and written to."""
    if head.rebuilt_at > replica.revision:
        return  # a rebuild may know less of older events
    known = {event.revision: (event.committed_at, event.writer_id) for event in replica.events}
    there = set(list_log(target).transactions)
    for event in head.events:
        if event.revision > replica.revision:
            return
        if event.revision not in known and event.revision in there:
            transaction = read_entry(target, event.revision).transaction
            known[event.revision] = transaction.committed_at, transaction.writer_id
        facts = event.committed_at, event.writer_id
        if known.get(event.revision, facts) != facts:
            raise ReplicaConflictError(
                f"Revision {event.revision} of {source.uri} is another one than in its replica {target.uri}: an older "
                "copy of the source was put back and written to. Replicate to an empty location, and keep this "
                "replica until you need nothing of it.",
                object=transaction_path(event.revision),
            )


def _unexplained(source: ObjectStore, head: State, replica: State) -> Iterator[tuple[State, State]]:
    """Yield the states before and after each step from the replica to the head that no transaction shows."""
    listing = list_log(source)
    state = _followed(source, replica, head, listing.transactions)
    rebuilds = [event.revision for event in head.events if any(isinstance(each, act.Rebuilt) for each in event.actions)]
    for revision in rebuilds:
        if revision <= state.revision or revision not in listing.checkpoints:
            continue
        try:
            rebuilt = read_own_checkpoint(source, revision, listing.transactions)
        except (*FAULTS, ObjectNotFoundError):
            continue  # the head is compared instead
        yield state, rebuilt
        state = _followed(source, rebuilt, head, listing.transactions)
    if state.sha256 != head.sha256:
        yield state, head


def _followed(source: ObjectStore, state: State, head: State, there: Collection[int]) -> State:
    """Return the newest state that the source's transactions lead to from a state."""
    following = [each for each in range(state.revision + 1, head.revision + 1) if each in set(there)]
    state = state.copy()
    for revision, entry in read_entries(source, following):
        if isinstance(entry, FAULTS):
            break
        try:
            state.apply(entry, transaction_path(revision))
        except FAULTS:
            break  # it was rebuilt or pruned here
    return state


def _losses(before: State, after: State, revisions: Collection[int] | None) -> _Losses:
    had = before if revisions is None else with_versions(before, revisions)
    rebuilt = after.rebuilt_at > before.revision
    others = [*_seals(had, after, rebuilt)]
    if rebuilt:
        others += [*_pins(had, after), *_deletions(had, after), *_chunks(had, after)]
    return _Losses(tuple(_holds(had, after, rebuilt)), tuple(others))


def _seals(had: State, after: State, rebuilt: bool) -> Iterator[str]:
    """Yield the readable revisions that are lost. Expiries that a checkpoint no longer has to keep explain them."""
    if not rebuilt and had.committed_at <= after.expiries_kept_since:
        return
    readable = {seal.revision: seal.seal.checksum for seal in after.readable()}
    expired = {
        revision
        for event in after.events
        if event.revision > had.revision and event.revision != after.rebuilt_at
        for action in event.actions
        if isinstance(action, act.Expired)
        for revision in action.revisions
    }
    for seal in had.readable():
        if seal.revision not in expired and readable.get(seal.revision) != seal.seal.checksum:
            yield f"revision {seal.revision}"


def _holds(had: State, after: State, rebuilt: bool) -> Iterator[str]:
    """Yield the held tags that are lost. Only a rebuild loses the hold of a tag that is still there."""
    for name, known in held_tags(had.pins).items():
        if after.pins.releases.get(name, 0) > had.revision:
            continue
        found = after.tags.get(name)
        if found is None or (rebuilt and (found.hold is None or found.pin.revision != known.pin.revision)):
            yield f"tag {name!r}"


def _pins(had: State, after: State) -> Iterator[str]:
    there = {(str(known.pin), known.pin.revision) for known in after.pins}
    for known in had.pins:
        if known.hold is None and (str(known.pin), known.pin.revision) not in there:
            yield str(known.pin)


def _deletions(had: State, after: State) -> Iterator[str]:
    if had.snapshot_id == after.snapshot_id:
        for revision in sorted(had.tombstones.keys() - after.tombstones.keys()):
            yield f"the deletion of rows at revision {revision}"


def _chunks(had: State, after: State) -> Iterator[str]:
    """Yield the chunks that no seal covers yet, and that are gone or older than before."""
    sealed = had.newest_seal.revision if had.newest_seal else 0
    for number, known in sorted(had.chunks.items()):
        if known.revision > sealed and had.completed(number):
            same = had.snapshot_id == after.snapshot_id and after.completed(number)
            if not same or after.chunks[number].revision < known.revision:
                yield f"chunk {number} of revision {known.revision}"


def _error(source: ObjectStore, target: ObjectStore, held: list[str], others: list[str]) -> ReplicaLossError:
    what = ", ".join([f"{name} under legal hold" for name in held] + others)
    accept = "To keep the loss, run `snapshots replicate` with --accept-loss."
    if held:
        accept = "A legal hold ends only by `snapshots tag release`, so its loss cannot be accepted."
    return ReplicaLossError(
        f"{source.uri} no longer has {what}, and its log does not show why: it was rebuilt, or its objects were "
        f"replaced. The replica {target.uri} still has it and was not changed. To use the replica in place of the "
        "source, promote it (`snapshots catalog promote`). To copy the source as it is, replicate to an empty "
        f"location. {accept}",
        uri=source.uri,
        lost=[*held, *others],
    )
