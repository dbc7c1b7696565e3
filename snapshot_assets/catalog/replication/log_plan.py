"""Decides how a replica's log follows its source's, so that every reader meanwhile finds a head that is whole.

Transactions follow in their order if everything that they name is copied. If they name objects that the source has
lost, the states between would lack files. Then the checkpoint of the newest revision comes first, from which readers
compute the head; the transactions follow it. A log that is copied for the first time follows its checkpoint backwards:
at every moment it is that of a location whose pruning was interrupted.

A source that lost what its replica still has is refused: the second copy is for that case. It may lose versions on
purpose: its transactions, or the expiries that its checkpoint keeps, show that. A rebuild explains nothing, and neither
does an older copy that was put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from snapshot_assets.catalog.log.checkpoints import is_whole, read_own_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS, naming_location, read_entries
from snapshot_assets.catalog.log.store import Listing, is_there, list_log, read_entry
from snapshot_assets.catalog.replica import with_versions
from snapshot_assets.catalog.state.fold import LogEntry, State, check_location
from snapshot_assets.catalog.state.pins import held_tags
from snapshot_assets.catalog.state.retained import named_by
from snapshot_assets.errors import BrokenLinkError, ObjectNotFoundError, ReplicaConflictError, ReplicaLossError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import checkpoint_path, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore


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

    `revisions` are the older ones that the replica has; None for all. If the loss is `accepted`, only legal holds
    count.

    Raises:
        ReplicaLossError: It lacks something. Names it.
        ReplicaConflictError: The source's log is not the one that was replicated.
    """
    if not 0 < replica.revision < head.revision:
        return
    _refuse_other_past(source, target, head, replica)
    held, others = set[str](), list[str]()
    for before, after in _unexplained(source, head, replica):
        had = before if revisions is None else with_versions(before, revisions)
        rebuilt = after.rebuilt_at > before.revision
        held.update(_holds(had, after, rebuilt))
        others += _seals(had, after, rebuilt)
        if rebuilt:
            others += _lost_by_rebuild(had, after)
    if not held and (accepted or not others):
        return
    lost = [f"{name} under legal hold" for name in sorted(held)] + list(dict.fromkeys(others))
    accept = "To keep the loss, run `snapshots replicate` with --accept-loss."
    if held:
        accept = "A legal hold ends only by `snapshots tag release`, so its loss cannot be accepted."
    raise ReplicaLossError(
        f"{source.uri} no longer has {', '.join(lost)}, and its log does not show why: it was rebuilt, or its objects "
        f"were replaced. The replica {target.uri} still has it and was not changed. To use the replica in place of the "
        "source, promote it (`snapshots catalog promote`). To copy the source as it is, replicate to an empty "
        f"location. {accept}",
        uri=source.uri,
        lost=[*sorted(held), *dict.fromkeys(others)],
    )


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


def _lost_by_rebuild(had: State, after: State) -> Iterator[str]:
    """Yield the pins, deletions of rows, and chunks that no seal covers yet, which are gone or older than before."""
    there = {(str(known.pin), known.pin.revision) for known in after.pins}
    for known in had.pins:
        if known.hold is None and (str(known.pin), known.pin.revision) not in there:
            yield str(known.pin)
    same = had.snapshot_id == after.snapshot_id
    for revision in sorted(had.tombstones.keys() - after.tombstones.keys()) if same else ():
        yield f"the deletion of rows at revision {revision}"
    sealed = had.newest_seal.revision if had.newest_seal else 0
    for number, chunk in sorted(had.chunks.items()):
        if chunk.revision > sealed and had.completed(number):
            kept = same and after.completed(number) and after.chunks[number].revision >= chunk.revision
            if not kept:
                yield f"chunk {number} of revision {chunk.revision}"


@dataclass(frozen=True)
class LogPlan:
    """What is missing in a replica's log.

    Attributes:
        head: The revision that the replica gets.
        last: The newest transaction that it has; 0 for none.
        checkpoint_first: Whether the checkpoint of the head comes before the transactions.
        transactions: The missing revisions, in the order in which they are written.
        sha256: The checksum of each, as its successor names it.
        checkpoints: Revisions of the missing and damaged checkpoints, ascending.
        outdated: Paths of the replica's log that the source has pruned, and that must go, oldest first.
    """

    head: int
    last: int
    checkpoint_first: bool
    transactions: tuple[int, ...]
    sha256: Mapping[int, str]
    checkpoints: tuple[int, ...]
    outdated: tuple[str, ...]


def plan_log(
    source: ObjectStore,
    target: ObjectStore,
    state: State,
    needed: Collection[str],
    *,
    prune: bool,
    damaged: Collection[str] = (),
) -> LogPlan:
    """Return what is missing in the replica's log.

    The head needs the objects at the paths `needed`, which are copied. With `prune`, the replica loses what the source
    has pruned, even where it may stay. `damaged` are the paths in which verifications of the replica found damage.

    Raises:
        ReplicaConflictError: The replica's log is not a beginning of the source's.
        DamageError: The source's log has a fault.
    """
    listing, own = list_log(source).through(state.revision), list_log(target)
    wanted = _transactions(listing)
    last = max(own.transactions, default=0)
    _check_beginning(source, target, state, wanted, last)
    missing = sorted(wanted - set(own.transactions))
    entries = dict(_entries(source, state, missing))
    _check_links(state, entries)
    tail = [revision for revision in entries if revision > last]
    named = {path for each in tail for action in entries[each].transaction.actions for path in named_by(action)}
    jumps = bool(tail) and (
        tail != list(range(last + 1, state.revision + 1)) or state.rebuilt_at > last or not named <= set(needed)
    )
    if jumps and not last:
        tail = [revision for revision in (1, state.revision) if revision in entries]
    holes = sorted(entries.keys() - set(tail), reverse=True)
    first = _first(wanted | set(own.transactions), state)
    broken = {each for each in _suspected(source, target, own, damaged) if not is_whole(target, each)}
    whole = set(own.checkpoints) - broken
    again = {each for each in broken if listing.start < each <= state.revision}
    kept_from = max(first if first > state.rebuilt_at else 0, listing.start if prune else 0)
    return LogPlan(
        head=state.revision,
        last=last,
        checkpoint_first=jumps and state.revision not in whole,
        transactions=(*tail, *holes),
        sha256={revision: entry.sha256 for revision, entry in entries.items()},
        checkpoints=tuple(sorted({each for each in (*listing.checkpoints, *again) if each >= first} - whole)),
        outdated=tuple(_outdated(own, kept_from, wanted, listing)),
    )


def _suspected(source: ObjectStore, target: ObjectStore, own: Listing, damaged: Collection[str]) -> Iterator[int]:
    """Yield the checkpoints of a replica that may be damaged, and must be read.

    These are the last two if their sizes are not those of the source's, and those with damage on record.
    """
    for revision in own.checkpoints:
        path = checkpoint_path(revision)
        suspected = path in damaged
        if not suspected and revision in own.checkpoints[-2:]:
            try:
                suspected = source.head(path).size != target.head(path).size
            except ObjectNotFoundError:  # pruned in the source
                suspected = True
        if suspected:
            yield revision


def _transactions(listing: Listing) -> set[int]:
    """Return the revisions of a log's transactions: those after its start, and those that pruning leaves."""
    if not listing.start:
        return set(listing.transactions)
    return listing.left() | set(listing.after(listing.start))


def _check_beginning(source: ObjectStore, target: ObjectStore, state: State, wanted: set[int], last: int) -> None:
    """Refuse a replica whose newest transaction is not the source's; the chain proves the older ones."""
    if not last:
        return
    path = transaction_path(last)
    with naming_location(target):
        own = read_entry(target, last)
    if last in wanted:
        with naming_location(source):
            same = read_entry(source, last).sha256 == own.sha256
    elif last < state.revision:  # pruned in the source
        events = {event.revision: (event.committed_at, event.writer_id) for event in state.events}
        facts = own.transaction.committed_at, own.transaction.writer_id
        same = own.transaction.location_id == state.location_id and events.get(last, facts) == facts
    else:
        same = is_there(source, path)  # committed since the source was read
        if not same:
            raise ReplicaConflictError(
                f"The replica {target.uri} has revision {last}; its source {source.uri} ends at revision "
                f"{state.revision}. The source lost the end of its log, was replaced by an older copy, or something "
                "else wrote to the replica. Bring the source's log back from the replica, or replicate elsewhere.",
                object=path,
            )
    if not same:
        raise ReplicaConflictError(
            f"{path} in the replica {target.uri} is another transaction than in its source {source.uri}: something "
            "else wrote to one of them, or the source's log was rebuilt. Replicate to an empty location.",
            object=path,
        )


def _entries(source: ObjectStore, state: State, revisions: list[int]) -> Iterator[tuple[int, LogEntry]]:
    """Yield the entries of the source's log; unreadable ones below a rebuild are not part of it, and are left out."""
    for revision, entry in read_entries(source, revisions):
        if not isinstance(entry, FAULTS):
            check_location(state, entry.transaction, transaction_path(revision))
            yield revision, entry
        elif revision >= state.rebuilt_at:
            with naming_location(source):
                raise entry


def _check_links(state: State, entries: Mapping[int, LogEntry]) -> None:
    """Refuse transactions that do not follow one another up to the head."""
    for revision, entry in entries.items():
        following = entries.get(revision + 1)
        if revision == state.revision:
            linked = state.sha256
        elif following is None or following.starts_log or revision < state.rebuilt_at:
            continue
        else:
            linked = following.transaction.previous_sha256
        if linked != entry.sha256:
            path = transaction_path(revision)
            raise BrokenLinkError(
                f"{path} has the checksum {entry.sha256}; the log names {linked}. `snapshots export verify` names all "
                "faults.",
                object=path,
            )


def _first(revisions: set[int], state: State) -> int:
    """Return the first revision of the unbroken run that ends at the head; 1 for a log that was never pruned."""
    first = state.revision
    while first - 1 in revisions and first > max(state.rebuilt_at, 1):
        first -= 1
    return first


def _outdated(own: Listing, revision: int, wanted: set[int], listing: Listing) -> list[str]:
    """Return what the replica's log has before a revision and the source's lacks, oldest first, as pruning deletes."""
    copied = {*map(transaction_path, wanted), *map(checkpoint_path, listing.checkpoints)}
    paths = {*map(checkpoint_path, own.checkpoints), *map(transaction_path, own.transactions)} - copied
    return sorted(
        (path for path in paths if 1 < log_revision(path) < revision), key=lambda path: (log_revision(path), path)
    )
