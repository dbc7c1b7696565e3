"""Decides how a replica's log follows its source's, so that every reader meanwhile finds a head that is whole.

Transactions follow in their order if everything that they name is copied. If they name objects that the source has
lost, the states between would lack files. Then the checkpoint of the newest revision comes first, from which readers
compute the head; the transactions follow it. A log that is copied for the first time follows its checkpoint backwards:
at every moment it is that of a location whose pruning was interrupted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from snapshot_assets.catalog.log.checkpoints import is_whole
from snapshot_assets.catalog.log.replay import FAULTS, naming_location, read_entries
from snapshot_assets.catalog.log.store import Listing, is_there, list_log, read_entry
from snapshot_assets.catalog.state.fold import LogEntry, State, check_location
from snapshot_assets.catalog.verify.unnamed import named_by
from snapshot_assets.errors import BrokenLinkError, ObjectNotFoundError, ReplicaConflictError
from snapshot_assets.format.layout import checkpoint_path, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore


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

    Args:
        source: The source.
        target: The replica.
        state: The source's head.
        needed: Paths of the objects that the head needs, and that are copied.
        prune: Whether the replica loses what the source has pruned, even where it may stay.
        damaged: Paths in which verifications of the replica found damage.

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
        if path in damaged or (revision in own.checkpoints[-2:] and not _same_size(source, target, path)):
            yield revision


def _same_size(source: ObjectStore, target: ObjectStore, path: str) -> bool:
    try:
        return source.head(path).size == target.head(path).size
    except ObjectNotFoundError:  # pruned in the source
        return False


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
